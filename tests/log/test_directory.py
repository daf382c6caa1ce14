"""Layouts that brokers or others leave: which files count, what is refused, what is read anyway."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
import zipfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from pyspark_kafkalog.errors import (
    CorruptRecordError,
    DataLossError,
    LogDirectoryError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.filesystem import folder as filesystem
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.layout import format_offset_checkpoint, format_partition_metadata
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.model import Fetch, OffsetRange, StoredSize, TopicPartition, Watermarks
from tests.codec.raw import message
from tests.fixtures_dir import case
from tests.log.partitions import (
    FIRST_TIMESTAMP,
    T0,
    batch,
    control_batch,
    copy,
    data_batch,
    fetched,
    offset_after_bytes,
    offsets_read,
    write_index,
    write_segment,
    write_time_index,
)

ALL = OffsetRange(0, 30)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Partition t-0 with offsets 0 to 29 in segments of ten."""
    for base_offset in (0, 10, 20):
        write_segment(tmp_path / "root" / "t-0", [batch(base_offset, 5), batch(base_offset + 5, 5)])
    return tmp_path / "root"


def bounds(path: Path | LogDirectory, partition: TopicPartition = T0, **how: bool) -> Watermarks | None:
    place = path if isinstance(path, LogDirectory) else LogDirectory.open(str(path))
    return place.watermarks([partition], read_committed=how.get("read_committed", False)).get(partition)


def segment(root: Path, base_offset: int, suffix: str = "") -> Path:
    return root / "t-0" / f"{base_offset:020d}.log{suffix}"


# What may be opened


def test_a_root_and_a_partition_folder_are_the_same_place(root: Path) -> None:
    for path in (root, root / "t-0", f"file:{root}", f"file://{root}/t-0/", os.path.relpath(root)):
        place = LogDirectory.open(str(path))
        assert place.topics() == {"t": (0,)}
        assert bounds(place) == Watermarks(0, 30, 30)
        assert offsets_read(place, T0, ALL) == list(range(30))


def test_a_partition_folder_shows_no_other_partition(root: Path) -> None:
    shutil.copytree(root / "t-0", root / "t-1")
    place = LogDirectory.open(str(root / "t-1"))
    assert place.topics() == {"t": (1,)}
    assert bounds(place, T0) is None


def test_topics_and_partitions_come_in_order(tmp_path: Path) -> None:
    for name in (
        "b-10",
        "b-9",
        "a-b-0",
        "__consumer_offsets-3",
        "__cluster_metadata-0",
        "b-9.junk-delete",
        "x",
    ):
        write_segment(tmp_path / name, [batch(0)])
    place = LogDirectory.open(str(tmp_path))
    assert list(place.topics().items()) == [("__consumer_offsets", (3,)), ("a-b", (0,)), ("b", (9, 10))]


def test_an_empty_root_has_no_topics_until_one_comes(tmp_path: Path) -> None:
    place = LogDirectory.open(str(tmp_path))
    assert place.topics() == {}
    (tmp_path / ".lock").touch()
    (tmp_path / "meta.properties").touch()
    place = LogDirectory.open(str(tmp_path))
    assert place.topics() == {}
    assert bounds(place) is None
    write_segment(tmp_path / "t-0", [batch(0)])
    assert place.topics() == {"t": (0,)}
    assert bounds(place) == Watermarks(0, 10, 10)


def test_a_partition_may_be_empty(tmp_path: Path) -> None:
    segment(tmp_path, 0).parent.mkdir()
    segment(tmp_path, 7).touch()
    assert bounds(tmp_path) == Watermarks(7, 7, 7)
    assert bounds(tmp_path, read_committed=True) == Watermarks(7, 7, 7)
    place = LogDirectory.open(str(tmp_path))
    assert place.offsets_for_times({T0: 0}) == {T0: None}
    segment(tmp_path, 7).unlink()
    assert bounds(tmp_path) == Watermarks(0, 0, 0)


@pytest.mark.parametrize("name", ["orders-*", "orders-?", "orders-[01]", "{orders,payments}-0"])
def test_globs_are_not_expanded(tmp_path: Path, name: str) -> None:
    with pytest.raises(LogDirectoryError, match=r"does not exist .* Globs are not expanded: give a list"):
        LogDirectory.open(str(tmp_path / name))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.touch(), "is not a folder"),
        (lambda path: (path / "photos").mkdir(parents=True), "holds no partition"),
        (lambda path: write_segment(path, [batch(0)]), "holds segments but is not named after a partition"),
        (lambda path: make_table(path), "holds no partition"),
        (lambda path: (path / "run-7" / "model").mkdir(parents=True), "holds no partition"),
    ],
)
def test_other_folders_are_refused_with_a_hint(tmp_path: Path, make, message: str) -> None:
    path = tmp_path / "place"
    make(path)
    with pytest.raises(LogDirectoryError, match=message) as caught:
        LogDirectory.open(str(path))
    assert caught.value.file == str(path)
    assert caught.value.hint


