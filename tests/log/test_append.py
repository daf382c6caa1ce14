"""Segments and their indexes, byte for byte as a broker's recovery would write them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog.codec.walk import Batches, WalkStatus, check_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError, RecordTooLargeError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from pyspark_kafkalog.model import OffsetRange, QueryBatch, TopicPartition
from tests.fixtures_dir import CASES, Case, requires_fixtures
from tests.log.writing import T0, T1, publish_staged, read, stage, values, write

pytestmark = pytest.mark.slow


def segments(root: Path) -> list[tuple[int, Batches, np.ndarray, np.ndarray]]:
    """Base offset, batches and index entries of each segment of ``t-0``."""
    found = []
    for log in sorted((root / "t-0").glob("*.log")):
        data = log.read_bytes()
        batches = walk(data)
        assert batches.status == WalkStatus.END
        assert all(check_batch(data, position) for position in batches.position.tolist())
        offsets = np.frombuffer(log.with_suffix(".index").read_bytes(), OFFSET_ENTRY)
        times = np.frombuffer(log.with_suffix(".timeindex").read_bytes(), TIME_ENTRY)
        found.append((int(log.stem), batches, offsets, times))
    return found


def expected_indexes(base: int, batches: Batches, interval: int = 4096) -> tuple[list, list]:
    """What LogSegment.recover writes, in plain Python."""
    offsets, times = [], []
    since, largest, at, last_time = 0, -1, 0, -1
    for position, size, last, timestamp in zip(
        batches.position.tolist(), batches.size.tolist(), batches.last_offset.tolist(),
        batches.max_timestamp.tolist(), strict=True,
    ):  # fmt: skip
        if timestamp > largest:
            largest, at = timestamp, last
        if since > interval:
            offsets.append((last - base, position))
            if largest > last_time:
                times.append((largest, at - base))
                last_time = largest
            since = 0
        since += size
    if largest > last_time:
        times.append((largest, at - base))
    return offsets, times


def test_new_topic(tmp_path):
    assert write(tmp_path, {T0: values(3)}).offsets == {T0: OffsetRange(0, 3)}
    assert read(tmp_path) == {T0: values(3), T1: []}
    topic_ids = set()
    for folder in ("t-0", "t-1"):
        names = {path.name for path in (tmp_path / folder).iterdir()}
        files = {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
        assert names == files | {"partition.metadata", "leader-epoch-checkpoint"}
        assert (tmp_path / folder / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        version, topic_id = (tmp_path / folder / "partition.metadata").read_text().splitlines()
        assert version == "version: 0"
        topic_ids.add(topic_id)
    assert len(topic_ids) == 1


def test_new_topics_have_ids_of_their_own(tmp_path):
    other = T0._replace(topic="u")
    write(tmp_path, {T0: values(1), other: values(1)})
    ids = {(tmp_path / folder / "partition.metadata").read_text() for folder in ("t-0", "u-0")}
    assert len(ids) == 2


def test_offsets_and_epoch_go_on(tmp_path):
    write(tmp_path, {T0: values(10)})
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 4\n")
    assert write(tmp_path, {T0: values(5, start=10)}).offsets == {T0: OffsetRange(10, 15)}
    ((_, batches, _, _),) = segments(tmp_path)
    assert batches.base_offset.tolist() == [0, 10]
    assert batches.leader_epoch.tolist() == [0, 7]
    assert read(tmp_path)[T0] == values(15)


@pytest.mark.parametrize("interval", [0, 4096, 1 << 30])
def test_indexes_are_those_of_recovery(tmp_path, interval):
    for start in (0, 500, 1000):
        staged = stage(
            tmp_path, "job", {T0: values(500, 100, start)}, batch_size=1500, timestamp=10_000 - start
        )
        publish_staged(tmp_path, staged, QueryBatch("job"), index_interval_bytes=interval)
    ((base, batches, offsets, times),) = segments(tmp_path)
    # A publish ends as a closed segment does, with an entry for the largest timestamp:
    # what follows has none above it, so the entries are those of one uninterrupted append.
    assert (offsets.tolist(), times.tolist()) == expected_indexes(base, batches, interval)
    assert len(offsets) == {0: len(batches) - 1, 4096: offsets.size, 1 << 30: 0}[interval]
    assert interval == 1 << 30 or offsets.size > 20


def test_each_publish_closes_the_time_index(tmp_path):
    for i in range(3):
        write(tmp_path, {T0: values(2, start=2 * i)}, timestamp=1000 + i)
    ((_, _, offsets, times),) = segments(tmp_path)
    assert offsets.size == 0
    assert times.tolist() == [(1001, 1), (1002, 3), (1003, 5)]


def test_rolls_by_size(tmp_path):
    staged = stage(tmp_path, "job", {T0: values(2000, 100)}, batch_size=1000)
    publish_staged(tmp_path, staged, QueryBatch("job"), segment_bytes=20_000)
    found = segments(tmp_path)
    assert len(found) > 10
    for (base, batches, offsets, times), following in zip(found, [*found[1:], None], strict=True):
        assert batches.base_offset[0] == base
        assert batches.end <= 20_000
        if following is not None:
            assert batches.last_offset[-1] + 1 == following[0]
            assert batches.end + following[1].size[0] > 20_000
        assert (offsets.tolist(), times.tolist()) == expected_indexes(base, batches)
    assert read(tmp_path)[T0] == values(2000, 100)


@pytest.mark.parametrize("chunk", [1, 3000, 10_000])
def test_copied_in_chunks(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("pyspark_kafkalog.log.publish.appender._CHUNK_BYTES", chunk)
    long = [b"l" * 20_000]
    staged = [
        stage(tmp_path, "job", {T0: [*values(200, 100, 200 * i), *long], T1: values(9)}, batch_size=1000)[0]
        for i in range(3)
    ]
    publish_staged(tmp_path, staged, QueryBatch("job"), segment_bytes=50_000)
    assert read(tmp_path)[T0] == [v for i in range(3) for v in [*values(200, 100, 200 * i), *long]]
    assert read(tmp_path)[T1] == values(9) * 3


def test_rolls_between_publishes(tmp_path):
    write(tmp_path, {T0: values(100, 100)})
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    write(tmp_path, {T0: values(100, 100, 100)}, segment_bytes=2 * size)
    assert [s[0] for s in segments(tmp_path)] == [0]
    write(tmp_path, {T0: values(100, 100, 200)}, segment_bytes=2 * size)
    assert [s[0] for s in segments(tmp_path)] == [0, 200]


def test_rolls_by_record_time(tmp_path):
    write(tmp_path, {T0: values(1)}, timestamp=1_000_000)
    write(tmp_path, {T0: values(1)}, timestamp=1_005_000, segment_ms=5000)
    assert len(segments(tmp_path)) == 1
    write(tmp_path, {T0: values(1)}, timestamp=1_005_001, segment_ms=5000)
    write(tmp_path, {T0: values(1)}, timestamp=5, segment_ms=5000)  # older records do not roll
    assert [s[0] for s in segments(tmp_path)] == [0, 2]


def test_records_without_timestamp_do_not_roll(tmp_path):
    for timestamp in (-1, 10**12):
        write(tmp_path, {T0: values(1)}, timestamp=timestamp, segment_ms=1)
    ((_, _, _, times),) = segments(tmp_path)
    assert times.tolist() == [(10**12, 1)]


def test_rolls_where_relative_offsets_end(tmp_path):
    write(tmp_path, {T0: values(1)})
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {2**31 - 1}\n")
    assert write(tmp_path, {T0: values(1)}).offsets[T0].start == 2**31 - 1
    assert write(tmp_path, {T0: values(1)}).offsets[T0].start == 2**31
    assert [s[0] for s in segments(tmp_path)] == [0, 2**31]


def test_batch_over_segment_bytes(tmp_path):
    with pytest.raises(RecordTooLargeError, match=r"segment.bytes = 500.*t-0"):
        write(tmp_path, {T0: values(1, 1000)}, segment_bytes=500)
    assert not (tmp_path / "t-0").exists()


def test_log_append_time(tmp_path):
    before = time.time_ns() // 1_000_000
    write(tmp_path, {T0: values(500, 100)}, log_append_time=True)
    after = time.time_ns() // 1_000_000
    ((base, batches, offsets, times),) = segments(tmp_path)
    assert len(set(batches.max_timestamp.tolist())) == 1
    assert before <= batches.max_timestamp[0] <= after
    assert (batches.timestamp_type == 1).all()
    assert (offsets.tolist(), times.tolist()) == expected_indexes(base, batches)


def test_stale_files_of_the_next_segment(tmp_path):
    write(tmp_path, {T0: values(10, 100)})
    stale = tmp_path / "t-0" / f"{10:020d}.index"
    stale.write_bytes(b"\1" * 80)
    write(tmp_path, {T0: values(10, 100, 10)}, segment_bytes=1600)
    assert [s[0] for s in segments(tmp_path)] == [0, 10]
    assert stale.read_bytes() == b""


TAILS = {
    "one byte": b"\1",
    "zeros": bytes(500),
    "garbage": bytes(range(256)) * 3,
    "text": b"torn" * 100,
}


@pytest.mark.parametrize("tail", [*TAILS, "cut batch"])
@pytest.mark.parametrize("indexed", [True, False])
def test_torn_tail_is_cut(tmp_path, tail, indexed, caplog):
    write(tmp_path, {T0: values(1000 if indexed else 1, 100)})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    last = walk(whole)
    if tail == "cut batch":
        torn = whole + whole[: last.size[0] - 1]
    else:
        torn = whole + TAILS[tail]
    log.write_bytes(torn)
    count = 1000 if indexed else 1
    assert write(tmp_path, {T0: values(3, 100, count)}).offsets[T0] == OffsetRange(count, count + 3)
    assert read(tmp_path)[T0] == values(count + 3, 100)
    said = f"{len(torn) - len(whole)} bytes from byte {len(whole)}" in caplog.text
    assert said == (tail != "zeros"), "zeros are the room of a preallocated file"


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("damage", ["flipped", "zeros", "falling offsets"])
def test_last_batch_that_is_whole_is_not_cut_off(tmp_path, damage, indexed, caplog):
    """It may have been acknowledged, and readers report it."""
    write(tmp_path, {T0: values(1000, 100)}, index_interval_bytes=4096 if indexed else 1 << 30)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    whole = bytearray(log.read_bytes())
    batches = walk(whole)
    position = int(batches.position[-1])
    if damage == "flipped":
        whole[-1] ^= 1
    elif damage == "zeros":
        whole[position + 200 :] = bytes(len(whole) - position - 200)
    else:
        whole[position : position + 8] = bytes(8)
    log.write_bytes(whole)
    before = {path: path.read_bytes() for path in log.parent.glob("*.log")}
    with pytest.raises(CorruptRecordError, match=rf"whole.*checksum.*t-0.*truncate -s {position} ") as e:
        write(tmp_path, {T0: values(3)})
    assert (e.value.offset, e.value.position) == (batches.last_offset[-2] + 1, position)
    assert {path: path.read_bytes() for path in log.parent.glob("*.log")} == before
    os.truncate(log, position)
    assert write(tmp_path, {T0: values(3)}).offsets[T0].start == e.value.offset


def test_tail_that_looks_like_batches_everywhere_is_refused(tmp_path):
    write(tmp_path, {T0: values(3)})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    sizes = [(left * 61 - 12).to_bytes(4, "big") for left in range(2000, 0, -1)]
    headers = [(1000).to_bytes(8, "big") + size + whole[12:61] for size in sizes]
    log.write_bytes(whole + b"torn" * 20 + b"".join(headers))
    with pytest.raises(CorruptRecordError, match=rf"Gave up the search.*t-0.*truncate -s {len(whole)} ") as e:
        write(tmp_path, {T0: values(3)})
    assert (e.value.offset, e.value.file, e.value.position) == (3, str(log), len(whole))
    os.truncate(log, len(whole))
    assert write(tmp_path, {T0: values(3)}).offsets[T0].start == 3


@pytest.mark.parametrize("where", ["after the last index entry", "without indexes"])
def test_damage_in_the_middle_is_refused(tmp_path, where):
    write(tmp_path, {T0: values(300, 100)}, index_interval_bytes=1 << 30 if where.startswith("after") else 0)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    batches = walk(log.read_bytes())
    if where == "without indexes":
        log.with_suffix(".index").unlink()
    data = bytearray(log.read_bytes())
    data[int(batches.position[1]) + 100] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptRecordError) as e:
        write(tmp_path, {T0: values(1)})
    assert e.value.topic_partition == "t-0"
    assert e.value.offset == batches.base_offset[1]
    assert e.value.file == str(log)
    assert e.value.position == batches.position[1]
    assert log.read_bytes() == data


def test_torn_tail_and_an_index_beyond_it(tmp_path):
    write(tmp_path, {T0: values(1000, 100)})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(1 << 20))
    log.with_suffix(".timeindex").write_bytes(b"\0\0\0\0\0\0\0\7" + b"\0\1\0\0")
    write(tmp_path, {T0: values(3, 100, 1000)})
    assert read(tmp_path)[T0] == values(1003, 100)
    ((base, batches, offsets, times),) = segments(tmp_path)
    assert (offsets.tolist(), times.tolist()) == expected_indexes(base, batches)


def test_damaged_first_batch(tmp_path):
    """Readers report it; it does not prevent an append."""
    write(tmp_path, {T0: values(1000, 100)})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.write(b"\xff" * 100)
    assert write(tmp_path, {T0: values(3)}).offsets[T0] == OffsetRange(1000, 1003)


INDEX_DAMAGE = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "preallocated": lambda path: path.write_bytes(
        path.read_bytes().ljust(10 << 20, b"\0")[: 10485760 // 24 * 24]
    ),
    "odd length": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "falling": lambda path: path.write_bytes(path.read_bytes() * 2),
    "garbage": lambda path: path.write_bytes(b"\x7f" * 240),
    "negative": lambda path: path.write_bytes(b"\xff" * 24),
    "past the end": lambda path: path.write_bytes(
        b"\x7f\0\0\0\0\0\0\1" if path.suffix == ".index" else b"\0\0\0\0\0\0\0\1\x7f\0\0\0"
    ),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGE)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_that_was_not_closed(tmp_path, damage, suffix):
    write(tmp_path, {T0: values(1000, 100)})
    INDEX_DAMAGE[damage](tmp_path / "t-0" / f"{0:020d}{suffix}")
    write(tmp_path, {T0: values(1000, 100, 1000)}, timestamp=1_600_000_001_000)
    ((base, batches, offsets, times),) = segments(tmp_path)
    assert read(tmp_path)[T0] == values(2000, 100)
    if damage != "empty":
        assert offsets.tolist() == expected_indexes(base, batches)[0]
    by_last_offset = dict(zip(batches.last_offset.tolist(), batches.position.tolist(), strict=True))
    assert all(by_last_offset[base + offset] == position for offset, position in offsets.tolist())
    assert (np.diff(times["timestamp"]) > 0).all()
    assert times[-1].tolist() == (1_600_000_001_999, 1999)


def test_folder_without_segments(tmp_path):
    (tmp_path / "t-0").mkdir()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 120\n")
    assert write(tmp_path, {T0: values(3)}).offsets == {T0: OffsetRange(120, 123)}
    assert [s[0] for s in segments(tmp_path)] == [120]
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 120\n"


def test_malformed_leader_epochs(tmp_path):
    write(tmp_path, {T0: values(3)})
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n9\n0 0\n")
    with pytest.raises(LogDirectoryError, match="leader-epoch-checkpoint"):
        write(tmp_path, {T0: values(3)})


UNDAMAGED = [case for case in CASES if not case.damaged and "__" not in "".join(case.partitions)]


@requires_fixtures
@pytest.mark.parametrize("case", UNDAMAGED, ids=lambda case: case.name)
def test_append_to_what_a_broker_left(tmp_path, case: Case):
    root = tmp_path / "log"
    shutil.copytree(case.directory, root)
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    clean = root / ".kafka_cleanshutdown"
    was_clean = clean.read_bytes() if clean.exists() else None
    partitions = [
        TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in case.partitions
    ]
    ends = {
        p: bounds.high_watermark
        for p, bounds in LogDirectory.open(str(root)).watermarks(partitions, read_committed=False).items()
    }
    now = 1_800_000_000_000
    published = write(root, {p: values(50, 1000) for p in partitions}, timestamp=now)
    assert published.offsets == {p: OffsetRange(end, end + 50) for p, end in ends.items()}
    assert published.offsets.keys() == set(partitions)
    again = write(root, {p: values(50, 1000) for p in partitions}, timestamp=now)
    assert {p: o.start for p, o in again.offsets.items()} == {p: end + 50 for p, end in ends.items()}
    after = LogDirectory.open(str(root)).watermarks(partitions, read_committed=False)
    assert {p: bounds.high_watermark for p, bounds in after.items()} == {
        p: end + 100 for p, end in ends.items()
    }
    assert (clean.read_bytes() if clean.exists() else None) == was_clean
