"""Folders that change while they are listed and read: no segment is left out, whatever is renamed.

A scripted file system shows the names of a listing one after another and lets a step of the
cleaner happen before any of them, as readdir over several getdents calls, or the pages of a store, may.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from pyspark_kafkalog.errors import DataLossError, LogDirectoryError
from pyspark_kafkalog.filesystem import folder as filesystem
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.model import OffsetRange, TopicPartition, Watermarks
from tests.broker.producing import connected, produce, rows, unused_topic
from tests.kafka import Broker
from tests.log.partitions import T0, batch, fetched, offsets_read, write_index, write_segment
from tests.tools.care.cleaning import beside_a_cleaner

pytestmark = pytest.mark.slow

ALL = OffsetRange(0, 30)
Step = Callable[[Path], None]


class Changing(fs.FSSpecHandler):
    """The local file system. Something happens before each name of a listing and before each open."""

    def __init__(self, order: Callable[[str], object], happening: Callable[[], None]) -> None:
        super().__init__(LocalFileSystem())
        self._order = order
        self._happening = happening

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """List a folder, name by name."""
        found = []
        base = Path(selector.base_dir)
        names = {base_offset_name(base, *which) for which in itertools.product((0, 5, 10, 20), SUFFIXES)}
        for name in sorted(names | {str(path) for path in base.iterdir()}, key=self._order):
            self._happening()
            found += [info for info in self.get_file_info([name]) if info.type != fs.FileType.NotFound]
        self._happening()
        return found

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open for reads by position."""
        self._happening()
        return super().open_input_file(path)


class Hiding(fs.FSSpecHandler):
    """The local file system, whose listings of a partition leave out the next item of ``hidden``."""

    def __init__(self, hidden: Iterator[set[int]]) -> None:
        super().__init__(LocalFileSystem())
        self._hidden = hidden

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """List a folder."""
        hidden = {
            base_offset_name(Path(selector.base_dir), base_offset, "")
            for base_offset in next(self._hidden, set())
        }
        return [info for info in super().get_file_info_selector(selector) if info.path not in hidden]


SUFFIXES = ("", ".cleaned", ".swap", ".deleted")


def opened(root: Path, handler: fs.FileSystemHandler, **settings: int) -> LogDirectory:
    return LogDirectory([LogRoot(Folder(fs.PyFileSystem(handler), str(root), str(root)))], **settings)


def base_offset_name(folder: Path, base_offset: int, suffix: str) -> str:
    return str(folder / f"{base_offset:020d}.log{suffix}")


def renaming(base_offset: int, before: str, after: str) -> Step:
    def rename(folder: Path) -> None:
        Path(base_offset_name(folder, base_offset, before)).rename(
            base_offset_name(folder, base_offset, after)
        )

    return rename


def cleaning(base_offset: int) -> list[Step]:
    """The cleaner replaces one segment by another."""
    return [
        renaming(base_offset, ".cleaned", ".swap"),
        renaming(base_offset, "", ".deleted"),
        renaming(base_offset, ".swap", ""),
    ]


def merging() -> list[Step]:
    """The cleaner replaces the segments 0 and 10 by a new segment 0."""
    return [
        renaming(0, ".cleaned", ".swap"),
        renaming(0, "", ".deleted"),
        renaming(10, "", ".deleted"),
        renaming(0, ".swap", ""),
    ]


def splitting() -> list[Step]:
    """A broker splits the segment 0, whose offsets are too far apart, into 0 and 5."""
    return [
        renaming(5, ".cleaned", ".swap"),
        renaming(0, ".cleaned", ".swap"),
        renaming(0, "", ".deleted"),
        renaming(0, ".swap", ""),
        renaming(5, ".swap", ""),
    ]


def fresh(folder: Path, cleaned: Sequence[Sequence[bytes]]) -> Path:
    """The partition t-0 with offsets 0 to 29 in segments of ten, and the cleaner's prepared files."""
    for file in folder.glob("t-0/*"):
        file.unlink()
    for base_offset in (0, 10, 20):
        write_segment(folder / "t-0", [batch(base_offset, 5), batch(base_offset + 5, 5)])
    for batches in cleaned:
        write_segment(folder / "t-0", batches, suffix=".cleaned")
    return folder


def check(root: Path, steps: list[Step], at: Sequence[int], order: Callable[[str], object]) -> int:
    """Read all while ``steps`` happen ``at`` some moments; returns the number of all moments."""
    moments, left = itertools.count(), list(zip(at, steps, strict=True))
    now = 0

    def happening() -> None:
        nonlocal now
        now = next(moments)
        while left and left[0][0] <= now:
            left.pop(0)[1](root / "t-0")

    place = opened(root, Changing(order, happening), slice_bytes=1)
    assert place.watermarks([T0], read_committed=False) == {T0: Watermarks(0, 30, 30)}
    assert offsets_read(place, T0, ALL) == list(range(30))
    return now


def drawn(salt: str, name: str) -> float:
    return random.Random(Path(name).name + salt).random()


