"""An internal topic of the cluster goes back to an older copy, and the topic that is written to does not."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once import committing, settling
from pyspark_kafkalog.extensions.exactly_once.commit import Outcome
from pyspark_kafkalog.extensions.exactly_once.intent import (
    Settling,
    store_intent,
    stored_intent,
    stored_producers,
)
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.extensions.exactly_once.requests import Described, Requests
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.model import TopicPartition
from tests.broker.producing import digits, unused_topic
from tests.extensions.exactly_once.dying import dies_at
from tests.extensions.exactly_once.forgetting import decide, forget_id
from tests.extensions.exactly_once.writing import Query, shown, values
from tests.kafka import Broker, run_kafka_class

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("proven_soon"),
]


def stop(broker: Broker) -> None:
    """Stop a broker without a transaction that is decided only: it would carry it out on an older copy."""
    decided = ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"]
    with broker.admin() as admin:

        def are_carried_out() -> bool:
            return not any(admin.list_transactions(state_filters=decided).values())

        broker.wait_until(are_carried_out, "A transaction stays decided")
    broker.stop()


def copy(broker: Broker, topic: str, folder: Path) -> None:
    """Copy the partitions of a topic; they are whole if the broker is stopped."""
    for each in broker.log_dir.glob(f"{topic}-*"):
        shutil.copytree(each, folder / each.name)


def set_back(broker: Broker, folder: Path) -> None:
    """Replace what :func:`copy` has copied, while the broker is stopped."""
    for each in folder.iterdir():
        shutil.rmtree(broker.log_dir / each.name)
        shutil.copytree(each, broker.log_dir / each.name)


@pytest.mark.long
def test_transaction_state_that_went_back(
    of_each_version: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one to four batches: the next one would get the epoch of a batch that was written, or an older one.

    With the same epoch and as many rows, the partition's leader answers with the old offset, and appends
    nothing.
    """
    broker = of_each_version
    queries = {(back, True): unused_topic() for back in (1, 2, 3, 4)} | {(1, False): unused_topic()}
    for topic in queries.values():
        broker.create_topic(topic)

    def write(topic: str, batch: int) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic)
        query.write([values(10, 10 * batch)], batch)

    for topic in queries.values():
        write(topic, 0)
    stop(broker)
    copy(broker, "__transaction_state", tmp_path / "older")
    broker.start()
    for (back, _), topic in queries.items():
        for batch in range(1, 1 + back):
            write(topic, batch)
    stop(broker)
    set_back(broker, tmp_path / "older")
    broker.start()
    for (back, is_told), topic in queries.items():
        with monkeypatch.context() as untold:
            if not is_told:  # as if neither marker nor brokers knew of epochs
                untold.setattr(committing, "newest_epoch", lambda *_: -1)
                untold.setattr(committing, "seen_rows", lambda *_, **__: {})
            for batch in range(1 + back, 3 + back):
                write(topic, batch)
        assert sorted(shown(broker.bootstrap, topic, 1)) == digits(10 * (3 + back)), (back, is_told)


