"""The directory's lock is Kafka's own, and excludes processes and threads alike."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import subprocess
import sys
import threading
import time

import pytest

from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryError, LogDirectoryLockedError
from pyspark_kafkalog.log import lock
from pyspark_kafkalog.log.lock import check_unlocked, directory_lock, file_lock
from pyspark_kafkalog.log.publish import publish
from pyspark_kafkalog.log.sink import DirectorySink
from pyspark_kafkalog.model import EncodeSettings, QueryBatch
from tests.log.writing import T0, publish_staged, read, stage, values, write

pytestmark = pytest.mark.slow

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
RACE = """
import sys
from pathlib import Path
from tests.log.writing import T0, values, write
for i in range(10):
    write(Path(sys.argv[1]), {T0: [b"%s-%d" % (sys.argv[2].encode(), i)]}, lock_timeout=60)
"""


WRITER = """
import sys, time
from pyspark_kafkalog.log.lock import directory_lock
with directory_lock(sys.argv[1], 5) as progress:
    print("held", flush=True)
    for line in sys.stdin:
        progress()
"""


@pytest.fixture
def held(tmp_path):
    """A directory whose lock another process holds, as a running broker would."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield tmp_path
        holder.stdin.close()


@pytest.fixture
def writer(tmp_path):
    """A process that holds the directory like a writer, and makes progress with each line that it gets."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.kill()


def test_held_by_another_process(held):
    staged = stage(held, "job", {T0: [b"v"]})
    start = time.monotonic()
    with pytest.raises(LogDirectoryLockedError, match=r"in use.*0\.2 s.*\.lock.*Stop the broker"):
        publish_staged(held, staged, QueryBatch("job"), lock_timeout=0.2)
    assert 0.2 <= time.monotonic() - start < 20
    assert not (held / "t-0").exists()


def test_waits_for_another_writer(tmp_path):
    released = []

    def hold(locked: threading.Event) -> None:
        with directory_lock(str(tmp_path), 1):
            locked.set()
            time.sleep(0.3)
            released.append(True)

    locked = threading.Event()
    holder = threading.Thread(target=hold, args=(locked,))
    holder.start()
    locked.wait()
    with pytest.raises(LogDirectoryLockedError), directory_lock(str(tmp_path), 0.05):
        pass
    with directory_lock(str(tmp_path), 10):
        assert released
    holder.join()


def test_another_process_sees_it_held(tmp_path):
    probe = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", probe, str(tmp_path / ".lock")]
    with directory_lock(str(tmp_path), 1):
        assert b"BlockingIOError" in subprocess.run(command, capture_output=True).stderr
    assert subprocess.run(command).returncode == 0


def test_is_given_up_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), directory_lock(str(tmp_path), 0):
        1 / 0  # noqa: B018
    with directory_lock(str(tmp_path), 0):
        pass


@pytest.mark.long
def test_writer_is_waited_for_while_it_makes_progress(tmp_path, writer, monkeypatch, caplog):
    """However long it takes, and whatever its clock says; the log names it."""
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", 3)
    monkeypatch.setattr(lock, "_REPORT_SECONDS", 1)
    done = []
    waiting = threading.Thread(target=lambda: done.append(write(tmp_path, {T0: values(3)}, lock_timeout=0.1)))
    waiting.start()
    for turn in range(14):
        time.sleep(0.5)
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        if turn == 7:
            os.utime(tmp_path / ".kafkalog-lock", (0, 0))
        assert waiting.is_alive()
    assert f"waiting for process {writer.pid} on {platform.node()}" in caplog.text
    writer.stdin.close()
    waiting.join(20)
    assert done
    assert read(tmp_path)[T0] == values(3)


def test_writer_that_hangs_is_waited_for_in_vain(tmp_path, writer, monkeypatch):
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", 1)
    start = time.monotonic()
    with pytest.raises(
        LogDirectoryLockedError, match=rf"process {writer.pid} on .*1 s without progress.*end it"
    ):
        write(tmp_path, {T0: values(3)}, lock_timeout=0.1)
    assert time.monotonic() - start >= 1


def test_writer_that_is_killed_lets_others_in(tmp_path, writer, monkeypatch):
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", 60)
    threading.Timer(0.5, writer.kill).start()
    write(tmp_path, {T0: values(3)}, lock_timeout=0.1)
    assert read(tmp_path)[T0] == values(3)


def test_threads_wait_for_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_PROGRESS_SECONDS", 0)
    release = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with directory_lock(str(tmp_path), 1) as progress:
            held.set()
            while not release.wait(0.05):
                progress()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(2, release.set).start()
    with directory_lock(str(tmp_path), 0.1, patience=0.5):
        assert release.is_set()
    holder.join()


def test_short_waits_stay_short(tmp_path, writer):
    """As for a group's commit, which must not hold up a query."""
    start = time.monotonic()
    with pytest.raises(LogDirectoryLockedError, match=r"0\.3 s"), directory_lock(str(tmp_path), 0.3):
        pass
    assert time.monotonic() - start < 20


