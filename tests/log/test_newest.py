"""A write finds the last segment of a partition, and lists no more than that partition."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.publish import newest as newest_module
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


_TICK = 0.05


def noted(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a partition whose last segment is noted: a writer does not list it."""
    monkeypatch.setattr(newest_module, "_MANY", 1)
    monkeypatch.setattr(newest_module, "_TICK_NS", int(_TICK * 1e9))
    write(root, {T0: values(3)})
    for _ in range(2):
        time.sleep(2 * _TICK)
        find_newest(str(root / "t-0"))
    assert not lists(root / "t-0", monkeypatch)
    return root / "t-0"


def lists(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the last segment is found by a listing."""
    listed = []
    really = os.listdir
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda path: listed.append(path) or really(path))
        find_newest(str(folder))
    return bool(listed)


@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_write_goes_on_where_others_have_changed_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], is_noted: bool
) -> None:
    if is_noted:
        noted(tmp_path, monkeypatch)
    else:
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


def _as_a_copy(folder: Path) -> None:
    """An older folder in its place, with its times."""
    older = folder.with_name("older")
    shutil.copytree(folder, older)
    shutil.copystat(folder, older)
    shutil.rmtree(folder)
    older.rename(folder)


def _with_other_times(folder: Path) -> None:
    """A segment comes, and the folder gets the time that it had."""
    before = os.stat(folder)
    write_segment(folder, [batch(3, 2)])
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def _torn(folder: Path) -> None:
    os.truncate(folder / ".kafkalog-newest", 20)


def _forged(folder: Path) -> None:
    note = json.loads((folder / ".kafkalog-newest").read_text())
    (folder / ".kafkalog-newest").write_text(json.dumps({**note, "others": None}))


@pytest.mark.parametrize("change", [_as_a_copy, _with_other_times, _torn, _forged])
def test_a_note_of_another_state_of_the_folder_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    folder = noted(tmp_path, monkeypatch)
    change(folder)
    logs = sorted(path.name for path in folder.glob("*.log"))
    assert lists(folder, monkeypatch)
    assert find_newest(str(folder)).segment == int(logs[-1][:20])


def test_a_note_is_not_believed_if_the_folder_changed_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of two changes may be the same."""
    folder = noted(tmp_path, monkeypatch)
    monkeypatch.setattr(newest_module, "_TICK_NS", 3600 * 10**9)
    assert lists(folder, monkeypatch)


def test_no_note_where_a_file_system_does_not_tell_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_module, "_MANY", 1)
    monkeypatch.setattr(newest_module, "_TICK_NS", 0)
    monkeypatch.setattr(newest_module, "_state", lambda folder: (1, 2, 3, 4))
    for start in 0, 3:
        write(tmp_path, {T0: values(3, start=start)})
    assert not (tmp_path / "t-0" / ".kafkalog-newest").exists()


def test_a_small_folder_has_no_note(tmp_path: Path) -> None:
    write(tmp_path, {T0: values(3)})
    find_newest(str(tmp_path / "t-0"))
    assert not (tmp_path / "t-0" / ".kafkalog-newest").exists()
