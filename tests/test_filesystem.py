"""A file that is replaced holds the old content or the new, on every file system and after every kill."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.extensions.audit.stores import FolderStore, Name, read_entries
from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.filesystem.locate import locate, without_secrets
from pyspark_kafkalog.filesystem.machine import Mark, host_id, is_marked_by, leave_mark
from pyspark_kafkalog.filesystem.private import NewFile, make_folder, remove_file, remove_folder
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.stream.source_state import Reader, SourceState
from tests.faults.disk import Disk, recorded
from tests.faults.disk import Folder as DiskFolder
from tests.http_doubles import Silent, served
from tests.new_names import NewNamesFileSystem


class KilledError(Exception):
    """Nothing that follows it changes a file."""


@pytest.fixture(params=["", "file://", "local://", "newnames://"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}/folder"


@pytest.fixture
def new_names(tmp_path: Path) -> str:
    return f"newnames://{tmp_path}/folder"


def run_and_kill(run: Callable[[], None], step: int) -> bool:
    """Run it without the steps from this number on, as a kill leaves it; whether there were any."""
    steps = count()

    def stop() -> None:
        if next(steps) >= step:
            raise KilledError

    before_step = NewNamesFileSystem.before_step
    NewNamesFileSystem.before_step = staticmethod(stop)
    try:
        run()
    except KilledError:
        return True
    finally:
        NewNamesFileSystem.before_step = staticmethod(before_step)
    return False


def test_a_file_is_replaced_and_nothing_else_is_left(location: str, tmp_path: Path) -> None:
    folder = locate(location)
    assert folder.read_replaced("name") is None
    for data in (b"first", b"", b"second and longer"):
        folder.replace("name", data)
        assert folder.read_replaced("name") == data
    assert os.listdir(tmp_path / "folder") == ["name"]


def test_a_flushed_file_outlasts_a_loss_of_power(tmp_path: Path, chance: random.Random) -> None:
    top = tmp_path / "top"
    top.mkdir()
    disk, folder = Disk(top), locate(str(top / "a" / "b"))
    folder.filesystem.create_dir(folder.path)
    disk.root.change({"a": DiskFolder(entries={"b": DiskFolder()})})
    with recorded() as calls:
        folder.replace("name", b"data", flush=True)
    for call in calls:
        disk.replay(*call)
    for number in range(20):
        disk.after_power_loss(tmp_path / str(number), chance)
        assert (tmp_path / str(number) / "a" / "b" / "name").read_bytes() == b"data"


@pytest.mark.parametrize("scheme", ["", "newnames://"])
def test_a_folder_is_not_replaced_by_a_file(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "folder" / "name" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="name"):
        locate(f"{scheme}{tmp_path}/folder").replace("name", b"data")
    assert (tmp_path / "folder" / "name" / "inside").is_dir()


def test_a_reader_finds_the_old_or_the_new_at_each_step(
    new_names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = locate(new_names)
    folder.replace("name", b"old")
    seen = []

    def look() -> None:
        seen.append(folder.read_replaced("name"))

    monkeypatch.setattr(NewNamesFileSystem, "before_step", staticmethod(look))
    folder.replace("name", b"new")
    assert seen == [b"old", b"old", b"old", b"old", b"new"]


@pytest.mark.parametrize("earlier", range(5))
def test_a_kill_leaves_the_old_or_the_new(new_names: str, earlier: int) -> None:
    """Also one that follows a kill, whatever that left."""
    folder = locate(new_names)
    for step in count():
        folder.replace("name", b"old")
        assert run_and_kill(lambda: folder.replace("name", b"lost"), earlier)
        before = folder.read_replaced("name")
        assert before in (b"old", b"lost")
        killed = run_and_kill(lambda: folder.replace("name", b"new"), step)
        assert folder.read_replaced("name") in ((before, b"new") if killed else (b"new",))
        if not killed:
            break
    folder.replace("name", b"last")
    assert folder.read_replaced("name") == b"last"


def test_topic_ids_outlive_a_kill_at_each_step(new_names: str) -> None:
    old, new = {"t": "A"}, {"t": "B"}
    locate(new_names).replace("metadata", b'{"id":"query"}')
    for log in ("offsets", "commits"):
        locate(new_names).child(log).replace("0", b'v1\n{}\n{"t":{"0":5}}')

    def state(*topics: str) -> SourceState:
        return SourceState(new_names, Reader("place", Selection(topics=topics)))

    for step in count():
        state("t").store_topic_ids(old)
        killed = run_and_kill(lambda: state("t", "u").store_topic_ids(new), step)
        assert state("t").topic_ids() in ((old, new) if killed else (new,))
        if not killed:
            return


def test_an_audit_counts_a_share_once_after_a_kill_at_each_step(new_names: str) -> None:
    store, name = FolderStore(new_names), Name("producer/q/0", "0")
    for step in count():
        store.put(name, b"old")
        killed = run_and_kill(lambda: store.put(name, b"new"), step)
        ((data, is_committed),) = read_entries(store)
        assert data in ((b"old", b"new") if killed else (b"new",))
        assert not is_committed
        if not killed:
            return


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("s3://AKIA:ab/SECRET@bucket/p", "s3://bucket/p"),
        ("s3a://AKIA:SEC RET@bucket/p", "s3a://bucket/p"),
        ("x://user:p@SECRET@host/p", "x://host/p"),
        ("abfss://c@account/p?sig=SECRET", "abfss://account/p"),
        ("s3://bucket/p", "s3://bucket/p"),
        ("/a/p?@b", "/a/p?@b"),
    ],
)
def test_what_may_be_a_credential_is_not_shown(location: str, shown: str) -> None:
    assert without_secrets(location) == shown


@pytest.mark.parametrize(
    "location", ["s3a://AKIA:SEC RET@bucket/p", "nosuch://user:p@SECRET@host/p?sig=SECRET"]
)
def test_errors_quote_no_credential(location: str) -> None:
    with pytest.raises(LogDirectoryError, match="Cannot open the folder") as found:
        locate(location)
    assert "SEC" not in str(found.value)


class TestPrivate:
    """Files and folders for their owner alone."""

    def test_a_file(self, tmp_path: Path) -> None:
        folder = locate(str(tmp_path / "a" / "b"))
        make_folder(folder)
        make_folder(folder)
        with NewFile(folder, "rows") as file:
            file.write(b"one")
            file.write(memoryview(b"two"))
        path = tmp_path / "a" / "b" / "rows"
        assert path.read_bytes() == b"onetwo"
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)]
        assert modes == [0o600, 0o700, 0o700]
        with pytest.raises(FileExistsError):
            NewFile(folder, "rows")
        remove_file(folder, "rows")
        remove_file(folder, "rows")
        remove_folder(folder)
        remove_folder(folder)
        assert [*tmp_path.iterdir()] == [tmp_path / "a"]

    def test_an_error_removes_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError), NewFile(locate(str(tmp_path)), "rows") as file:
            file.write("no bytes")
        assert not [*tmp_path.iterdir()]

    def test_a_link_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "rows").symlink_to(tmp_path / "victim")
        with pytest.raises(OSError, match="rows"):
            NewFile(locate(str(tmp_path)), "rows")
        assert not (tmp_path / "victim").exists()

    def test_a_store(self) -> None:
        folder = locate("memory://private-test/a")
        make_folder(folder)
        with NewFile(folder, "rows") as file:
            file.write(b"one")
        assert folder.read("rows") == b"one"
        remove_folder(folder)
        assert folder.read("rows") is None


def test_a_mark_tells_whether_a_folder_is_shared(tmp_path: Path) -> None:
    folder = str(tmp_path / "staging")
    assert not is_marked_by(folder, Mark(host_id(), 0))
    first = leave_mark(folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    mark = leave_mark(folder)
    assert is_marked_by(folder, mark)
    assert is_marked_by(folder, first)
    assert not is_marked_by(folder, Mark("another", 0))
    (left,) = copy.iterdir()
    assert is_marked_by(str(copy), mark)
    os.utime(left, ns=(0, mark.time_ns - 3_000_000_000))
    assert not is_marked_by(str(copy), mark)


def test_a_mark_that_cannot_be_opened_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = leave_mark(str(tmp_path))

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("pyspark_kafkalog.filesystem.machine.os.open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        is_marked_by(str(tmp_path), mark)


class Refusal(Silent, BaseHTTPRequestHandler):
    """What a store answers to a wrong login."""

    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def do_GET(self) -> None:
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def refusing_store() -> Iterator[str]:
    with served(HTTPServer(("127.0.0.1", 0), Refusal)) as server:
        yield f"127.0.0.1:{server.server_port}"


def test_a_store_that_refuses_a_login_is_told_by_its_code_and_without_the_login(refusing_store: str) -> None:
    uri = f"s3://an-id:a-secret@bucket/logs?scheme=http&region=us-east-1&endpoint_override={refusing_store}"
    with pytest.raises(LogDirectoryError) as caught:
        locate(uri)
    error = str(caught.value)
    assert "s3://bucket/logs" in error
    assert "Check the credentials" in error
    assert "Cannot open the folder: OSError, ACCESS_DENIED" in error or "HTTP status 403" in error
    assert "secret" not in error
    assert "an-id" not in error


@pytest.mark.parametrize(
    ("uri", "shown", "says"),
    [
        (
            "s3://an-id:a-secret@bucket/logs?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:1",
            "s3://bucket/logs",
            r"NETWORK_CONNECTION.* can't be reached: check the endpoint and its region .*"
            r"\?region=eu-west-1, or \?endpoint_override=host:port",
        ),
        (
            "s3a://bucket/logs?regio=eu",
            "s3a://bucket/logs",
            r"Check the URI and .* parameters: s3://bucket/path\?",
        ),
        (
            "file://data/logs",
            "file://data/logs",
            "A file: URI names no host, and has an absolute path: file:///data/kafka-logs",
        ),
        (
            "file:logs",
            "file:logs",
            "A file: URI names no host, and has an absolute path: file:///data/kafka-logs",
        ),
        (
            "hdfs://127.0.0.1:1/logs",
            "hdfs://127.0.0.1:1/logs",
            "JAVA_HOME and HADOOP_HOME must be set, CLASSPATH",
        ),
        (
            "nosuch://bucket/logs",
            "nosuch://bucket/logs",
            "Stores other than S3, GCS, Azure and HDFS need a package for fsspec",
        ),
    ],
)
def test_a_store_that_cannot_be_opened_says_what_to_check(uri: str, shown: str, says: str) -> None:
    with pytest.raises(LogDirectoryError, match=says) as caught:
        locate(uri)
    error = str(caught.value)
    assert f"(file {shown})" in error
    assert "\n" not in error
    assert "a-secret" not in error


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_mount_that_flushes_no_folders(tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", fsync)
    if error != errno.EIO:
        sync_folder(str(tmp_path))
        return
    with pytest.raises(OSError, match=str(tmp_path)):
        sync_folder(str(tmp_path))
