"""Staged files: out of sight, private, checked, and gone when they are not needed."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import resource
import stat
import time

import pytest

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.private import NewFile
from pyspark_kafkalog.log.publish import staged_files
from pyspark_kafkalog.log.publish.journal import ledger_file
from pyspark_kafkalog.log.publish.staged_files import STAGED_PREFIX, abort, staging
from pyspark_kafkalog.model import EncodeSettings, QueryBatch
from pyspark_kafkalog.staging import Staged
from tests.codec.strategies import Row, arrow_batch
from tests.log.writing import (
    T0,
    T1,
    TOPICS,
    files_beside_partitions,
    publish_staged,
    read,
    stage,
    values,
    write,
    write_batch,
)

ENCODED = encode(arrow_batch([Row(None, b"v", None, 1)]), None, EncodeSettings(), topic_partition=T0)


@pytest.fixture(autouse=True)
def root_is_listed_by_each_commit(monkeypatch):
    monkeypatch.setattr(staged_files, "_LISTED_SHARE", math.inf)


def test_name_mode_and_contents(tmp_path):
    root = tmp_path / "made" / "here"
    with staging(str(root), "query-7", "00001-0", TOPICS) as sink:
        sink.append(T0, ENCODED)
        sink.append(T1, ENCODED)
        file = sink.finish()
    (path,) = root.iterdir()
    assert file.name == path.name
    assert path.name.startswith(".kafkalog-staged-query.7-00001.0-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == ENCODED.data.tobytes() * 2
    assert [(s.topic, s.partition, s.position, s.size, s.records) for s in file.sections] == [
        ("t", 0, 0, ENCODED.data.size, 1),
        ("t", 1, ENCODED.data.size, ENCODED.data.size, 1),
    ]
    assert file.records == 2


def test_what_travels_is_pickled(tmp_path):
    (file,) = stage(tmp_path, "job", {T0: values(3)})
    assert pickle.loads(pickle.dumps(file)) == file


def test_no_rows_no_file(tmp_path):
    with staging(str(tmp_path / "log"), "job", "0", TOPICS) as sink:
        sink.append(T0, encode(arrow_batch([]), None, EncodeSettings(), topic_partition=T0))
        assert not sink.finish().sections
    assert not (tmp_path / "log").exists()


def test_failed_task_leaves_no_file(tmp_path):
    def fail() -> None:
        with staging(str(tmp_path), "job", "0", TOPICS) as sink:
            sink.append(T0, ENCODED)
            sink.finish()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with staging(str(tmp_path), "job", "0", TOPICS) as sink:  # left without finish()
        sink.append(T0, ENCODED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..//", "a b", "é", "x" * 81, "a\0", "a\n"])
def test_names_that_cannot_be_file_names(tmp_path, name):
    with pytest.raises(ValueError, match="file name"):
        staging(str(tmp_path), name, "0", TOPICS)
    with pytest.raises(ValueError, match="file name"):
        staging(str(tmp_path), "job", name, TOPICS)


def test_abort_removes_the_jobs_files_only(tmp_path):
    mine = stage(tmp_path, "job-1", {T0: values(1)}) + stage(tmp_path, "job-1", {T0: values(1)})
    (other,) = stage(tmp_path, "job-10", {T0: values(1)})
    assert len(mine) == 2
    abort(str(tmp_path), QueryBatch("job-1"), [])
    assert files_beside_partitions(tmp_path) == {other.name}


def test_abort_leaves_what_another_driver_of_the_micro_batch_has_staged(tmp_path):
    mine, theirs = (stage(tmp_path, "query-1", {T0: values(1)}) for _ in range(2))
    abort(str(tmp_path), QueryBatch("query", 1), mine)
    assert files_beside_partitions(tmp_path) == {theirs[0].name}
    publish_staged(tmp_path, theirs, QueryBatch("query", 1))
    assert read(tmp_path)[T0] == values(1)


def test_abort_removes_staged_files_only(tmp_path):
    (tmp_path / "t-0").touch()
    abort(str(tmp_path), QueryBatch("query", 1), [Staged("t-0", ()), Staged("../t-0", ())])
    assert (tmp_path / "t-0").exists()


def test_abort_never_raises(tmp_path, caplog):
    abort(str(tmp_path / "absent"), QueryBatch("job"), [])
    assert "job" in caplog.text


def test_publish_sweeps(tmp_path):
    loser = stage(tmp_path, "query-5", {T0: values(1)})
    earlier = stage(tmp_path, "query-4", {T0: values(1)})
    (later,) = stage(tmp_path, "query-6", {T0: values(1)})
    (other_query,) = stage(tmp_path, "other-4", {T0: values(1)})
    (other_job,) = stage(tmp_path, "job", {T0: values(1)})
    (tmp_path / ".kafkalog-staged-of-something-else").touch()
    assert all((loser, earlier))
    write_batch(tmp_path, 5, {T0: values(3)})
    left = {name for name in files_beside_partitions(tmp_path) if not name.startswith(".kafkalog-sink-")}
    others = {later.name, other_query.name, other_job.name}
    assert left == {*others, ".kafkalog-staged-of-something-else", ".kafkalog-abandoned"}


def test_a_root_is_listed_for_a_share_of_the_time(tmp_path, monkeypatch):
    """Meanwhile a job's own files go by their names."""
    now, really = 0.0, staged_files._staged

    def slow(root):
        nonlocal now
        now += 0.5
        return really(root)

    monkeypatch.setattr(staged_files, "_LISTED_SHARE", 0.01)
    monkeypatch.setattr(staged_files, "_staged", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    write_batch(tmp_path, 1, {T0: values(1)})
    (loser,) = stage(tmp_path, "query-1", {T0: values(1)})
    now += 49.9
    write_batch(tmp_path, 2, {T0: values(1)})
    staged = {name for name in files_beside_partitions(tmp_path) if name.startswith(STAGED_PREFIX)}
    assert staged == {loser.name}
    now += 0.1
    write_batch(tmp_path, 3, {T0: values(1)})
    assert files_beside_partitions(tmp_path) == {ledger_file("query")}


DAY = 24 * 3600


def test_what_a_killed_job_staged_goes_after_a_day(tmp_path, monkeypatch):
    (old,) = stage(tmp_path, "killed", {T0: values(1)})
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    write(tmp_path, {T0: values(1)})
    now += DAY - 1
    write(tmp_path, {T0: values(1)})
    assert (tmp_path / old.name).exists()
    now += 1
    write(tmp_path, {T0: values(1)})
    assert not (tmp_path / old.name).exists()
    write(tmp_path, {T0: values(1)})
    assert json.loads((tmp_path / ".kafkalog-abandoned").read_text()) == {}


def test_what_a_job_stages_for_days_stays(tmp_path, monkeypatch):
    """While a job stages anything within a day, all its staged files are needed."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    staged = []
    for _ in range(4):
        staged += stage(tmp_path, "long", {T0: values(1)})
        write(tmp_path, {T1: values(1)})
        now += DAY - 1
    publish_staged(tmp_path, staged, QueryBatch("long"))
    assert len(read(tmp_path)[T0]) == 4


@pytest.mark.parametrize("days", [2, 400, -2])
def test_clocks_that_jump_sweep_nothing(tmp_path, monkeypatch, days):
    """Neither the machine's clock nor the one that dates files."""
    staged = stage(tmp_path, "live", {T0: values(1)})
    write(tmp_path, {T1: values(1)})
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + days * DAY)
    write(tmp_path, {T1: values(1)})
    dated = really() - days * DAY
    os.utime(tmp_path / staged[0].name, (dated, dated))
    for _ in range(3):
        write(tmp_path, {T1: values(1)})
    publish_staged(tmp_path, staged, QueryBatch("live"))
    assert len(read(tmp_path)[T0]) == 1


