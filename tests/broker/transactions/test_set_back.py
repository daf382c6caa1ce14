"""An internal topic of the cluster goes back to an older copy, and the topic that is written to does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.broker.transactions import committing, settling
from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.model import TopicPartition
from tests.broker.producing import digits, unused_topic
from tests.broker.transactions.writing import Query, shown, values
from tests.kafka import Broker
from tests.kafka_service import running

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


def copy(broker: Broker, topic: str, folder: Path) -> None:
    """Copy an internal topic of a broker that is stopped."""
    for each in broker.log_dir.glob(f"{topic}-*"):
        shutil.copytree(each, folder / each.name)


def set_back(broker: Broker, folder: Path) -> None:
    """Replace what :func:`copy` has copied, while the broker is stopped."""
    for each in folder.iterdir():
        shutil.rmtree(broker.log_dir / each.name)
        shutil.copytree(each, broker.log_dir / each.name)


@pytest.mark.parametrize("version", [2, *(pytest.param(old, marks=pytest.mark.soak) for old in (0, 1))])
def test_transaction_state_that_went_back(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one to four batches: the next one would get the epoch of a batch that was written, or an older one.

    With the same epoch and as many rows, the partition's leader answers with the old offset, and appends
    nothing.
    """
    options = ("--feature", f"transaction.version={version}")
    with running(Broker(tmp_path / "broker", format_options=options)) as broker:
        queries = {(back, True): unused_topic() for back in (1, 2, 3, 4)} | {(1, False): unused_topic()}
        for topic in queries.values():
            broker.create_topic(topic)

        def write(topic: str, batch: int) -> None:
            query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic)
            query.write([values(10, 10 * batch)], batch)

        for topic in queries.values():
            write(topic, 0)
        broker.stop()
        copy(broker, "__transaction_state", tmp_path / "older")
        broker.start()
        for (back, _), topic in queries.items():
            for batch in range(1, 1 + back):
                write(topic, batch)
        broker.stop()
        set_back(broker, tmp_path / "older")
        broker.start()
        for (back, is_told), topic in queries.items():
            with monkeypatch.context() as untold:
                if not is_told:  # as if neither marker nor brokers knew of epochs
                    untold.setattr(committing, "newest_epoch", lambda *_: -1)
                for batch in range(1 + back, 3 + back):
                    write(topic, batch)
            assert sorted(shown(broker.bootstrap, topic, 1)) == digits(10 * (3 + back)), (back, is_told)


def test_a_marker_that_went_back_by_the_batch_that_is_replayed(tmp_path: Path) -> None:
    """The driver died before Spark noted the batch: by the number and the plan alone it would be written."""
    with running(Broker(tmp_path / "broker")) as broker:
        queries = {batches: unused_topic() for batches in (1, 2)}

        def write(topic: str, batch: int, **options: object) -> None:
            query = Query(broker.bootstrap, topic, tmp_path / topic, query_id=topic, **options)
            query.write([values(10, 10 * batch)], batch)

        for topic in queries.values():
            broker.create_topic(topic)
        write(queries[2], 0)
        broker.stop()
        copy(broker, "__consumer_offsets", tmp_path / "older")
        broker.start()
        for batches, topic in queries.items():
            write(topic, batches - 1)
        broker.stop()
        set_back(broker, tmp_path / "older")
        broker.start()
        for batches, topic in queries.items():
            text = "The marker of this query is missing" if batches == 1 else "committed a later batch"
            with pytest.raises(TransactionError, match=text):
                write(topic, batches - 1)
            assert sorted(shown(broker.bootstrap, topic, 1)) == digits(10 * batches)
        write(queries[2], 1, failOnMissingMarker="false")
        write(queries[2], 2)
        assert len(shown(broker.bootstrap, queries[2], 1)) == 40


def test_epochs_that_a_marker_does_not_know(
    broker: Broker, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted attempts have used later ones than the marker's, on the partitions that they wrote to."""
    driver().write([values(10)], 0)
    read = settling._read
    seen: list[dict[TopicPartition, settling.Seen]] = []

    def later(response: object, producer_id: int) -> dict[TopicPartition, settling.Seen]:
        found: dict[TopicPartition, Any] = dict(read(response, producer_id))
        seen.append(dict.fromkeys(found, settling.Seen(4, is_open=False)) if not seen else found)
        return seen[-1]

    monkeypatch.setattr(settling, "_read", later)
    for batch in (1, 2):
        driver().write([values(10, 10 * batch)], batch)
    assert sorted(shown(broker.bootstrap, topic)) == digits(30)
    assert len(seen) == 3
    assert min(epoch for epoch, _ in seen[-1].values()) > 4