def test_a_writer_does_not_keep_a_job_from_beginning(tmp_path, writer):
    """A job that stages files need not wait for it."""
    start = time.monotonic()
    check_unlocked(str(tmp_path))
    assert time.monotonic() - start < 20


def test_lock_without_space_for_a_name(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with directory_lock(str(tmp_path), 1):
            pass
    assert (tmp_path / ".kafkalog-lock").read_bytes() == b""


def test_lock_that_the_mount_does_not_know(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    staged = stage(tmp_path, "job", {T0: values(1)})
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(
        LogDirectoryError, match=r"No locks available.*kafkalog-lock.*Mount it with POSIX locks"
    ):
        publish_staged(tmp_path, staged, QueryBatch("job"))


def test_check_unlocked(held, monkeypatch, tmp_path_factory):
    monkeypatch.setattr("pyspark_kafkalog.log.lock.CHECK_SECONDS", 0.1)
    with pytest.raises(LogDirectoryLockedError):
        check_unlocked(str(held))
    fresh = tmp_path_factory.mktemp("fresh")
    check_unlocked(str(fresh))
    check_unlocked(str(fresh / "absent"))
    assert list(fresh.iterdir()) == []


def test_lock_file_is_not_followed(tmp_path):
    (tmp_path / "target").touch()
    (tmp_path / ".lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"), directory_lock(str(tmp_path), 0):
        pass


def test_racing_writers_lose_nothing(tmp_path):
    root = tmp_path / "log"
    racers = [subprocess.Popen([sys.executable, "-c", RACE, str(root), name]) for name in ("a", "b")]
    assert [racer.wait(60) for racer in racers] == [0, 0]
    found = read(root)[T0]
    for name in (b"a", b"b"):
        assert [v for v in found if v.startswith(name)] == [b"%s-%d" % (name, i) for i in range(10)]
    assert len(found) == 20


def test_racing_threads_lose_nothing(tmp_path):
    threads = [
        threading.Thread(target=lambda n=n: [write(tmp_path, {T0: values(1, 4, n)}, lock_timeout=60)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read(tmp_path)[T0]) == values(8, 4)


def test_a_file_of_another_kind(tmp_path):
    """It need not exist. Until its holder ends, no other thread or process holds it, by any name."""
    path = tmp_path / "state"
    (tmp_path / "link").symlink_to(tmp_path)
    holds = "from pyspark_kafkalog.log.lock import file_lock; import sys\n"
    holds += "with file_lock(sys.argv[1], 'It'): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holds, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        named = rf"It is in use by process {holder.pid} on .* \(file {path}\)\. .* end it"
        with pytest.raises(KafkaLogError, match=named), file_lock(str(path), "It"):
            pass
        holder.kill()
    with file_lock(str(path), "It"):
        for name in (path, tmp_path / "link" / "state"):
            with pytest.raises(KafkaLogError, match="thread of this process"), file_lock(str(name), "It"):
                pass
        assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 1
    assert not path.exists()
    with pytest.raises(FileNotFoundError), file_lock(str(tmp_path / "missing" / "state"), "It"):
        pass
    with file_lock(str(path), "It"):
        pass


def test_a_folder_with_other_things_in_it_is_never_locked_nor_written_to(tmp_path):
    (tmp_path / ".part-0.parquet.crc").touch()
    for use in (
        lambda: check_unlocked(str(tmp_path)),
        lambda: DirectorySink.on_driver(str(tmp_path), 1, EncodeSettings(), {}, is_job=False, required=True),
        lambda: directory_lock(str(tmp_path), 1).__enter__(),
    ):
        with pytest.raises(
            LogDirectoryError, match=r"holds no partitions.*to write, an empty or a new folder does, too"
        ):
            use()
    assert os.listdir(tmp_path) == [".part-0.parquet.crc"]