KINDS = {
    "first": (cleaning(0), [[batch(0, 5), batch(5, 5)]]),
    "middle": (cleaning(10), [[batch(10, 5), batch(15, 5)]]),
    "merge": (merging(), [[batch(0, 5), batch(5, 5), batch(10, 5), batch(15, 5)]]),
    "split": (splitting(), [[batch(0, 5)], [batch(5, 5)]]),
}


@pytest.mark.parametrize(
    "kind",
    ["merge", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("split", "first", "middle"))],
)
def test_no_listing_that_changes_hides_a_segment(tmp_path: Path, kind: str) -> None:
    """In the order of names and its reverse, the steps at every combination of moments of one listing."""
    steps, cleaned = KINDS[kind]
    names = 16
    for reverse in (False, True):
        order = (lambda name: [-ord(c) for c in name]) if reverse else str
        moments = range(0, names + 1, 2 if len(steps) < 4 else 3)
        for at in itertools.combinations_with_replacement(moments, len(steps)):
            check(fresh(tmp_path, cleaned), steps, at, order)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_no_change_between_listing_and_opening_hides_a_segment(tmp_path: Path, kind: str) -> None:
    """At random moments while bounds and records are read, with names in random order."""
    steps, cleaned = KINDS[kind]
    for seed in range(150):
        chance = random.Random(seed)
        at = sorted(chance.randrange(120) for _ in steps)
        check(fresh(tmp_path, cleaned), steps, at, partial(drawn, str(seed)))


def test_a_replacement_that_hides_a_segment_from_two_listings_is_noticed(tmp_path: Path) -> None:
    """Each looks for ``.log`` while it is ``.swap``, which the first, having seen ``.cleaned``, ignores."""
    steps, cleaned = KINDS["first"]
    for later, (first, second) in itertools.product((0, 16), ((10, 10), (10, 12), (12, 12))):
        check(
            fresh(tmp_path, cleaned),
            steps,
            [first + later, second + later, 30 + later],
            lambda name: [name.endswith(suffix) for suffix in (".swap", ".log", ".cleaned")],
        )


@pytest.mark.parametrize("hides", [*itertools.product((True, False), repeat=3)][1:])
def test_a_segment_that_one_of_three_listings_shows_is_listed(tmp_path: Path, hides: Sequence[bool]) -> None:
    folder = fresh(tmp_path, []) / "t-0"
    handler = Hiding({10} if hidden else set() for hidden in hides)
    listed = Folder(fs.PyFileSystem(handler), str(folder), str(folder)).list()
    assert Path(base_offset_name(folder, 10, "")).name in listed


def test_a_store_that_hides_a_segment_for_long_hides_no_records(tmp_path: Path) -> None:
    """As in an eventually consistent store: a gap is believed when a later listing has it, too."""
    fresh(tmp_path, [])
    for listings in range(4):
        place = opened(tmp_path, Hiding(itertools.repeat({10}, listings)))
        assert offsets_read(place, T0, ALL) == list(range(30))


def test_the_end_is_looked_for_again_before_records_are_lost(tmp_path: Path) -> None:
    fresh(tmp_path, [])
    for hidden in ({20}, {0}, {0, 10, 20}):
        place = opened(tmp_path, Hiding(itertools.repeat(hidden, 2)))
        assert offsets_read(place, T0, ALL) == list(range(30))


def test_a_gap_that_compaction_left_is_looked_at_but_once(tmp_path: Path) -> None:
    for base_offset in range(0, 1000, 10):
        write_segment(tmp_path / "t-0", [batch(base_offset, 5)])
    listings = itertools.count()
    place = opened(tmp_path, Hiding(set() for _ in listings))
    offsets = OffsetRange(0, 995)
    assert offsets_read(place, T0, offsets) == [offset for offset in range(995) if offset % 10 < 5]
    assert next(listings) <= 7  # the last: for indexes without a log


class MergedAtOpening(fs.FSSpecHandler):
    """The local file system. ``steps`` happen before the segment 10 is opened."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__(LocalFileSystem())
        self._steps = steps

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open for reads by position."""
        while self._steps and path.endswith("10.log"):
            self._steps.pop(0)(Path(path).parent)
        return super().open_input_file(path)


def test_a_merged_segment_with_the_size_and_time_of_one_of_them_is_no_damage(tmp_path: Path) -> None:
    """The gap before it has been looked at, so that a listing has shown both."""
    old = [[batch(0, 5)], [batch(10, 5), batch(15, 5)], [batch(20, 5), batch(25, 5)]]
    files = [write_segment(tmp_path / "t-0", batches) for batches in old]
    files.append(write_segment(tmp_path / "t-0", [batch(10, 5), batch(25, 5)], suffix=".cleaned"))
    for file in files:
        os.utime(file, (1, 1))
    steps = [renaming(10, "", ".deleted"), renaming(20, "", ".deleted"), renaming(10, ".cleaned", "")]
    place = opened(tmp_path, MergedAtOpening(steps))
    assert offsets_read(place, T0, ALL) == [*range(5), *range(10, 15), *range(25, 30)]
    assert steps == []


