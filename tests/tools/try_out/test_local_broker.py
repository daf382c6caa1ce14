"""A broker for tests: what it refuses, which Kafka it runs, and that it never outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import psutil
import pytest

from pyspark_kafkalog import LocalBroker, connect
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.tools.try_out.jars import kafka_jars
from pyspark_kafkalog.tools.try_out.java_server import JavaServer, free_ports

OWNER = """
import sys, time
from pathlib import Path
from pyspark_kafkalog.tools.try_out.java_server import JavaServer
server = JavaServer("a.jar", "Main", Path("p"), Path(sys.argv[1]))
server.launch()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose ``bin/java`` prints its arguments and sleeps."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\necho "$@"\nexec sleep 600\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return java


def server(output: Path) -> JavaServer:
    return JavaServer("a.jar", "Main", Path("p"), output, ["-Xmx1m"])


def ends(process: psutil.Process) -> bool:
    deadline = time.monotonic() + 60
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.usefixtures("java_home")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_its_owner(tmp_path: Path, ending: signal.Signals) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        java = psutil.Process(int(owner.stdout.readline()))
        below = psutil.Process(owner.pid).children(recursive=True)
        assert java in below
        owner.send_signal(ending)
        owner.wait(60)
    assert all(map(ends, below)), "the guard, too"


@pytest.mark.usefixtures("java_home")
def test_a_server_is_started_and_ended_again_and_again(tmp_path: Path) -> None:
    started = server(tmp_path / "log")
    for kill in True, False:
        started.launch()
        process = psutil.Process(started.pid)
        with pytest.raises(KafkaLogError, match="Main runs already"):
            started.launch()
        started.wait_until(lambda: (tmp_path / "log").exists() and "-Xmx1m" in (tmp_path / "log").read_text())
        started.stop(kill=kill)
        assert not started.running
        assert ends(process)
        started.stop()
    with pytest.raises(KafkaLogError, match="Main is not running"):
        _ = started.pid


def test_a_server_that_ends_says_why(tmp_path: Path, java_home: Path) -> None:
    java_home.write_text("#!/bin/sh\necho too old >&2\nexit 3\n")
    started = server(tmp_path / "log")
    started.launch()
    with pytest.raises(KafkaLogError, match="Main ended with exit code 3: too old"):
        started.wait_until(lambda: False)


@pytest.mark.usefixtures("java_home")
def test_a_server_that_does_not_serve_in_time_is_killed(tmp_path: Path) -> None:
    started = server(tmp_path / "log")
    started.launch()
    process = psutil.Process(started.pid)
    with pytest.raises(KafkaLogError, match=r"Main was not ready in 0\.1 s"):
        started.wait_until(lambda: False, 0.1)
    assert ends(process)


def test_ports_are_given_once() -> None:
    ports = [*free_ports(3), *free_ports(3)]
    assert len({*ports}) == 6


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "advertised.listeners"])
def test_settings_that_it_needs_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"A local broker has its own {name}"):
        LocalBroker(settings={name: "x"})


def test_a_broker_that_was_never_started_leaves_nothing() -> None:
    broker = LocalBroker()
    assert broker.folder.is_dir()
    broker.stop()
    broker.kill()
    assert (broker.running, broker.log_tail()) == (False, "(it logged nothing)")
    broker.close()
    assert not broker.folder.exists()
    with pytest.raises(KafkaLogError, match="is closed"):
        broker.start()
    with pytest.raises(KafkaLogError, match="is not running"):
        _ = broker.pid


def test_a_child_process_does_not_end_it(java_home: Path) -> None:
    broker = LocalBroker()
    child = os.fork()
    if not child:
        broker.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert broker.folder.is_dir()
    broker.close()


def distribution(folder: Path) -> Path:
    """The layout of a Kafka that was unpacked."""
    libs = folder / "kafka_2.13-9.9.9" / "libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-9.9.9.jar").write_bytes(b"jar")
    return libs


def test_a_named_kafka_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libs = distribution(tmp_path / "opt")
    for named in libs, libs.parent, libs.parent.parent:
        monkeypatch.setenv("KAFKALOG_KAFKA", str(named))
        assert kafka_jars() == libs


def test_an_archive_of_kafka_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "kafka_2.13-9.9.9.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(distribution(tmp_path / "opt").parent, "kafka_2.13-9.9.9")
    monkeypatch.setenv("KAFKALOG_JARS", str(tmp_path / "cache"))
    monkeypatch.setenv("KAFKALOG_KAFKA", str(archive))
    jars = kafka_jars()
    assert (jars / "kafka_2.13-9.9.9.jar").read_bytes() == b"jar"
    changed = jars.stat().st_mtime_ns
    assert (kafka_jars(), jars.stat().st_mtime_ns) == (jars, changed)


def test_a_named_kafka_that_is_none_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKALOG_JARS", str(tmp_path / "cache"))
    monkeypatch.setenv("KAFKALOG_KAFKA", str(tmp_path / "missing"))
    with pytest.raises(KafkaLogError, match=r"missing, where there is no kafka_\*\.jar\. Name a kafka_2\.13"):
        kafka_jars()
    broken = tmp_path / "kafka.tgz"
    broken.write_bytes(b"<html>Not found</html>")
    monkeypatch.setenv("KAFKALOG_KAFKA", str(broken))
    with pytest.raises(KafkaLogError, match=r"kafka\.tgz, which can't be unpacked.*Download it again"):
        kafka_jars()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
def test_a_folder_keeps_its_data_for_the_next_broker(tmp_path: Path) -> None:
    import pyarrow as pa

    with LocalBroker(tmp_path / "broker") as first:
        with connect(first.options) as kafka:
            kafka.write(pa.table({"value": [b"12.50"]}), "orders")
        first.stop()
        with connect(first.log_directory) as stopped:
            assert stopped.read("orders").read_all().num_rows == 1
    with LocalBroker(tmp_path / "broker") as second, connect(second.options) as kafka:
        assert kafka.read("orders").read_all()["value"].to_pylist() == [b"12.50"]
