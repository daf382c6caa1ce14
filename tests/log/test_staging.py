"""Staged files: out of sight, private, checked, and gone when they are not needed."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import asdict

import pytest

from pyspark_kafkalog.codec.encode import EncodeSettings, encode
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.publish import abort
from pyspark_kafkalog.log.staging import Section, StagedFile, Staging
from tests.codec.strategies import Row, arrow_batch
from tests.log.writing import (
    T0,
    T1,
    files_beside_partitions,
    publish_staged,
    read,
    stage,
    values,
    write,
    write_batch,
)

ENCODED = encode(arrow_batch([Row(None, b"v", None, 1)]), None, EncodeSettings(), topic_partition=T0)


def test_name_mode_and_contents(tmp_path):
    root = tmp_path / "made" / "here"
    with Staging(str(root), "query-7", "00001-0") as staging:
        staging.append(T0, ENCODED)
        staging.append(T1, ENCODED)
        file = staging.finish()
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


def test_what_travels_is_json(tmp_path):
    (file,) = stage(tmp_path, "job", {T0: values(3)})
    fields = json.loads(json.dumps(asdict(file)))
    again = StagedFile(fields["name"], tuple(Section(*section) for section in fields["sections"]))
    assert again == file


def test_no_rows_no_file(tmp_path):
    with Staging(str(tmp_path / "log"), "job", "0") as staging:
        staging.append(T0, encode(arrow_batch([]), None, EncodeSettings(), topic_partition=T0))
        assert staging.finish() is None
    assert not (tmp_path / "log").exists()


def test_failed_task_leaves_no_file(tmp_path):
    def fail() -> None:
        with Staging(str(tmp_path), "job", "0") as staging:
            staging.append(T0, ENCODED)
            staging.finish()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with Staging(str(tmp_path), "job", "0") as staging:  # left without finish()
        staging.append(T0, ENCODED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..//", "a b", "é", "x" * 81, "a\0", "a\n"])
def test_names_that_are_no_file_names(tmp_path, name):
    with pytest.raises(ValueError, match="file name"):
        Staging(str(tmp_path), name, "0")
    with pytest.raises(ValueError, match="file name"):
        Staging(str(tmp_path), "job", name)


def test_abort_removes_the_jobs_files_only(tmp_path):
    mine = stage(tmp_path, "job-1", {T0: values(1)}) + stage(tmp_path, "job-1", {T0: values(1)})
    (other,) = stage(tmp_path, "job-10", {T0: values(1)})
    assert len(mine) == 2
    abort(str(tmp_path), "job-1")
    assert files_beside_partitions(tmp_path) == {other.name}


def test_abort_never_raises(tmp_path, caplog):
    abort(str(tmp_path / "absent"), "job")
    assert "job" in caplog.text


def test_publish_sweeps(tmp_path):
    loser = stage(tmp_path, "query-5", {T0: values(1)})
    earlier = stage(tmp_path, "query-4", {T0: values(1)})
    (later,) = stage(tmp_path, "query-6", {T0: values(1)})
    (other_query,) = stage(tmp_path, "other-4", {T0: values(1)})
    (other_job,) = stage(tmp_path, "job", {T0: values(1)})
    (old,) = stage(tmp_path, "forgotten", {T0: values(1)})
    yesterday = time.time() - 25 * 3600
    os.utime(tmp_path / old.name, (yesterday, yesterday))
    (tmp_path / ".kafkalog-staged-of-something-else").touch()
    assert all((loser, earlier))
    write_batch(tmp_path, 5, {T0: values(3)})
    left = {name for name in files_beside_partitions(tmp_path) if not name.startswith(".kafkalog-sink-")}
    assert left == {later.name, other_query.name, other_job.name, ".kafkalog-staged-of-something-else"}


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
        publish_staged(tmp_path, staged, "job")
    assert read(tmp_path) == {T0: values(3), T1: []}
    assert not (tmp_path / ".kafkalog-publish").exists()


@pytest.mark.parametrize("name", ["../elsewhere", "t-0/00000000000000000000.log", "meta.properties"])
def test_only_staged_files_are_published(tmp_path, name):
    (file,) = stage(tmp_path, "job", {T0: values(5)})
    with pytest.raises(LogDirectoryError, match="staged"):
        publish_staged(tmp_path, [StagedFile(name, file.sections)], "job")
