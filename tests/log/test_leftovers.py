"""What a crash left of a replacement of segments is put in order before anything is appended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.layout import parse_segment_file
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.model import LogSettings, OffsetRange
from pyspark_kafkalog.tools.backup.copies.directory import open_backup
from tests.log.partitions import batch, fetched, offsets_read, write_segment
from tests.log.test_undo import Crash
from tests.log.writing import T0, values, write

TEMPORARY = (".swap", ".cleaned", ".deleted")


def offsets(root: Path) -> list[int]:
    place = LogDirectory.open(str(root))
    bounds = place.watermarks([T0], read_committed=False)[T0]
    return offsets_read(place, T0, OffsetRange(bounds.log_start_offset, bounds.high_watermark))


def salvaged(folder: Path) -> list[int]:
    """The last segment was rewritten, and has its new name except for ``.swap``."""
    write_segment(folder, [batch(offset) for offset in (0, 10, 20, 30)])
    write_segment(folder, [batch(offset) for offset in (0, 10, 30)], suffix=".swap")
    return [*range(20), *range(30, 40)]


def split(folder: Path) -> list[int]:
    """A broker split the last segment, and had not taken ``.swap`` off yet."""
    write_segment(folder, [batch(0)])
    write_segment(folder, [batch(10)], suffix=".swap")
    write_segment(folder, [batch(20), batch(30)], suffix=".swap")
    write_segment(folder, [batch(10), batch(20), batch(30)], suffix=".deleted")
    (folder / f"{10:020d}.index").write_bytes(b"")
    return list(range(40))


def split_in_part(folder: Path) -> list[int]:
    """A broker had renamed the second half of what it split."""
    write_segment(folder, [batch(offset) for offset in (0, 10, 20, 30)])
    write_segment(folder, [batch(0), batch(10)], suffix=".cleaned")
    write_segment(folder, [batch(20), batch(30)], suffix=".swap")
    return list(range(40))


def merged(folder: Path) -> list[int]:
    """Three segments were merged and compacted, and the last one is not deleted yet."""
    write_segment(folder, [batch(0, 5), batch(20, 1)], base_offset=0, suffix=".swap")
    write_segment(folder, [batch(20)])
    write_segment(folder, [batch(30)])
    return [*range(5), 20, *range(30, 40)]


each_crash = pytest.mark.parametrize("crash", [salvaged, split, split_in_part, merged])


@each_crash
def test_records_are_appended_to_the_segments_that_readers_see(
    crash: Callable[[Path], list[int]], tmp_path: Path
) -> None:
    expected = crash(tmp_path / "t-0")
    assert offsets(tmp_path) == expected
    written = write(tmp_path, {T0: values(3)})
    assert written.offsets[T0] == OffsetRange(40, 43)
    assert offsets(tmp_path) == [*expected, 40, 41, 42]
    assert not [path.name for path in (tmp_path / "t-0").iterdir() if path.suffix in TEMPORARY]
    assert not connect(tmp_path).logs.repair(execute=True).partitions[0].cut_bytes
    assert offsets(tmp_path) == [*expected, 40, 41, 42]


@each_crash
def test_a_backup_goes_on_after_what_readers_see(crash: Callable[[Path], list[int]], tmp_path: Path) -> None:
    expected = crash(tmp_path / "t-0")
    write_segment(tmp_path / "leader" / "t-0", [batch(40)])
    with open_backup(str(tmp_path)) as directory:
        log = directory.open(T0, LogSettings(), start=0, topic_id="")
        assert log.next_offset == 40
        for piece in fetched(LogDirectory.open(str(tmp_path / "leader")), T0, OffsetRange(40, 50)):
            log.append(piece)
    assert offsets(tmp_path) == [*expected, *range(40, 50)]


@each_crash
@pytest.mark.parametrize("order", [1, -1], ids=["ascending", "descending"])
def test_however_often_it_is_interrupted_readers_see_the_same(
    crash: Callable[[Path], list[int]], order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    expected = crash(folder)
    listdir, calls = os.listdir, {"unlink": os.unlink, "replace": os.replace}

    def interrupted(name: str) -> Callable[..., None]:
        def step(*paths: str) -> None:
            calls[name](*paths)
            raise Crash

        return step

    done = False
    while not done:
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", lambda path: sorted(listdir(path))[::order])
            for name in calls:
                patch.setattr(os, name, interrupted(name))
            try:
                clear_leftovers(str(folder))
                done = True
            except Crash:
                pass
        assert offsets(tmp_path) == expected
    assert not [path.name for path in folder.iterdir() if path.suffix in TEMPORARY]


def test_what_proves_that_a_segment_is_missing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_segment(folder, [batch(0)])
    (folder / f"{10:020d}.index").write_bytes(b"")
    write_segment(folder, [batch(20)])
    write_segment(folder, [batch(20, 5)], suffix=".swap")
    clear_leftovers(str(folder))
    names = {parse_segment_file(path.name) for path in folder.iterdir()}
    assert names == {(0, ".log"), (10, ".index"), (20, ".log")}
    (repaired,) = connect(tmp_path).logs.repair(execute=True).partitions
    assert next((step.why, step.offset) for step in repaired.steps) == ("its segment is missing", 10)


def test_a_salvage_that_is_killed_leaves_the_old_segment_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        write(tmp_path, {T0: values(10)})
    (log,) = (tmp_path / "t-0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 4 + 80] ^= 1
    log.write_bytes(content)
    replace, killed = os.replace, []

    def rename(old: str, new: str) -> None:
        replace(old, new)
        if ".log" in new:
            killed.append(new)
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", rename)
        with pytest.raises(Crash):
            connect(tmp_path).logs.repair(execute=True, salvage=True)
    assert killed == [str(log)]
    write(tmp_path, {T0: values(5)})
    expected = [*range(10), *range(20, 45)]
    assert offsets(tmp_path) == expected
    assert connect(tmp_path).logs.repair(execute=True, salvage=True).clean_shutdown
    assert offsets(tmp_path) == expected
