"""A redrive that is killed -9 at any step, and run again, has sent each dead letter once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.extensions.exactly_once.stops import VARIABLE
from tests.faults.kill_matrix import IN_COMMITS
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.kafka import Broker
from tests.tools.cli.running import command
from tests.tools.redrive.test_redrive import Topics, letter, values, write


@pytest.fixture(scope="module")
def redriver() -> Iterator[Runner]:
    with step_runner("tests.faults.redriver") as run:
        yield run


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_steps(redriver: Runner, tmp_path: Path, soak: bool) -> None:
    log = tmp_path / "log"
    log.mkdir()
    connect(log).topics.create([NewTopic("orders", partitions=2), NewTopic("dead", partitions=2)])
    write(str(log), "dead", [letter("orders", "1"), letter("orders")] * 3)
    connect(log).records.redrive("dead", first=True, execute=True)
    write(str(log), "dead", [letter("orders"), None, letter("orders", "1")] * 2, start=6)
    whole = tmp_path / "whole"
    shutil.copytree(log, whole / "log")
    assert redriver(whole, 0) == 0
    expected = [0, 1, 2, 3, 4, 5, 6, 8, 9, 11]
    assert values(str(whole / "log"), "orders") == expected
    steps = changes(whole / "steps")
    for step in steps if soak else steps[:: max(1, len(steps) // 12)]:
        folder = tmp_path / f"at-{step}"
        shutil.copytree(log, folder / "log")
        assert redriver(folder, step) == KILLED
        write(str(folder / "log"), "dead", [letter("orders")], start=12)
        assert redriver(folder, 0) == 0
        assert values(str(folder / "log"), "orders") == [*expected, 12], step
        shutil.rmtree(folder)
    assert len(steps) > 20


@contextlib.contextmanager
def _stopped(topics: Topics, stops: Path, step: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that waits at a step, as long as the file that says so is there."""
    stop = stops / step
    stop.touch()
    words = command("redrive", topics.place, topics.dead, "--group", topics.group, "--execute")
    with subprocess.Popen(words, env={**os.environ, VARIABLE: str(stops)}) as process:
        try:
            deadline = time.monotonic() + 60
            while not list(stops.glob(f"{step}.stopped-{process.pid}")):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGSTOP)
            stop.unlink()
            yield process
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("goes_on", [False, True], ids=["killed", "goes on"])
def test_stopped_at_steps_of_a_transaction(broker: Broker, tmp_path: Path, soak: bool, goes_on: bool) -> None:
    """A run that goes on after another one has done its work sends nothing."""
    topics, expected = Topics(broker.bootstrap), list[int]()
    assert topics.redrive("--execute").code == 0
    for step in (
        ("committing", "staged", *IN_COMMITS) if soak else ("committing", "staged", "marked", "ended")
    ):
        write(topics.place, topics.dead, [letter(topics.orders)] * 3, start=len(expected))
        expected += range(len(expected), len(expected) + 3)
        with _stopped(topics, tmp_path, step) as process:
            if not goes_on:
                process.kill()
            write(topics.place, topics.dead, [letter(topics.orders)], start=len(expected))
            expected.append(len(expected))
            assert topics.redrive("--execute").code == 0
            assert values(topics.place, topics.orders) == expected, step
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) == (3 if goes_on else -signal.SIGKILL), step
            assert values(topics.place, topics.orders) == expected, step