def test_a_folder_that_never_stays_the_same_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_ATTEMPTS", 10)
    fresh(tmp_path, [])
    place = opened(tmp_path, Hiding(itertools.cycle([{0}, {10}])))
    with pytest.raises(LogDirectoryError, match="keeps changing while it is read") as caught:
        offsets_read(place, T0, ALL)
    assert caught.value.file == str(tmp_path / "t-0")
    assert caught.value.hint


def test_what_is_listed_but_cannot_be_opened_is_an_error_and_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_ATTEMPTS", 10)
    log = Path(base_offset_name(fresh(tmp_path, []) / "t-0", 10, ""))
    log.unlink()
    log.symlink_to("gone")
    place = LogDirectory.open(str(tmp_path))
    for ask in (lambda: fetched(place, T0, ALL), lambda: place.stored_sizes([T0])):
        with pytest.raises(LogDirectoryError, match=f"keeps changing.*{log.name}"):
            ask()


def test_a_listing_is_kept_while_the_folder_is_the_same(tmp_path: Path) -> None:
    """Files that come, go or grow are seen at once all the same."""
    folder = fresh(tmp_path, []) / "t-0"
    long_ago = time.time() - 10
    os.utime(folder, (long_ago, long_ago))
    place = LogDirectory.open(str(tmp_path))

    def end() -> int:
        return place.watermarks([T0], read_committed=False)[T0].high_watermark

    assert end() == 30
    with Path(base_offset_name(folder, 20, "")).open("ab") as active:
        active.write(batch(30, 5))
    assert end() == 35
    write_segment(folder, [batch(35, 5)])
    assert end() == 40
    Path(base_offset_name(folder, 0, "")).unlink()
    assert place.watermarks([T0], read_committed=False)[T0].log_start_offset == 10
    os.utime(folder, (long_ago, long_ago))
    assert end() == 40
    renaming(10, "", ".deleted")(folder)
    os.utime(folder, (long_ago, long_ago))  # as on a file system without times
    assert offsets_read(place, T0, OffsetRange(20, 40)) == list(range(20, 40))
    with pytest.raises(DataLossError, match="the log now starts at offset 20"):
        offsets_read(place, T0, OffsetRange(10, 40))


@pytest.mark.parametrize("segments", [16, 132])
def test_full_reads_beside_a_cleaner_lose_nothing(tmp_path: Path, segments: int, soak: bool) -> None:
    for base_offset in range(0, 5 * segments, 5):
        log = write_segment(tmp_path / "t-0", [batch(base_offset, 5)])
        write_index(log, [])
        log.with_suffix(".timeindex").touch()
    offsets = OffsetRange(0, 5 * segments)
    place = LogDirectory.open(str(tmp_path))
    reads, until = 0, time.monotonic() + (60 if soak else 2)
    with beside_a_cleaner(tmp_path / "t-0"):
        while reads <= 10 or time.monotonic() < until:
            assert place.watermarks([T0], read_committed=False) == {T0: Watermarks(0, *2 * [offsets.end])}
            assert offsets_read(place, T0, offsets) == list(range(offsets.end))
            reads += 1


@pytest.mark.soak
def test_full_reads_beside_a_brokers_cleaner_lose_nothing(
    new_broker: Callable[..., Broker],
) -> None:
    """Each batch makes a segment, which the cleaner merges; no two records have a key in common."""
    # Earlier it might delete files that it must still flush, which ends it.
    broker = new_broker({"log.cleaner.backoff.ms": 300, "log.segment.delete.delay.ms": 2000})
    broker.start()
    topic = unused_topic()
    configs = {"cleanup.policy": "compact", "segment.ms": 1000, "min.cleanable.dirty.ratio": 0.0001}
    (folder,) = broker.create_topic(topic, 1, configs)
    partition = TopicPartition(topic, 0)
    place = LogDirectory.open(str(broker.log_dir))
    cluster = connected(broker.bootstrap)
    end, reads, cleaned, before = 0, 0, 0, frozenset[str]()
    at_least, until = 100, time.monotonic() + 300
    while min(reads, cleaned) <= at_least and time.monotonic() < until:
        for _ in range(5):
            keys = [b"%d" % key for key in range(end, end + 10)]
            stamps = np.full(10, 1_700_000_000_000_000 + 2_000_000 * end, np.int64)
            times = pa.array(stamps, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            produce(cluster, topic, [rows(key=keys, value=keys, timestamp=times)])
            end += 10
        bounds = place.watermarks([partition], read_committed=False)
        assert bounds == {partition: Watermarks(0, end, end)}
        assert offsets_read(place, partition, OffsetRange(0, end)) == list(range(end))
        reads += 1
        logs = frozenset(path.name for path in folder.glob("*.log"))
        cleaned += len(before - logs)
        before = logs
    print(f"{reads} reads of up to {end} records, beside {cleaned} segments that the cleaner took away")
    assert min(reads, cleaned) > at_least
