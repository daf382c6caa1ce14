"""Retention and DeleteRecords in a directory: Kafka's rules, and what is left for readers and writers."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.errors import InvalidRecordError, OptionError
from pyspark_kafkalog.extensions.cleanup import after_commit, deleting, retention
from pyspark_kafkalog.extensions.cleanup.deleting import delete_records, retain
from pyspark_kafkalog.extensions.cleanup.retention import Deletion, RetentionRules
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
)
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment import scan
from pyspark_kafkalog.log.sink import DirectorySink
from pyspark_kafkalog.log.snapshot import ProducerEntry, format_snapshot, parse_snapshot
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import EncodeSettings, Plan, QueryBatch, TaskAttempt, TopicPartition
from tests.codec.strategies import Row, arrow_batch
from tests.log.partitions import batch, data_batch, write_segment
from tests.log.writing import T0, T1, configs_of, read, stage, values, write

NOW = time.time_ns() // 1_000_000
DAY = 86_400_000
BATCH, PER_BATCH = 661, 10
"""Bytes and records of each batch of :func:`log`."""
SEGMENT = 2 * BATCH


def log(root: Path, batches: int = 9, partition: TopicPartition = T0, *, newest: int = NOW) -> None:
    """A partition with two batches a segment; batches are a day apart, the last one from ``newest``."""
    for i in range(batches):
        age = (batches - 1 - i) * DAY
        write(
            root,
            {partition: values(PER_BATCH, 53, i * PER_BATCH)},
            timestamp=newest - age,
            segment_bytes=SEGMENT,
            segment_ms=1 << 60,
        )


def bases(root: Path, partition: TopicPartition = T0) -> list[int]:
    return sorted(int(path.stem) for path in (root / str(partition)).glob("*.log"))


def starts(root: Path) -> dict[TopicPartition, int]:
    file = root / LOG_START_OFFSET_CHECKPOINT
    return parse_offset_checkpoint(file.read_bytes() if file.exists() else b"", str(file))


def start_of(root: Path, partition: TopicPartition = T0) -> int:
    found = LogDirectory.open(str(root)).watermarks([partition], read_committed=False)
    return found[partition].log_start_offset


def run(root: Path, configs: Mapping[str, Any], **how: Any) -> Deletion:
    """Apply retention; what t-0 loses."""
    texts = {name: str(value) for name, value in configs.items()}
    found, _ = retain([str(root)], how.pop("topics", None), texts, **{"execute": True, **how})
    return next(deletion for deletion in found if deletion.partition == T0)


def test_a_log_as_expected(tmp_path: Path) -> None:
    log(tmp_path)
    assert bases(tmp_path) == [0, 20, 40, 60, 80]
    assert {path.stat().st_size for path in (tmp_path / "t-0").glob("*.log")} == {SEGMENT, BATCH}


@pytest.mark.parametrize(
    ("configs", "start"),
    [
        ({}, 0),
        ({"retention.ms": -1, "retention.bytes": -1}, 0),
        ({"retention.ms": 5 * DAY + DAY // 2}, 20),
        ({"retention.ms": DAY // 2}, 80),
        ({"retention.ms": 0}, 90),
        ({"retention.bytes": 9 * BATCH}, 0),
        ({"retention.bytes": 7 * BATCH + 1}, 0),
        ({"retention.bytes": 7 * BATCH}, 20),
        ({"retention.bytes": 1}, 80),
        ({"retention.bytes": 0}, 90),
        ({"retention.bytes": 7 * BATCH, "retention.ms": 3 * DAY + DAY // 2}, 40),
        ({"retention.bytes": 0, "cleanup.policy": "compact"}, 0),
        ({"retention.bytes": 0, "cleanup.policy": "compact,delete"}, 90),
    ],
)
def test_what_is_due(tmp_path: Path, configs: dict[str, object], start: int) -> None:
    log(tmp_path, newest=NOW - 1000)
    expected = read(tmp_path)[T0][start:]
    dry = run(tmp_path, configs, execute=False)
    assert (start_of(tmp_path), starts(tmp_path)) == (0, {})
    done = run(tmp_path, configs)
    assert (done.new_start, done.segments, done.reasons) == (start, (start + 10) // 20, dry.reasons)
    assert done.stored_bytes == dry.stored_bytes == start // 10 * BATCH
    assert start_of(tmp_path) == start
    assert read(tmp_path)[T0] == expected
    assert starts(tmp_path) == {}, "The first segment begins there"
    assert bases(tmp_path)[0] == start
    assert {int(path.name[:20]) for path in (tmp_path / "t-0").glob("[0-9]*")} == set(bases(tmp_path))
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    log(tmp_path, 1)
    assert len(read(tmp_path)[T0]) == 90 - start + 10
    assert LogDirectory.open(str(tmp_path)).file_faults(T0) == []


class Piece(NamedTuple):
    base_offset: int
    size: int
    timestamp: int
    mtime_ns: int = 0


def kafkas(pieces: list[Piece], end: int, start: int, rules: RetentionRules, now: int) -> int:
    """How many segments UnifiedLog.deleteOldSegments deletes, pass by pass on what is left."""
    left = list(pieces)

    def pass_over(predicate: Any) -> None:
        nonlocal start
        deletable = 0
        while deletable < len(left):
            segment = left[deletable]
            following = left[deletable + 1] if deletable + 1 < len(left) else None
            if not predicate(segment, following) or (following is None and segment.size == 0):
                break
            deletable += 1
        if deletable == len(left) and left:
            left.append(Piece(end, 0, -1))
        if deletable:
            start = max(start, left[deletable].base_offset)
        del left[:deletable]

    pass_over(lambda segment, following: following is not None and following.base_offset <= start)
    if rules.deletes and rules.retention_bytes is not None:
        size = sum(piece.size for piece in left)
        diff = size - rules.retention_bytes

        def is_above(segment: Piece, following: Piece | None) -> bool:
            nonlocal diff
            if diff - segment.size >= 0:
                diff -= segment.size
                return True
            return False

        if size >= rules.retention_bytes:
            pass_over(is_above)
    if rules.deletes and rules.retention_ms is not None:
        age = rules.retention_ms
        pass_over(lambda segment, following: now - segment.timestamp > age)
    return sum(piece not in left for piece in pieces)


LIMIT = st.none() | st.integers(0, 30)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 20)), min_size=1, max_size=8),
    empty_last=st.booleans(),
    start=st.integers(0, 90),
    rules=st.builds(RetentionRules, LIMIT, LIMIT, st.booleans()),
)
def test_segments_go_as_kafkas_do(
    sizes: list[tuple[int, int]], empty_last: bool, start: int, rules: RetentionRules
) -> None:
    pieces = [Piece(10 * i, size, timestamp) for i, (size, timestamp) in enumerate(sizes)]
    end = 10 * len(pieces)
    if empty_last:
        pieces.append(Piece(end, 0, -1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "_timestamp", lambda partition, piece: piece.timestamp)
        ours, _ = retention._deletable(
            None,  # type: ignore[arg-type]
            pieces,  # type: ignore[arg-type]
            [piece.size for piece in pieces],
            end,
            min(start, end),
            rules,
            25,
        )
    assert ours == kafkas(pieces, end, min(start, end), rules, 25)


def test_without_timestamps_the_file_tells_the_age(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, {T0: values(1, 50, i)}, timestamp=-1 - 0, segment_bytes=150)
    assert bases(tmp_path) == [0, 1, 2, 3]
    old = time.time() - 100
    os.utime(tmp_path / "t-0" / f"{0:020d}.log", (old, old))
    assert run(tmp_path, {"retention.ms": 50_000}).new_start == 1


def test_future_timestamps_keep_a_segment_and_those_after_it(tmp_path: Path) -> None:
    log(tmp_path, newest=NOW + 10 * DAY)
    assert run(tmp_path, {"retention.ms": 0}).segments == 0


def test_leader_epochs_are_cut(tmp_path: Path) -> None:
    log(tmp_path)
    file = tmp_path / "t-0" / LEADER_EPOCH_CHECKPOINT
    for epochs, cut in (
        ([(0, 0), (2, 30), (3, 50), (7, 90)], [(2, 40), (3, 50), (7, 90)]),
        ([(2, 40), (3, 50), (7, 90)], [(3, 60), (7, 90)]),
        ([(3, 60), (7, 80)], [(7, 80)]),
    ):
        file.write_bytes(format_leader_epoch_checkpoint(epochs))
        delete_records([str(tmp_path)], {T0: cut[0][1]}, execute=True)
        assert parse_leader_epoch_checkpoint(file.read_bytes(), str(file)) == cut


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    log(tmp_path)
    entry = ProducerEntry(7, 1, 5, 19, 0, NOW)
    folder = tmp_path / "t-0"
    for offset in (0, 20, 60):
        (folder / f"{offset:020d}.snapshot").write_bytes(format_snapshot([entry]))
    delete_records([str(tmp_path)], {T0: 45}, execute=True)
    assert [path.name[:20] for path in folder.glob("*.snapshot")] == [f"{60:020d}"]
    assert (bases(tmp_path), starts(tmp_path)) == ([40, 60, 80], {T0: 45})
    delete_records([str(tmp_path)], {T0: 85}, execute=True)
    (kept,) = folder.glob("*.snapshot")
    assert (int(kept.stem), parse_snapshot(kept.read_bytes())) == (80, [entry]), "It has no later one"


@pytest.mark.parametrize("snapshot", [None, b"", b"broken", format_snapshot([])])
def test_producers_of_logs_without_snapshots_stay_known(tmp_path: Path, snapshot: bytes | None) -> None:
    folder = tmp_path / "t-0"
    write_segment(folder, [data_batch(offset, 7) for offset in range(3)], base_offset=0)
    write_segment(folder, [data_batch(3, 8)], base_offset=3)
    write_segment(folder, [batch(4)])
    if snapshot is not None:
        (folder / f"{0:020d}.snapshot").write_bytes(snapshot)
        (folder / f"{4:020d}.snapshot").write_bytes(snapshot[:-1])
    delete_records([str(tmp_path)], {T0: 5}, execute=True)
    (kept,) = folder.glob("*.snapshot")
    known = parse_snapshot(kept.read_bytes()) or []
    assert (int(kept.stem), [(entry.producer_id, entry.last_offset) for entry in known]) == (
        4,
        [(7, 2), (8, 3)],
    )


def test_logs_without_producers_get_no_snapshots(tmp_path: Path) -> None:
    log(tmp_path)
    delete_records([str(tmp_path)], {T0: 45}, execute=True)
    assert not list((tmp_path / "t-0").glob("*.snapshot"))


def test_what_cannot_be_read_is_deleted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(scan, "read_at", fail)
    delete_records([str(tmp_path)], {T0: 45}, execute=True)
    assert starts(tmp_path) == {T0: 45}
    assert "its producers are forgotten" in caplog.text


def test_a_clean_shutdown_stays_one(tmp_path: Path) -> None:
    log(tmp_path)
    (tmp_path / ".kafka_cleanshutdown").write_text("x")
    run(tmp_path, {"retention.bytes": 0})
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == "x"


@pytest.mark.parametrize(
    ("offset", "start", "first"),
    [(0, 0, 0), (1, 1, 0), (20, 20, 20), (39, 39, 20), (80, 80, 80), (90, 90, 80), (-1, 90, 80)],
)
def test_delete_records(tmp_path: Path, offset: int, start: int, first: int) -> None:
    log(tmp_path)
    expected = read(tmp_path)[T0][start:]
    (dry,), _ = delete_records([str(tmp_path)], {T0: offset}, execute=False)
    assert start_of(tmp_path) == 0
    (done,), _ = delete_records([str(tmp_path)], {T0: offset}, execute=True)
    assert (done.new_start, done.segments) == (dry.new_start, dry.segments) == (start, first // 20)
    assert (start_of(tmp_path), bases(tmp_path)[0]) == (start, first)
    assert starts(tmp_path) == ({T0: start} if start > first else {})
    assert read(tmp_path)[T0] == expected
    (again,), _ = delete_records([str(tmp_path)], {T0: min(offset, 1)}, execute=True)
    assert again.new_start == start_of(tmp_path) == max(start, min(offset, 1))


def test_an_offset_above_the_high_watermark_changes_nothing(tmp_path: Path) -> None:
    log(tmp_path)
    log(tmp_path, 2, T1)
    for offset in (21, -2):
        with pytest.raises(OptionError, match="the high watermark is 20"):
            delete_records([str(tmp_path)], {T0: 50, T1: offset}, execute=True)
    assert start_of(tmp_path) == 0


def test_a_directory_that_is_named_twice(tmp_path: Path) -> None:
    log(tmp_path)
    (deletion,), _ = delete_records([str(tmp_path)] * 2, {T0: 45}, execute=True)
    assert (deletion.new_start, starts(tmp_path)) == (45, {T0: 45})


def test_what_is_refused_in_one_directory_changes_none(tmp_path: Path) -> None:
    other = T0._replace(topic="u")
    log(tmp_path / "a")
    log(tmp_path / "b", 2, other)
    roots = [str(tmp_path / "a"), str(tmp_path / "b")]
    with pytest.raises(OptionError, match="the high watermark is 20"):
        delete_records(roots, {T0: 50, other: 21}, execute=True)
    assert start_of(tmp_path / "a") == 0
    done, _ = delete_records(roots, {T0: 50, other: 15}, execute=True)
    assert [deletion.new_start for deletion in done] == [50, 15]
    assert (start_of(tmp_path / "a"), start_of(tmp_path / "b", other)) == (50, 15)


def test_compacted_and_internal_topics_are_refused(tmp_path: Path) -> None:
    log(tmp_path, 2)
    internal = TopicPartition("__consumer_offsets", 0)
    log(tmp_path, 2, internal)
    with pytest.raises(OptionError, match="internal topic"):
        delete_records([str(tmp_path)], {internal: 5}, execute=True)
    assert run(tmp_path, {"retention.bytes": 0}).segments == 1
    assert bases(tmp_path, internal) == [0]
    write_topic_configs(str(tmp_path), {"t": {"cleanup.policy": "compact"}})
    with pytest.raises(OptionError, match=r"cleanup\.policy=compact"):
        delete_records([str(tmp_path)], {T0: 20}, execute=True)


def test_configs_of_the_directory_count_where_nothing_else_is_given(tmp_path: Path) -> None:
    log(tmp_path)
    write_topic_configs(str(tmp_path), {"t": {"retention.bytes": str(7 * BATCH)}})
    assert run(tmp_path, {"retention.bytes": -1}, execute=False).segments == 0
    assert run(tmp_path, {}).segments == 1
    write_topic_configs(str(tmp_path), {"t": {"retention.bytes": "much"}})
    done, failures = retain([str(tmp_path)], None, {}, execute=True)
    assert (done, failures.keys()) == ([], {T0, T1})
    assert "retention.bytes of topic 't' is invalid: 'much'" in failures[T0].message


def test_an_unfinished_compaction_is_finished_first(tmp_path: Path) -> None:
    log(tmp_path)
    log(tmp_path, partition=T1)
    first = tmp_path / "t-0" / f"{0:020d}.log"
    first.rename(f"{first}.swap")
    dry = run(tmp_path, {"retention.bytes": 7 * BATCH}, execute=False)
    assert Path(f"{first}.swap").exists()
    done = run(tmp_path, {"retention.bytes": 7 * BATCH})
    assert (done.new_start, done.segments, done.stored_bytes) == (20, 1, SEGMENT)
    assert (dry.new_start, dry.segments, dry.stored_bytes) == (20, 1, SEGMENT)
    assert (bases(tmp_path), bases(tmp_path, T1)) == ([20, 40, 60, 80], [20, 40, 60, 80])
    assert not list((tmp_path / "t-0").glob("*.swap"))


def test_a_log_start_beyond_the_log_is_left_alone(tmp_path: Path) -> None:
    log(tmp_path)
    (tmp_path / LOG_START_OFFSET_CHECKPOINT).write_bytes(format_offset_checkpoint({T0: 500, T1: 3}))
    assert run(tmp_path, {}).segments == 4
    assert starts(tmp_path) == {T0: 500, T1: 3}


class Writer:
    """Commits micro-batches with the sink of a stream."""

    def __init__(self, root: Path, **configs: object) -> None:
        self.root = root
        self.batch = 0
        texts = {name.replace("_", "."): str(value) for name, value in configs.items()}
        texts |= configs_of(segment_bytes=SEGMENT, segment_ms=1 << 60)
        self.sink = DirectorySink.on_driver(
            str(root), 1, EncodeSettings(), texts, is_job=False, required=True
        )

    def commit(self, topic: str = "t") -> None:
        batch = QueryBatch("query", self.batch)
        rows = values(PER_BATCH, 53, self.batch * PER_BATCH)
        staged = stage(self.root, batch.job, {TopicPartition(topic, 0): rows}, timestamp=NOW)
        self.sink.commit(batch, staged, Plan())
        self.batch += 1


def test_a_stream_stays_in_bounds(tmp_path: Path) -> None:
    writer = Writer(tmp_path, retention_bytes=4 * BATCH)
    for number in range(30):
        writer.commit()
        size = sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
        assert size <= 4 * BATCH + SEGMENT
        assert read(tmp_path)[T0][-PER_BATCH:] == values(PER_BATCH, 53, number * PER_BATCH)
    assert start_of(tmp_path) == 240


def test_without_limits_a_commit_deletes_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for _ in range(6):
        writer.commit()
    assert start_of(tmp_path) == 0
    assert not (tmp_path / ".kafkalog-cleanup").exists()
    write_topic_configs(str(tmp_path), {"t": {"retention.bytes": "0"}})
    writer.commit()
    assert start_of(tmp_path) == 70


def test_time_passes_where_nothing_rolls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, clock = Writer(tmp_path, retention_ms=3 * after_commit.CHECK_MS), NOW
    monkeypatch.setattr(deleting, "now_ms", lambda: clock)
    for _ in range(4):
        writer.commit()
    seen = []
    for _ in range(12):
        clock += after_commit.CHECK_MS // 2 + 1
        after_commit.AfterCommit()(str(tmp_path), {"t"}, writer.sink.configs, rolled=False)
        seen.append(start_of(tmp_path))
    assert seen == [0] * 7 + [40] * 5


def test_what_retention_needs_is_loaded_before_anything_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path, retention_ms=1)
    writer.commit()
    held = sorted(tmp_path.glob("t-0/*.log"))
    sizes = [log.stat().st_size for log in held]
    monkeypatch.setitem(sys.modules, "pyspark_kafkalog.extensions.cleanup.after_commit", None)
    monkeypatch.delattr("pyspark_kafkalog.extensions.cleanup.after_commit")
    with pytest.raises(ModuleNotFoundError, match="after_commit"):
        writer.commit()
    assert [log.stat().st_size for log in sorted(tmp_path.glob("t-0/*.log"))] == sizes


@pytest.mark.parametrize("what", ["a file", "the plan"])
def test_a_failure_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    writer = Writer(tmp_path, retention_bytes=BATCH)
    for _ in range(4):
        writer.commit()
    assert (start_of(tmp_path), bases(tmp_path)) == (20, [20])
    with monkeypatch.context() as patch:
        place = (retention, "_delete_files") if what == "a file" else (deleting, "due")
        patch.setattr(*place, fail)
        writer.commit()
    assert caplog.text.count("Published, but could not") == 1
    assert bases(tmp_path) == [20, 40]
    assert start_of(tmp_path) == (40 if what == "a file" else 20)
    assert read(tmp_path)[T0][-PER_BATCH:] == values(PER_BATCH, 53, 40)
    writer.commit()
    assert (start_of(tmp_path), bases(tmp_path)) == (40, [40]), "Nothing has rolled, and yet it looked again"
    assert caplog.text.count("Published, but could not") == 1
    assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_a_topic_that_fails_is_tried_again_and_others_get_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    u0 = TopicPartition("u", 0)
    for partition in (T0, u0):
        log(tmp_path, 4, partition)
    epochs = tmp_path / "t-0" / "leader-epoch-checkpoint"
    whole = epochs.read_bytes()

    def retained(*, rolled: bool) -> tuple[int, int]:
        after_commit.AfterCommit()(str(tmp_path), {"t", "u"}, {"retention.bytes": str(BATCH)}, rolled=rolled)
        return start_of(tmp_path), start_of(tmp_path, u0)

    assert retained(rolled=True) == (20, 20)
    log(tmp_path, 4)
    epochs.write_bytes(b"no checkpoint")
    for count in (1, 2):
        assert retained(rolled=count == 1) == (20, 20)
        assert caplog.text.count("could not apply retention to t-0") == count
    epochs.write_bytes(whole)
    assert retained(rolled=False) == (60, 20)


@pytest.mark.parametrize("configs", [{"retention.ms": "soon"}, {"cleanup.policy": "compost"}])
def test_an_invalid_configuration_keeps_no_other_topic_from_its_limits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, configs: dict[str, str]
) -> None:
    u0 = TopicPartition("u", 0)
    for partition in (T0, u0):
        log(tmp_path, 4, partition)
    write_topic_configs(str(tmp_path), {"t": configs, "u": {"retention.bytes": str(BATCH)}})
    after_commit.AfterCommit()(str(tmp_path), {"t", "u"}, {}, rolled=True)
    assert (start_of(tmp_path), start_of(tmp_path, u0)) == (0, 20)
    assert caplog.text.count("could not apply cleanup.policy to topic t:") == 1


def test_a_bad_disk_keeps_no_other_partition_from_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    u0, real = TopicPartition("u", 0), os.replace
    for partition in (T0, u0):
        log(tmp_path, 4, partition)
    (tmp_path / ".kafka_cleanshutdown").write_text("0")

    def replace(old: str, new: str) -> None:
        if new.endswith(".deleted") and "/t-0/" in new:
            raise OSError(5, "Input/output error", old)
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    limit = {"retention.bytes": str(BATCH)}
    found, failures = retain([str(tmp_path)], None, limit, execute=True)
    assert ([each.partition for each in found if each.segments], list(failures)) == ([u0], [T0])
    assert (bases(tmp_path), start_of(tmp_path, u0)) == ([0, 20], 20)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log(tmp_path, 4, u0)
    after_commit.AfterCommit()(str(tmp_path), {"t", "u"}, limit, rolled=True)
    assert (bases(tmp_path), start_of(tmp_path, u0)) == ([0, 20], 60)
    assert caplog.text.count("could not apply retention to t-0") == 1
    monkeypatch.undo()
    after_commit.AfterCommit()(str(tmp_path), {"t", "u"}, limit, rolled=False)
    assert bases(tmp_path) == [20]


def test_a_compacted_topic_takes_no_rows_without_keys(tmp_path: Path) -> None:
    attempt = TaskAttempt(0, 0, 0)
    for policy in ("compact", "compact,delete", "delete"):
        sink = Writer(tmp_path, cleanup_policy=policy).sink
        with sink.open(QueryBatch("query", 0), attempt) as task:
            settings = task.settings(T0)
            keyed = arrow_batch([Row(b"k", b"v", None, NOW), Row(None, b"v", None, NOW)])
            assert encode(keyed, np.array([0]), settings, topic_partition=T0).records == 1
            if policy == "delete":
                assert encode(keyed, None, settings, topic_partition=T0).records == 2
            else:
                with pytest.raises(InvalidRecordError, match=r"no key, but cleanup\.policy is compact"):
                    encode(keyed, None, settings, topic_partition=T0)