@pytest.mark.long
def test_a_topic_that_went_back(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker says that rows are committed, and the topic does not have them any more, or some only."""
    broker = stoppable_broker
    next_one, same_one, partial = topics = [unused_topic() for _ in range(3)]
    for topic in topics:
        broker.create_topic(topic, 2)

    def write(topic: str, batch: int, **options: object) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
        query.write([values(10, 20 * batch), values(10, 20 * batch + 10)], batch)

    def copied_amid(step: str) -> None:
        if step == "producing" and not (tmp_path / "open").exists():
            time.sleep(1)  # until the first rows are there
            copy(broker, partial, tmp_path / "open")

    for topic in topics:
        write(topic, 0)
    with monkeypatch.context() as copying:
        copying.setattr(committing, "stop_at", copied_amid)
        write(partial, 1)
    stop(broker)
    (tmp_path / "older").mkdir()
    for topic in (next_one, same_one):
        copy(broker, topic, tmp_path / "older")
    for folder in (tmp_path / "open").iterdir():
        shutil.copytree(folder, tmp_path / "older" / folder.name)
    broker.start()
    for topic in (next_one, same_one):
        write(topic, 1)
    stop(broker)
    set_back(broker, tmp_path / "older")
    (broker.log_dir / ".kafka_cleanshutdown").unlink()  # producers of a live copy are in no snapshot
    broker.start()
    for topic, batch in ((next_one, 2), (same_one, 1), (partial, 2), (partial, 1)):
        with pytest.raises(TransactionError, match="batch 1 of this query were committed, and the partition"):
            write(topic, batch)
    write(next_one, 2, failOnMissingMarker="false")
    write(next_one, 3)
    found = sorted(map(int, shown(broker.bootstrap, next_one, 2)))
    assert found == [*range(20), *range(40, 80)]


@pytest.mark.long
def test_a_marker_that_went_back_by_the_batch_that_is_replayed(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver died before Spark noted the batch: by the number and the plan alone it would be written."""
    broker = stoppable_broker
    queries = {batches: unused_topic() for batches in (1, 2, "2, skipped", "2, killed at its fence")}

    def write(topic: str, batch: int, **options: object) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
        query.write([values(10, 10 * batch)], batch)

    for topic in queries.values():
        broker.create_topic(topic)
    _, *later = queries.values()
    for topic in later:
        write(topic, 0)
    stop(broker)
    copy(broker, "__consumer_offsets", tmp_path / "older")
    broker.start()
    for batches, topic in queries.items():
        write(topic, 0 if batches == 1 else 1)
    write(queries["2, skipped"], 1)  # whose fence makes the coordinator forget it
    with dies_at(monkeypatch, "fenced"):
        write(queries["2, killed at its fence"], 1)
    stop(broker)
    set_back(broker, tmp_path / "older")
    broker.start()
    for batches, topic in queries.items():
        text = "The marker of this query is missing" if batches == 1 else "committed a later batch"
        last = 0 if batches == 1 else 1
        with pytest.raises(TransactionError, match=text):
            write(topic, last)
        assert sorted(shown(broker.bootstrap, topic, 1)) == digits(10 * (last + 1)), batches
    for topic in later:
        write(topic, 1, failOnMissingMarker="false")
        write(topic, 2)
        assert len(shown(broker.bootstrap, topic, 1)) == 40
        (kept,) = (tmp_path / topic).rglob("producers.json")
        assert stored_producers(locate(str(kept.parent))).skipped is None, "it went back with the marker"


def test_a_marker_that_went_back_to_a_pending_one(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver had died before the copy was made: that marker is not of what was committed last.

    The coordinator takes its time: what is decided is over only when it is asked again.
    """
    broker = stoppable_broker
    describe, end, decided = Requests.describe, Requests.end, list[Requests]()

    def ends(requests: Requests, *args: Any, **how: Any) -> None:
        end(requests, *args, **how)
        decided.append(requests)

    def late(requests: Requests, **how: Any) -> Described:
        found = describe(requests, **how)
        if found.outcome is not Outcome.COMMITTED or not decided:
            return found
        decided.clear()
        return found._replace(outcome=Outcome.ENDING)

    monkeypatch.setattr(Requests, "end", ends)
    monkeypatch.setattr(Requests, "describe", late)
    topic = unused_topic()
    broker.create_topic(topic)

    def write(batch: int, **options: object) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
        query.write([values(10, 10 * batch)], batch)

    write(0)
    with dies_at(monkeypatch, "marked"):
        write(1)
    stop(broker)
    copy(broker, "__consumer_offsets", tmp_path / "older")
    broker.start()
    for batch in (1, 2):
        write(batch)
    stop(broker)
    set_back(broker, tmp_path / "older")
    broker.start()
    for _ in range(2):
        with pytest.raises(TransactionError, match="committed a later batch"):
            write(2)
    assert sorted(shown(broker.bootstrap, topic, 1)) == digits(30)
    write(2, failOnMissingMarker="false")
    write(3)
    assert len(shown(broker.bootstrap, topic, 1)) == 50


@pytest.mark.long
@pytest.mark.parametrize("is_pending", [True, False], ids=["an older one pending", "none pending"])
def test_a_marker_that_went_back_under_what_is_carried_out_later(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_pending: bool
) -> None:
    """The broker went down when the transaction was decided, and carries it out on the older copy."""
    broker = stoppable_broker
    topic = unused_topic()
    broker.create_topic(topic)

    def write(batch: int, **options: object) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
        query.write([values(10, 10 * batch)], batch)

    write(0)
    if is_pending:
        with dies_at(monkeypatch, "marked"):
            write(1)
    broker.stop()
    copy(broker, "__consumer_offsets", tmp_path / "older")
    broker.start()
    write(1)
    with dies_at(monkeypatch, "marked"):
        write(2)
    broker.stop()
    decide(broker.log_dir, transactional_id(topic))
    set_back(broker, tmp_path / "older")
    broker.start()
    for _ in range(2):
        with pytest.raises(TransactionError, match="committed a later batch"):
            write(2)
    assert sorted(shown(broker.bootstrap, topic, 1)) == digits(30)
    write(2, failOnMissingMarker="false")
    write(3)
    assert len(shown(broker.bootstrap, topic, 1)) == 50


@pytest.mark.long
def test_a_marker_that_went_back_to_an_earlier_producer_id(stoppable_broker: Broker, tmp_path: Path) -> None:
    """The cluster had forgotten the transactional id, as it does when a query sleeps for a week."""
    broker = stoppable_broker
    topic = unused_topic()
    broker.create_topic(topic)

    def write(batch: int, **options: object) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
        query.write([values(10, 10 * batch)], batch)

    write(0)
    stop(broker)
    forget_id(broker.log_dir, transactional_id(topic))
    copy(broker, "__consumer_offsets", tmp_path / "older")
    broker.start()
    write(1)
    stop(broker)
    set_back(broker, tmp_path / "older")
    broker.start()
    for _ in range(2):
        with pytest.raises(TransactionError, match="committed a later batch"):
            write(1)
    assert sorted(shown(broker.bootstrap, topic, 1)) == digits(20)
    write(1, failOnMissingMarker="false")
    write(2)
    assert len(shown(broker.bootstrap, topic, 1)) == 40


@pytest.mark.long
def test_transaction_state_that_does_not_know_the_query(
    of_each_version: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are open, and the query gets another producer id: readers don't see what it commits behind."""
    broker = of_each_version
    other, topic, new = unused_topic(), unused_topic(), unused_topic()
    for each in (other, topic, new):
        broker.create_topic(each)

    def write(batch: int, topic: str = topic) -> None:
        query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic)
        query.write([values(10, 10 * batch)], batch)

    write(0, other)
    stop(broker)
    copy(broker, "__transaction_state", tmp_path / "older")
    broker.start()
    write(0)
    with dies_at(monkeypatch, "produced"):
        write(1)
    with dies_at(monkeypatch, "produced"):
        write(0, new)
    stop(broker)
    set_back(broker, tmp_path / "older")
    broker.start()
    for each, batch in ((topic, 1), (new, 0)):
        for _ in range(2):
            with pytest.raises(TransactionError, match=r"they don't count.*and then the query") as refused:
                write(batch, each)
        (way_out,) = re.findall(r"kafka-transactions\.sh (abort .*--start-offset \d+),", str(refused.value))
        tool = "org.apache.kafka.tools.TransactionsCommand"
        run_kafka_class(tool, "--bootstrap-server", broker.bootstrap, *way_out.split())
        for following in (batch, batch + 1):
            write(following, each)
        assert sorted(shown(broker.bootstrap, each, 1)) == digits(10 * (batch + 2))


def test_epochs_that_a_marker_does_not_know(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted attempts have used later ones than the marker's, on the partitions that they wrote to."""
    driver().write([values(10)], 0)
    read = settling._read
    seen: list[dict[TopicPartition, Any]] = []

    def later(response: object, ids: Collection[int]) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = dict(read(response, ids))
        seen.append({each: [settling.ProducerSeen(min(ids), 4, -1)] for each in found} if not seen else found)
        return seen[-1]

    monkeypatch.setattr(settling, "_read", later)
    for batch in (1, 2):
        driver().write([values(10, 10 * batch)], batch)
    assert sorted(shown(broker.bootstrap, topic)) == digits(30)
    assert min(each.epoch for found in seen[-2:] for producers in found.values() for each in producers) > 4


@pytest.mark.long
def test_an_epoch_that_an_attempt_has_used_elsewhere(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are open on a partition to which the batch does not write that gets the epoch again."""
    broker = stoppable_broker
    topic = unused_topic()
    broker.create_topic(topic, 2)

    def write(batch: int, partition: int) -> None:
        rows = values(10, 10 * batch)
        rows = rows.append_column("partition", pa.array([partition] * 10, pa.int32()))
        Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic).write([rows], batch)

    write(0, 0)
    stop(broker)
    copy(broker, "__transaction_state", tmp_path / "older")
    broker.start()
    with dies_at(monkeypatch, "produced"):
        write(1, 0)
    stop(broker)
    set_back(broker, tmp_path / "older")
    broker.start()
    for batch, partition in ((1, 1), (2, 1), (3, 0)):
        write(batch, partition)
    assert sorted(shown(broker.bootstrap, topic, 2)) == digits(40)


def test_what_another_driver_notes_meanwhile_is_kept(
    topic: str, driver: Callable[..., Query], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that skips its batch has read the intent before."""
    driver().write([values(10)], 0)
    folder = locate(str(next((tmp_path / "checkpoint").rglob("intent.json")).parent))
    settling = (Settling(7, 3, 5),)

    def note(step: str) -> None:
        if step == "looked":
            intent = stored_intent(folder)
            assert intent is not None
            store_intent(folder, replace(intent, settling=settling))

    monkeypatch.setattr(committing, "stop_at", note)
    driver().write([values(10)], 0)
    intent, producers = stored_intent(folder), stored_producers(folder)
    assert intent is not None
    assert intent.settling == settling
    assert producers.skipped is not None
