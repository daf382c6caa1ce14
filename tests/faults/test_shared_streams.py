"""Spark queries of one group copy a topic exactly once, while whole drivers are killed -9, or hang.

Each has a JVM of its own. :mod:`tests.faults.test_shared_copies` does more of it, without Spark.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.kill_matrix import IN_COMMITS, IN_TASKS
from tests.faults.test_shared_copies import PARTITIONS, PROTOCOLS, SESSION_MS, Copies, quick_broker

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(600)]

__all__ = ["quick_broker"]

EVENTS = ("killed", "killed at a step", "hangs", "its planner hangs")
"""What drivers suffer: three of these, in a random order."""
ROWS = 900
"""Written before each of them: some micro-batches of each query."""
PATIENCE = 120.0
"""Seconds in which a driver that was started completes a micro-batch, on a machine that does much else."""


class Streams(Copies):
    """The drivers are Spark's."""

    application = "tests.faults.copying_stream"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begins: dict[str, int] = {}
        """Where the log of each driver's last run begins."""

    def processes(self, name: str) -> list[psutil.Process]:
        """All of a driver: its Python, its JVM, and what they have forked, first to last."""
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self.drivers[name].pid)
            return [driver, *driver.children(recursive=True)]
        return []

    def planner(self, name: str) -> list[psutil.Process]:
        """The process that is the member."""
        found = []
        for process in self.processes(name):
            with suppress(psutil.Error):
                if any("python_streaming_source_runner" in word for word in process.cmdline()):
                    found.append(process)
        return found

    def kill(self, name: str) -> None:
        """End a driver with all its processes, also PySpark's daemon, which has a group of its own."""
        processes = self.processes(name)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.drivers[name].wait()
        psutil.wait_procs(processes, 30)

    def start(self, name: str, **given: Any) -> None:
        """Start a driver; if the one before has ended by itself, it was put out of the group."""
        if name in self.drivers and self.drivers[name].poll() != -signal.SIGKILL:
            said = self.log(name)[self.begins.get(name, 0) :]
            assert "groupMembershipLost=rejoin" in said, said[-3000:]
        self.begins[name] = len(self.log(name)) if name in self.drivers else 0
        super().start(name, **{"groupMembershipLost": self.chance.choice(["fail", "rejoin"]), **given})

    def completes(self, name: str) -> None:
        """Wait until a driver completes a micro-batch, and start it again if it ends."""
        before, deadline = self.completed(name), time.monotonic() + PATIENCE
        while self.completed(name) == before:
            if not self.runs_now(name):
                self.start(name)
            assert time.monotonic() < deadline, self.log(name)[-3000:]
            self.write(PARTITIONS)
            time.sleep(0.2)

    def completed(self, name: str) -> int:
        """The number of the last micro-batch that a driver's Spark has completed, or -1."""
        numbers = [file.name for file in (self.folder / name / "commits").glob("*")]
        return max((int(number) for number in numbers if number.isdecimal()), default=-1)

    def suffer(self, name: str, event: str) -> str:
        """A driver is killed at a moment or a step of a commit, or hangs, wholly or its planner alone."""
        if event == "killed at a step":
            step = self.chance.choice([*IN_TASKS, *IN_COMMITS])
            stop = self.stop_at(name, step)
            self.wait_until_stopped(name, step)
            self.kill(name)
            stop.unlink()
            event = f"killed at {step}"
        elif event == "killed":
            self.kill(name)
        else:
            hangs = self.processes(name) if event == "hangs" else self.planner(name)
            assert hangs
            for process in hangs:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            time.sleep(SESSION_MS / 1000 + 1.5)
            for process in reversed(hangs):
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        return f"{name}: {event}"

    def end(self) -> None:
        for name in self.drivers:
            self.kill(name)


@pytest.fixture(params=["cooperative", "consumer"])
def streams(request: pytest.FixtureRequest, tmp_path: Path, chance: random.Random) -> Iterator[Streams]:
    broker = request.getfixturevalue("quick_broker" if request.param == "consumer" else "broker")
    streams = Streams(broker, tmp_path, chance, PROTOCOLS[request.param])
    yield streams
    streams.end()


def test_each_row_is_copied_once(streams: Streams) -> None:
    names, events = ["a", "b"], streams.chance.sample(EVENTS, 3)
    for name in names:
        streams.start(name)
    for event in events:
        name = streams.chance.choice(names)
        streams.completes(name)
        streams.write(ROWS)
        time.sleep(streams.chance.uniform(0, 1))
        print(streams.suffer(name, event), sum(streams.committed().values()), "of", streams.written)
        if not streams.runs_now(name):
            time.sleep(streams.chance.choice([0, SESSION_MS / 1000 + 1]))
            streams.start(name)
    for name in names:
        streams.completes(name)
    streams.settle(*names)
    streams.check()
    print(streams.runs, "runs")