def test_machines_tell_times_of_their_own(tmp_path, monkeypatch):
    """A machine up for a year has not watched a file for a year that another saw on its first day."""
    staged = stage(tmp_path, "live", {T0: values(1)})
    for number in range(20):
        for machine, uptime in (("new", 10.0), ("old", 400.0 * DAY)):
            monkeypatch.setattr(staged_files, "machine_id", lambda machine=machine: machine)
            monkeypatch.setattr(time, "monotonic", lambda uptime=uptime: uptime + number)  # noqa: B023
            write(tmp_path, {T1: values(1)})
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)  # restarted
    write(tmp_path, {T1: values(1)})
    publish_staged(tmp_path, staged, QueryBatch("live"))
    assert len(read(tmp_path)[T0]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"killed": 1}', '{"killed": {"state": 1, "seen": []}}'])
def test_notes_that_make_no_sense(tmp_path, text):
    (old,) = stage(tmp_path, "killed", {T0: values(1)})
    (tmp_path / ".kafkalog-abandoned").write_text(text)
    write(tmp_path, {T0: values(1)})
    assert (tmp_path / old.name).exists()
    assert list(json.loads((tmp_path / ".kafkalog-abandoned").read_text())) == ["killed"]


def test_staged_file_that_cannot_be_removed(tmp_path, monkeypatch, caplog):
    """Like another user's file in a folder where users may only remove their own."""
    stage(tmp_path, "query-4", {T0: values(1)})
    (theirs,) = stage(tmp_path, "query-3", {T0: values(1)})
    unlink = os.unlink

    def sticky(path):
        if os.path.basename(path) == theirs.name:
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", sticky)
    write_batch(tmp_path, 5, {T0: values(3)})
    assert "Could not remove a staged file" in caplog.text
    assert files_beside_partitions(tmp_path) >= {theirs.name}
    assert not [name for name in files_beside_partitions(tmp_path) if "query.4" in name]
    assert len(read(tmp_path)[T0]) == 3


