"""The segments of a directory, and the state of their indexes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyspark_kafkalog.client.partitions import segments
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.options.settings import Selection
from tests.fixtures_dir import case

CASE = case("v2-compacted-tombstones")
(NAME,) = CASE.partitions


def shown(root: Path) -> list[tuple[int, str, bool]]:
    rows = segments(LogDirectory.open(str(root)))
    return [(row.base_offset, row.index_state, row.active) for row in rows]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CASE.directory, tmp_path / "log"))


def test_segments_of_a_brokers_directory(root: Path) -> None:
    rows = segments(LogDirectory.open(str(root)), Selection(topics=("v2-compacted-tombstones",)))
    files = sorted((root / NAME).glob("*.log"))
    assert [row.file for row in rows] == [str(file) for file in files]
    assert [row.segment for row in rows] == [file.name for file in files]
    assert [row.stored_bytes for row in rows] == [file.stat().st_size for file in files]
    assert [row.active for row in rows] == [False] * (len(files) - 1) + [True]
    assert {row.index_state for row in rows} == {"ok"}
    dated = [row for row in rows if row.latest_timestamp is not None]
    assert dated
    assert all((row.earliest_timestamp or 0) <= (row.latest_timestamp or 0) for row in dated)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_that_are_missing_or_of_another_size(root: Path, suffix: str) -> None:
    first = min((root / NAME).glob("*.log"))
    index = first.with_suffix(suffix)
    index.unlink()
    assert shown(root)[0] == (0, "missing", False)
    assert {state for _, state, _ in shown(root)[1:]} == {"ok"}
    index.write_bytes(bytes(5))
    assert shown(root)[0] == (0, "damaged", False)


def test_an_index_whose_last_entry_points_nowhere(root: Path) -> None:
    first = min((root / NAME).glob("*.log"))
    first.with_suffix(".index").write_bytes(b"\0\0\0\5\0\0\0\7")
    assert shown(root)[0][1] == "damaged"
    first.with_suffix(".index").write_bytes(b"\0\0\0\5" + (1 << 30).to_bytes(4, "big"))
    assert shown(root)[0][1] == "damaged"
    first.with_suffix(".index").write_bytes(bytes(8 * 100))  # preallocated, without entries
    assert shown(root)[0][1] == "ok"


def test_what_is_damaged_counts_more_than_what_is_missing(root: Path) -> None:
    first = min((root / NAME).glob("*.log"))
    first.with_suffix(".timeindex").unlink()
    first.with_suffix(".index").write_bytes(bytes(5))
    assert shown(root)[0][1] == "damaged"


def test_no_records_have_no_timestamps(tmp_path: Path) -> None:
    folder = tmp_path / "empty-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"")
    (row,) = segments(LogDirectory.open(str(tmp_path)))
    assert (row.stored_bytes, row.earliest_timestamp, row.latest_timestamp) == (0, None, None)
