"""Retention and DeleteRecords beside a real broker: it deletes the same, and adopts what we leave."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog.extensions.cleanup.deleting import delete_records, retain
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    parse_leader_epoch_checkpoint,
)
from tests.extensions.cleanup.test_retention import BATCH, NOW, bases, log, start_of
from tests.kafka import Broker, dump_log_segments
from tests.log.writing import T0, read, values

pytestmark = [pytest.mark.broker, pytest.mark.slow]

KAFKA_T0 = KafkaTopicPartition("t", 0)
HOUR = 3_600_000
CHECKS_OFTEN = ("log.retention.check.interval.ms", "log.initial.task.delay.ms")
FILES = ("*.log", "*.index", "*.timeindex")


def epochs(folder: Path) -> list[tuple[int, int]]:
    file = folder / LEADER_EPOCH_CHECKPOINT
    return parse_leader_epoch_checkpoint(file.read_bytes(), str(file))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for pattern in FILES for path in folder.glob(pattern)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("configs", "left"),
    [
        ({"retention.ms": 3 * HOUR, "retention.bytes": 7 << 20}, 3),
        pytest.param({"retention.ms": HOUR // 2}, 1, marks=pytest.mark.soak),
        pytest.param({"retention.bytes": 0}, 1, marks=pytest.mark.soak),
    ],
    ids=["time and size", "all but the active", "everything"],
)
def test_a_broker_deletes_the_same(
    new_broker: Callable[..., Broker], tmp_path: Path, configs: dict[str, int], left: int
) -> None:
    broker = new_broker()
    broker.start()
    broker.create_topic("t", configs={"segment.bytes": 1 << 20, **configs})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, batch_size=1 << 18, max_request_size=1 << 20)
    for hours in reversed(range(10)):
        for _ in range(4):
            timestamp = NOW - hours * HOUR
            producer.send("t", bytes(250_000), partition=0, timestamp_ms=timestamp).get(30)
    producer.close()
    broker.stop()
    before = len(bases(broker.log_dir))
    copy = tmp_path / "copy"
    shutil.copytree(broker.log_dir, copy)
    (copy / ".lock").unlink(missing_ok=True)
    texts = {name: str(value) for name, value in configs.items()}
    deletions, failures = retain([str(copy)], ["t"], texts, execute=True)
    assert not failures
    (done,) = [deletion for deletion in deletions if deletion.segments]
    with (broker.folder / "server.properties").open("a") as properties:
        properties.writelines(f"{name}=300\n" for name in CHECKS_OFTEN)
    broker.start()
    deadline = time.monotonic() + 30
    while len(bases(broker.log_dir)) > before - done.segments + done.at_end and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    broker.stop()
    theirs, ours = files(broker.log_dir / "t-0"), files(copy / "t-0")
    assert ours.keys() == theirs.keys()
    active = f"{max(bases(copy)):020d}"
    assert {n: d for n, d in ours.items() if active not in n} == {
        n: d for n, d in theirs.items() if active not in n
    }
    assert ours[f"{active}.log"] == theirs[f"{active}.log"]
    *kept, (newest, _) = epochs(broker.log_dir / "t-0")  # the newest is that of its last start
    assert kept in ([], epochs(copy / "t-0"))
    assert newest > epochs(copy / "t-0")[-1][0]
    assert len(bases(copy)) >= left


def adopt(broker: Broker, root: Path) -> None:
    """Let a broker take over partition t-0 of the directory, with its log start offset."""
    broker.start()
    broker.create_topic("t")
    broker.stop()
    broker.plant(root)
    checkpoint = root / LOG_START_OFFSET_CHECKPOINT
    if checkpoint.exists():
        shutil.copy(checkpoint, broker.log_dir)
    broker.start()


@pytest.mark.soak
@pytest.mark.parametrize(("offset", "start"), [(45, 45), (60, 60), (-1, 90)])
def test_a_broker_adopts_the_rest(
    new_broker: Callable[..., Broker], tmp_path: Path, offset: int, start: int
) -> None:
    root = tmp_path / "log"
    log(root)
    retain([str(root)], None, {"retention.bytes": str(7 * BATCH)}, execute=True)
    assert start_of(root) == 20
    delete_records([str(root)], {T0: offset}, execute=True)
    expected = read(root)[T0]
    dump_log_segments(*sorted((root / "t-0").glob("*.log")), *sorted((root / "t-0").glob("*.index")))
    broker = new_broker()
    adopt(broker, root)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none")
    assert consumer.beginning_offsets([KAFKA_T0]) == {KAFKA_T0: start}
    assert consumer.end_offsets([KAFKA_T0]) == {KAFKA_T0: 90}
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    assert producer.send("t", b"next", partition=0).get(30).offset == 90
    producer.close()
    consumer.assign([KAFKA_T0])
    consumer.seek_to_beginning(KAFKA_T0)
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < len(expected) + 1 and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(200).get(KAFKA_T0, [])]
    consumer.close()
    assert found == [*expected, b"next"]
    assert expected == values(90, 53)[start:]
    broker.stop()
    assert start_of(broker.log_dir) == start
    delete_records([str(broker.log_dir)], {T0: -1}, execute=True)
    assert start_of(broker.log_dir) == 91
