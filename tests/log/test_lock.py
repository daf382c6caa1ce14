"""The directory's lock is Kafka's own, and excludes processes and threads alike."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from pyspark_kafkalog.errors import LogDirectoryLockedError
from pyspark_kafkalog.log.lock import check_unlocked, directory_lock
from tests.log.writing import T0, read, values, write

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


@pytest.fixture
def held(tmp_path):
    """A directory whose lock another process holds, as a running broker would."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield tmp_path
        holder.stdin.close()


def test_held_by_another_process(held):
    start = time.monotonic()
    with pytest.raises(LogDirectoryLockedError, match=r"in use.*0\.2 s.*\.lock.*running broker"):
        write(held, {T0: [b"v"]}, lock_timeout=0.2)
    assert 0.2 <= time.monotonic() - start < 2
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
