"""A write finds the last segment of a partition without a listing, and never the wrong one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.publish import newest
from pyspark_kafkalog.log.publish.newest import NEWEST_FILE, Newest, find_newest
from pyspark_kafkalog.log.read import listings
from tests.log.partitions import batch, write_segment
from tests.log.writing import T0, T1, read, values, write, write_batch

REST = 0.03
"""Seconds, here; the clock of files has steps of up to 10 ms."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "_MANY", 1)
    monkeypatch.setattr(listings, "_AT_REST_NS", int(REST * 1e9))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed."""
    found: list[str] = []
    for name in ("listdir", "scandir"):
        really = getattr(os, name)

        def note(path: str, really: Callable[[str], object] = really) -> object:
            found.append(str(path))
            return really(path)

        monkeypatch.setattr(os, name, note)
    return found


def quiet_writes(root: Path) -> None:
    """Three writes, after which a note tells where the log ends."""
    for number in range(3):
        write(root, {T0: values(1, start=number)})
        time.sleep(2 * REST)


def known(root: Path, listed: list[str]) -> bool:
    """Whether the last segment is found without a listing."""
    listed.clear()
    find_newest(str(root / "t-0"))
    return not listed


def test_the_third_write_lists_nothing(tmp_path: Path, listed: list[str]) -> None:
    quiet_writes(tmp_path)
    listed.clear()
    write(tmp_path, {T0: values(1, start=3)})
    write_batch(tmp_path, 0, {T0: values(1, start=4)})
    write_batch(tmp_path, 1, {T0: values(1, start=5)})
    assert not [path for path in listed if not path.endswith(("-delete", "/fd"))]
    assert read(tmp_path)[T0] == values(6)


def test_a_write_does_not_list_the_directory(tmp_path: Path, listed: list[str]) -> None:
    """Neither to route rows, nor to publish them, nor to remove what was staged."""
    kafka = connect(tmp_path / "log")
    for _ in range(2):
        listed.clear()
        kafka.write(pa.table({"value": [b"v"] * 10}), "t")
    assert str(tmp_path / "log") not in listed


CHANGES: dict[str, Callable[[Path], object]] = {
    "a broker rolls": lambda folder: write_segment(folder, [batch(3, 2)]),
    "a broker shuts down": lambda folder: (folder / f"{3:020d}.snapshot").write_bytes(b""),
    "the first segment goes": lambda folder: (
        write_segment(folder, [batch(3, 2)]).with_name(f"{0:020d}.log").unlink()
    ),
    "a cleaner was killed": lambda folder: (folder / f"{0:020d}.log.cleaned").write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_others_have_done_meanwhile_is_seen(
    tmp_path: Path, listed: list[str], change: Callable[[Path], object]
) -> None:
    quiet_writes(tmp_path)
    assert known(tmp_path, listed)
    change(tmp_path / "t-0")
    listed.clear()
    write(tmp_path, {T0: values(1, start=9)})
    assert str(tmp_path / "t-0") in listed
    assert read(tmp_path)[T0][-1:] == values(1, start=9)
    ends = sorted(path.name for path in (tmp_path / "t-0").glob("*.log"))
    assert find_newest(str(tmp_path / "t-0")).segment == int(ends[-1][:20])


def test_files_behind_the_last_segment_are_known(tmp_path: Path, listed: list[str]) -> None:
    quiet_writes(tmp_path)
    name = f"{3:020d}.snapshot"
    (tmp_path / "t-0" / name).write_bytes(b"")
    for _ in range(2):
        time.sleep(2 * REST)
        assert find_newest(str(tmp_path / "t-0")) == Newest(0, (name,))
    assert known(tmp_path, listed)


def test_a_copy_is_another_folder(tmp_path: Path, listed: list[str]) -> None:
    quiet_writes(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert known(tmp_path / "one", listed)
    assert not known(tmp_path / "two", listed)
    write_segment(tmp_path / "two" / "t-0", [batch(3, 2)])
    shutil.copy2(tmp_path / "one" / "t-0" / NEWEST_FILE, tmp_path / "two" / "t-0")
    assert find_newest(str(tmp_path / "two" / "t-0")).segment == 3


def test_a_folder_that_has_just_changed_is_listed_again(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "_AT_REST_NS", 3_600_000_000_000)
    quiet_writes(tmp_path)
    assert not known(tmp_path, listed)


def test_a_note_of_another_machine_or_from_before_its_last_start(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet_writes(tmp_path)
    monkeypatch.setattr(newest, "machine_id", lambda: "another")
    assert not known(tmp_path, listed)
    assert known(tmp_path, listed)


def test_a_file_system_without_times_of_folders(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    really = newest._state
    monkeypatch.setattr(newest, "_state", lambda folder: really(folder)._replace(modified_ns=1, changed_ns=1))
    quiet_writes(tmp_path)
    assert not known(tmp_path, listed)


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace(b"[0,", b"[9,"), lambda _: b""]
)
def test_a_note_that_is_not_whole(
    tmp_path: Path, listed: list[str], damage: Callable[[bytes], bytes]
) -> None:
    quiet_writes(tmp_path)
    note = tmp_path / "t-0" / NEWEST_FILE
    assert note.read_bytes() != damage(note.read_bytes())
    note.write_bytes(damage(note.read_bytes()))
    assert not known(tmp_path, listed)
    write(tmp_path, {T0: values(1, start=3)})
    assert read(tmp_path)[T0] == values(4)


def test_a_note_that_cannot_be_written(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(newest, "_write", fail)
    quiet_writes(tmp_path)
    write(tmp_path, {T1: values(1)})
    assert not known(tmp_path, listed)
    assert read(tmp_path) == {T0: values(3), T1: values(1)}


def test_small_folders_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "_MANY", 500)
    quiet_writes(tmp_path)
    assert not (tmp_path / "t-0" / NEWEST_FILE).exists()
