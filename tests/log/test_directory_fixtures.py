"""Every directory that a real broker wrote, read as a place, against real consumers and real recovery."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, TopicPartition, Watermarks
from tests.codec.decoding import ALL_COLUMNS, WITHOUT_TIMESTAMP, differences, topic_partition
from tests.fixtures_dir import CASES, Case, case
from tests.log.partitions import copy, fetched, offsets_read, rows

pytestmark = pytest.mark.slow

WHOLE = [fixture for fixture in CASES if not fixture.damaged]
DAMAGED = [fixture for fixture in CASES if fixture.damaged]
TRANSACTIONAL = [
    fixture
    for fixture in CASES
    if fixture.entry["expected"].get("committed", "same as records") != "same as records"
]

each_whole = pytest.mark.parametrize("fixture", WHOLE, ids=lambda fixture: fixture.name)
each_damaged = pytest.mark.parametrize("fixture", DAMAGED, ids=lambda fixture: fixture.name)


def schema_of(fixture: Case) -> pa.Schema:
    """Python cannot show the timestamps of v2-times."""
    return WITHOUT_TIMESTAMP if fixture.name == "v2-times" else ALL_COLUMNS


def of(partition: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in records if f"{r['topic']}-{r['partition']}" == partition]


def bounds(place: LogDirectory, partition: TopicPartition, *, read_committed: bool = True) -> Watermarks:
    return place.watermarks([partition], read_committed=read_committed)[partition]


def whole_range(place: LogDirectory, partition: TopicPartition, *, read_committed: bool) -> OffsetRange:
    found = bounds(place, partition, read_committed=read_committed)
    return OffsetRange(found.log_start_offset, found.end(read_committed=read_committed))


@each_whole
def test_topics_are_the_folders(fixture: Case) -> None:
    place = LogDirectory.open(str(fixture.directory))
    found = [f"{topic}-{number}" for topic, numbers in place.topics().items() for number in numbers]
    assert sorted(found) == sorted(p.name for p in fixture.directory.iterdir() if p.is_dir())


@each_whole
def test_bounds_are_those_of_the_broker(fixture: Case) -> None:
    place = LogDirectory.open(str(fixture.directory))
    for expected in fixture.offsets:
        partition = TopicPartition(expected["topic"], expected["partition"])
        found = bounds(place, partition)
        assert found.log_start_offset == expected["log_start_offset"]
        assert found.high_watermark == expected["high_watermark"]
        if "last_stable_offset" in expected:
            assert found.last_stable_offset == expected["last_stable_offset"]
        assert bounds(place, partition, read_committed=False).last_stable_offset == found.high_watermark


@each_whole
def test_offsets_for_times_are_those_of_the_broker(fixture: Case) -> None:
    place = LogDirectory.open(str(fixture.directory))
    for expected in fixture.offsets:
        partition = TopicPartition(expected["topic"], expected["partition"])
        for question in expected.get("offsets_for_times", []):
            assert place.offsets_for_times({partition: question["ts"]}) == {partition: question["offset"]}


@each_whole
@pytest.mark.parametrize("read_committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("slice_bytes", [1, 8 << 20], ids=["batch by batch", "at once"])
def test_rows_are_those_of_the_consumer(fixture: Case, read_committed: bool, slice_bytes: int) -> None:
    place = LogDirectory.open(str(fixture.directory), slice_bytes=slice_bytes)
    for name in fixture.partitions:
        partition = topic_partition(name)
        found = rows(
            place,
            partition,
            whole_range(place, partition, read_committed=read_committed),
            read_committed=read_committed,
            schema=schema_of(fixture),
        )
        assert not differences(of(name, fixture.committed if read_committed else fixture.records), found)


@each_whole
def test_slices_together_are_the_bytes_of_the_files(fixture: Case) -> None:
    place = LogDirectory.open(str(fixture.directory), slice_bytes=1000)
    for name in fixture.partitions:
        partition = topic_partition(name)
        offsets = whole_range(place, partition, read_committed=False)
        expected = b"".join(segment.read_bytes() for segment in fixture.segments(name))
        slices = fetched(place, partition, offsets)
        if fixture.name in ("v2-deleterecords", "v2-emptied"):
            assert expected.endswith(b"".join(s.buffer.to_pybytes() for s in slices))
        else:
            assert b"".join(s.buffer.to_pybytes() for s in slices) == expected
        for piece in slices:
            at, size = piece.origin.position, piece.buffer.size
            assert Path(piece.origin.file).read_bytes()[at : at + size] == piece.buffer.to_pybytes()


@each_whole
@pytest.mark.parametrize("indexes", ["as they are", "missing", "cut", "garbage", "of another segment"])
def test_any_range_is_read_whatever_the_indexes_say(fixture: Case, indexes: str, tmp_path: Path) -> None:
    chance = random.Random(fixture.name + indexes)
    root = copy(fixture, tmp_path / "root")
    for file in sorted(root.rglob("*.*index")):
        data = file.read_bytes()
        if indexes == "missing" or (indexes == "of another segment" and file.suffix == ".txnindex"):
            file.unlink()
        elif indexes == "cut":
            file.write_bytes(data[: len(data) * 7 // 10])
        elif indexes == "garbage":
            file.write_bytes(chance.randbytes(max(len(data), 240)))
        elif indexes == "of another segment":
            file.write_bytes(b"".join(sorted(f.read_bytes() for f in file.parent.glob("*" + file.suffix))))
    place = LogDirectory.open(str(root), slice_bytes=2000)
    for expected in fixture.offsets:
        partition = TopicPartition(expected["topic"], expected["partition"])
        found = bounds(place, partition)
        assert found.high_watermark == expected["high_watermark"]
        assert found.last_stable_offset == expected.get("last_stable_offset", found.high_watermark)
        offsets = [r["offset"] for r in of(str(partition), fixture.records)]
        start, end = found.log_start_offset, found.high_watermark
        for _ in range(6 if end > start else 0):
            low = chance.randrange(start, end)
            high = chance.randrange(low + 1, min(low + 40, end) + 1)
            read = offsets_read(place, partition, OffsetRange(low, high))
            assert read == [offset for offset in offsets if low <= offset < high]
        for question in expected.get("offsets_for_times", []):
            answer = place.offsets_for_times({partition: question["ts"]})[partition]
            if indexes == "as they are" or not fixture.name.startswith("v2-compacted"):
                assert answer == question["offset"]


@pytest.mark.parametrize("fixture", TRANSACTIONAL, ids=lambda fixture: fixture.name)
@pytest.mark.parametrize("gone", ["*.txnindex", "*.snapshot", "*.[ts][xn]*", "*"])
def test_transactions_follow_from_files_and_from_batches_alike(
    fixture: Case, gone: str, tmp_path: Path
) -> None:
    """For bounds and for rows, from any offset on, in slices of any size."""
    root = copy(fixture, tmp_path / "root")
    for file in root.rglob(gone):
        if file.suffix in (".txnindex", ".snapshot", ".index", ".timeindex"):
            file.unlink()
    for slice_bytes in (1, 300, 8 << 20):
        place = LogDirectory.open(str(root), slice_bytes=slice_bytes)
        for name in fixture.partitions:
            partition = topic_partition(name)
            whole = whole_range(place, partition, read_committed=True)
            committed = [r["offset"] for r in of(name, fixture.committed)]
            expected_end = fixture.recovery["last_stable_offset"] if fixture.damaged else None
            for line in fixture.offsets:
                if line["topic"] == partition.topic and line["partition"] == partition.partition:
                    expected_end = line.get("last_stable_offset")
            assert whole.end == expected_end
            for start in {whole.start, whole.start + 3, whole.end // 2, whole.end - 5}:
                read = offsets_read(place, partition, OffsetRange(start, whole.end), read_committed=True)
                assert read == [offset for offset in committed if offset >= start]


@each_damaged
def test_damaged_logs_end_where_recovery_ended_or_name_the_place(fixture: Case) -> None:
    """Strictly read: the rows that the broker kept, then the end or an error; no other rows."""
    (name,) = fixture.partitions
    partition = topic_partition(name)
    place = LogDirectory.open(str(fixture.directory))
    offsets = whole_range(place, partition, read_committed=False)
    if offsets.end == fixture.recovery["log_end_offset"] and fixture.name != "hurt-magic":
        found = rows(place, partition, offsets)
    else:
        with pytest.raises(CorruptRecordError) as caught:
            rows(place, partition, offsets)
        error = caught.value
        assert error.topic_partition == name
        assert error.offset == fixture.recovery.get("position_of_error", fixture.recovery["log_end_offset"])
        file, _, change = fixture.entry["made"]["change"].partition(": ")
        assert error.file == str(fixture.directory / name / file)
        assert f"the batch at position {error.position} " in change
        found = rows(place, partition, OffsetRange(offsets.start, error.offset))
    assert not differences(of(name, fixture.records), found)


@each_damaged
@pytest.mark.parametrize("read_committed", [False, True], ids=["uncommitted", "committed"])
def test_leaving_out_damage_loses_no_row_that_the_broker_kept(fixture: Case, read_committed: bool) -> None:
    (name,) = fixture.partitions
    partition = topic_partition(name)
    place = LogDirectory.open(str(fixture.directory))
    offsets = whole_range(place, partition, read_committed=read_committed)
    errors: list[CorruptRecordError] = []
    found = rows(place, partition, offsets, read_committed=read_committed, on_corrupt=errors.append)
    kept = of(name, fixture.committed if read_committed else fixture.records)
    assert not differences(kept, found[: len(kept)])
    left_out = offsets.end > fixture.recovery["log_end_offset"] or fixture.name == "hurt-magic"
    assert len(errors) == (1 if left_out else 0)


def test_a_torn_tail_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = copy(case("bad-cut-mid-batch"), tmp_path / "root")
    place = LogDirectory.open(str(root))
    partition = TopicPartition("bad-cut-mid-batch", 0)
    for _ in range(3):
        bounds(place, partition)
        bounds(LogDirectory.open(str(root)), partition)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "00000000000000000222.log from byte 3082" in record.getMessage()
