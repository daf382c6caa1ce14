"""Spark queries of one group copy a topic, while whole drivers are killed -9, or hang.

Each has a JVM of its own, and writes its micro-batches exactly once. Others read a micro-batch again if its
driver was put out of the group.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.extensions.exactly_once.writing import shown
from tests.faults.kill_matrix import IN_COMMITS, IN_TASKS
from tests.kafka import Broker
from tests.kafka_service import running
from tests.large_log import Message

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(600)]

PARTITIONS = 6
SESSION_MS = 6000
AT_ONCE = 60
"""Records of a micro-batch, at most."""
PROTOCOLS = {
    "cooperative": {
        "kafka.session.timeout.ms": str(SESSION_MS),
        "kafka.heartbeat.interval.ms": "300",
        "kafka.partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"kafka.group.protocol": "consumer"},
}


EVENTS = ("killed", "killed at a step", "hangs", "its planner hangs")
"""What drivers suffer: three of these, in a random order."""
ROWS = 900
"""Written before each of them: some micro-batches of each query."""
PATIENCE = 120.0
"""Seconds in which a driver that was started completes a micro-batch, on a machine that does much else."""


class Streams:
    """A topic, its copy, and the drivers that copy it."""

    source: Mapping[str, str] = {}
    """More options of their sources."""

    def __init__(
        self, broker: Broker, folder: Path, chance: random.Random, protocol: Mapping[str, str]
    ) -> None:
        self.broker, self.folder, self.chance, self.protocol = broker, folder, chance, protocol
        self.topic, self.out, self.group = (f"{w}-{uuid.uuid4().hex[:8]}" for w in ("from", "to", "group"))
        broker.create_topic(self.topic, PARTITIONS)
        broker.create_topic(self.out, 3)
        self.offsets = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
        self.drivers: dict[str, subprocess.Popen[bytes]] = {}
        self.begins: dict[str, int] = {}
        """Where the log of each driver's last run begins."""
        self.runs = self.written = 0

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(self.written, self.written + count):
            producer.produce(self.topic, str(number).encode(), partition=number % PARTITIONS)
        producer.flush()
        self.written += count

    def stop_at(self, name: str, step: str) -> Path:
        """Have a driver's commits wait at a step for the removal of this file."""
        stop = self.folder / f"{name}.stops" / step
        stop.parent.mkdir(exist_ok=True)
        for old in stop.parent.iterdir():
            old.unlink()
        stop.touch()
        return stop

    def wait_until_stopped(self, name: str, step: str) -> None:
        """Write until the driver stops there: others may be quicker to read what there is."""
        deadline = time.monotonic() + 60
        while not list((self.folder / f"{name}.stops").glob(f"{step}.stopped-*")):
            assert self.runs_now(name), self.log(name)
            assert time.monotonic() < deadline
            self.write(60)
            time.sleep(0.2)

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

    def start(self, name: str) -> None:
        """Start a driver, or start it again with its checkpoint; if it has ended, the group put it out."""
        if name in self.drivers and self.drivers[name].poll() != -signal.SIGKILL:
            said = self.log(name)[self.begins.get(name, 0) :]
            assert "groupMembershipLost=rejoin" in said, said[-3000:]
        self.begins[name] = len(self.log(name)) if name in self.drivers else 0
        common = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "checkpointLocation": str(self.folder / name),
        }
        source = {
            **common,
            "kafka.group.id": self.group,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "groupMembership": "true",
            "groupMembershipLost": self.chance.choice(["fail", "rejoin"]),
            "maxOffsetsPerTrigger": str(AT_ONCE),
            **self.protocol,
            **self.source,
        }
        sink = {
            **common,
            "topic": self.out,
            "delivery.guarantee": "exactly-once",
            "kafka.transaction.timeout.ms": "4000",
        }
        stops = self.folder / f"{name}.stops"
        stops.mkdir(exist_ok=True)
        given = json.dumps({"source": source, "sink": sink})
        command = [sys.executable, "-m", "tests.faults.copying_stream", str(self.folder / name), given]
        environment = {**os.environ, "PYSPARK_KAFKALOG_STOPS": str(stops)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.drivers[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.runs += 1

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def runs_now(self, name: str) -> bool:
        return name in self.drivers and self.drivers[name].poll() is None

    def committed(self) -> dict[int, int]:
        return {p: commit.offset for (_, p), commit in self.offsets.committed(self.group).items()}

    def ends(self) -> dict[int, int]:
        """The end of each partition, with nothing open."""
        return {p: len(range(p, self.written, PARTITIONS)) for p in range(PARTITIONS)}

    def settle(self, *names: str, timeout: float = 120) -> None:
        """These drivers run until all is copied, and are started again if they end."""
        deadline = time.monotonic() + timeout
        ends = self.ends()
        while self.committed() != ends:
            for name in names:
                if not self.runs_now(name):
                    self.start(name)
            assert time.monotonic() < deadline, (self.committed(), ends)
            time.sleep(0.2)

    def number(self, value: bytes) -> int:
        """The number of a row that was copied."""
        return int(value)

    def check(self) -> None:
        """All rows are there, and no more than a micro-batch of each run comes again."""
        found = Counter(self.number(value) for value in shown(self.broker.bootstrap, self.out, 3))
        missing = [number for number in range(self.written) if number not in found]
        again = sum(found.values()) - len(found)
        assert not missing, f"{len(missing)} of {self.written} rows are missing, such as {missing[:5]}"
        assert again <= AT_ONCE * self.runs, f"{again} rows came again in {self.runs} runs"
        print(again, "rows came again")

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


class LargeStreams(Streams):
    """The same with large messages: each micro-batch begins and ends in the middle of some.

    A driver has read only the first message segments of what another one then delivers.
    """

    source: Mapping[str, str] = {"large.message.enabled": "true"}
    count = 3
    """The message segments of a message."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.late: list[tuple[int, int]] = []
        """Numbers of messages, and of their segments that are to be written last."""

    def write(self, count: int) -> None:
        """Append about so many records."""
        count = -(-count // self.count)
        numbers = range(self.written, self.written + count)
        self.written += count
        pieces = [(n, segment) for segment in range(self.count) for n in numbers]
        self._send([*pieces[: 2 * count], *self.late])
        self.late = pieces[2 * count :]

    def _send(self, pieces: list[tuple[int, int]]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number, segment in pieces:
            value = Message(number, self.count).segment(segment)
            producer.produce(self.topic, value, partition=number % PARTITIONS)
        producer.flush()

    def ends(self) -> dict[int, int]:
        self._send(self.late)
        self.late = []
        return {p: self.count * end for p, end in super().ends().items()}

    def number(self, value: bytes) -> int:
        number = int(value[:5])
        assert value == Message(number, self.count).value, "it is whole"
        return number


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Lets members by the consumer protocol have short sessions."""
    settings = {
        "group.consumer.min.session.timeout.ms": SESSION_MS,
        "group.consumer.session.timeout.ms": SESSION_MS,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 1000,
    }
    with running(Broker(tmp_path_factory.mktemp("quick-broker"), settings)) as broker:
        yield broker


@pytest.fixture(
    params=[*product((Streams, LargeStreams), PROTOCOLS)], ids=lambda param: f"{param[0].__name__}-{param[1]}"
)
def streams(request: pytest.FixtureRequest, tmp_path: Path, chance: random.Random) -> Iterator[Streams]:
    kind, protocol = request.param
    broker = request.getfixturevalue("quick_broker" if protocol == "consumer" else "broker")
    streams = kind(broker, tmp_path, chance, PROTOCOLS[protocol])
    yield streams
    streams.end()


def test_all_rows_are_copied(streams: Streams) -> None:
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