def make_table(path: Path) -> None:
    """What Spark writes for Parquet, with Hadoop's checksums."""
    (path / "_spark_metadata").mkdir(parents=True)
    for name in (
        ".part-00000-0a.snappy.parquet.crc",
        "part-00000-0a.snappy.parquet",
        "_SUCCESS",
        "._SUCCESS.crc",
    ):
        (path / name).write_bytes(b"PAR1")


@pytest.mark.parametrize("system", [(), ("lost+found", ".DS_Store", ".snapshot")])
def test_a_folder_without_anything_is_an_empty_log_directory(tmp_path: Path, system: tuple[str, ...]) -> None:
    for name in system:
        (tmp_path / name).mkdir()
    assert LogDirectory.open(str(tmp_path)).topics() == {}


@pytest.mark.parametrize("name", [".lock", "meta.properties", ".kafka_cleanshutdown", ".kafkalog-topics"])
def test_a_log_directory_without_partitions_is_known_by_its_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "checkpoint").mkdir()
    assert LogDirectory.open(str(tmp_path)).topics() == {}


def test_a_root_one_level_too_high_names_the_folders_with_partitions(tmp_path: Path) -> None:
    for disk in ("data-0/kafka-log0", "data-0/kafka-log1", "data-0/other"):
        (tmp_path / disk).mkdir(parents=True)
    with pytest.raises(LogDirectoryError, match=r"holds no partitions.* Give a folder of Kafka's log.dirs"):
        LogDirectory.open(str(tmp_path / "data-0"))
    for disk in ("kafka-log0", "kafka-log1"):
        write_segment(tmp_path / "data-0" / disk / "t-0", [batch(0)])
    with pytest.raises(LogDirectoryError, match="holds no partitions") as caught:
        LogDirectory.open(str(tmp_path / "data-0"))
    above = tmp_path / "data-0"
    assert caught.value.hint == f"Partitions are below it: give {above}/kafka-log0 or {above}/kafka-log1."
    with pytest.raises(LogDirectoryError, match="holds no partitions"):
        LogDirectory.open(str(tmp_path))  # data-0 is named like a partition


@pytest.mark.parametrize(
    "uri", ["nosuch://place/t-0", "file://elsewhere/tmp", "\0", "", "zip://x::file:/none.zip"]
)
def test_what_no_filesystem_opens_is_refused(uri: str) -> None:
    with pytest.raises(LogDirectoryError):
        LogDirectory.open(uri)


def test_errors_hold_no_secrets_of_uris() -> None:
    with pytest.raises(LogDirectoryError) as caught:
        LogDirectory.open("nosuch://user:secret@place/t-0?token=secret")
    assert "secret" not in str(caught.value)


def test_an_unknown_partition_is_named(root: Path) -> None:
    place = LogDirectory.open(str(root))
    with pytest.raises(UnknownTopicOrPartitionError, match="t-9"):
        fetched(place, TopicPartition("t", 9), ALL)
    with pytest.raises(UnknownTopicOrPartitionError, match="t-9"):
        place.offsets_for_times({TopicPartition("t", 9): 0})


@pytest.mark.parametrize("topic", ["../root/t", "..", "t\0", "/etc", "t/../t"])
def test_illegal_topics_are_never_opened(root: Path, topic: str) -> None:
    assert bounds(root, TopicPartition(topic, 0)) is None


# Several roots, other file systems


