"""A transaction that is decided, and whose markers a coordinator forgot, is carried out and never doubted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.broker.cluster import coordinator, metadata
from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    TransactionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.extensions.exactly_once import committing, settling
from pyspark_kafkalog.extensions.exactly_once.commit import Outcome
from pyspark_kafkalog.extensions.exactly_once.intent import Intent, Settling
from pyspark_kafkalog.extensions.exactly_once.marker import (
    CommittedEpochs,
    LostRowsError,
    Marker,
    RowsEnd,
    transactional_id,
)
from pyspark_kafkalog.extensions.exactly_once.requests import Described, Requests
from pyspark_kafkalog.extensions.exactly_once.settling import (
    CutShortError,
    ProducerSeen,
    Settlement,
    check_no_other,
    check_nothing_lost,
    decided,
    decided_by,
    is_unsettled,
    newest_epoch,
    settled_by,
)
from pyspark_kafkalog.model import CommittedOffset, TopicPartition, Watermarks
from tests.broker.producing import digits, unused_topic
from tests.extensions.exactly_once.dying import DeadError, dies_at
from tests.extensions.exactly_once.forgetting import complete_without_markers
from tests.extensions.exactly_once.writing import Query, is_stable, shown, values
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_service import running

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("proven_soon"),
]


@pytest.mark.long
def test_markers_that_are_forgotten(
    of_each_version: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed and aborted, in a query's first batch and in a later one; drivers of some die again.

    One of these is fenced by another that looked before, when it has noted what it settles.
    """
    broker = of_each_version
    cases = [(first, commit) for first in (True, False) for commit in (True, False)]
    queries: dict[tuple[bool, bool], tuple[str, Callable[[], Query]]] = {}
    for case in cases:
        topic = unused_topic()
        broker.create_topic(topic, 3)

        def driver(topic: str = topic) -> Query:
            return Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic)

        queries[case] = topic, driver
        batch = 0 if case[0] else 1
        if batch:
            driver().write([values(10)], 0)
        with dies_at(monkeypatch, "marked"):
            driver().write([values(10, 10 * batch)], batch)
    broker.stop()
    for (_, commit), (topic, _) in queries.items():
        complete_without_markers(broker.log_dir, transactional_id(topic), commit=commit)
    broker.start()
    for (first, commit), (topic, driver) in queries.items():
        batch = 0 if first else 1
        assert not is_stable(broker.bootstrap, topic)
        for step in ("noted", "settling") if commit else ():
            with dies_at(monkeypatch, step):
                driver().write([values(10, 10 * batch)], batch)
            if step == "noted":
                fence(driver(), topic)
        # Other rows than before show which run it was that wrote them.
        driver().write([values(5, 10 * batch)], batch)
        driver().write([values(1, 100)], batch + 1)
        expected = [*digits(10 * batch + (10 if commit else 5)), b"%010d" % 100]
        assert sorted(shown(broker.bootstrap, topic)) == expected, (first, commit)


