"""Undoing a publish removes what it wrote, to the byte, and nothing else."""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.layout import JOURNAL_FILE
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish import publish as publish_module
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.model import TopicPartition
from tests.log.writing import T0, T1, files_beside_partitions, read, values, write, write_batch

NEW = TopicPartition("new", 0)
RECORDS = {T0: values(500, 100, 3), T1: values(3), NEW: values(3)}
OF_A_BROKER = [
    "00000000000000000002.snapshot",
    "00000000000000000003.snapshot",
    "00000000000000000005.snapshot",
    "00000000000000000000.txnindex",
    "00000000000000000003.txnindex",
    "00000000000000000003.log.deleted",
    "00000000000000000009.index.deleted",
    "00000000000000000004.index",
    "something.else",
]


class Crash(BaseException):
    """Stands for the end of the process: the interrupted code cannot clean up."""


def files(root: Path) -> dict[str, bytes]:
    """All files of the partitions, and their contents."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*/*")}


def publish_and_die(root: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
    """Append all, and stop there like a process that is killed before its commit."""

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(journal, "commit", crash)
        patch.setattr(journal, "recover", lambda root: None)
        with pytest.raises(Crash):
            write_batch(root, 0, RECORDS, segment_bytes=20_000, **settings)
    assert len(list((root / "t-0").glob("*.log"))) > 2
    assert (root / "new-0").is_dir()


def make(root: Path) -> dict[str, bytes]:
    """A directory as a broker left it, and its files."""
    write(root, {T0: values(3)})
    for name in OF_A_BROKER:
        (root / "t-0" / name).write_bytes(name.encode())
    (root / "t-1" / OF_A_BROKER[0]).write_bytes(b"other")
    (root / ".kafka_cleanshutdown").write_text("0")
    return files(root)


def test_publish_that_fails_leaves_all_as_it_was(tmp_path, monkeypatch):
    before = make(tmp_path)
    append = publish_module.append

    def fail(log, *args):
        append(log, *args)
        if log.folder.endswith("t-0"):
            raise OSError(28, "No space left on device", log.folder)

    monkeypatch.setattr(publish_module, "append", fail)
    with pytest.raises(LogDirectoryError, match=r"No space left.*t-0.*Free space.*Nothing was published"):
        write(tmp_path, RECORDS, segment_bytes=20_000)
    assert files(tmp_path) == before
    assert JOURNAL_FILE not in files_beside_partitions(tmp_path)
    assert ".kafka_cleanshutdown" not in files_beside_partitions(tmp_path), "its state is uncertain"


def test_publish_that_was_killed_leaves_all_as_it_was(tmp_path, monkeypatch):
    before = make(tmp_path)
    publish_and_die(tmp_path, monkeypatch)
    assert files(tmp_path) != before
    journal.recover(str(tmp_path))
    assert files(tmp_path) == before
    assert ".kafka_cleanshutdown" not in files_beside_partitions(tmp_path)


def test_partition_without_segments(tmp_path, monkeypatch):
    make(tmp_path)
    for path in (tmp_path / "t-0").glob("*.log"):
        path.unlink()
    before = files(tmp_path)
    publish_and_die(tmp_path, monkeypatch)
    journal.recover(str(tmp_path))
    after = files(tmp_path)
    assert after.pop("t-0/00000000000000000000.index", b"") == b"", "It was of no segment, and is replaced"
    del before["t-0/00000000000000000000.index"], before["t-0/00000000000000000000.timeindex"]
    assert after == before


def cut_at(part: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * part))


def zeros_at(part: float, length: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(int(path.stat().st_size * part))
            file.write(bytes(min(length, path.stat().st_size - file.tell())))

    return damage


TORN = {
    "cut": cut_at(0.7),
    "cut in a header": lambda path: os.truncate(path, int(walk(path.read_bytes()).position[-1]) + 30),
    "emptied": cut_at(0),
    "gone": Path.unlink,
    "zeros": zeros_at(0.5, 4000),
    "only zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "no first sector": zeros_at(0, 512),
}


@pytest.mark.parametrize("damage", TORN)
@pytest.mark.parametrize("which", [1, -1])
@pytest.mark.parametrize("log_append_time", [False, True])
def test_what_a_loss_of_power_leaves_is_undone(tmp_path, monkeypatch, damage, which, log_append_time):
    write(tmp_path, {T0: values(3)})
    before = files(tmp_path)
    publish_and_die(tmp_path, monkeypatch, log_append_time=log_append_time)
    TORN[damage](sorted((tmp_path / "t-0").glob("*.log"))[which])
    write_batch(tmp_path, 0, {T0: values(2)})
    assert read(tmp_path) == {T0: values(3) + values(2), T1: []}
    assert files(tmp_path).keys() == before.keys()


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["emptied", "only zeros", "cut"])
def test_new_partition_that_a_loss_of_power_left(tmp_path, monkeypatch, name, damage):
    write(tmp_path, {T0: values(3)})
    publish_and_die(tmp_path, monkeypatch)
    TORN[damage](tmp_path / "new-0" / name)
    journal.recover(str(tmp_path))
    assert not (tmp_path / "new-0").exists()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_that_is_gone(tmp_path, monkeypatch, suffix):
    write(tmp_path, {T0: values(3)})
    publish_and_die(tmp_path, monkeypatch)
    (tmp_path / "t-0" / f"{0:020d}{suffix}").unlink()
    write(tmp_path, {T0: values(2, start=3)})
    assert read(tmp_path) == {T0: values(5), T1: []}


def foreign_batch(root: Path) -> bytes:
    """A batch that another writer would append after the publish, in the same epoch."""
    data = bytearray((root / "t-1" / f"{0:020d}.log").read_bytes())
    data[:8] = (503).to_bytes(8, "big")
    return bytes(data)


def append_to(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def active(root: Path) -> Path:
    return max((root / "t-0").glob("*.log"))


def replace_last_batch(root: Path) -> None:
    path = active(root)
    data = path.read_bytes()
    path.write_bytes(data[: walk(data).position[-1]] + foreign_batch(root))


def change_epoch_of_last_batch(root: Path) -> None:
    path = active(root)
    data = bytearray(path.read_bytes())
    data[int(walk(data).position[-1]) + 15] = 1
    path.write_bytes(data)


FOREIGN = {
    "batch": lambda root: append_to(active(root), foreign_batch(root)),
    "part of a batch": lambda root: append_to(active(root), foreign_batch(root)[:30]),
    "segment": lambda root: (root / "t-0" / f"{503:020d}.log").write_bytes(foreign_batch(root)),
    "batch instead of the last": replace_last_batch,
    "same batch of another epoch": change_epoch_of_last_batch,
    "leader epoch": lambda root: (root / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 503\n"),
    "leader epoch of another partition": lambda root: (
        (root / "t-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n")
    ),
    "snapshot": lambda root: (root / "t-0" / f"{503:020d}.snapshot").touch(),
    "preallocated index": lambda root: os.truncate(root / "t-1" / f"{0:020d}.index", 10 << 20),
    "topic id": lambda root: append_to(root / "new-0" / "partition.metadata", b"\n"),
    "file in a new partition": lambda root: (root / "new-0" / f"{3:020d}.snapshot").touch(),
    "log that is gone": lambda root: (root / "t-0" / f"{0:020d}.log").unlink(),
}  # fmt: skip


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("change", FOREIGN)
def test_what_others_may_have_appended_is_not_undone(tmp_path, monkeypatch, change, log_append_time):
    write(tmp_path, {T0: values(3), T1: values(3)})
    publish_and_die(tmp_path, monkeypatch, log_append_time=log_append_time)
    FOREIGN[change](tmp_path)
    before = files(tmp_path)
    with pytest.raises(LogDirectoryError, match=rf"Cannot undo .*: .*{JOURNAL_FILE}.*delete") as e:
        write(tmp_path, {T0: values(1)})
    assert re.search(r"(t|new)-[01]/", e.value.message), "It names the file"
    assert files(tmp_path) == before


def test_records_that_were_made_to_look_like_batches(tmp_path, monkeypatch):
    """A value that holds a record batch is not a foreign batch."""
    write(tmp_path, {T0: values(3), T1: values(3)})
    batch = foreign_batch(tmp_path)
    monkeypatch.setitem(RECORDS, T1, [batch, batch])
    publish_and_die(tmp_path, monkeypatch)
    journal.recover(str(tmp_path))
    assert read(tmp_path) == {T0: values(3), T1: values(3)}


def ends(
    root: Path, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]
) -> dict[TopicPartition, int]:
    """The ends that a reader sees; a step happens after each of the first looks at a partition."""
    end_of, left = Partition.log_end_offset, iter(steps)

    def log_end_offset(self: Partition, segments: list[Segment]) -> int:
        found = end_of(self, segments)
        for step in itertools.islice(left, 1):
            time.sleep(0.02)  # more than the resolution of file times
            step()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "log_end_offset", log_end_offset)
        return LogDirectory.open(str(root)).end_offsets([T0, T1], read_committed=False)


def test_publish_amid_a_look_at_the_ends_is_seen_whole(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(3), T1: values(3)})
    more = {T0: values(2), T1: values(2)}
    assert ends(tmp_path, monkeypatch, lambda: write(tmp_path, more)) == {T0: 5, T1: 5}


def test_publish_that_is_undone_amid_a_look_at_the_ends_is_not_seen(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(3), T1: values(3)})
    begin = functools.partial(publish_and_die, tmp_path, monkeypatch)
    undo = functools.partial(journal.recover, str(tmp_path))
    assert ends(tmp_path, monkeypatch, begin, undo) == {T0: 3, T1: 3}


def test_topic_of_a_publish_that_is_undone_amid_a_listing_is_not_seen(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(3)})
    publish_and_die(tmp_path, monkeypatch)
    listed = LogRoot.partitions

    def partitions(self: LogRoot) -> set[TopicPartition]:
        found = listed(self)
        journal.recover(str(tmp_path))
        return found

    monkeypatch.setattr(LogRoot, "partitions", partitions)
    assert LogDirectory.open(str(tmp_path)).topics() == {"t": (0, 1)}


def test_publishes_without_a_pause_do_not_keep_a_reader_waiting(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(1), T1: values(1)})
    more = [functools.partial(write, tmp_path, {T0: values(1), T1: values(1)})] * 100
    found = ends(tmp_path, monkeypatch, *more)
    assert found[T0] + 1 == found[T1] < 12