def test_several_roots_are_one_place(tmp_path: Path) -> None:
    write_segment(tmp_path / "one" / "t-0", [batch(0)])
    write_segment(tmp_path / "two" / "t-1", [batch(0), batch(10)])
    (tmp_path / "two" / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 1 5\n")
    place = LogDirectory.open([str(tmp_path / "one"), str(tmp_path / "two")])
    assert place.topics() == {"t": (0, 1)}
    t1 = TopicPartition("t", 1)
    assert place.watermarks([T0, t1], read_committed=False) == {
        T0: Watermarks(0, 10, 10),
        t1: Watermarks(5, 20, 20),
    }


@pytest.mark.long
def test_a_partition_in_two_roots_is_an_error_that_names_both(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "other")
    place = LogDirectory.open([str(root), str(tmp_path / "other")])
    for ask in (place.topics, lambda: bounds(place), lambda: fetched(place, T0, ALL)):
        with pytest.raises(LogDirectoryError, match="t-0") as caught:
            ask()
        assert str(root) in str(caught.value)
        assert str(tmp_path / "other") in str(caught.value)


def test_a_zip_archive_is_read_like_a_folder(root: Path, tmp_path: Path) -> None:
    (root / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 3\n")
    with (
        zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive,
        zipfile.ZipFile(tmp_path / "top.zip", "w") as top,
    ):
        for file in root.rglob("*"):
            archive.write(file, file.relative_to(tmp_path))
            if file.is_file():
                top.write(file, file.relative_to(root))
    for path in ("root::{}/logs.zip", "root/t-0::{}/logs.zip", "::{}/top.zip", "t-0::{}/top.zip"):
        place = LogDirectory.open("zip://" + path.format(f"file://{tmp_path}"))
        assert place.topics() == {"t": (0,)}
        assert bounds(place, read_committed=True) == Watermarks(3, 30, 30)
        assert offsets_read(place, T0, OffsetRange(4, 27)) == list(range(4, 27))
        assert place.offsets_for_times({T0: FIRST_TIMESTAMP + 12}) == {T0: 12}


def test_a_filesystem_of_fsspec_is_read_like_a_folder(root: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/logs", recursive=True)
    place = LogDirectory.open("memory://logs")
    assert place.topics() == {"t": (0,)}
    assert offsets_read(place, T0, ALL) == list(range(30))
    memory.rm("/logs", recursive=True)


# Files that don't count


def test_leftovers_of_brokers_are_not_read(root: Path) -> None:
    for name in ("00000000000000000040.log.deleted", "00000000000000000050.log.cleaned", "x.log", "30.log"):
        (root / "t-0" / name).write_bytes(batch(40))
    write_segment(root / f"u-0.{'0' * 32}-delete", [batch(0)])
    (root / "file-0").touch()
    assert bounds(root) == Watermarks(0, 30, 30)
    assert LogDirectory.open(str(root)).topics() == {"t": (0,)}


def test_a_swap_file_replaces_the_segments_that_it_spans(root: Path) -> None:
    """The cleaner had merged two segments into one when the broker died."""
    write_segment(root / "t-0", [batch(2, 1), batch(15, 3)], base_offset=0, suffix=".swap")
    place = LogDirectory.open(str(root))
    assert offsets_read(place, T0, ALL) == [2, 15, 16, 17, *range(20, 30)]
    assert bounds(place) == Watermarks(0, 30, 30)


def test_a_swap_file_of_an_unfinished_replacement_is_not_read(root: Path) -> None:
    write_segment(root / "t-0", [batch(10, 1)], suffix=".swap")
    segment(root, 10, ".cleaned").touch()
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == list(range(30))
    segment(root, 10, ".cleaned").rename(segment(root, 11, ".cleaned"))
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == [*range(11), *range(20, 30)]


def test_several_swap_files_span_what_lies_between_them(root: Path) -> None:
    write_segment(root / "t-0", [batch(0, 1)], suffix=".swap")
    write_segment(root / "t-0", [batch(20, 1)], suffix=".swap")
    place = LogDirectory.open(str(root))
    assert offsets_read(place, T0, OffsetRange(0, 21)) == [0, 20]
    assert bounds(place) == Watermarks(0, 21, 21)


def test_indexes_of_a_swap_file_have_its_suffix(root: Path) -> None:
    log = write_segment(root / "t-0", [batch(0), batch(10), batch(20)], suffix=".swap")
    write_index(Path(str(log).removesuffix(".swap")), [(19, len(batch(0)))])
    shutil.move(log.with_name("00000000000000000000.index"), log.with_name("00000000000000000000.index.swap"))
    (piece,) = fetched(LogDirectory.open(str(root)), T0, OffsetRange(20, 21))
    assert piece.origin.file == str(log)
    assert piece.origin.position == 2 * len(batch(0))


# What is refused


def test_links_may_lead_about_inside_the_root_only(root: Path, tmp_path: Path) -> None:
    write_segment(tmp_path / "secret-0", [batch(30)])
    os.symlink(tmp_path / "root", tmp_path / "link")
    segment(root, 20).rename(root / "kept")
    os.symlink("../kept", segment(root, 20))
    assert offsets_read(LogDirectory.open(str(tmp_path / "link")), T0, ALL) == list(range(30))

    os.symlink(tmp_path / "secret-0" / "00000000000000000030.log", segment(root, 30))
    place = LogDirectory.open(str(root))
    for ask in (lambda: bounds(place), lambda: offsets_read(place, T0, OffsetRange(0, 40))):
        with pytest.raises(LogDirectoryError, match="symbolic link leads out") as caught:
            ask()
        assert caught.value.file == str(segment(root, 30))

    os.symlink(tmp_path / "secret-0", root / "secret-0")
    assert place.topics() == {"t": (0,), "secret": (0,)}
    with pytest.raises(LogDirectoryError, match="symbolic link leads out"):
        bounds(place, TopicPartition("secret", 0))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["t-0/00000000000000000030.log", "t-0/00000000000000000020.index"])
def test_only_regular_files_are_opened(root: Path, make, name: str) -> None:
    write_segment(root / "t-0", [batch(20, 10, size=10_000)])  # the indexes of a smaller one are not opened
    make(root / name)
    with pytest.raises(LogDirectoryError, match="Not a regular file") as caught:
        fetched(LogDirectory.open(str(root)), T0, OffsetRange(20, 30))
    assert caught.value.file == str(root / name)


@pytest.mark.parametrize("method", ["open_input_file", "get_file_info"])
def test_what_the_system_refuses_is_named(root: Path, method: str) -> None:
    class Refusing(fs.FSSpecHandler):
        pass

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    setattr(Refusing, method, refuse)
    folder = Folder(fs.PyFileSystem(Refusing(LocalFileSystem())), str(root), str(root))
    with pytest.raises(LogDirectoryError, match="Permission denied") as caught:
        bounds(LogDirectory([LogRoot(folder)]))
    assert str(caught.value.file).startswith(str(root))


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("call", ["open", "read", "scandir", "stat"])
def test_what_the_disk_refuses_is_named_with_a_remedy(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    place = LogDirectory.open(str(root))

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    if call == "read":
        monkeypatch.setattr(filesystem, "_read", refuse)
    else:
        monkeypatch.setattr(filesystem.os, call, refuse)
    with pytest.raises(LogDirectoryError, match=os.strerror(code)) as caught:
        fetched(place, T0, ALL)
    monkeypatch.undo()
    assert str(caught.value.file).startswith(str(root))
    assert caught.value.hint


def test_a_file_that_a_server_has_deleted_is_looked_for_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_read, stale = filesystem._read, []

    def read(file: object, size: int, *room: object) -> object:
        if len(stale) < 3:
            stale.append(size)
            raise OSError(errno.ESTALE, "Stale file handle")
        return really_read(file, size, *room)

    monkeypatch.setattr(filesystem, "_read", read)
    place = LogDirectory.open(str(root))
    assert offsets_read(place, T0, ALL) == list(range(30))
    assert len(stale) == 3


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", ".kafkalog-publish"])
def test_files_of_the_root_that_are_wrong_are_named(root: Path, name: str) -> None:
    (root / name).write_bytes(b"0\n7\nwhat")
    with pytest.raises(LogDirectoryError) as caught:
        bounds(root)
    assert caught.value.file == str(root / name)


def test_checkpoints_that_are_not_needed_may_be_wrong(root: Path) -> None:
    for name in (
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
    ):
        (root / name).write_bytes(b"what")
    assert bounds(root) == Watermarks(0, 30, 30)


# Bounds


def test_the_log_start_offset_is_checkpointed_or_the_first_segment(root: Path) -> None:
    place = LogDirectory.open(str(root))
    for start, expected in ((4, 4), (17, 17), (29, 29), (30, 30), (50, 50)):
        (root / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({T0: start}))
        found = bounds(place)
        assert found == Watermarks(expected, max(30, expected), max(30, expected))
        with pytest.raises(DataLossError, match=f"Offsets 3 to {min(start, 40) - 1} are gone"):
            fetched(place, T0, OffsetRange(3, 40))
    segment(root, 0).unlink()
    (root / "log-start-offset-checkpoint").unlink()
    assert bounds(place) == Watermarks(10, 30, 30)


def test_the_end_follows_a_log_that_grows_shrinks_and_rolls(root: Path) -> None:
    place = LogDirectory.open(str(root))
    assert bounds(place) == Watermarks(0, 30, 30)
    last = segment(root, 20)
    for base_offset in (30, 37, 40):
        with last.open("ab") as file:
            file.write(batch(base_offset, 3))
        assert bounds(place) == Watermarks(0, base_offset + 3, base_offset + 3)
    os.truncate(last, len(batch(20, 5)))
    assert bounds(place) == Watermarks(0, 25, 25)
    last.write_bytes(batch(20, 5) + batch(26, 5))
    assert bounds(place) == Watermarks(0, 31, 31)
    last.write_bytes(batch(24, 5) + batch(44, 5))
    assert bounds(place) == Watermarks(0, 49, 49)
    write_segment(root / "t-0", [batch(60, 1)])
    assert bounds(place) == Watermarks(0, 61, 61)
    segment(root, 60).unlink()
    assert bounds(place) == Watermarks(0, 49, 49)
    shutil.rmtree(root / "t-0")
    assert bounds(place) is None
    write_segment(root / "t-0", [batch(0)])
    assert bounds(place) == Watermarks(0, 10, 10)


def test_a_preallocated_file_ends_in_zeros(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    last = segment(root, 20)
    used = last.stat().st_size
    os.truncate(last, 100_000)
    place = LogDirectory.open(str(root))
    assert bounds(place) == Watermarks(0, 30, 30)
    assert place.file_faults(T0) == []
    for base_offset in range(30, 60, 10):
        assert bounds(place) == Watermarks(0, base_offset, base_offset)
        assert offsets_read(place, T0, OffsetRange(20, base_offset)) == list(range(20, base_offset))
        with last.open("r+b") as file:
            file.seek(used)
            file.write(batch(base_offset))
        used += len(batch(base_offset))
    assert not caplog.records
    with last.open("r+b") as file:
        file.seek(used + 50_000)
        file.write(b"torn")
    assert bounds(LogDirectory.open(str(root))) == Watermarks(0, 60, 60)
    assert f"from byte {used} on" in caplog.text
    (fault,) = LogDirectory.open(str(root)).file_faults(T0)
    assert "Expected a whole record batch" in str(fault)


def test_an_unfinished_publish_is_hidden(root: Path) -> None:
    write_segment(root / "new-0", [batch(0)])
    new = TopicPartition("new", 0)
    place = LogDirectory.open([str(root)])
    ended = {"created": False, "log_end_offset": 25}
    journal = {"version": 1, "partitions": {"t-0": ended, "new-0": {"created": True, "log_end_offset": 0}}}
    (root / ".kafkalog-publish").write_text(json.dumps(journal))
    assert place.topics() == {"t": (0,)}
    assert place.watermarks([T0, new], read_committed=True) == {T0: Watermarks(0, 25, 25)}
    times = {T0: FIRST_TIMESTAMP + 24, new: 0}
    assert place.offsets_for_times(times) == {T0: 24, new: None}
    assert place.offsets_for_times({T0: FIRST_TIMESTAMP + 25}) == {T0: None}
    assert bounds(root / "t-0") == Watermarks(0, 25, 25)
    (root / ".kafkalog-publish").unlink()
    assert place.topics() == {"t": (0,), "new": (0,)}
    assert bounds(place) == Watermarks(0, 30, 30)


# Damage


def test_damage_is_an_error_or_is_reported_and_left_out(root: Path) -> None:
    path = segment(root, 10)
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)
    place = LogDirectory.open(str(root))
    assert bounds(place) == Watermarks(0, 30, 30)
    with pytest.raises(CorruptRecordError, match="No record batch") as caught:
        offsets_read(place, T0, ALL)
    error = caught.value
    assert (error.topic_partition, error.offset, error.file, error.position) == ("t-0", 10, str(path), 0)
    assert offsets_read(place, T0, OffsetRange(0, 10)) == list(range(10))
    assert offsets_read(place, T0, OffsetRange(15, 30)) == list(range(15, 30))
    left_out: list[CorruptRecordError] = []
    assert offsets_read(place, T0, ALL, on_corrupt=left_out.append) == [*range(10), *range(15, 30)]
    assert [(e.offset, e.position) for e in left_out] == [(10, 0)]


def test_a_segment_that_is_not_the_last_has_no_torn_tail(root: Path) -> None:
    os.truncate(segment(root, 10), len(batch(10, 5)) + 30)
    place = LogDirectory.open(str(root))
    with pytest.raises(CorruptRecordError, match="reaches past the end of the file") as caught:
        offsets_read(place, T0, ALL)
    assert (caught.value.offset, caught.value.position) == (15, len(batch(10, 5)))
    left_out: list[CorruptRecordError] = []
    assert offsets_read(place, T0, ALL, on_corrupt=left_out.append) == [*range(15), *range(20, 30)]
    assert len(left_out) == 1


def test_offsets_that_go_back_are_damage(root: Path) -> None:
    segment(root, 10).write_bytes(batch(10, 2) + batch(14, 2) + batch(12, 2) + batch(18, 2))
    place = LogDirectory.open(str(root))
    with pytest.raises(CorruptRecordError, match="offsets are out of order") as caught:
        offsets_read(place, T0, ALL)
    assert caught.value.offset == 12, "of two batches the one that is ahead of what follows is at fault"
    left_out: list[CorruptRecordError] = []
    expected = [*range(10), 10, 11, 12, 13, 18, 19, *range(20, 30)]
    assert offsets_read(place, T0, ALL, on_corrupt=left_out.append) == expected


def test_a_damaged_batch_says_nothing_against_the_one_before(root: Path) -> None:
    """Compaction leaves gaps, and the header of the second is not to be trusted."""
    broken = batch(12, 2)[:-1] + b"\xff"
    segment(root, 10).write_bytes(batch(10, 2) + batch(14, 2) + broken + batch(18, 2))
    place = LogDirectory.open(str(root))
    with pytest.raises(CorruptRecordError) as caught:
        offsets_read(place, T0, ALL)
    assert caught.value.offset == 16
    left_out: list[CorruptRecordError] = []
    expected = [*range(12), 14, 15, 18, 19, *range(20, 30)]
    assert offsets_read(place, T0, ALL, on_corrupt=left_out.append) == expected


def test_any_cut_of_the_last_segment_leaves_the_whole_batches(root: Path) -> None:
    path = segment(root, 20)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        end = 25 if size >= len(batch(20, 5)) else 20
        place = LogDirectory.open(str(root))
        assert bounds(place) == Watermarks(0, end, end)
        assert offsets_read(place, T0, OffsetRange(15, end)) == list(range(15, end))


def test_any_wrong_byte_gives_the_rows_before_it_and_an_error(root: Path) -> None:
    """Or the rows without an error if the leader epoch is wrong, which no CRC covers."""
    path = segment(root, 10)
    data = path.read_bytes()
    half = len(batch(10, 5))
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        place = LogDirectory.open(str(root))
        left_out: list[CorruptRecordError] = []
        found = offsets_read(place, T0, ALL, on_corrupt=left_out.append)
        if at % half in range(12, 16):
            assert found == list(range(30))
            continue
        lost = range(10, 15) if at < half else range(15, 20)
        assert found == [offset for offset in range(30) if offset not in lost], at
        assert [e.offset for e in left_out] == [lost.start], at
        with pytest.raises(CorruptRecordError):
            offsets_read(place, T0, ALL)


def test_batches_are_found_again_after_much_damage(tmp_path: Path) -> None:
    """Longer than the search window, with a batch across its border."""
    big = batch(5, 900, size=10_000)
    assert len(big) > 8 << 20
    junk = os.urandom(12 << 20).replace(b"\2", b"\3")
    write_segment(tmp_path / "t-0", [batch(0, 5), junk, big[: 4 << 20], batch(905, 5)], base_offset=0)
    write_segment(tmp_path / "t-0", [batch(1000, 5)])
    place = LogDirectory.open(str(tmp_path))
    left_out: list[CorruptRecordError] = []
    found = offsets_read(place, T0, OffsetRange(0, 1005), on_corrupt=left_out.append)
    assert found == [*range(5), *range(905, 910), *range(1000, 1005)]


def test_a_size_of_two_gigabytes_costs_nothing(root: Path) -> None:
    path = segment(root, 20)
    data = bytearray(path.read_bytes())
    data[8:12] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    place = LogDirectory.open(str(root))
    with pytest.raises(CorruptRecordError) as caught:
        fetched(place, T0, ALL)
    assert (caught.value.offset, caught.value.position) == (20, 0)


@pytest.mark.long
def test_bytes_made_to_waste_time_are_an_error_and_not_the_end_of_the_log(root: Path) -> None:
    """A valid batch may follow bytes that take too long to search, so the log must not end there."""
    bait = message(b"x", offset=100, magic=0)[:-1] + b"y"
    for base_offset in (10, 20):
        with segment(root, base_offset).open("ab") as log:
            log.write(b"?" + bait * ((20 << 20) // len(bait)) + batch(base_offset + 9, 1))
    place = LogDirectory.open(str(root))
    begun = time.process_time()
    with pytest.raises(CorruptRecordError, match="Gave up the search for a valid record batch") as caught:
        bounds(place)
    assert caught.value.file == str(segment(root, 20))
    assert caught.value.hint
    with pytest.raises(CorruptRecordError):
        fetched(place, T0, OffsetRange(10, 25))
    left_out: list[CorruptRecordError] = []
    assert offsets_read(place, T0, OffsetRange(0, 25), on_corrupt=left_out.append) == list(range(25))
    assert [error.file for error in left_out] == [str(segment(root, 10))]
    assert time.process_time() - begun < 12


# Files that vanish


def test_segments_that_go_while_they_are_read(root: Path) -> None:
    place = LogDirectory.open(str(root), slice_bytes=1)
    slices = place.fetch(Fetch(T0, ALL))
    next(slices)
    shutil.move(segment(root, 0), segment(root, 0, ".deleted"))
    segment(root, 10).unlink()
    (root / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({T0: 20}))
    next(slices)  # of the file that is open
    with pytest.raises(
        DataLossError, match=r"Offsets 10 to 19 are gone: the log now starts at offset 20"
    ) as caught:
        next(slices)
    assert caught.value.offset == 10


def test_segments_that_get_compacted_while_they_are_read(root: Path) -> None:
    place = LogDirectory.open(str(root), slice_bytes=1)
    slices = place.fetch(Fetch(T0, ALL))
    next(slices)
    segment(root, 0).unlink()
    segment(root, 10).unlink()
    write_segment(root / "t-0", [batch(3, 1), batch(12, 4), batch(18, 1)], base_offset=0)
    rest = [piece.buffer.to_pybytes() for piece in slices]
    assert rest == [batch(5, 5), batch(12, 4), batch(18, 1), batch(20, 5), batch(25, 5)]


def test_a_partition_that_goes_while_it_is_read(root: Path) -> None:
    place = LogDirectory.open(str(root), slice_bytes=1)
    slices = place.fetch(Fetch(T0, ALL))
    next(slices)
    shutil.rmtree(root / "t-0")
    next(slices)
    with pytest.raises(DataLossError, match="Offsets 10 to 29 are gone"):
        next(slices)


def test_a_log_that_ends_early_is_data_loss(root: Path) -> None:
    place = LogDirectory.open(str(root))
    slices = place.fetch(Fetch(T0, OffsetRange(25, 40)))
    assert next(slices).buffer.to_pybytes() == batch(25, 5)
    with pytest.raises(DataLossError, match="Offsets 30 to 39 are gone: the log ends at offset 30"):
        next(slices)


def test_a_file_that_vanishes_between_listing_and_opening(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open, vanished = Folder.open, []

    def open_once_gone(folder: Folder, name: str):
        if name == segment(root, 20).name and len(vanished) < 2:
            vanished.append(name)
            raise FileNotFoundError(name)
        return really_open(folder, name)

    monkeypatch.setattr(Folder, "open", open_once_gone)
    place = LogDirectory.open(str(root))
    assert bounds(place) == Watermarks(0, 30, 30)
    vanished.clear()
    assert offsets_read(place, T0, ALL) == list(range(30))
    assert len(vanished) == 2


# Times, bytes, transactions


def test_times_need_not_rise(tmp_path: Path) -> None:
    stamps = [100, 900, 200, 50, 300]
    batches = [batch(2 * i, 2, first_timestamp=t) for i, t in enumerate(stamps)]
    log = write_segment(tmp_path / "t-0", batches[:3])
    write_segment(tmp_path / "t-0", batches[3:])
    place = LogDirectory.open(str(tmp_path))
    answers = {0: 0, 101: 1, 102: 2, 901: 3, 902: None}
    for time_index in ([], [(101, 1), (901, 3)], [(101, 1)], [(77, 4)], [(5000, 5)], [(-5, 0)]):
        write_time_index(log, time_index)
        assert {t: place.offsets_for_times({T0: t})[T0] for t in answers} == answers, time_index


def test_times_below_the_log_start_offset_do_not_count(root: Path) -> None:
    (root / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({T0: 13}))
    place = LogDirectory.open(str(root))
    assert place.offsets_for_times({T0: 0}) == {T0: 13}
    assert place.offsets_for_times({T0: FIRST_TIMESTAMP + 14}) == {T0: 14}


def test_a_damaged_batch_is_a_place_to_start_from(root: Path) -> None:
    path = segment(root, 10)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert LogDirectory.open(str(root)).offsets_for_times({T0: FIRST_TIMESTAMP + 17}) == {T0: 15}


@pytest.mark.parametrize("indexed", [False, True])
def test_offset_after_bytes(root: Path, indexed: bool) -> None:
    size = len(batch(0, 5))
    if indexed:
        for base_offset in (0, 10, 20):
            write_index(segment(root, base_offset), [(9, size)])
    place = LogDirectory.open(str(root))
    for start in range(29):
        first = start - start % 5
        for max_bytes in (1, size - 1, size, size + 1, 2 * size, 3 * size - 1, 4 * size, 100 * size):
            for end in (start + 1, 23, 30):
                if end > start:
                    expected = min(end, first + 5 * max(1, max_bytes // size))
                    found = offset_after_bytes(place, T0, OffsetRange(start, end), max_bytes)
                    assert found == expected, (start, end, max_bytes)


def test_offset_after_bytes_of_large_batches(tmp_path: Path) -> None:
    sizes = [3 << 20, 100, 5 << 20, 100]
    batches = [batch(i, 1, size=size) for i, size in enumerate(sizes)]
    log = write_segment(tmp_path / "t-0", batches)
    positions = [sum(map(len, batches[:i])) for i in range(4)]
    write_index(log, [(i, positions[i]) for i in range(1, 4)])
    place = LogDirectory.open(str(tmp_path))
    for start in range(4):
        for max_bytes in (1, 1000, 4 << 20, 9 << 20):
            fitting = [i for i in range(start, 4) if sum(map(len, batches[start : i + 1])) <= max_bytes]
            found = offset_after_bytes(place, T0, OffsetRange(start, 4), max_bytes)
            assert found == (fitting[-1] if fitting else start) + 1


def test_offset_after_bytes_moves_on_over_damage(root: Path) -> None:
    segment(root, 0).write_bytes(os.urandom(500))
    place = LogDirectory.open(str(root))
    assert offset_after_bytes(place, T0, OffsetRange(0, 30), 1) == 15
    assert offset_after_bytes(place, T0, OffsetRange(0, 10), 1) == 10


def test_a_transaction_may_span_segments_and_be_decided_late(tmp_path: Path) -> None:
    """Producer 1 aborts at 7, producer 2 commits at 8, producer 3 stays open from 6 on."""
    first = [data_batch(0, 1), data_batch(1, 2), data_batch(2, 1), batch(3, 1)]
    second = [data_batch(4, 1), data_batch(5, 2), data_batch(6, 3)]
    third = [control_batch(7, 1, commit=False), control_batch(8, 2, commit=True), batch(9, 1)]
    for batches in (first, second, third):
        write_segment(tmp_path / "t-0", batches)
    for slice_bytes in (1, 150, 1 << 20):
        place = LogDirectory.open(str(tmp_path), slice_bytes=slice_bytes)
        assert bounds(place, read_committed=True) == Watermarks(0, 10, 6)
        assert offsets_read(place, T0, OffsetRange(0, 6), read_committed=True) == [1, 3, 5]
        assert offsets_read(place, T0, OffsetRange(2, 5), read_committed=True) == [3]
        assert offsets_read(place, T0, OffsetRange(0, 10)) == [0, 1, 2, 3, 4, 5, 6, 9]


def test_the_last_stable_offset_follows_the_log(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "t-0", [batch(0, 1), data_batch(1, 7)])
    place = LogDirectory.open(str(tmp_path))
    stable = [bounds(place, read_committed=True).last_stable_offset]
    steps = [
        data_batch(2, 8),
        control_batch(3, 7, commit=True),
        batch(4, 1),
        control_batch(5, 8, commit=False),
        data_batch(6, 8),
    ]
    for step in steps:
        with path.open("ab") as file:
            file.write(step)
        stable.append(bounds(place, read_committed=True).last_stable_offset)
    assert stable == [1, 1, 2, 2, 6, 6]
    path.write_bytes(batch(0, 1) + data_batch(1, 7))
    assert bounds(place, read_committed=True) == Watermarks(0, 2, 1)


def test_a_broken_marker_hides_its_transaction_and_is_reported(tmp_path: Path) -> None:
    marker = bytearray(control_batch(2, 7, commit=True))
    marker[-1] ^= 1
    write_segment(tmp_path / "t-0", [data_batch(0, 7), batch(1, 1), bytes(marker), batch(3, 1)])
    place = LogDirectory.open(str(tmp_path))
    assert bounds(place, read_committed=True) == Watermarks(0, 4, 4)
    with pytest.raises(CorruptRecordError):
        offsets_read(place, T0, OffsetRange(0, 4), read_committed=True)
    left_out: list[CorruptRecordError] = []
    assert offsets_read(place, T0, OffsetRange(0, 4), read_committed=True, on_corrupt=left_out.append) == [
        1,
        3,
    ]
    assert [e.offset for e in left_out] == [2]


def test_a_wrong_txnindex_or_snapshot_changes_nothing(tmp_path: Path) -> None:
    fixture = case("txn-basic")
    root = copy(fixture, tmp_path / "root")
    for file in root.rglob("*.txnindex"):
        entries = bytearray(file.read_bytes())
        entries[9] ^= 3  # another producer
        file.write_bytes(entries)
    for file in root.rglob("*.snapshot"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    for line in fixture.offsets:
        partition = TopicPartition(line["topic"], line["partition"])
        place = LogDirectory.open(str(root), slice_bytes=500)
        assert bounds(place, partition, read_committed=True).last_stable_offset == line["last_stable_offset"]
        committed = [r["offset"] for r in fixture.committed if r["partition"] == partition.partition]
        range_ = OffsetRange(0, line["last_stable_offset"])
        assert offsets_read(place, partition, range_, read_committed=True) == committed


def test_nothing_is_changed_and_nothing_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        place = LogDirectory.open(str(root))
        bounds(place, read_committed=True)
        offsets_read(place, T0, ALL, read_committed=True)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert not caplog.records


# Topics and partitions besides their bounds


def test_topic_ids_are_those_of_the_first_partition_there_is(root: Path) -> None:
    place = LogDirectory.open(str(root))
    assert place.topic_ids(["t", "nothing"]) == {"t": ""}
    metadata = root / "t-0" / "partition.metadata"
    for topic_id in ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"):
        metadata.write_bytes(format_partition_metadata(topic_id))
        assert place.topic_ids(["t"]) == {"t": topic_id}
    metadata.write_bytes(b"")
    assert place.topic_ids(["t"]) == {"t": ""}, "torn, and no reason not to read the records"
    assert place.topic_ids([]) == {}


@pytest.mark.parametrize("indexed", [True, False])
def test_newest_timestamps(root: Path, indexed: bool) -> None:
    late = batch(30, 5, first_timestamp=FIRST_TIMESTAMP + 1000)
    log = write_segment(root / "t-0", [late, batch(35, 5)])
    if indexed:
        write_time_index(log, [(FIRST_TIMESTAMP + 1004, 4)])
    (root / "u-0").mkdir()
    gone, empty = TopicPartition("t", 1), TopicPartition("u", 0)
    newest = LogDirectory.open(str(root)).newest_timestamps([T0, gone, empty])
    assert newest == {T0: FIRST_TIMESTAMP + 1004, empty: -1}


def test_oldest_timestamps(root: Path) -> None:
    (root / "u-0").mkdir()
    gone, empty = TopicPartition("t", 1), TopicPartition("u", 0)
    oldest = LogDirectory.open(str(root)).oldest_timestamps([T0, gone, empty])
    assert oldest == {T0: FIRST_TIMESTAMP, empty: -1}


def test_sizes(root: Path) -> None:
    (root / "u-0").mkdir()
    files = list((root / "t-0").glob("*.log"))
    size = sum(path.stat().st_size for path in files)
    place = LogDirectory.open(str(root))
    assert place.stored_sizes([T0, TopicPartition("u", 0), TopicPartition("t", 9)]) == {
        T0: StoredSize(size, tuple(sorted(int(file.stem) for file in files))),
        TopicPartition("u", 0): StoredSize(0, ()),
    }
    assert place.mean_record_bytes([T0, TopicPartition("u", 0), TopicPartition("t", 9)]) == {T0: size / 30}


def test_the_topic_id_is_asked_of_one_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a split in a root with many partitions does not list the others."""
    (root / "t-0" / "partition.metadata").write_bytes(format_partition_metadata("A" * 21 + "g"))
    place = LogDirectory.open(str(root))
    with monkeypatch.context() as patch:
        patch.setattr(LogRoot, "partitions", None)
        assert place.topic_ids(["t"]) == {"t": "A" * 21 + "g"}
    shutil.rmtree(root / "t-0")
    assert place.topic_ids(["t"]) == {}
    write_segment(root / "t-3", [batch(0)])
    assert place.topic_ids(["t", "u"]) == {"t": ""}


def test_partitions_that_come_and_go_are_seen_at_once(root: Path) -> None:
    place = LogDirectory.open(str(root))
    assert place.topics() == {"t": (0,)}
    write_segment(root / "t-1", [batch(0)])
    t1 = TopicPartition("t", 1)
    assert place.topics() == {"t": (0, 1)}
    assert bounds(place, t1) == Watermarks(0, 10, 10)
    (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
    assert place.topics() == {"t": (1,)}
    assert bounds(place) is None
    with pytest.raises(UnknownTopicOrPartitionError):
        fetched(place, T0, ALL)
    (root / "t-1").rename(root / f"t-1.{'0' * 32}-delete")
    write_segment(root / "t-1", [batch(0, 3)])
    assert bounds(place, t1) == Watermarks(0, 3, 3)
    assert offsets_read(place, t1, OffsetRange(0, 3)) == [0, 1, 2]