@pytest.mark.long
def test_a_late_request_opens_again_what_is_committed(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of partitions without a leader are open by then, and the next fence would abort them."""
    broker = stoppable_broker
    topic = unused_topic()
    broker.create_topic(topic, 3)

    def write(batch: int) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic)
        query.write([values(10, 10 * batch)], batch)

    write(0)
    with dies_at(monkeypatch, "marked"):
        write(1)
    broker.stop()
    complete_without_markers(broker.log_dir, transactional_id(topic), commit=True)
    broker.start()
    with dies_at(monkeypatch, "fenced") as dying:
        dying.setattr(committing, "seen_rows", lambda *_, **__: {})  # none has a leader
        dying.setattr(Requests, "init_producer_id", lambda *_, **__: (-1, -1))
        write(1)
    requests = requests_of(Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic), topic)

    def found() -> Described:
        return requests.describe(deadline=Deadline.after(30))

    broker.wait_until(lambda: found().outcome is Outcome.COMMITTED, "the transaction is not committed")
    producer = ProducerId(found().producer_id, found().epoch, None)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    requests.add_partitions(producer, partitions, deadline=Deadline.after(30))
    assert requests.describe(deadline=Deadline.after(30)).outcome is Outcome.OPEN
    for batch in (1, 2):
        write(batch)
    assert sorted(shown(broker.bootstrap, topic)) == digits(30)


def test_what_is_aborted_is_not_hidden_by_asking_again(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost: the same request would take a new epoch."""
    with dies_at(monkeypatch, "marked"):
        driver().write([values(10)], 0)
    requests, call = requests_of(driver(), topic), coordinator._call

    def lose(*args: Any) -> Any:
        call(*args)
        broker.wait_until(is_over, "the transaction stays open")
        raise BrokerConnectionError("The connection broke")

    def is_over() -> bool:
        with monkeypatch.context() as calm:
            calm.setattr(coordinator, "_call", call)
            return requests.describe(deadline=Deadline.after(30)).outcome is Outcome.ABORTED

    monkeypatch.setattr(coordinator, "_call", lose)
    requests.abort_open(60_000, deadline=Deadline.after(30))
    monkeypatch.setattr(coordinator, "_call", call)
    assert requests.describe(deadline=Deadline.after(30)).outcome is Outcome.ABORTED


@pytest.mark.soak
@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_without_a_leader(tmp_path: Path, commit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its markers are left out, and the next batches write elsewhere: so the query's marker moves on."""
    with running(Cluster(tmp_path / "cluster")) as cluster:
        topic = unused_topic()
        cluster.create_topic(topic, 3, {"min.insync.replicas": 1}, replication_factor=1)
        bootstrap = ",".join(broker.bootstrap for broker in cluster.brokers.values())

        def write(batch: int, *partitions: int) -> None:
            options = {"kafka__request__timeout__ms": 8000, "kafka__delivery__timeout__ms": 30_000}
            query = Query(bootstrap, topic, tmp_path / topic, query_id=topic, **options)
            rows = values(6, 6 * batch)
            where = pa.array([partitions[i % len(partitions)] for i in range(6)], pa.int32())
            query.write([rows.append_column("partition", where)], batch)

        write(0, 0, 1, 2)
        with cluster.admin() as admin:
            name = transactional_id(topic)
            coordinator = int(admin.describe_transactions([name])[name].coordinator_id)
        leaders = {number: cluster.leader(topic, number) for number in range(3)}
        down, node = next(found for found in leaders.items() if found[1] != coordinator)
        others = [number for number in leaders if number != down]
        end = Requests.end

        def end_without(self: Requests, producer: ProducerId, **more: Any) -> None:
            monkeypatch.setattr(Requests, "end", end)
            cluster.kill(node)
            if not commit:
                raise DeadError
            time.sleep(7)
            end(self, producer, **more)

        monkeypatch.setattr(Requests, "end", end_without)
        monkeypatch.setattr(committing.Committing, "give_up", lambda _: None)
        with contextlib.nullcontext() if commit else pytest.raises(DeadError):
            write(1, down)
        if not commit:
            time.sleep(7)
            write(1, *others)
        write(2, *others)
        cluster.restart(node)
        cluster.wait_until_in_sync()
        write(3, down)
        assert sorted(shown(cluster.bootstrap, topic)) == digits(24)


def fence(driver: Query, query_id: str) -> None:
    """As another driver does that looked before."""
    requests_of(driver, query_id).init_producer_id(60_000, deadline=Deadline.after(30))


def requests_of(driver: Query, query_id: str) -> Requests:
    return Requests(cluster_of(driver.sink.connection), transactional_id(query_id))


TOPIC, NEXT = TopicPartition("t", 0), TopicPartition("t", 1)


def marker(epoch: int, producer_id: int = 7) -> Marker:
    epochs = CommittedEpochs.alone(epoch, since=epoch)
    return Marker("query", None, 3, "", 10, producer_id, epoch, epochs, ())


def judged(of: Marker | None, held: dict[TopicPartition, int], *, required: bool = True) -> Settlement | None:
    return decided_by(of, held, ProducerId(7, 9, None), [TOPIC], required=required)


@pytest.mark.parametrize(
    ("seen", "is_lost"),
    [
        (ProducerSeen(7, 5, -1, 9), False),
        (ProducerSeen(7, 5, 40, 12), False),
        (ProducerSeen(7, 5, 40, 8), True),
        (ProducerSeen(7, 4, -1, 99), True),
        (ProducerSeen(7, 5, -1, -1), False),
        (ProducerSeen(7, 6, -1, 0), False),
        (ProducerSeen(8, 0, -1, 0), False),
    ],
    ids=["all", "more", "some", "older", "not told", "later", "another producer"],
)
def test_a_partition_has_what_the_marker_says(seen: ProducerSeen, is_lost: bool) -> None:
    last = replace(marker(5), ends=(RowsEnd(0, 5, 9),))
    lost = pytest.raises(TransactionError, match=r"batch 3 of this query were committed.*t-0")
    with lost if is_lost else contextlib.nullcontext():
        check_nothing_lost(last, "t", {TOPIC: [seen]})
    check_nothing_lost(last, "t", {TOPIC: []})
    check_nothing_lost(last, "other", {TOPIC: [seen]})


def test_the_marker_decides_about_rows_that_are_open() -> None:
    found = judged(marker(5), {TOPIC: 5, NEXT: 6})
    assert found is not None
    assert (found.outcome, found.of) == (Outcome.COMMITTED, {5})
    found = judged(marker(5), {TOPIC: 6, NEXT: 8})
    assert found is not None
    assert (found.outcome, found.of) == (Outcome.ABORTED, {6, 8})
    found = judged(None, {TOPIC: 0})
    assert found is not None
    assert found.outcome is Outcome.ABORTED
    for unknown in (marker(5), marker(5, producer_id=6)):
        with pytest.raises(TransactionError, match=r"open on t-0, and nothing tells whether they count.*new"):
            judged(unknown, {TOPIC: 4})
        assert judged(unknown, {NEXT: 4}) is None, "it gets no rows"


def test_a_marker_that_may_be_an_old_one_tells_only_what_was_committed() -> None:
    found = judged(marker(5), {TOPIC: 5}, required=False)
    assert found is not None
    assert (found.outcome, found.of) == (Outcome.COMMITTED, {5})
    for of in (marker(5), None):
        with pytest.raises(TransactionError, match="nothing tells"):
            judged(of, {TOPIC: 6}, required=False)


def test_the_marker_decides_about_rows_of_earlier_batches() -> None:
    known = replace(marker(8), epochs=CommittedEpochs(2, ((3, 4), (8, 8))))
    for held, outcome, of in (
        ({TOPIC: 3, NEXT: 4}, Outcome.COMMITTED, {4}),
        ({TOPIC: 3, NEXT: 5}, Outcome.COMMITTED, {3}),
        ({TOPIC: 2, NEXT: 5}, Outcome.ABORTED, {2, 5}),
        ({TOPIC: 1, NEXT: 5}, Outcome.ABORTED, {5}),
    ):
        found = judged(known, held)
        assert found is not None
        assert (found.outcome, found.of) == (outcome, of)
    with pytest.raises(TransactionError, match="nothing tells"):
        judged(known, {TOPIC: 1})


def test_the_epochs_that_were_committed() -> None:
    epochs = CommittedEpochs.alone(4, since=2)
    for epoch in (5, 6, 9):
        epochs = epochs.then(epoch)
    assert epochs == CommittedEpochs(2, ((4, 6), (9, 9)))
    assert [epochs.has(epoch) for epoch in (1, 3, 5, 7, 9, 10)] == [None, False, True, False, True, False]
    assert CommittedEpochs.parse(epochs.numbers()) == epochs
    for epoch in range(11, 199, 2):
        epochs = epochs.then(epoch)
    assert len(epochs.ranges) == 64
    assert epochs.since == epochs.ranges[0][0]
    assert epochs.has(9) is None
    for damaged in ([], [3], [3, 4], [5, 4, 3], [1, 9, 8]):
        with pytest.raises(ValueError, match=r"epochs|unpack|zip"):
            CommittedEpochs.parse(damaged)


def test_a_marker_that_may_lack_the_one_before() -> None:
    epochs = replace(marker(5), epochs=CommittedEpochs(2, ((4, 5),))).epochs_with(7, 8, is_next=False)
    assert [epochs.has(epoch) for epoch in (3, 5, 6, 8, 9)] == [None, True, None, True, False]


def test_rows_that_are_open_of_an_earlier_producer_id() -> None:
    """No request of a later one ends them: the error says what does, and whether they count."""
    current, known = ProducerId(9, 3, None), replace(marker(5), epochs=CommittedEpochs(2, ((4, 5),)))

    def check(of: Marker | None, seen: list[ProducerSeen], *, required: bool = True) -> None:
        check_no_other(of, {TOPIC: seen}, current, [TOPIC], required=required)

    for of, epoch, required, text in (
        (known, 4, True, r"they count\. .*Bring back the newer one.*they are lost"),
        (known, 4, False, "they count"),
        (known, 3, True, r"they don't count.*abort --topic t --partition 0 --start-offset 12, and then the"),
        (known, 3, False, "nothing tells whether they count"),
        (known, 1, True, "nothing tells whether they count"),
        (marker(5, producer_id=8), 4, True, "nothing tells whether they count"),
        (None, 4, True, "they don't count"),
        (None, 4, False, "nothing tells whether they count"),
    ):
        with pytest.raises(TransactionError, match=text):
            check(of, [ProducerSeen(9, 2, 5), ProducerSeen(7, epoch, 12)], required=required)
    check(known, [ProducerSeen(9, 2, 5), ProducerSeen(7, 4, -1)])
    check_no_other(known, {NEXT: [ProducerSeen(7, 4, 12)]}, current, [TOPIC], required=True)


def test_the_newest_epoch_of_a_producer() -> None:
    seen = {TOPIC: [ProducerSeen(7, 3, -1), ProducerSeen(6, 9, -1)], NEXT: [ProducerSeen(7, 6, 2)]}
    assert newest_epoch(marker(5), {}, 7) == 5
    assert newest_epoch(marker(5), seen, 7) == 6
    assert newest_epoch(marker(5, producer_id=6), {TOPIC: seen[TOPIC]}, 7) == 3
    assert newest_epoch(None, {}, 7) == -1


@pytest.mark.long
def test_a_marker_that_stays_pending_before_kafka_3(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells how it was decided, and failOnMissingMarker=false takes the rows for aborted."""
    broker = stoppable_broker
    topic = unused_topic()
    broker.create_topic(topic, 3)

    def write(batch: int, **options: object) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
        query.write([values(5, 10 * batch)], batch)

    write(0)
    with dies_at(monkeypatch, "marked"):
        write(1)
    broker.stop()
    complete_without_markers(broker.log_dir, transactional_id(topic), commit=False)
    broker.start()
    monkeypatch.setattr(Requests, "describe", lambda *_, **more: Described(Outcome.NOT_TOLD))
    # Long enough for each request to a broker that has just started.
    patience = {"kafka__request__timeout__ms": 5_000, "kafka__delivery__timeout__ms": 10_000}
    with pytest.raises(TransactionError, match=r"stays pending.*failOnMissingMarker=false, for one run"):
        write(1, **patience)
    write(1, failOnMissingMarker="false", **patience)
    write(2)
    expected = [b"%010d" % (10 * batch + number) for batch in range(3) for number in range(5)]
    assert sorted(shown(broker.bootstrap, topic)) == expected


def test_a_marker_names_the_epochs_that_were_committed(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that may lack a marker does not know which were not."""

    def named() -> Marker:
        group = transactional_id(topic)
        with broker.admin() as admin:
            (found,) = admin.list_group_offsets({group: None})[group].values()
        return Marker.of(CommittedOffset(found.offset, metadata=found.metadata), group)

    driver().write([values(1)], 0)
    first = named()
    assert first.epochs == CommittedEpochs.alone(first.epoch, since=0)
    with dies_at(monkeypatch, "produced"):
        driver().write([values(1)], 1)
    for batch in (1, 2):
        driver().write([values(1)], batch)
    third = named()
    ranges = ((first.epoch,) * 2, (third.epoch - 1, third.epoch))
    assert third.epochs == CommittedEpochs(0, ranges)
    driver(failOnMissingMarker="false").write([values(1)], 3)
    fourth = named()
    assert fourth.epochs == CommittedEpochs(fourth.epoch, (ranges[0], (third.epoch - 1, fourth.epoch)))


def test_what_is_known_to_be_committed_is_not_aborted() -> None:
    """It is open again, or was carried out by a transaction whose markers were left out, too."""
    known, done = marker(5), [Settling(7, 4, 6)]
    for found, last, epoch in (
        (Described(Outcome.OPEN, 7, 5), known, 5),
        (Described(Outcome.OPEN, 7, 6), None, 4),
        (Described(Outcome.COMMITTED, 7, 6), known, 4),
    ):
        state = decided(found, [], last, carried_out=done, required=True, cluster_id=None)
        assert (state.outcome, [*state.of]) == (Outcome.COMMITTED, [epoch])
    for producer in ((7, 7), (8, 5), (8, 6)):
        found = Described(Outcome.OPEN, *producer)
        state = decided(found, [], known, carried_out=done, required=True, cluster_id=None)
        assert state.outcome is Outcome.OPEN


def test_what_is_being_settled_is_no_open_transaction() -> None:
    settling = [Settling(7, 4, 6)]

    def outcome(found: Described, *, required: bool = True) -> tuple[Outcome, list[int]]:
        known = decided(found, settling, last, required=required, cluster_id=None)
        return known.outcome, [*known.of]

    last: Marker | None = None

    for state in (Outcome.OPEN, Outcome.COMMITTED, Outcome.NOT_KNOWN):
        assert outcome(Described(state, 7, 6)) == (Outcome.COMMITTED, [4])
    assert outcome(Described(Outcome.ENDING, 7, 6))[0] is Outcome.ENDING
    for state in (Outcome.ABORTED, Outcome.NOT_KNOWN):  # it had not begun when it was fenced
        assert outcome(Described(state, 7, 7)) == (Outcome.COMMITTED, [4])
    assert outcome(Described(Outcome.OPEN, 7, 7)) == (Outcome.OPEN, [7])
    settling = []
    assert outcome(Described(Outcome.ABORTED, 7, 9)) == (Outcome.ABORTED, [8, 9])
    assert outcome(Described(Outcome.NOT_KNOWN, 7, 2))[0] is Outcome.NOT_KNOWN
    assert outcome(Described(Outcome.NOT_KNOWN, 7, 2), required=False) == (Outcome.ABORTED, [0, 1, 2])
    last = replace(marker(8), epochs=CommittedEpochs(6, ((7, 8),)))
    # What the marker says was committed is never aborted.
    assert outcome(Described(Outcome.ABORTED, 7, 9)) == (Outcome.ABORTED, [9])
    assert outcome(Described(Outcome.NOT_KNOWN, 7, 10), required=False) == (Outcome.ABORTED, [6, 9, 10])
    assert outcome(Described(Outcome.ABORTED, 6, 9)) == (Outcome.ABORTED, [8, 9]), "another producer's"
    settling = [Settling(7, 3, 5), Settling(7, 4, 6)]
    assert settled_by(settling, ProducerId(7, 5, None)) == [settling[0]]
    assert settled_by(settling, ProducerId(8, 0, None)) == settling


def test_what_is_left_to_settle() -> None:
    started, noted = Settling(7, 4, 6), Settling(7, 4, 6, started=False)
    newest, fenced = ProducerId(7, 6, None), ProducerId(7, 7, None)

    def left(each: Settling, known: ProducerId, last: Marker | None, *, is_pending: bool) -> bool:
        return is_unsettled(each, known, last, is_pending=is_pending)

    for each in (started, noted):
        assert left(each, newest, None, is_pending=False)
    assert left(noted, fenced, None, is_pending=True)
    assert left(noted, fenced, replace(marker(3), epochs=CommittedEpochs(0, ((3, 3),))), is_pending=True)
    assert not left(noted, fenced, marker(4), is_pending=True), "what is pending is a later one"
    assert not left(noted, fenced, marker(4), is_pending=False)
    for each, known, last, is_pending in (
        (started, fenced, marker(4), True),
        (noted, fenced, None, False),
        (noted, fenced, marker(5), True),
        (noted, fenced, marker(4, producer_id=8), True),
        (noted, ProducerId(8, 6, None), None, True),
        (noted, ProducerId(-1, -1, None), None, True),
    ):
        with pytest.raises(CutShortError, match=r"coordinator aborted them.*failOnMissingMarker"):
            left(each, known, last, is_pending=is_pending)


def test_what_is_noted_twice() -> None:
    other, noted = Settling(7, 3, 5), Settling(7, 4, 6, started=False)
    started = noted._replace(started=True)

    def settling(known: list[Settling], new: Settling) -> list[Settling]:
        return [*Intent("query", None, "t", 0, 0, settling=tuple(known)).with_settling(new=new).settling]

    assert settling([other], noted) == [other, noted]
    assert settling([other, noted], started) == [other, started]
    assert settling([started, other], noted) == [other, started]


def test_open_transactions_of_which_brokers_do_not_tell(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write waits for others, even if the next ones have begun by then; one that stays is an error."""
    looks: list[int] = []
    stable = [5, 9, 10]  # the first transaction that was open is over, and then the other

    really_call: Callable[..., Any] = settling.call_leaders

    def call(*args: object, doing: str, **more: object) -> Any:
        if doing == "Looking up open transactions":
            raise UnsupportedVersionError("before Kafka 2.8")
        if doing == "Looking up offsets":
            return really_call(*args, doing=doing, **more)
        looks.append(stable[min(len(looks), len(stable) - 1)])
        return {TopicPartition(topic, 0): Watermarks(0, 9 + len(looks), looks[-1])}

    monkeypatch.setattr(settling, "call_leaders", call)
    driver().write([values(10)], 0)
    assert looks == [5, 9, 10]
    stable[:] = [5]
    with pytest.raises(TransactionError, match=r"open on .*-0, and the brokers do not tell.*grant .* Read"):
        driver(kafka__request__timeout__ms=1000, kafka__delivery__timeout__ms=2000).write([values(10)], 1)
    assert sorted(shown(broker.bootstrap, topic)) == digits(10)


def test_rows_that_are_open_beside_a_marker_that_is_not(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by a coordinator that forgets one partition: here by rows that come too late (before KIP-890)."""
    driver().write([values(10)], 0)
    looked: list[str] = []

    def held(
        cluster: object, partitions: object, ids: Collection[int], **more: object
    ) -> dict[TopicPartition, list[ProducerSeen]]:
        looked.append("looked")
        return {TopicPartition(topic, 0): [ProducerSeen(min(ids), 0, 5)]} if len(looked) < 3 else {}

    monkeypatch.setattr(committing, "seen_rows", held)
    driver().write([values(10, 10)], 1)
    # Of the marker's epoch: they are committed, a transaction of its own, and then all begins again.
    assert len(looked) == 3
    assert sorted(shown(broker.bootstrap, topic)) == digits(20)


@pytest.mark.parametrize("answers", [1, 2])
def test_one_answer_does_not_prove_that_a_topic_went_back(
    broker: Broker,
    topic: str,
    driver: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    answers: int,
) -> None:
    """A leader that goes on after a pause may not know yet that it was deposed: it is asked again."""
    for batch in (0, 1):
        driver().write([values(10, 10 * batch)], batch)
    looked: list[str] = []
    ask = committing.seen_rows

    def stale(*args: Any, **more: Any) -> dict[TopicPartition, Collection[ProducerSeen]]:
        looked.append("looked")
        found = ask(*args, **more)
        if len(looked) > answers:
            return found
        return {p: [each._replace(epoch=each.epoch - 1) for each in seen] for p, seen in found.items()}

    monkeypatch.setattr(committing, "seen_rows", stale)
    if answers == 1:
        driver().write([values(10, 20)], 2)
    else:
        with pytest.raises(LostRowsError, match="it went back"):
            driver().write([values(10, 20)], 2)
    assert len(looked) == 2
    assert sorted(shown(broker.bootstrap, topic)) == digits(30 if answers == 1 else 20)


def test_a_driver_that_is_killed_while_it_settles(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may have been aborted, though the marker says that they were committed."""
    driver().write([values(10)], 0)

    def held(
        cluster: object, partitions: object, ids: Collection[int], **more: object
    ) -> dict[TopicPartition, list[ProducerSeen]]:
        return {TopicPartition(topic, 0): [ProducerSeen(min(ids), 0, 5)]}

    with dies_at(monkeypatch, "settling") as dying:
        dying.setattr(committing, "seen_rows", held)
        driver().write([values(10, 10)], 1)
    fence(driver(), topic)
    for _ in range(2):
        with pytest.raises(CutShortError, match="the coordinator aborted them"):
            driver().write([values(10, 10)], 1)
    driver(failOnMissingMarker="false").write([values(10, 10)], 1)
    driver().write([values(10, 20)], 2)
    assert sorted(shown(broker.bootstrap, topic)) == digits(30)


def test_a_topic_that_is_made_anew_while_a_batch_is_produced(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def make_anew(step: str) -> None:
        if step == "marked" and not done:
            done.append(step)
            broker.delete_topic(topic)
            broker.create_topic(topic, 3)

    monkeypatch.setattr(committing, "stop_at", make_anew)
    driver().write([values(10)], 0)
    assert done
    assert sorted(shown(broker.bootstrap, topic)) == digits(10)


def test_a_topic_that_is_deleted_while_a_batch_is_staged(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.5)
    query = driver(kafka__request__timeout__ms=3000, kafka__delivery__timeout__ms=8000)
    staged = query.stage([values(5)], 0)
    broker.delete_topic(topic)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"was deleted.*Nothing of the batch is visible"):
        query.commit(staged, 0)
