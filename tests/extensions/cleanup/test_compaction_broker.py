"""The same logs compacted by a real broker's cleaner and by us: the same batches and records are left."""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog.codec.format import DELETE_HORIZON_BIT, NONE
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.extensions.cleanup.compacting import cleanable_now, compact_held, compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import Compacted, CompactionSettings
from pyspark_kafkalog.extensions.cleanup.unfinished import TimeLimit
from pyspark_kafkalog.log.layout import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    format_offset_checkpoint,
    parse_offset_checkpoint,
)
from pyspark_kafkalog.log.read.root import open_root
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.cleanup.test_compaction import Record, records
from tests.kafka import Broker, dump_log_segments
from tests.log.random_logs import DAY_MS, RandomLog, append

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


CLEANING = {
    "log.cleaner.backoff.ms": 2000,
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}
ROUNDS, SOAK_ROUNDS = 2, 3


def batches_of(folder: Path) -> list[tuple[Any, ...]]:
    """The headers of all batches except what depends on when it was compacted, and on a compressor."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = np.frombuffer(path.read_bytes(), np.uint8)
        batches = walk(data)
        assert batches.end == data.size
        for row in range(len(batches)):
            has_horizon = bool(batches.magic[row] == 2 and batches.attributes[row] & DELETE_HORIZON_BIT)
            header = [
                int(column[row])
                for column in (
                    batches.magic,
                    batches.base_offset,
                    batches.last_offset,
                    batches.attributes,
                    batches.max_timestamp,
                    batches.producer_id,
                    batches.producer_epoch,
                    batches.base_sequence,
                    batches.count,
                    batches.leader_epoch,
                )
            ]
            if not has_horizon:
                header.append(int(batches.base_timestamp[row]))
                if batches.compression[row] == NONE:
                    header += [int(batches.crc[row]), int(batches.size[row])]
            found.append(tuple(header))
    return found


class OneGroup(TimeLimit):
    """Leaves time for the whole map, and for one group of segments."""

    def __init__(self) -> None:
        super().__init__(0)

    def is_over(self, share: float = 1) -> bool:
        return share == 1


def compact_in_steps(root: Path, partition: TopicPartition, settings: CompactionSettings) -> Compacted:
    """Compact, with a group of segments in each call."""
    while True:
        done, is_all = compact_held(str(root), partition, settings, lambda size: None, OneGroup())
        if is_all:
            return done


class Copies:
    """Random logs, each once for the broker and once for us."""

    def __init__(self, folder: Path, broker: Broker, rng: random.Random, count: int) -> None:
        self.theirs, self.ours = folder / "theirs", folder / "ours"
        self.broker = broker
        self.rng = rng
        self.logs = {TopicPartition(f"t{number}", 0): RandomLog.of(rng) for number in range(count)}
        # Brokers since 4.0 make v2 of older formats (KAFKA-13093), and so their tombstones go by other rules.
        self.retention = {
            partition: DAY_MS if log.magic < 2 else rng.choice((0, DAY_MS))
            for partition, log in self.logs.items()
        }
        self.dirty = dict.fromkeys(self.logs, 0)
        self.in_steps = {partition: number % 2 == 0 for number, partition in enumerate(self.logs)}
        # With small indexes a pass has several groups of segments.
        self.index_bytes = {partition: rng.choice((300, 10 << 20)) for partition in self.logs}
        self._begun = time.time() - 3600

    def append(self) -> None:
        for partition, log in self.logs.items():
            batches, segment_bytes = log.batches(self.rng.choice((1, 30, 60))), self.rng.choice((700, 2000))
            for root in (self.theirs, self.ours):
                root.mkdir(exist_ok=True)
                append(root / str(partition), partition, batches, segment_bytes)
                for path in (root / str(partition)).glob("*.log"):
                    if (base_offset := int(path.stem)) >= self.dirty[partition]:
                        # By these tombstones of v0 and v1 go.
                        os.utime(path, (self._begun + base_offset / 10,) * 2)

    def clean_ours(self) -> dict[TopicPartition, Any]:
        """Compact ours, half of them as commits do that have time for one group of segments each."""
        done = {}
        for partition, retention in self.retention.items():
            settings = CompactionSettings(
                min_cleanable_dirty_ratio=0.01,
                delete_retention_ms=retention,
                segment_index_bytes=self.index_bytes[partition],
            )
            if self.in_steps[partition]:
                done[partition] = compact_in_steps(self.ours, partition, settings)
            else:
                done[partition] = compact_partition(str(self.ours), partition, settings, execute=True)
        self.dirty = {partition: found.first_dirty_offset for partition, found in done.items()}
        return done

    def clean_theirs(self, ours: dict[TopicPartition, Any]) -> None:
        """Let the broker load and compact its copies, and take them back."""
        broker = self.broker
        broker.plant(self.theirs)
        # With a high watermark from before, it would compact twice: up to that, and once it is the leader.
        (broker.log_dir / HIGH_WATERMARK_CHECKPOINT).unlink(missing_ok=True)
        broker.start()
        wanted = {partition: done.first_dirty_offset for partition, done in ours.items() if done.passes}
        broker.wait_until(lambda: self._checkpoint().items() >= wanted.items(), "Not all is compacted", 120)
        broker.stop()
        for partition in self.logs:
            folder = self.theirs / str(partition)
            shutil.rmtree(folder)
            shutil.copytree(broker.log_dir / str(partition), folder)

    def _checkpoint(self) -> dict[TopicPartition, int]:
        path = self.broker.log_dir / CLEANER_CHECKPOINT
        return parse_offset_checkpoint(path.read_bytes(), str(path)) if path.exists() else {}


def cleaning_broker(folder: Path) -> Broker:
    return Broker(folder, CLEANING)


@pytest.mark.long
def test_a_brokers_cleaner_leaves_the_same(tmp_path: Path, seed: int, soak: bool) -> None:
    rng = random.Random(seed)
    broker = cleaning_broker(tmp_path / "broker")
    copies = Copies(tmp_path, broker, rng, 100 if soak else 4)
    broker.start()
    try:
        for partition, retention in copies.retention.items():
            configs = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": 0.01,
                "delete.retention.ms": retention,
                "segment.index.bytes": copies.index_bytes[partition],
            }
            broker.create_topic(partition.topic, 1, configs)
        broker.stop()
        removed = 0
        for round_ in range(SOAK_ROUNDS if soak else ROUNDS):
            copies.append()
            before = {partition: len(records(copies.ours, partition)) for partition in copies.logs}
            ours = copies.clean_ours()
            copies.clean_theirs(ours)
            for partition in copies.logs:
                what = f"round {round_}, {partition}, seed {seed}"
                left, wanted = (records(root, partition) for root in (copies.ours, copies.theirs))
                removed += before[partition] - len(left)
                if copies.logs[partition].magic == 2:
                    assert left == wanted, what
                    folders = (root / str(partition) for root in (copies.ours, copies.theirs))
                    left_batches, wanted_batches = map(batches_of, folders)
                    assert left_batches == wanted_batches, what
                else:
                    assert without_types(left) == without_types(wanted), what
        assert removed > 10 * len(copies.logs)
        check_served(copies, broker)
    finally:
        broker.discard()


def without_types(records: list[Record]) -> list[Record]:
    return [{**record, "timestampType": None} for record in records]


def check_served(copies: Copies, broker: Broker) -> None:
    """The broker adopts what we compacted, serves it, and compacts it no further."""
    before = {partition: records(copies.ours, partition) for partition in copies.logs}
    closed = [
        path
        for partition in copies.logs
        for path in sorted((copies.ours / str(partition)).glob("*.log"))[:-1]
    ]
    offset_indexes = [path.with_suffix(".index") for path in closed]
    # The tool expects the time of a record, and emptied batches have none.
    with_records = [path for path in closed if (walk(path.read_bytes()).count > 0).all()]
    time_indexes = [path.with_suffix(".timeindex") for path in with_records]
    dump_log_segments(*offset_indexes, *time_indexes)
    dump_log_segments(*offset_indexes, *(path.with_suffix(".timeindex") for path in closed), sanity=True)
    broker.plant(copies.ours)
    broker.start()
    time.sleep(5)  # longer than the cleaner's pause
    for partition, wanted in before.items():
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap, enable_auto_commit=False, check_crcs=True
        )
        try:
            assigned = KafkaTopicPartition(*partition)
            consumer.assign([assigned])
            consumer.seek_to_beginning(assigned)
            (end,) = consumer.end_offsets([assigned]).values()
            served: list[Any] = []
            while consumer.position(assigned) < end:
                for found in consumer.poll(1000).values():
                    # kafka-python has None for the timestamp that v0 lacks.
                    served += [
                        (r.offset, r.key, r.value, -1 if r.timestamp is None else r.timestamp) for r in found
                    ]
            assert served == [
                (row["offset"], row["key"], row["value"], round(row["timestamp"].timestamp() * 1000))
                for row in wanted
            ]
        finally:
            consumer.close()
    broker.stop()
    for partition, wanted in before.items():
        found = records(broker.log_dir, partition)
        if copies.logs[partition].magic == 2:
            assert found == wanted
        else:
            assert without_types(found) == without_types(wanted)


@pytest.mark.long
def test_a_brokers_cleaner_compacts_the_same_logs(tmp_path: Path, seed: int, soak: bool) -> None:
    """By min.cleanable.dirty.ratio and the two lags, of logs of which some is compacted already."""
    rng = random.Random(seed)
    broker = cleaning_broker(tmp_path / "broker")
    root = tmp_path / "root"
    root.mkdir()
    wanted, checkpoint = {}, {}
    broker.start()
    try:
        for number in range(80 if soak else 24):
            partition = TopicPartition(f"d{number}", 0)
            log = RandomLog(rng, 10, ("none",), age_ms=rng.choice((0, DAY_MS)))
            batches = [batch for batch in log.batches(60) if walk(batch).producer_id[0] < 0]
            append(root / str(partition), partition, one_after_another(batches), 700)
            bases = sorted(int(path.stem) for path in (root / str(partition)).glob("*.log"))
            if dirty := rng.choice((0, *bases[1:])):
                checkpoint[partition] = dirty
            configs: dict[str, Any] = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)),
                "min.compaction.lag.ms": rng.choice((0, 0, DAY_MS // 2)),
            }
            if rng.random() < 0.3:
                configs["max.compaction.lag.ms"] = DAY_MS // 2
            broker.create_topic(partition.topic, 1, configs)
            wanted[partition] = CompactionSettings.of({name: str(value) for name, value in configs.items()})
        broker.stop()
        (root / CLEANER_CHECKPOINT).write_bytes(format_offset_checkpoint(checkpoint))
        found = {
            partition: cleanable_now(open_root(str(root)), partition, settings)
            for partition, settings in wanted.items()
        }
        due = {partition: each.end for partition, each in found.items() if each is not None and each.is_due}
        assert 4 < len(due) < len(wanted) - 4
        broker.plant(root)
        (broker.log_dir / CLEANER_CHECKPOINT).write_bytes(format_offset_checkpoint(checkpoint))
        # With a high watermark from before, it would compact twice: up to that, and once it is the leader.
        (broker.log_dir / HIGH_WATERMARK_CHECKPOINT).unlink(missing_ok=True)
        broker.start()
        path = broker.log_dir / CLEANER_CHECKPOINT

        def cleaned() -> dict[TopicPartition, int]:
            now = parse_offset_checkpoint(path.read_bytes(), str(path)) if path.exists() else {}
            return {p: end for p, end in now.items() if checkpoint.get(p, 0) != end and p in wanted}

        broker.wait_until(lambda: cleaned().items() >= due.items(), "Not all is compacted", 60)
        time.sleep(5)  # longer than the cleaner's pause
        assert cleaned() == due
    finally:
        broker.discard()


def one_after_another(batches: list[bytes]) -> list[bytes]:
    """The batches, with offsets that have no gaps."""
    offset, moved = 0, []
    for batch in batches:
        walked = walk(batch)
        moved.append(struct.pack(">q", offset) + batch[8:])
        offset += int(walked.last_offset[0] - walked.base_offset[0]) + 1
    return moved
