"""What is wrong with some partitions is told of each, and hinders none of the others."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from pyspark_kafkalog import BackedUpPartition, BackupRules, connect
from pyspark_kafkalog.errors import (
    AuthorizationError,
    BrokerConnectionError,
    BrokerError,
    GroupError,
    KafkaLogError,
    LogDirectoryError,
    LogDirectoryLockedError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.lock import directory_lock, partition_lock
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import CommittedOffset, Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.tools.backup import backup as backup_module
from pyspark_kafkalog.tools.backup.copies import directory as backup_directories
from pyspark_kafkalog.tools.backup.copies.directory import open_backup
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from pyspark_kafkalog.tools.backup.copies.opening import task_log
from pyspark_kafkalog.tools.backup.on_spark import _copy, _Task
from pyspark_kafkalog.tools.backup.plan import BackupPlan, CopyBounds, plan
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.faults.disk import recorded
from tests.kafka_cluster import Cluster
from tests.tools.backup.histories import (
    RECORDS,
    SMALL,
    T0,
    TOPIC_ID,
    backup_by_threads,
    batch,
    content,
    make_log,
    piece,
)
from tests.tools.backup.test_history import check_sound, commit, saved
from tests.tools.cli.running import run

PARTITIONS = [TopicPartition("t", number) for number in range(5)]
RULES = BackupRules(groups=(), threads=2)
CLEAN = ".kafka_cleanshutdown"


def make_source(root: Path, end: int, partitions: Iterable[TopicPartition] = PARTITIONS) -> Path:
    for partition in partitions:
        make_log(root, [(1, end)], partition=partition)
    return root


def backed_up(tmp_path: Path, end: int = 100) -> tuple[Path, Path]:
    """A source that has grown since its backup."""
    target = tmp_path / "target"
    connect(make_source(tmp_path / "before", end)).logs.backup(str(target), RULES)
    return make_source(tmp_path / "source", 2 * end), target


def damage(root: Path, partition: TopicPartition) -> str:
    """Flip a bit of a batch, with valid ones behind it, that the backup has flushed; its file."""
    segment = sorted((root / str(partition)).glob("*.log"))[-1]
    assert segment.stat().st_size > 2 * len(batch(0, 1))
    data = bytearray(segment.read_bytes())
    data[len(batch(0, 1)) // 2] ^= 1
    segment.write_bytes(data)
    return str(segment)


def check(
    rows: Iterable[BackedUpPartition], source: Path, target: Path, failed: dict[TopicPartition, str]
) -> None:
    """The partitions that have failed say so with a place; all others are complete."""
    by_partition = {TopicPartition(row.topic, row.partition): row for row in rows}
    assert by_partition.keys() == set(PARTITIONS)
    for partition, row in by_partition.items():
        if partition in failed:
            assert failed[partition] in (row.problem or "")
        else:
            assert (row.problem, row.log_end_offset) == (None, row.high_watermark)
            assert content(target, partition) == content(source, partition)


def test_damage_in_two_partitions_of_the_backup(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    (target / CLEAN).unlink()
    failed = {partition: damage(target, partition) for partition in PARTITIONS[1:3]}
    held = [content(target, partition) for partition in failed]
    for _ in range(2):
        check(connect(source).logs.backup(str(target), RULES), source, target, failed)
        assert [content(target, partition) for partition in failed] == held
        assert not (target / CLEAN).exists(), "a broker would take the damage for records"
    done = run("copy", source, target, "--no-groups")
    assert done.code == 1
    assert len(done.lines) == 1 + len(PARTITIONS)
    for partition, file in failed.items():
        (line,) = (line for line in done.err.splitlines() if line.startswith(f"kafkalog: {partition}: "))
        assert "before a valid batch at byte" in line
        assert file in line
        assert "kafkalog repair" in line
    connect(target).logs.repair(execute=True)
    check(connect(source).logs.backup(str(target), RULES), source, target, {})
    check_sound(target)


def test_damage_in_a_partition_that_has_nothing_new(tmp_path: Path) -> None:
    """It is found when the directory is closed, and told as well."""
    source, target = backed_up(tmp_path)
    check(connect(source).logs.backup(str(target), RULES), source, target, {})
    (target / CLEAN).unlink()
    file = damage(target, PARTITIONS[0])
    rows = connect(source).logs.backup(str(target), BackupRules(groups=(), exclude=("t",)))
    assert [(row.partition, file in (row.problem or "")) for row in rows] == [(0, True)]
    assert not (target / CLEAN).exists()
    with pytest.raises(LogDirectoryError, match="before a valid batch"), open_backup(str(target)):
        pass


def test_files_that_make_no_sense(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    metadata = target / "t-3" / "partition.metadata"
    metadata.write_bytes(b"version: 7\n")
    stuck = target / "t-1" / f"{0:020d}.log.cleaned"
    stuck.mkdir()
    failed = {PARTITIONS[3]: str(metadata), PARTITIONS[1]: str(stuck)}
    check(connect(source).logs.backup(str(target), RULES), source, target, failed)
    stuck.rmdir()
    metadata.write_bytes((target / "t-0" / "partition.metadata").read_bytes())
    check(connect(source).logs.backup(str(target), RULES), source, target, {})
    check_sound(target)


def test_damage_in_the_source(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    segment = sorted((source / "t-2").glob("*.log"))[-1]
    segment.unlink()
    segment.mkdir()
    rows = connect(source).logs.backup(str(target), RULES)
    check(rows, source, target, {PARTITIONS[2]: ""})
    assert rows[2].problem


@contextmanager
def failing_disk(call: str, number: int, *folders: Path) -> Iterator[None]:
    """Calls that write to files of these folders fail, all of them, or all of an fsync."""
    real = getattr(os, call)

    def failing(descriptor: int, *args: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if any(path.startswith(f"{folder}/") for folder in folders):
            raise OSError(number, os.strerror(number))
        return real(descriptor, *args)

    setattr(os, call, failing)
    try:
        yield
    finally:
        setattr(os, call, real)


@pytest.mark.parametrize(
    ("call", "number"), [("pwrite", errno.ENOSPC), ("fsync", errno.EIO)], ids=["full", "broken"]
)
def test_a_disk_that_fails_for_two_partitions(call: str, number: int, tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    folders = [target / str(partition) for partition in PARTITIONS[:2]]
    with failing_disk(call, number, *folders):
        rows = connect(source).logs.backup(str(target), RULES)
    failed = {p: f"Could not write the backup: {os.strerror(number)}" for p in PARTITIONS[:2]}
    check(rows, source, target, failed)
    for row, folder in zip(rows, folders, strict=False):
        assert f"file {folder}/" in (row.problem or "")
        assert row.log_end_offset < 200
    assert not (target / CLEAN).exists()
    check(connect(source).logs.backup(str(target), RULES), source, target, {})
    check_sound(target)


@contextmanager
def failing_once(folder: Path) -> Iterator[None]:
    """The first fsync of a ``.log`` in the folder fails; Linux takes the bytes for written then."""
    real, failed = os.fsync, []

    def failing(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(f"{folder}/") and path.endswith(".log") and not failed:
            failed.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    os.fsync = failing
    try:
        yield
    finally:
        os.fsync = real
    assert failed


def test_what_a_failed_flush_may_have_lost_is_copied_again(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    with failing_once(target / "t-0"):
        row, *_ = rows = connect(source).logs.backup(str(target), RULES)
    check(rows, source, target, {PARTITIONS[0]: os.strerror(errno.EIO)})
    assert row.log_end_offset < 200
    assert content(source).startswith(content(target))
    assert content(target).endswith(batch(row.log_end_offset - RECORDS, 1)), "only what was flushed is left"
    check(connect(source).logs.backup(str(target), RULES), source, target, {})
    check_sound(target)


def test_a_task_cuts_off_what_a_failed_flush_may_have_lost(tmp_path: Path) -> None:
    make_log(tmp_path, [(1, 20)])
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    with (
        pytest.raises(LogDirectoryError, match=os.strerror(errno.EIO)),
        failing_once(tmp_path / "t-0"),
        task_log(str(tmp_path), T0, SMALL, start=0, topic_id="", was_clean=True) as log,
    ):
        log.append(piece(batch(20, 1)))
    assert content(tmp_path) == b"".join(batch(at, 1) for at in range(0, 20, RECORDS))


def test_what_an_interrupted_run_has_not_flushed_is_cut_off_if_its_recovery_fails(tmp_path: Path) -> None:
    make_log(tmp_path, [(1, 20)])
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    with failing_once(tmp_path / "t-0"), open_backup(str(tmp_path)) as directory:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            directory.open(T0, SMALL, start=0, topic_id="")
        assert directory.close() == {}
    assert content(tmp_path) == batch(0, 1) + batch(5, 1)


def test_a_topic_id_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 50)])
    with failing_disk("pwrite", errno.ENOSPC, target / "t-0"):
        (row,) = connect(source).logs.backup(str(target), RULES)
    assert os.strerror(errno.ENOSPC) in (row.problem or "")
    (row,) = connect(source).logs.backup(str(target), RULES)
    assert (row.problem, row.log_end_offset) == (None, 50)
    assert TOPIC_ID in (target / "t-0" / "partition.metadata").read_text()
    check_sound(target)


HOLD = """
import sys
from pyspark_kafkalog.log.lock import partition_lock
with partition_lock(sys.argv[1], sys.argv[2], 10):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("is_closed", [False, True], ids=["not closed", "closed by another attempt"])
def test_a_partition_that_a_task_still_writes_to_is_left_alone(
    is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_source(tmp_path, 20)
    segment = tmp_path / "t-1" / f"{0:020d}.log"
    segment.write_bytes(torn := segment.read_bytes()[:-1])
    monkeypatch.setattr(backup_directories, "_LOCK_TIMEOUT", 0.1)
    command = [sys.executable, "-c", HOLD, str(tmp_path), "t-1"]
    with open_backup(str(tmp_path)) as directory:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as task:
            assert task.stdout is not None
            task.stdout.readline()
            if is_closed:
                directory.closed(PARTITIONS[1], 15)
            failures = directory.close()
            task.communicate()
        assert {partition: error.message for partition, error in failures.items()} == {
            PARTITIONS[1]: "The partition is in use: another task wrote to it for all of 0.1 s"
        }
    assert segment.read_bytes() == torn
    assert [file.name for file in tmp_path.glob(".kafkalog-lock-*")] == [".kafkalog-lock-t-1"]
    assert not (tmp_path / CLEAN).exists()
    with open_backup(str(tmp_path)):
        pass
    assert content(tmp_path, PARTITIONS[1]) == b"".join(batch(at, 1) for at in range(0, 15, RECORDS))
    assert not [*tmp_path.glob(".kafkalog-lock-*")]
    check_sound(tmp_path)


def test_no_writer_passes_a_task_whose_job_was_killed(tmp_path: Path) -> None:
    make_source(tmp_path, 20, PARTITIONS[:1])
    with open_backup(str(tmp_path)) as directory:
        directory.set_cluster_id(None)
    command = [sys.executable, "-c", HOLD, str(tmp_path), "t-0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as task:
        assert task.stdout is not None
        task.stdout.readline()
        with (
            pytest.raises(LogDirectoryLockedError, match="another task wrote to it"),
            directory_lock(str(tmp_path), 0.1),
        ):
            pass
        task.communicate()
    with directory_lock(str(tmp_path), 0.1):
        pass


def test_a_topic_with_the_longest_name(tmp_path: Path) -> None:
    """Its name and what begins the name of its lock are longer than a file's name may be."""
    source, target = tmp_path / "source", tmp_path / "target"
    long = TopicPartition("n" * 249, 0)
    make_source(source, 50, [long])
    with task_log(str(source), long, SMALL, start=0, topic_id=TOPIC_ID, was_clean=False) as log:
        assert log.next_offset == 50
    (row,) = connect(source).logs.backup(str(target), RULES)
    assert (row.problem, row.log_end_offset) == (None, 50)
    (target / CLEAN).unlink()
    with partition_lock(str(target), str(long), 0):  # as a task that was killed
        pass
    (lock,) = target.glob(".kafkalog-lock-*")
    shutil.rmtree(source)
    make_source(source, 50, PARTITIONS[:1])
    rows = connect(source).logs.backup(str(target), RULES)
    assert [(row.topic, row.problem) for row in rows] == [(long.topic, None), ("t", None)]
    assert not lock.exists()
    check_sound(target)


def test_a_disk_that_fails_for_all(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    with (
        failing_disk("pwrite", errno.ENOSPC, target),
        pytest.raises(LogDirectoryError, match="No space left"),
    ):
        connect(source).logs.backup(str(target), RULES)
    check(connect(source).logs.backup(str(target), RULES), source, target, {})
    check_sound(target)


class Failing:
    """A cluster in which the leaders of some partitions do not answer."""

    def __init__(self, root: Path) -> None:
        self._place = LogDirectory.open(str(root))
        self.unknown: set[TopicPartition] = set()
        self.silent: set[TopicPartition] = set()
        self.is_down = False
        self.epochs: dict[TopicPartition, int] = {}
        self.denied: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def cluster_id(self) -> str | None:
        if self.is_down:
            raise BrokerConnectionError("No broker answers")
        return None

    def leader_epochs(self, partitions: Any) -> dict[TopicPartition, int]:
        return self.epochs

    def topics(self, names: Any = None) -> Any:
        if self.denied.intersection(names or ()):
            raise AuthorizationError("Looking up a topic: denied")
        return self._place.topics(names)

    def move_to(self, root: Path) -> None:
        """Have another leader answer from now on."""
        self._place = LogDirectory.open(str(root))
        self.epochs = {partition: self.epochs.get(partition, 0) + 1 for partition in PARTITIONS}

    def try_watermarks(self, partitions: Any) -> Any:
        found, _ = self._place.try_watermarks([p for p in partitions if p not in self.unknown])
        failures = {
            p: BrokerError("No leader", topic_partition=p) for p in self.unknown.intersection(partitions)
        }
        return found, failures

    def fetch(self, wanted: Fetch) -> Any:
        if wanted.partition in self.silent:
            raise BrokerConnectionError("Silence", topic_partition=wanted.partition)
        return self._place.fetch(wanted)


def test_leaders_that_do_not_answer(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    groups = DirectoryGroups.open(str(source), num_partitions=1)
    groups.commit("g", dict.fromkeys(PARTITIONS, CommittedOffset(150)))
    failing = Failing(source)
    failing.unknown, failing.silent = {PARTITIONS[0]}, {PARTITIONS[4]}

    def once() -> list[BackedUpPartition]:
        with open_backup(str(target)) as directory:
            saved = DirectoryGroups.open(str(target), num_partitions=1, lock_timeout=None)
            run = backup_by_threads(failing, directory, BackupRules(), groups=groups, saved=saved)
            return run.once()

    check(once(), source, target, {PARTITIONS[0]: "No leader (partition t-0)", PARTITIONS[4]: "Silence"})
    assert (target / CLEAN).exists(), "nothing is wrong with the backup"
    committed = DirectoryGroups.open(str(target)).committed("g")
    assert set(committed) == set(PARTITIONS[1:4]), "no group is ahead of its backup"
    failing.is_down = True
    with pytest.raises(BrokerConnectionError, match="No broker answers"):
        once()
    failing.is_down, failing.unknown, failing.silent = False, set(), set()
    check(once(), source, target, {})
    assert set(DirectoryGroups.open(str(target)).committed("g")) == set(PARTITIONS)
    check_sound(target)


class NoCoordinator:
    """The groups of a cluster, whose coordinator does not answer."""

    def try_group_ids(self) -> tuple[list[str], list[KafkaLogError]]:
        raise BrokerError("No coordinator")


def test_groups_that_cannot_be_read(tmp_path: Path) -> None:
    """The records are backed up all the same."""
    source, target = backed_up(tmp_path)
    groups = cast(GroupOffsets, NoCoordinator())
    place = LogDirectory.open(str(source))
    with open_backup(str(target)) as directory:
        saved = DirectoryGroups.open(str(target), num_partitions=1, lock_timeout=None)
        run = backup_by_threads(place, directory, BackupRules(), groups=groups, saved=saved)
        about_groups, *rows = run.once()
    assert (about_groups.topic, about_groups.partition) == ("__consumer_offsets", -1)
    assert "could not be read: No coordinator" in (about_groups.problem or "")
    assert [row.problem for row in rows] == [None] * len(PARTITIONS)
    assert all(content(target, p) == content(source, p) for p in PARTITIONS)
    check_sound(target)


class Denying:
    """A cluster whose ACLs hide ``__consumer_offsets``."""

    def __init__(self, root: Path) -> None:
        self._place = LogDirectory.open(str(root))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def topics(self, names: Any = None) -> Any:
        if names is not None and "__consumer_offsets" in names:
            raise AuthorizationError("Denied")
        return self._place.topics(names)


@pytest.mark.parametrize("follow", [None, threading.Event()], ids=["once", "following"])
def test_a_hidden_offsets_topic(
    follow: threading.Event | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records and offsets are backed up: only the number of its partitions is not known."""
    source, target = backed_up(tmp_path)
    commit(source, g=150)
    monkeypatch.setattr(backup_module, "open_place", lambda place: Denying(source))
    monkeypatch.setattr(backup_module, "open_groups", lambda place: DirectoryGroups.open(str(source)))
    options = {"kafka.bootstrap.servers": "host:9092"}
    if follow is not None:
        threading.Timer(2, follow.set).start()
    rows = connect(options).logs.backup(str(target), BackupRules(), follow_until=follow)
    assert [row.problem for row in rows] == [None] * len(PARTITIONS)
    assert all(content(target, p) == content(source, p) for p in PARTITIONS)
    assert saved(target) == {"g": 150}
    check_sound(target)
    assert all(row.problem is None for row in connect(options).logs.backup(str(target), RULES))


def test_a_group_that_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with a larger offset.metadata.max.bytes has such ones."""
    source, target = backed_up(tmp_path)
    commit(source, a=10, z=20)
    with monkeypatch.context() as patch:
        patch.setattr("pyspark_kafkalog.extensions.log_groups.groups._MAX_METADATA", 5000)
        long = CommittedOffset(15, metadata="m" * 5000)
        DirectoryGroups.open(str(source)).commit("m", {PARTITIONS[0]: long})
    about_groups, *rows = connect(source).logs.backup(str(target))
    assert "The offsets of group 'm' could not be saved" in (about_groups.problem or "")
    assert "cannot commit metadata" in (about_groups.problem or "")
    assert [row.problem for row in rows] == [None] * len(PARTITIONS)
    assert all(content(target, p) == content(source, p) for p in PARTITIONS)
    assert saved(target) == {"a": 10, "z": 20}
    check_sound(target)


def test_groups_that_are_gone_or_never_were(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    with pytest.raises(GroupError, match="No such consumer group: 'typo'"):
        connect(source).logs.backup(str(target), BackupRules(groups=("typo",)))
    commit(source, a=10, z=20)
    connect(source).logs.backup(str(target))
    DirectoryGroups.open(str(source)).delete_group("z")
    for rules in BackupRules(), BackupRules(groups=("a", "z")):
        about_groups, *rows = connect(source).logs.backup(str(target), rules)
        assert "The source shows no offsets of z any more" in (about_groups.note or "")
        assert [row.problem for row in (about_groups, *rows)] == [None] * (1 + len(PARTITIONS))
    assert saved(target) == {"a": 10, "z": 20}
    done = run("copy", source, target)
    assert done.code == 0
    assert "kafkalog: __consumer_offsets: The source shows no offsets of z any more" in done.err


def test_a_new_partition_that_cannot_be_read_leaves_no_empty_log(tmp_path: Path) -> None:
    """It would look like one without records."""
    source, target = make_source(tmp_path / "source", 50), tmp_path / "target"
    failing = Failing(source)
    failing.silent = {PARTITIONS[4]}
    for _ in range(2):
        with open_backup(str(target)) as directory:
            rows = backup_by_threads(failing, directory, RULES).once()
        check(rows, source, target, {PARTITIONS[4]: "Silence"})
        assert not (target / "t-4").exists()
    failing.silent = set()
    with open_backup(str(target)) as directory:
        check(backup_by_threads(failing, directory, RULES).once(), source, target, {})


def following(source: Failing, target: Path, tell: Callable[[BackedUpPartition], None]) -> Any:
    """Follow in another thread; returns the event that ends it, and what waits for the rows."""
    stop, rows = threading.Event(), []

    def follow() -> None:
        with open_backup(str(target)) as directory:
            rows.extend(backup_by_threads(source, directory, RULES, failed=tell).follow(stop))

    thread = threading.Thread(target=follow)
    thread.start()

    def ended() -> list[BackedUpPartition]:
        thread.join(20)
        assert not thread.is_alive()
        return rows

    return stop, ended


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_leader_that_comes_back_is_followed(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    failing, told = Failing(source), []
    failing.unknown, failing.silent = {PARTITIONS[0]}, {PARTITIONS[4]}
    stop, ended = following(failing, target, lambda row: told.append((row.partition, row.problem)))
    wait_until(lambda: content(target, PARTITIONS[1]) == content(source, PARTITIONS[1]))
    wait_until(lambda: len(told) == 2)
    assert {number for number, _ in told} == {0, 4}
    time.sleep(1.5)  # it is tried again
    assert len(told) == 2
    failing.unknown, failing.silent = set(), set()
    wait_until(lambda: all(content(target, p) == content(source, p) for p in PARTITIONS))
    stop.set()
    check(ended(), source, target, {})
    check_sound(target)


def test_a_source_that_comes_back_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also one that goes amid a copy, when all brokers are restarted."""
    before, after, target = tmp_path / "before", tmp_path / "after", tmp_path / "target"
    make_log(before, [(1, 50)])
    make_log(after, [(1, 100)])
    failing = Failing(before)
    stop, ended = following(failing, target, lambda row: None)
    wait_until(lambda: content(target) == content(before))
    failing.is_down, failing.silent = True, {T0}
    failing.move_to(after)
    wait_until(lambda: "The source does not answer, and is tried again: No broker answers" in caplog.text)
    failing.is_down, failing.silent = False, set()
    wait_until(lambda: content(target) == content(after))
    stop.set()
    (row,) = ended()
    assert row.problem is None
    assert caplog.text.count("does not answer") == 1


def test_a_source_that_is_asked_for_long_holds_no_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor kills what does not end within seconds."""
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(1, 50)])
    looks, answer = [], threading.Event()

    def look(*asked: Any) -> BackupPlan:
        looks.append(asked)
        if len(looks) > 1:
            answer.wait(60)
        return plan(*asked)

    monkeypatch.setattr("pyspark_kafkalog.tools.backup.run.plan", look)
    stop, ended = following(Failing(source), target, lambda row: None)
    wait_until(lambda: len(looks) == 2)
    begin = time.monotonic()
    stop.set()
    (row,) = ended()
    assert time.monotonic() - begin < 10
    answer.set()
    assert row.problem is None
    assert content(target) == content(source)
    assert (target / ".kafka_cleanshutdown").exists()


def test_a_source_that_never_answers_is_not_followed(tmp_path: Path) -> None:
    """Its address may be wrong."""
    make_log(tmp_path / "source", [(1, 50)])
    failing = Failing(tmp_path / "source")
    failing.is_down, failing.silent = True, {T0}
    with (
        open_backup(str(tmp_path / "target")) as directory,
        pytest.raises(BrokerConnectionError, match="No broker answers"),
    ):
        backup_by_threads(failing, directory, RULES).follow(threading.Event())


def test_a_new_leader_whose_log_is_as_long_is_seen(tmp_path: Path) -> None:
    before, after, target = tmp_path / "before", tmp_path / "after", tmp_path / "target"
    make_log(before, [(1, 100)])
    make_log(after, [(1, 90), (2, 100)])
    source, told = Failing(before), []
    stop, ended = following(source, target, lambda row: told.append(row.problem))
    wait_until(lambda: content(target) == content(before))
    source.move_to(after)
    wait_until(lambda: bool(told))
    stop.set()
    (row,) = ended()
    assert "Offsets 90 to 99 are not those of the source" in (row.problem or "")


@pytest.mark.parametrize("is_denied", [False, True])
@pytest.mark.parametrize("topics", [("t", "u"), ()], ids=["named", "all"])
def test_a_topic_that_is_gone_hinders_no_other(
    tmp_path: Path, topics: tuple[str, ...], is_denied: bool
) -> None:
    before, after, target = tmp_path / "before", tmp_path / "after", str(tmp_path / "target")
    gone, rules = TopicPartition("u", 0), BackupRules(topics=topics, groups=())
    for partition in T0, gone:
        make_log(before, [(1, 50)], partition=partition)
    connect(before).logs.backup(target, rules)
    make_log(after, [(1, 100)])
    source = Failing(after)
    source.denied = {"u"} if is_denied else set()
    with open_backup(target) as directory:
        rows = backup_by_threads(source, directory, rules).once()
    assert [(row.topic, row.log_end_offset, row.high_watermark) for row in rows] == [
        ("t", 100, 100),
        ("u", 50, None),
    ]
    assert [row.problem for row in rows] == [None, "Looking up a topic: denied" if is_denied else None]


def test_a_named_topic_that_never_was_is_refused(tmp_path: Path) -> None:
    make_log(tmp_path / "source", [(1, 50)])
    with pytest.raises(UnknownTopicOrPartitionError, match="No such topic: u"):
        connect(tmp_path / "source").logs.backup(
            str(tmp_path / "target"), BackupRules(topics=("t", "u"), groups=())
        )


def test_damage_ends_following_when_the_others_are_copied(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    (target / CLEAN).unlink()
    file, told = damage(target, PARTITIONS[1]), []
    _, ended = following(Failing(source), target, told.append)
    check(ended(), source, target, {PARTITIONS[1]: file})
    assert [row.partition for row in told] == [1]


def test_what_could_not_be_noted_is_not_acted_upon(tmp_path: Path) -> None:
    """Gaps and starts are on disk before records that depend on them, even when they are tried again."""
    _, target = backed_up(tmp_path)
    new, gap = TopicPartition("t", 9), OffsetRange(100, 130)
    with open_backup(str(target)) as directory:
        directory.open(PARTITIONS[0], SMALL, start=0, topic_id="")
        for _ in range(2):
            with failing_disk("pwrite", errno.ENOSPC, target):
                with pytest.raises(OSError, match="No space left"):
                    directory.open(new, SMALL, start=500, topic_id="")
                with pytest.raises(OSError, match="No space left"):
                    directory.add_gap(PARTITIONS[0], gap, gap.end)
        assert directory.log_start_offset(new) == 0
        assert directory.gaps(PARTITIONS[0]) == ()
        directory.open(new, SMALL, start=500, topic_id="").append(piece(batch(500, 1)))
        directory.add_gap(PARTITIONS[0], gap, gap.end)
    with open_backup(str(target)) as directory:
        assert directory.log_start_offset(new) == 500
        assert directory.gaps(PARTITIONS[0]) == (gap,)


def test_a_flush_is_of_files_that_were_closed_meanwhile(tmp_path: Path) -> None:
    """As they are after an error of the source."""
    log = BackupLog.create(str(tmp_path / "t-0"), PARTITIONS[0], SMALL, 0)
    log.append(piece(batch(0, 1)))
    log.close(cleanly=False)
    with recorded() as calls:
        assert log.flush() == 5
    opened = {result: Path(args[0]).name for call, args, result in calls if call == "open"}
    flushed = {opened.get(args[0]) for call, args, _ in calls if call == "fsync"}
    assert flushed >= {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}


def test_a_task_fails_while_another_attempt_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result would end the other attempt."""
    monkeypatch.setattr("pyspark_kafkalog.log.lock._try_lock", lambda *_: False)
    monkeypatch.setattr("pyspark_kafkalog.tools.backup.copies.opening._LOCK_TIMEOUT", 0.0)
    task = _Task(PARTITIONS[0], CopyBounds(0, 10, 0, 10), 0, "", SMALL)
    place = place_options({"path": str(tmp_path)})
    with pytest.raises(LogDirectoryLockedError, match="another task wrote to it"):
        _copy(task, place=place, directory=str(tmp_path), rate=None, was_clean=True)


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.slow
def test_partitions_of_a_broker_that_is_down(cluster: Cluster, tmp_path: Path) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3, replication_factor=1)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    produce(connected(cluster.bootstrap), topic, [numbered(900)])
    leaders = {partition: cluster.leader(topic, partition.partition) for partition in partitions}
    down = leaders[partitions[1]]
    lost = {partition for partition, leader in leaders.items() if leader == down}
    assert len(lost) < 3
    cluster.kill(down)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "kafka.request.timeout.ms": "3000",
        "fetchOffset.numRetries": "1",
    }
    rules = BackupRules(topics=(topic,), groups=())
    rows = connect(options).logs.backup(str(tmp_path), rules)
    assert {TopicPartition(row.topic, row.partition) for row in rows if row.problem} == lost
    for row in rows:
        if row.problem:
            assert f"partition {topic}-{row.partition}" in row.problem or "broker 127.0.0.1:" in row.problem
        else:
            assert row.log_end_offset == row.high_watermark
    cluster.restart(down)
    rows = connect(options).logs.backup(str(tmp_path), rules)
    assert [(row.problem, row.log_end_offset == row.high_watermark) for row in rows] == [(None, True)] * 3
    assert sum(row.log_end_offset for row in rows) == 900
