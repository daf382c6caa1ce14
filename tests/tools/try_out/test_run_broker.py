"""``kafkalog run-broker``: a real broker, which ends with the command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.tools.try_out.jars import java, kafka_jars, once, run_ivy
from pyspark_kafkalog.tools.try_out.java_server import free_ports, reserved_port
from tests.tools.cli.running import command, lines, run

pytestmark = pytest.mark.timeout(300)


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command as a process of its own that keeps its files in ``folder``, and its broker's address."""
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    words = command("run-broker", "--port", 0)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split(" ")[0], process
        finally:
            process.terminate()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_broker_runs_until_the_command_ends(tmp_path: Path, ending: signal.Signals) -> None:
    kafka_jars()  # in the cache before $TMPDIR is another
    folder = tmp_path / "files"
    with running(folder) as (address, process):
        assert run("produce", address, "orders", text="12.50\n").code == 0
        assert lines("cat", address, "orders", "--format", "%p %v") == ["0 12.50"]
        process.send_signal(ending)
        assert process.wait() == 0
    host, port = address.split(":")
    assert host == "127.0.0.1"
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
    assert not list(folder.glob("kafkalog-broker-*"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
def test_a_broker_that_ends_by_itself_ends_the_command(tmp_path: Path) -> None:
    kafka_jars()
    folder = tmp_path / "files"
    with running(folder) as (_, process):
        below = psutil.Process(process.pid).children(recursive=True)
        (broker,) = (child for child in below if child.name() == "java")
        broker.kill()
        assert process.wait(60) == 3
    assert not list(folder.glob("kafkalog-broker-*"))


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("run-broker", "--port", taken.getsockname()[1])
    assert done.code == 3
    assert "can't be used" in done.err
    assert "--port" in done.err


def test_a_port_on_which_another_one_starts_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before Java is looked for: a broker needs seconds until it listens."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (port,) = free_ports(1)
    with reserved_port(port):
        done = run("run-broker", "--port", port)
    assert done.code == 3
    assert f"Port {port} of 127.0.0.1 is in use by" in done.err
    assert "Name another with --port" in done.err
    assert "in use" not in run("run-broker", "--port", port).err


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KafkaLogError, match=f"Java is not found in {tmp_path}. Install Java 17"):
        java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaLogError, match="Java is not found on the PATH"):
        java()


@pytest.mark.slow
def test_jars_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/none/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    dependency = '<dependency org="org.apache.kafka" name="kafka_2.13" rev="0"/>'
    with pytest.raises(KafkaLogError, match="could not fetch jars"):
        run_ivy(tmp_path / "ivy", folder, dependency, "-settings", str(settings))


def test_a_file_in_place_of_the_folder_for_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KAFKALOG_JARS", str(tmp_path / "file"))
    with pytest.raises(KafkaLogError, match=r"folder for jars can't be made: File exists .*KAFKALOG_JARS"):
        once("jars", lambda folder, ivy_cache: None)
