"""A sector that can't be read is an error that names the file, on every way through a log's files.

The sector is real: a file system on a loop device whose end is cut off after the files were written. A file
that is mapped would end the process here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog.client.kafka import connect
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.cleanup import deleting
from pyspark_kafkalog.extensions.cleanup.compacting import compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import CompactionSettings
from pyspark_kafkalog.extensions.log_groups.cleaner import clean
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.checkpoints import write_offsets
from pyspark_kafkalog.log.layout import JOURNAL_FILE, RECOVERY_POINT_CHECKPOINT
from pyspark_kafkalog.log.publish import journal, publish
from pyspark_kafkalog.log.publish.staged_files import abort
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import (
    CommittedOffset,
    Fetch,
    LogSettings,
    OffsetRange,
    QueryBatch,
    TopicPartition,
)
from pyspark_kafkalog.tools.backup.copies.directory import open_backup
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from pyspark_kafkalog.tools.care.partition_repair import RepairMode
from pyspark_kafkalog.tools.care.repair import repair
from tests.log.writing import T0, T1, publish_staged, read, stage, values, write

PAGE = 4096
SIZE = 24 << 20
_BLOCK_OF_FILE = 1
"""Linux's ioctl FIBMAP."""


@dataclass(frozen=True)
class Disk:
    image: Path
    device: str
    mount: Path

    def take(self, template: Path, name: str, at: int) -> Path:
        """A copy of a log directory whose file ``name`` can't be read from the page of byte ``at`` on."""
        room = self.mount / "room"  # what is written later has space below the border
        _fill(room, 4 << 20)
        root = self.mount / "log"
        shutil.copytree(template, root)
        (root / name).unlink()
        os.sync()
        files = [room, *(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)]
        highest = max(_block(path, -(-path.stat().st_size // PAGE) - 1) for path in files)
        border = 0
        for number in range(1000):  # until the holes between the other files are full
            bad = self.mount / f"copy-{number}"
            shutil.copy2(template / name, bad)
            os.sync()
            border = _block(bad, at // PAGE)
            if border > highest:
                break
        bad = bad.rename(root / name)
        _fill(self.mount / "filler", SIZE)
        room.unlink()
        os.sync()
        os.truncate(self.image, border * PAGE)
        subprocess.run(["losetup", "--set-capacity", self.device], check=True)
        descriptor = os.open(bad, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            with pytest.raises(OSError, match="Input/output error"):
                os.pread(descriptor, 1, at)
        finally:
            os.close(descriptor)
        return root


def _fill(path: Path, size: int) -> None:
    """Write a file of ``size`` bytes, or until the disk is full."""
    with path.open("wb", buffering=0) as file:
        with suppress(OSError):
            for _ in range(size // PAGE):
                file.write(b"x" * PAGE)
        os.fsync(file.fileno())


def _block(path: Path, number: int) -> int:
    """The block of the device that has a block of a file."""
    with path.open("rb") as file:
        (found,) = struct.unpack("i", fcntl.ioctl(file, _BLOCK_OF_FILE, struct.pack("i", number)))
    assert found
    return int(found)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or not all(map(shutil.which, ("losetup", "mkfs.ext4", "mount"))):
        pytest.skip("NOT TESTED: only root, with losetup and mkfs.ext4, can make a bad sector")
    image, mount = tmp_path / "image", tmp_path / "disk"
    image.touch()
    os.truncate(image, SIZE)
    mount.mkdir()
    made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"NOT TESTED: no bad sector can be made: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        command = [
            "mkfs.ext4",
            "-q",
            "-O",
            "^has_journal",
            "-E",
            "lazy_itable_init=0",
            "-b",
            str(PAGE),
            device,
        ]
        subprocess.run(command, check=True)
        mounted = subprocess.run(["mount", device, str(mount)], capture_output=True, text=True)
        if mounted.returncode:
            pytest.skip(f"NOT TESTED: no bad sector can be made: {mounted.stderr.strip()}")
        try:
            yield Disk(image, device, mount)
        finally:
            subprocess.run(["umount", "--lazy", str(mount)], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


SEGMENT = f"{0:020d}.log"
LOG = f"t-0/{SEGMENT}"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A log directory: one segment of 120 KB, that ends with a publish that left no index entry."""
    root = tmp_path / "template"
    write(root, {T0: values(1000, 100)}, index_interval_bytes=4096)
    write(root, {T0: values(100, 100, 1000)}, index_interval_bytes=1 << 30)
    assert (root / LOG).stat().st_size > 24 * PAGE
    return root


def state(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Size and content of all files but locks; no content of one that can't be read."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and "lock" not in path.name:
            try:
                content = path.read_bytes()
            except OSError:
                content = None
            found[str(path.relative_to(root))] = (path.stat().st_size, content)
    return found


def check(root: Path, name: str, act: Callable[[], object]) -> None:
    """See that ``act`` fails because of the file ``name``, and leaves all as it was."""
    before, path = state(root), str(root / name)
    assert before[name][1] is None
    with pytest.raises((KafkaLogError, OSError)) as e:
        act()
    found = e.value.file if isinstance(e.value, KafkaLogError) else e.value.filename
    assert found == path
    assert "Input/output error" in str(e.value)
    assert state(root) == before


END, MIDDLE = 1 << 30, 40_000


def at(template: Path, position: int) -> int:
    """``position`` of the log, or its last page."""
    return min(position, (template / LOG).stat().st_size - PAGE)


def publishes(root: Path) -> None:
    staged = stage(root, "job", {T1: values(3), T0: values(3)})
    try:
        publish_staged(root, staged, QueryBatch("job"))
    finally:
        abort(str(root), QueryBatch("job"), staged)


def test_publish(disk: Disk, template: Path) -> None:
    root = disk.take(template, LOG, at(template, END))
    check(root, LOG, lambda: publishes(root))


def test_publish_after_an_unclean_end(disk: Disk, template: Path) -> None:
    (template / LOG).with_suffix(".index").unlink()
    root = disk.take(template, LOG, at(template, MIDDLE))
    check(root, LOG, lambda: publishes(root))


def test_search_behind_damage(disk: Disk, template: Path) -> None:
    """What can't be read may be a valid batch: nothing is cut off."""
    log = template / LOG
    log.with_suffix(".index").unlink()
    with log.open("r+b") as file:
        file.seek(10_000)
        file.write(bytes(100))
    root = disk.take(template, LOG, at(template, END))
    check(root, LOG, lambda: publishes(root))


def test_undo(disk: Disk, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(journal, "commit", fail)
        patch.setattr(publish, "_undo", lambda root: None)
        staged = stage(template, "killed", {T0: values(400, 100, 1100)}, batch_size=1000)
        with pytest.raises(KeyboardInterrupt):
            publish_staged(template, staged, QueryBatch("killed"))
    assert (template / JOURNAL_FILE).exists()
    root = disk.take(template, LOG, at(template, END))
    check(root, LOG, lambda: publishes(root))


def test_staged_file(disk: Disk, template: Path) -> None:
    (staged,) = stage(template, "job", {T1: values(3), T0: values(100, 500)})
    root = disk.take(template, staged.name, 2 * PAGE)
    check(root, staged.name, lambda: publish_staged(root, [staged], QueryBatch("job")))


def test_recovery_of_a_backup(disk: Disk, template: Path) -> None:
    root = disk.take(template, LOG, at(template, MIDDLE))

    def opens() -> None:
        with BackupLog.open(str(root / "t-0"), T0, LogSettings(), 0, recovery_point=1100):
            pass

    check(root, LOG, opens)


def test_backup(disk: Disk, template: Path) -> None:
    shutil.rmtree(template / "t-1")
    write_offsets(str(template), RECOVERY_POINT_CHECKPOINT, {T0: 1100})
    with open_backup(str(template)):
        pass
    (template / ".kafka_cleanshutdown").unlink()
    root = disk.take(template, LOG, at(template, MIDDLE))

    def opens() -> None:
        with open_backup(str(root)) as directory:
            directory.open(T0, LogSettings(), start=0, topic_id="")

    check(root, LOG, opens)


@pytest.mark.parametrize(
    "mode",
    [
        RepairMode(),
        RepairMode(execute=True),
        RepairMode(salvage=True),
        RepairMode(execute=True, salvage=True),
    ],
    ids=["look", "repair", "look for a salvage", "salvage"],
)
def test_repair(disk: Disk, template: Path, mode: RepairMode) -> None:
    """The partition is left as it is, and the others are repaired."""
    repair(str(template), mode=RepairMode(execute=True))
    (template / ".kafka_cleanshutdown").unlink()
    if mode.salvage:
        with (template / LOG).open("r+b") as file:
            file.seek(10_000)
            file.write(bytes(100))
    root = disk.take(template, LOG, at(template, MIDDLE))
    before = state(root)
    repaired = repair(str(root), mode=mode)
    assert not repaired.is_sound
    (step,) = [s for p in repaired.partitions for s in p.steps if s.action == "leave"]
    assert step.file == str(root / LOG)
    assert "Input/output error" in step.why
    assert state(root) == before


def test_cut_of_what_cannot_be_kept(disk: Disk, template: Path) -> None:
    """A repair keeps what it cuts: what it can't read it does not cut."""
    with (template / LOG).open("r+b") as file:
        file.seek(10_000)
        file.write(bytes(100))
    root = disk.take(template, LOG, at(template, MIDDLE))
    log = (root / LOG).stat().st_size
    repaired = repair(str(root), mode=RepairMode(execute=True))
    (step,) = [s for p in repaired.partitions for s in p.steps if s.action == "leave"]
    assert step.file == str(root / LOG)
    assert (root / LOG).stat().st_size == log


def segments(template: Path) -> str:
    """Let a second segment follow; the first one's name."""
    write(template, {T0: values(10, 100, 1100)}, segment_bytes=5000)
    assert len(list((template / "t-0").glob("*.log"))) > 1
    return LOG


def test_compaction(disk: Disk, template: Path) -> None:
    root = disk.take(template, segments(template), MIDDLE)
    settings = CompactionSettings(min_cleanable_dirty_ratio=0)
    for execute in (False, True):
        check(root, LOG, lambda: compact_partition(str(root), T0, settings, execute=execute))  # noqa: B023


def test_retention(disk: Disk, template: Path) -> None:
    """It does not need to read what it deletes, and reads it only to learn of producers."""
    root = disk.take(template, segments(template), MIDDLE)
    (done,), _ = deleting.delete_records([str(root)], {T0: 1105}, execute=True)
    assert done.segments >= 1
    assert not (root / LOG).exists()
    assert read(root)[T0] == values(10, 100, 1100)[5:]


def test_retention_by_time(disk: Disk, template: Path) -> None:
    """Without an index of times the log tells which records are old."""
    segments(template)
    (template / LOG).with_suffix(".timeindex").unlink()
    root = disk.take(template, LOG, MIDDLE)

    def retain() -> None:
        _, failures = deleting.retain([str(root)], None, {"retention.ms": "1"}, execute=True)
        raise failures[T0]

    check(root, LOG, retain)


@pytest.fixture
def groups(template: Path) -> Path:
    opened = DirectoryGroups.open([str(template)], retention_minutes=None)
    for number in range(40):
        opened.commit("g", {T0: CommittedOffset(number, metadata="m" * 1000)})
    return template


def folder_of_groups(root: Path) -> str:
    (folder,) = {path.parent.name for path in root.glob("__consumer_offsets-*/*.log") if path.stat().st_size}
    return folder


def test_commits_of_groups(disk: Disk, groups: Path) -> None:
    name = f"{folder_of_groups(groups)}/{SEGMENT}"
    root = disk.take(groups, name, (groups / name).stat().st_size - PAGE)

    def commit() -> None:
        DirectoryGroups.open([str(root)], retention_minutes=None).commit("g", {T0: CommittedOffset(50)})

    check(root, name, commit)


def test_cleaner_of_groups(disk: Disk, groups: Path) -> None:
    folder = folder_of_groups(groups)
    name = f"{folder}/{SEGMENT}"
    root = disk.take(groups, name, 2 * PAGE)
    partition = TopicPartition("__consumer_offsets", 0)
    check(root, name, lambda: clean(str(root / folder), partition, np.arange(0, 100, 7), 4096))


def test_readers(disk: Disk, template: Path) -> None:
    root = disk.take(template, LOG, MIDDLE)
    place = LogDirectory.open(str(root))
    for on_corrupt in (None, print):
        wanted = Fetch(T0, OffsetRange(0, 1100), on_corrupt=on_corrupt)
        check(root, LOG, lambda: list(place.fetch(wanted)))  # noqa: B023
    with connect(root) as kafka:
        check(root, LOG, lambda: list(kafka.records.dump(T0)))
        (damage,) = [damage for found in kafka.records.verify() for damage in found.damages]
        assert damage.file == str(root / LOG)
        assert "Input/output error" in damage.message
