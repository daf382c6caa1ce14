"""A transaction that is decided, and whose markers a coordinator forgot, is carried out and never doubted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.transactions import committing, settling
from pyspark_kafkalog.broker.transactions.commit import Outcome
from pyspark_kafkalog.broker.transactions.marker import Marker, Settling, transactional_id
from pyspark_kafkalog.broker.transactions.requests import Described
from pyspark_kafkalog.broker.transactions.settling import (
    Seen,
    decided,
    decided_by,
    newest_epoch,
    still_settling,
)
from pyspark_kafkalog.errors import (
    TransactionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.model import TopicPartition, Watermarks
from tests.broker.producing import digits, unused_topic
from tests.broker.transactions.forgetting import complete_without_markers
from tests.broker.transactions.writing import Query, is_stable, shown, values
from tests.kafka import Broker
from tests.kafka_service import running

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


class DeadError(BaseException):
    """The driver is dead."""


def die_at(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def stop(reached: str) -> None:
        if reached == step:
            raise DeadError

    monkeypatch.setattr(committing, "stop_at", stop)
    monkeypatch.setattr(committing.Committing, "give_up", lambda _: None)


@pytest.mark.parametrize("version", [2, *(pytest.param(old, marks=pytest.mark.soak) for old in (0, 1))])
def test_markers_that_are_forgotten(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed and aborted, in a query's first batch and in a later one; one of them is killed again."""
    options = ("--feature", f"transaction.version={version}")
    with running(Broker(tmp_path / "broker", format_options=options)) as broker:
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
            with monkeypatch.context() as dying:
                die_at(dying, "marked")
                with pytest.raises(DeadError):
                    driver().write([values(10, 10 * batch)], batch)
        broker.stop()
        for (_, commit), (topic, _) in queries.items():
            complete_without_markers(broker.log_dir, transactional_id(topic), commit=commit)
        broker.start()
        for (first, commit), (topic, driver) in queries.items():
            batch = 0 if first else 1
            assert not is_stable(broker.bootstrap, topic)
            if commit:
                with monkeypatch.context() as dying:
                    die_at(dying, "settling")
                    with pytest.raises(DeadError):
                        driver().write([values(10, 10 * batch)], batch)
            # Other rows than before show which run it was that wrote them.
            driver().write([values(5, 10 * batch)], batch)
            driver().write([values(1, 100)], batch + 1)
            expected = [*digits(10 * batch + (10 if commit else 5)), b"%010d" % 100]
            assert sorted(shown(broker.bootstrap, topic)) == expected, (first, commit)


TOPIC, NEXT = TopicPartition("t", 0), TopicPartition("t", 1)


def marker(epoch: int, producer_id: int = 7) -> Marker:
    return Marker("query", None, 3, "", 10, producer_id, epoch)


def test_the_marker_decides_about_rows_that_are_open() -> None:
    current = ProducerId(7, 9, None)
    found = decided_by(marker(5), {TOPIC: 5, NEXT: 6}, current)
    assert (found.outcome, found.of) == (Outcome.COMMITTED, {5})
    found = decided_by(marker(5), {TOPIC: 6, NEXT: 8}, current)
    assert (found.outcome, found.of) == (Outcome.ABORTED, {6, 8})
    assert decided_by(None, {TOPIC: 0}, current).outcome is Outcome.ABORTED
    for unknown in (marker(5), marker(-1, -1), marker(5, producer_id=6)):
        with pytest.raises(TransactionError, match=r"open on t-0, and nothing tells whether they count.*new"):
            decided_by(unknown, {TOPIC: 4}, current)


def test_the_newest_epoch_of_a_producer() -> None:
    assert newest_epoch(marker(5), [], 7) == 5
    assert newest_epoch(marker(5), [3, 6], 7) == 6
    assert newest_epoch(marker(5, producer_id=6), [3], 7) == 3
    assert newest_epoch(None, [], 7) == -1


def test_what_is_being_settled_is_no_open_transaction() -> None:
    settling = [Settling(7, 3, 5), Settling(7, 4, 6)]

    def outcome(found: Described, *, required: bool = True) -> tuple[Outcome, list[int]]:
        known = decided(found, settling, required=required, cluster_id=None)
        return known.outcome, [*known.of]

    for state in (Outcome.OPEN, Outcome.COMMITTED, Outcome.NOT_KNOWN):
        assert outcome(Described(state, 7, 6)) == (Outcome.COMMITTED, [4])
    assert outcome(Described(Outcome.ENDING, 7, 6))[0] is Outcome.ENDING
    assert outcome(Described(Outcome.OPEN, 7, 7)) == (Outcome.OPEN, [7])
    assert outcome(Described(Outcome.OPEN, 8, 6)) == (Outcome.OPEN, [6])
    assert outcome(Described(Outcome.ABORTED, 7, 9)) == (Outcome.ABORTED, [8, 9])
    assert outcome(Described(Outcome.NOT_KNOWN, 7, 2))[0] is Outcome.NOT_KNOWN
    assert outcome(Described(Outcome.NOT_KNOWN, 7, 2), required=False) == (Outcome.ABORTED, [0, 1, 2])
    assert still_settling(settling, ProducerId(7, 5, None)) == [settling[1]]
    assert still_settling(settling, ProducerId(8, 0, None)) == []


def test_open_transactions_of_which_brokers_do_not_tell(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are waited for, also if the next ones have begun by then; one that stays is an error."""
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

    def held(*args: object, **more: object) -> dict[TopicPartition, Seen]:
        looked.append("looked")
        return {TopicPartition(topic, 0): Seen(0, is_open=True)} if len(looked) < 3 else {}

    monkeypatch.setattr(committing, "seen_rows", held)
    driver().write([values(10, 10)], 1)
    # Of the marker's epoch: they are committed, a transaction of its own, and then all begins again.
    assert len(looked) == 3
    assert sorted(shown(broker.bootstrap, topic)) == digits(20)


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
    broker: Broker, topic: str, driver: Callable[..., Query]
) -> None:
    query = driver(kafka__request__timeout__ms=3000, kafka__delivery__timeout__ms=8000)
    staged = query.stage([values(5)], 0)
    broker.delete_topic(topic)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"was deleted.*Nothing of the batch is visible"):
        query.commit(staged, 0)
