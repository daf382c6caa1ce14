"""A write finds the last segment of a partition, and lists no more than that partition."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.publish import staged_files
from pyspark_kafkalog.log.publish.newest import Newest, find_newest
from tests.log.partitions import batch, write_segment
from tests.log.writing import T0, read, values, write


def test_a_write_does_not_list_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to route rows, nor to publish them, nor to remove what was staged."""
    listed: list[str] = []
    for name in ("listdir", "scandir"):
        really = getattr(os, name)

        def note(path: str, really: Callable[[str], object] = really) -> object:
            listed.append(str(path))
            return really(path)

        monkeypatch.setattr(os, name, note)
    monkeypatch.setattr(staged_files, "_LISTED_SHARE", 1e-9)
    kafka = connect(tmp_path / "log")
    for _ in range(2):
        listed.clear()
        kafka.write(pa.table({"value": [b"v"] * 10}), "t")
    assert str(tmp_path / "log") not in listed
    assert str(tmp_path / "log" / "t-0") in listed


CHANGES: dict[str, Callable[[Path], object]] = {
    "a broker rolls": lambda folder: write_segment(folder, [batch(3, 2)]),
    "a broker shuts down": lambda folder: (folder / f"{3:020d}.snapshot").write_bytes(b""),
    "the first segment goes": lambda folder: (
        write_segment(folder, [batch(3, 2)]).with_name(f"{0:020d}.log").unlink()
    ),
    "a cleaner was killed": lambda folder: (folder / f"{0:020d}.log.cleaned").write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_write_goes_on_where_others_have_changed_a_partition(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    write(tmp_path, {T0: values(3)})
    change(tmp_path / "t-0")
    write(tmp_path, {T0: values(1, start=9)})
    assert read(tmp_path)[T0][-1:] == values(1, start=9)
    ends = sorted(path.name for path in (tmp_path / "t-0").glob("*.log"))
    assert find_newest(str(tmp_path / "t-0")).segment == int(ends[-1][:20])


def test_files_behind_the_last_segment_are_known(tmp_path: Path) -> None:
    write(tmp_path, {T0: values(3)})
    behind = {f"{3:020d}.snapshot", f"{7:020d}.bad.log"}
    for name in (*behind, "zzz", f"{2**63:020d}.log", "99.log"):
        (tmp_path / "t-0" / name).write_bytes(b"")
    newest = find_newest(str(tmp_path / "t-0"))
    assert (newest.segment, set(newest.others)) == (0, behind)


def test_a_folder_without_a_segment(tmp_path: Path) -> None:
    (tmp_path / f"{3:020d}.snapshot").write_bytes(b"")
    assert find_newest(str(tmp_path)) == Newest(None, (f"{3:020d}.snapshot",))
