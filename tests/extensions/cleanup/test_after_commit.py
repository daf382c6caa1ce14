"""Commits compact a topic as the log cleaner would, in a limited time."""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.extensions.cleanup import after_commit, compacting
from pyspark_kafkalog.log.layout import CLEANER_CHECKPOINT
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.sink import DirectorySink
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import EncodeSettings, OffsetRange, Plan, QueryBatch, TopicPartition
from tests.extensions.cleanup.test_compaction_broker import OneGroup
from tests.log.partitions import rows
from tests.log.writing import stage

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOW = time.time_ns() // 1_000_000


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


class Writer:
    """A stream of rows whose values are their keys, too."""

    def __init__(self, root: Path, *, segment_bytes: int = 2000, **configs: object) -> None:
        self.root, self.number = root, 0
        root.mkdir(exist_ok=True)
        texts = {name.replace("_", "."): str(value) for name, value in configs.items()}
        write_topic_configs(str(root), {"t": {"cleanup.policy": "compact", **texts}})
        self.sink = DirectorySink.on_driver(
            str(root),
            2,
            EncodeSettings(),
            {"segment.bytes": str(segment_bytes)},
            is_job=False,
            required=True,
        )

    def commit(self, *keys: int, partition: TopicPartition = T0, timestamp: int = NOW) -> None:
        batch = QueryBatch("query", self.number)
        values = [b"%090d" % key for key in keys]
        staged = stage(
            self.root,
            batch.job,
            {partition: values},
            timestamp=timestamp,
            keyed=True,
            batch_size=1000,
            compression="none",
        )
        self.sink.commit(batch, staged, Plan())
        self.number += 1


def found(root: Path, partition: TopicPartition = T0) -> list[int]:
    place = LogDirectory.open(str(root))
    bounds = place.watermarks([partition], read_committed=False)[partition]
    offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    return [int(row["value"]) for row in rows(place, partition, offsets)]


def caught_up(root: Path) -> set[int]:
    """What a reader has seen when it is at the end: keys of a range may be written again behind it."""
    place, seen, position = LogDirectory.open(str(root)), set[int](), 0
    while position < (end := place.watermarks([T0], read_committed=False)[T0].high_watermark):
        seen.update(int(row["value"]) for row in rows(place, T0, OffsetRange(position, end)))
        position = end
    return seen


def stored(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("*/*.log"))


def test_updates_of_the_same_keys_take_no_more_and_more_room(seed: int, tmp_path: Path) -> None:
    check_room(tmp_path, seed, updates=20_000, a_commit=500)


@pytest.mark.soak
@pytest.mark.slow
def test_a_million_updates_of_a_thousand_keys(seed: int, tmp_path: Path) -> None:
    check_room(tmp_path, seed, updates=1_000_000, a_commit=10_000)


def check_room(root: Path, seed: int, *, updates: int, a_commit: int) -> None:
    rng = random.Random(seed)
    live = tmp_live(root.parent / "live")
    writer = Writer(root, segment_bytes=live // 10)
    writer.commit(*range(1000))
    most = 0
    for _ in range(updates // a_commit):
        writer.commit(*(rng.randrange(1000) for _ in range(a_commit)))
        most = max(most, stored(root))
    assert set(found(root)) == set(range(1000))
    # A commit may be larger than what is left of the log before it.
    assert live < most < 3 * live + a_commit * live // 1000
    assert stored(root) < 3 * live
    assert len(found(root)) < 4000


def tmp_live(root: Path) -> int:
    """Bytes of a log that has each of a thousand keys once."""
    Writer(root, cleanup_policy="delete").commit(*range(1000))
    return stored(root)


def test_the_ratio_and_the_lags_decide(tmp_path: Path) -> None:
    writer = Writer(tmp_path, min_cleanable_dirty_ratio=0.7)
    ends = set()
    for _ in range(12):
        writer.commit(*range(8))
        ends.add((tmp_path / CLEANER_CHECKPOINT).exists() and (tmp_path / CLEANER_CHECKPOINT).read_text())
    assert 2 < len(ends) < 6
    assert len(found(tmp_path)) < 60
    dirty_from = (tmp_path / CLEANER_CHECKPOINT).read_text()
    for configs in (
        {"min.compaction.lag.ms": "3600000", "min.cleanable.dirty.ratio": "0"},
        {"min.cleanable.dirty.ratio": "1"},
        {"cleanup.policy": "delete", "min.cleanable.dirty.ratio": "0"},
    ):
        write_topic_configs(str(tmp_path), {"t": {"cleanup.policy": "compact", **configs}})
        for _ in range(6):
            writer.commit(*range(8))
        assert (tmp_path / CLEANER_CHECKPOINT).read_text() == dirty_from
    write_topic_configs(
        str(tmp_path),
        {
            "t": {
                "cleanup.policy": "compact,delete",
                "min.cleanable.dirty.ratio": "1",
                "max.compaction.lag.ms": "1",
            }
        },
    )
    time.sleep(0.01)
    writer.commit(*range(8))
    writer.commit(*range(8))
    assert (tmp_path / CLEANER_CHECKPOINT).read_text() != dirty_from


def test_a_commit_ends_in_time_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path, min_cleanable_dirty_ratio="1")
    for number in range(12):
        writer.commit(*range(8), 100 + number)
        writer.commit(*range(8), 100 + number, partition=T1)
    write_topic_configs(
        str(tmp_path), {"t": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}}
    )
    cleaned = []
    clean = compacting.Compaction.run
    monkeypatch.setattr(
        compacting.Compaction,
        "run",
        lambda self, limit=None: cleaned.append(self.partition) or clean(self, limit),
    )
    monkeypatch.setattr(after_commit, "TimeLimit", lambda seconds: OneGroup())
    counts = []
    for _ in range(60):
        before = len(cleaned)
        writer.commit(0)
        assert len(cleaned) - before <= 1, "There is time for one partition, and for one step of it"
        counts.append(stored(tmp_path))
    assert sum(later < earlier for earlier, later in itertools.pairwise(counts)) > 12
    assert {T0, T1} == set(cleaned)
    for partition in (T0, T1):
        values = found(tmp_path, partition)
        assert set(range(8)) | set(range(100, 112)) == set(values)
        assert len(values) < 75


def test_damage_fails_no_commit_and_no_other_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(tmp_path, min_cleanable_dirty_ratio="1")
    for _ in range(6):
        writer.commit(*range(8))
        writer.commit(*range(8), partition=T1)
    write_topic_configs(str(tmp_path), {"t": {"cleanup.policy": "compact"}})
    first = sorted((tmp_path / "t-0").glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    writer.commit(*range(8))
    assert "Published, but could not compact t-0" in caplog.text
    with pytest.raises(CorruptRecordError):
        found(tmp_path)
    assert len(found(tmp_path, T1)) < 48


def test_readers_during_it_see_each_key(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    writer = Writer(tmp_path, min_cleanable_dirty_ratio="0.2", segment_bytes=4000)
    writer.commit(*range(60))
    seen: list[Any] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            try:
                seen.append(caught_up(tmp_path))
            except Exception as e:
                seen.append(e)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(80):
            writer.commit(*(rng.randrange(60) for _ in range(20)))
    finally:
        is_over.set()
        reader.join()
    assert len(seen) > 5
    assert [values for values in seen if values != set(range(60))] == []