@pytest.mark.parametrize("tasks", [200, 1100])
def test_more_tasks_than_files_may_be_open(tmp_path, tasks):
    """Interleaved, so that every file is read for several partitions."""
    staged = []
    for task in range(tasks):
        staged += stage(tmp_path, "job", {T0: [b"%d" % task], T1: [b"%d" % task]})
    ours = len(os.listdir("/dev/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ours + 40, limits[1]))
        publish_staged(tmp_path, staged, QueryBatch("job"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert read(tmp_path) == {partition: [b"%d" % task for task in range(tasks)] for partition in (T0, T1)}


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "the system may open"),
        (errno.ENOMEM, "more memory"),
        (errno.EACCES, "Let the user"),
        (errno.EIO, "Check the disk"),
    ],
)
@pytest.mark.parametrize("how", ["open", "preadv"])
def test_staged_file_that_cannot_be_read(tmp_path, monkeypatch, number, remedy, how):
    """Only a missing file counts as gone."""
    staged = stage(tmp_path, "job", {T0: values(5)})
    path = str(tmp_path / staged[0].name)
    really = getattr(os, how)

    def fail(target, *more):
        if how == "preadv" or target == path:
            raise OSError(number, os.strerror(number), *([target] if how == "open" else []))
        return really(target, *more)

    with monkeypatch.context() as patch:
        patch.setattr(staged_files, "_MAX_OPEN", 0)
        patch.setattr(os, how, fail)
        with pytest.raises(LogDirectoryError, match=remedy) as e:
            publish_staged(tmp_path, staged, QueryBatch("job"))
        assert e.value.file == path
        assert os.strerror(number) in e.value.message
    publish_staged(tmp_path, staged, QueryBatch("job"))
    assert read(tmp_path)[T0] == values(5)


def test_no_space_to_stage(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(NewFile, "write", fail)
        with pytest.raises(
            LogDirectoryError, match=r"Could not stage: No space.*kafkalog-staged.*Free space"
        ):
            stage(tmp_path, "job", {T0: values(1)})
    assert list(tmp_path.iterdir()) == []


def test_root_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LogDirectoryError, match=r"Could not stage: Not a directory.*file"):
        stage(tmp_path / "file" / "root", "job", {T0: values(1)})


def _flip(path):
    data = bytearray(path.read_bytes())
    data[5] ^= 1  # in a base offset, which no batch's own checksum covers
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(path.read_bytes() * 2),
        _flip,
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.rename(path.parent / "elsewhere"), path.symlink_to(path.parent / "elsewhere")),
    ],
    ids=["cut", "emptied", "longer", "doubled", "flipped", "gone", "folder", "link"],
)
def test_changed_between_task_and_commit(tmp_path, damage):
    write(tmp_path, {T0: values(3)})
    staged = stage(tmp_path, "job", {T0: values(5), T1: values(5)})
    damage(tmp_path / staged[0].name)
    with pytest.raises(LogDirectoryError):
        publish_staged(tmp_path, staged, QueryBatch("job"))
    assert read(tmp_path) == {T0: values(3), T1: []}
    assert not (tmp_path / ".kafkalog-publish").exists()


@pytest.mark.parametrize("name", ["../elsewhere", "t-0/00000000000000000000.log", "meta.properties"])
def test_only_staged_files_are_published(tmp_path, name):
    (file,) = stage(tmp_path, "job", {T0: values(5)})
    with pytest.raises(LogDirectoryError, match="staged"):
        publish_staged(tmp_path, [Staged(name, file.sections)], QueryBatch("job"))
