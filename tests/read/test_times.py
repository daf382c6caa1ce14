"""Where a time begins, also where compaction has left headers that mislead a look-up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.codec.format import LOG_APPEND_TIME_BIT
from pyspark_kafkalog.options.settings import place_options, write_options
from pyspark_kafkalog.read.times import offsets_at
from pyspark_kafkalog.tools.backup.restore import Restore, RestoreSettings
from tests.codec.raw import batch as raw_batch
from tests.codec.raw import record
from tests.log.partitions import (
    FIRST_TIMESTAMP,
    T0,
    batch,
    emptied_batch,
    write_segment,
    write_time_index,
)
from tests.log.writing import read, write

WITHIN = FIRST_TIMESTAMP + 2
"""Before the records at 4 and 5, and not after the timestamp of a batch that has none any more."""


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """Records at offsets 0, 4 and 5, whose timestamps rise with them."""
    folder = tmp_path / "log" / "t-0"
    write_segment(folder, [batch(0, 1), emptied_batch(3, producer_id=7)])
    write_segment(folder, [batch(4, 1), batch(5, 1)])
    return folder.parent


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 0), (FIRST_TIMESTAMP, 0), (WITHIN, 4), (WITHIN + 3, 5), (WITHIN + 4, 6)]
)
def test_it_looks_behind_a_batch_without_records(compacted: Path, timestamp: int, offset: int) -> None:
    place = connect(compacted).place
    assert place.offsets_for_times({T0: WITHIN}) == {T0: None}
    bounds = place.watermarks([T0], read_committed=False)
    assert offsets_at(place, bounds, timestamp) == {T0: offset}


def test_newer_records_are_not_deleted(compacted: Path) -> None:
    options = {"path": str(compacted)}
    (row,) = connect(options).logs.delete_records(
        connect(options).logs.offsets_before([T0], WITHIN), execute=True
    )
    assert row.new_log_start_offset == 4


def test_records_that_come_later_are_not_deleted(tmp_path: Path) -> None:
    write(tmp_path, {T0: [b"old"]})
    options = {"path": str(tmp_path)}
    offsets = connect(options).logs.offsets_before([T0], WITHIN)
    write(tmp_path, {T0: [b"new"]}, timestamp=WITHIN)
    connect(options).logs.delete_records(offsets, execute=True)
    assert read(tmp_path)[T0] == [b"new"]


def test_a_range_of_time_is_copied(compacted: Path, tmp_path: Path) -> None:
    (until,) = connect(compacted).logs.backup(str(tmp_path / "until"), BackupRules(groups=(), until=WITHIN))
    (since,) = connect(compacted).logs.backup(str(tmp_path / "since"), BackupRules(groups=(), since=WITHIN))
    assert (until.log_start_offset, until.log_end_offset) == (0, 4)
    assert (since.log_start_offset, since.log_end_offset) == (4, 6)


def test_a_restore_ends_at_the_time(compacted: Path, tmp_path: Path) -> None:
    source, target = {"path": str(compacted)}, {"kafka.bootstrap.servers": "localhost:1"}
    settings = RestoreSettings(until=WITHIN, state=str(tmp_path / "state"))
    restore = Restore(place_options(source), write_options(target), place_options(target), settings)
    (planned,) = restore._planned()
    assert (planned.start, planned.end) == (0, 4)


def misdated(base_offset: int, **fields: int) -> bytes:
    """Ten records at FIRST_TIMESTAMP and their offset, in a batch as Sarama sent it."""
    records = [record(b"%020d" % i, delta=i, timestamp_delta=i) for i in range(10)]
    start = FIRST_TIMESTAMP + base_offset
    return raw_batch(records, base_offset=base_offset, base_timestamp=start, **{"max_timestamp": 0} | fields)


def test_records_decide_where_a_header_is_wrong(tmp_path: Path) -> None:
    """In every segment, also one that is large enough for its time index, and beside right batches."""
    folder = tmp_path / "log" / "t-0"
    large = [misdated(offset) for offset in range(0, 4000, 10)]
    write_time_index(write_segment(folder, large), [(0, 9), (0, 3999)])
    write_segment(folder, [misdated(4000), batch(4010, 10), misdated(4020, compression=1)])
    write_segment(folder, [misdated(4030, attributes=LOG_APPEND_TIME_BIT, max_timestamp=5)])
    place = connect(folder.parent).place
    assert place.newest_timestamps([T0]) == {T0: FIRST_TIMESTAMP + 4029}
    bounds = place.watermarks([T0], read_committed=False)
    for offset in (0, 1234, 3999, 4005, 4010, 4019, 4020, 4029):
        assert place.offsets_for_times({T0: FIRST_TIMESTAMP + offset}) == {T0: offset}
        assert offsets_at(place, bounds, FIRST_TIMESTAMP + offset) == {T0: offset}
    assert place.offsets_for_times({T0: FIRST_TIMESTAMP + 4030}) == {T0: None}
    assert offsets_at(place, bounds, FIRST_TIMESTAMP + 4030) == {T0: 4040}
    since = pa.scalar(FIRST_TIMESTAMP + 4027, pa.timestamp("ms", "UTC")).as_py()
    with connect(folder.parent) as log:
        found = pa.Table.from_batches(log.read("t", filters=[("timestamp", ">=", since)]))
        assert found["offset"].to_pylist() == [4027, 4028, 4029]
        # What a broker would go by.
        newest = [0, FIRST_TIMESTAMP + 4019, 5]
        assert [segment.latest_timestamp for segment in log.place.segments(T0)] == newest
