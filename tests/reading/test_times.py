"""Where a time begins, also where compaction has left headers that mislead a look-up."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.backups.restore import Restore, RestoreSettings
from pyspark_kafkalog.options.settings import place_options, write_options
from pyspark_kafkalog.reading.times import offsets_at
from tests.log.partitions import FIRST_TIMESTAMP, T0, batch, emptied_batch, write_segment
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
