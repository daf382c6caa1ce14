"""A real broker over a directory where a publish failed or was killed, and the next write after it."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.layout import JOURNAL_FILE
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish import publish as publish_module
from tests.kafka import Broker
from tests.log.test_undo import Crash
from tests.log.writing import T0, read, values, write

pytestmark = [pytest.mark.broker, pytest.mark.slow]

KAFKA_T0 = KafkaTopicPartition("t", 0)


def committed(broker: Broker) -> list[bytes]:
    """The records of the partition that a read_committed consumer gets."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    try:
        consumer.assign([KAFKA_T0])
        consumer.seek_to_beginning(KAFKA_T0)
        end = consumer.end_offsets([KAFKA_T0])[KAFKA_T0]
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while consumer.position(KAFKA_T0) < end and time.monotonic() < deadline:
            for record in consumer.poll(200).get(KAFKA_T0, []):
                found.append(record.value)
        return found
    finally:
        consumer.close()


def produce(broker: Broker, records: list[bytes]) -> None:
    """Send the records, and wait until all are acknowledged."""
    with_acks = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    sent = [with_acks.send("t", value, partition=0) for value in records]
    for future in sent:
        future.get(30)
    with_acks.close()


BEGIN = """
import os, sys
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2])
producer.init_transactions()
producer.begin_transaction()
for number in range(5):
    producer.send("t", b"open", partition=0)
producer.flush()
os._exit(0)
"""


def broker_with_open_transaction(broker: Broker) -> str:
    """5 committed records, then 5 of a transaction that is neither committed nor aborted when it stops."""
    broker.start()
    broker.create_topic("t")
    produce(broker, values(5))
    transactional_id = uuid.uuid4().hex
    subprocess.run([sys.executable, "-c", BEGIN, broker.bootstrap, transactional_id], check=True)
    assert committed(broker) == values(5)
    broker.stop()
    assert list((broker.log_dir / "t-0").glob("*10.snapshot"))
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    return transactional_id


def fail(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = publish_module.append

    def full(log, *args, **more):
        append(log, *args, **more)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publish_module, "append", full)
        with pytest.raises(LogDirectoryError, match="No space"):
            write(root, {T0: values(20, start=1000)})


def die(root: Path, monkeypatch: pytest.MonkeyPatch, count: int = 20) -> None:
    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(journal, "commit", crash)
        patch.setattr(journal, "recover", lambda root: None)
        with pytest.raises(Crash):
            write(root, {T0: values(count, start=1000)})
    assert (root / JOURNAL_FILE).exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "end",
    [
        pytest.param("fails", marks=pytest.mark.soak),
        "killed, then undone",
        pytest.param("killed, then another is published", marks=pytest.mark.soak),
    ],
)
def test_open_transaction_stays_invisible(
    new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    broker = new_broker()
    transactional_id = broker_with_open_transaction(broker)
    expected = values(5)
    if end == "fails":
        fail(broker.log_dir, monkeypatch)
    else:
        die(broker.log_dir, monkeypatch)
        if end.endswith("undone"):
            journal.recover(str(broker.log_dir))
        else:
            write(broker.log_dir, {T0: values(3, start=500)})
            expected = values(5) + values(3, start=500)
    broker.start()
    assert committed(broker) == values(5), "The transaction is still open"
    ending = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    ending.init_transactions()  # aborts its predecessor's open transaction
    ending.close()
    produce(broker, [b"after"])
    assert committed(broker) == [*expected, b"after"]


@pytest.mark.long
def test_publish_beside_an_open_transaction_and_a_clean_start(new_broker: Callable[[], Broker]) -> None:
    """The published records are there, and the broker rightly skipped its recovery."""
    broker = new_broker()
    transactional_id = broker_with_open_transaction(broker)
    write(broker.log_dir, {T0: values(3, start=500)})
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    broker.start()
    assert committed(broker) == values(5)
    ending = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    ending.init_transactions()
    ending.close()
    produce(broker, [b"after"])
    assert committed(broker) == [*values(5), *values(3, start=500), b"after"]


@pytest.mark.long
def test_what_a_broker_acknowledged_over_a_journal_is_kept(
    new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = new_broker()
    broker.start()
    broker.create_topic("t")
    produce(broker, values(10))
    broker.stop()
    die(broker.log_dir, monkeypatch)
    broker.start()
    begun = time.monotonic()
    acknowledged = values(500, start=5000)
    produce(broker, acknowledged)
    broker.stop(kill=True)
    print(f"killed {time.monotonic() - begun:.1f} s after the first record")
    with pytest.raises(LogDirectoryError, match="Cannot undo an unfinished publish"):
        write(broker.log_dir, {T0: values(1)})
    assert read(broker.log_dir)[T0] == values(10), "The journal still hides what follows"
    (broker.log_dir / JOURNAL_FILE).unlink()  # as the error says
    write(broker.log_dir, {T0: [b"next"]})
    assert read(broker.log_dir)[T0] == [*values(10), *values(20, start=1000), *acknowledged, b"next"]
