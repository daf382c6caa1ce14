"""Queries of one group copy a topic exactly once, while they join, leave, hang and are killed."""

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
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.spark.stream_reader import LogStreamReader
from tests.extensions.exactly_once.writing import shown
from tests.kafka import Broker
from tests.kafka_service import running

pytestmark = pytest.mark.broker

PARTITIONS = 6
SESSION_MS = 6000
TRANSACTION_MS = 4000
STEPS = ("fenced", "looked", "begun", "producing", "produced", "marked", "ended", "confirmed")
"""At which a commit can be stopped."""


class Copies:
    """A topic, its copy, and the drivers that copy it."""

    application = "tests.faults.shared_copier"
    """The module that a driver runs."""

    def __init__(
        self, broker: Broker, folder: Path, chance: random.Random, protocol: Mapping[str, str]
    ) -> None:
        self.broker, self.folder, self.chance, self.protocol = broker, folder, chance, protocol
        self.topic, self.out, self.group = (f"{w}-{uuid.uuid4().hex[:8]}" for w in ("from", "to", "group"))
        broker.create_topic(self.topic, PARTITIONS)
        broker.create_topic(self.out, 3)
        self.offsets = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
        self.drivers: dict[str, subprocess.Popen[bytes]] = {}
        self.runs = 0
        self.written = 0

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

    def holder(self, name: str) -> str:
        """The run of a driver that has planned last."""
        found: str = json.loads((self.folder / name / "kafkalog-member" / "held.json").read_text())[
            "content"
        ]["holder"]
        return found

    def kill(self, name: str) -> None:
        """End a driver with all its processes."""
        os.killpg(self.drivers[name].pid, signal.SIGKILL)
        self.drivers[name].wait()

    def start(
        self, name: str, *, transaction_ms: int = TRANSACTION_MS, sink_commits: bool = True, **given: str
    ) -> None:
        """Start a driver, or start it again with its checkpoint."""
        common = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "kafka.group.id": self.group,
            "checkpointLocation": str(self.folder / name),
        }
        source = {
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "groupMembership": "true",
            **({"commitOffsets": "false"} if sink_commits else {}),
            "maxOffsetsPerTrigger": "60",
            **self.protocol,
        }
        sink = {
            "topic": self.out,
            "delivery.guarantee": "exactly-once",
            "commitSourceOffsets": "transaction",
            "kafka.transaction.timeout.ms": str(transaction_ms),
        }
        stops = self.folder / f"{name}.stops"
        stops.mkdir(exist_ok=True)
        source |= {option.replace("__", "."): value for option, value in given.items() if value}
        options = {"source": {**common, **source}, "sink": {**common, **sink}}
        if not sink_commits:
            del options["sink"]["commitSourceOffsets"], options["sink"]["kafka.group.id"]
        command = [
            sys.executable,
            "-m",
            self.application,
            str(self.folder / name),
            json.dumps(options),
        ]
        environment = {**os.environ, "PYSPARK_KAFKALOG_STOPS": str(stops)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.drivers[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.runs += 1

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def sink_of(self, name: str) -> int | None:
        """The process that commits for a driver."""
        pid = self.drivers[name].pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        with suppress(OSError, IndexError):
            return int(children.read_text().split()[0])
        return None

    def runs_now(self, name: str) -> bool:
        return name in self.drivers and self.drivers[name].poll() is None

    def committed(self) -> dict[int, int]:
        return {p: commit.offset for (_, p), commit in self.offsets.committed(self.group).items()}

    def settle(self, *names: str, timeout: float = 120) -> None:
        """These drivers run until all is copied, and are started again if they end."""
        deadline = time.monotonic() + timeout
        ends = {p: len(range(p, self.written, PARTITIONS)) for p in range(PARTITIONS)}
        while self.committed() != ends:
            for name in names:
                if not self.runs_now(name):
                    self.start(name)
            assert time.monotonic() < deadline, (self.committed(), ends)
            time.sleep(0.2)

    def goes_on(self, timeout: float = 30) -> None:
        """Wait until more is committed, and for a moment that may be anywhere in a micro-batch."""
        before, deadline = sum(self.committed().values()), time.monotonic() + timeout
        while sum(self.committed().values()) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(self.chance.uniform(0, 0.3))

    def check(self) -> None:
        """Each row is there once, for read_committed readers."""
        found = Counter(int(value) for value in shown(self.broker.bootstrap, self.out, 3))
        missing = [number for number in range(self.written) if number not in found]
        doubled = [number for number, times in found.items() if times > 1]
        assert not missing, f"{len(missing)} of {self.written} rows are missing, such as {missing[:5]}"
        assert not doubled, f"{len(doubled)} of {self.written} rows are doubled, such as {doubled[:5]}"
        assert len(found) == self.written

    def strike(self, name: str, *, soon: bool = False) -> str:
        """A driver that runs leaves, is killed, or hangs for longer than its session, wholly or in part."""
        driver, sink = self.drivers[name], self.sink_of(name)
        event = self.chance.choice(["leaves", "is killed", "hangs"])
        parts = {"planner": [driver.pid], "sink": [sink], "both": [driver.pid, sink]}
        part = "planner" if event == "leaves" else self.chance.choice([*parts])
        pids = [pid for pid in parts[part] if pid is not None]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(
                    pid, {"leaves": signal.SIGTERM, "is killed": signal.SIGKILL}.get(event, signal.SIGSTOP)
                )
        if event == "hangs":
            time.sleep(SESSION_MS / 1000 + 1.5)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        else:
            time.sleep(0 if soon else 0.2)
        return f"{name} {event} ({part})"

    def end(self) -> None:
        for name, driver in self.drivers.items():
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            assert "Traceback" not in self.log(name), self.log(name)


PROTOCOLS = {
    "eager": {"kafka.session.timeout.ms": str(SESSION_MS), "kafka.heartbeat.interval.ms": "300"},
    "cooperative": {
        "kafka.session.timeout.ms": str(SESSION_MS),
        "kafka.heartbeat.interval.ms": "300",
        "kafka.partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"kafka.group.protocol": "consumer"},
}


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
    params=[
        "eager",
        pytest.param("cooperative", marks=pytest.mark.soak),
        pytest.param("consumer", marks=pytest.mark.soak),
    ]
)
def copies(request: pytest.FixtureRequest, tmp_path: Path, chance: random.Random) -> Iterator[Copies]:
    broker = request.getfixturevalue("quick_broker" if request.param == "consumer" else "broker")
    copies = Copies(broker, tmp_path, chance, PROTOCOLS[request.param])
    yield copies
    copies.end()


@pytest.mark.soak
def test_each_row_is_copied_once(copies: Copies) -> None:
    names, events = ["a", "b", "c"], 40
    for name in names[:2]:
        copies.start(name, groupMembershipLost="rejoin")
    for _ in range(events):
        copies.write(1500)
        copies.goes_on()
        absent = [name for name in names if not copies.runs_now(name)]
        present = [name for name in names if name not in absent]
        if absent and (len(present) < 2 or copies.chance.random() < 0.4):
            name = copies.chance.choice(absent)
            copies.start(name, groupMembershipLost=copies.chance.choice(["fail", "rejoin"]))
            print(name, "joins")
        else:
            print(copies.strike(copies.chance.choice(present)), sum(copies.committed().values()))
    copies.settle(*names)
    copies.check()
    print(copies.runs, "runs")


@pytest.mark.long
def test_a_driver_that_is_killed_at_each_step(copies: Copies, soak: bool) -> None:
    """It is started again at once, as a static member, or others take over first."""
    copies.start("b", groupMembershipLost="rejoin")
    for step in STEPS if soak else ("marked",):
        for comes_back in (True, False) if soak else (True,):
            stop = copies.stop_at("a", step)
            copies.start("a", kafka__group__instance__id="a" if comes_back else "")
            copies.write(600)
            copies.wait_until_stopped("a", step)
            copies.kill("a")
            stop.unlink()
            if not comes_back:
                copies.settle("b")
                copies.write(60)
            copies.settle("a", "b")
            copies.check()
            copies.drivers["a"].terminate()
            copies.drivers["a"].wait()


@pytest.mark.soak
def test_a_run_that_was_started_elsewhere_meanwhile(copies: Copies) -> None:
    """What the older one has produced by then, it can't commit as the member that the newer one is."""
    stop = copies.stop_at("a", "produced")
    copies.write(60)
    copies.start("a", transaction_ms=60_000)
    copies.wait_until_stopped("a", "produced")
    older = copies.drivers["a"]
    os.kill(older.pid, signal.SIGSTOP)
    copies.settle("b")
    before = copies.holder("a")
    stop.unlink()  # it is refused, and looks as which member the query goes on
    copies.start("a")
    while copies.holder("a") == before:
        assert copies.runs_now("a"), copies.log("a")
        time.sleep(0.1)
    copies.write(600)
    copies.settle("a", "b")
    os.kill(older.pid, signal.SIGCONT)
    assert older.wait(60) == 1
    assert "was not read by the member that the query is now" in copies.log("a")
    copies.settle("a", "b")
    copies.check()


@pytest.mark.long
@pytest.mark.parametrize("lost", [pytest.param("fail", marks=pytest.mark.soak), "rejoin"])
def test_a_zombie_commits_nothing(copies: Copies, lost: str) -> None:
    """Others have read what it has produced, when it wakes up and commits."""
    stop = copies.stop_at("a", "produced")
    copies.write(60)
    copies.start("a", groupMembershipLost=lost, transaction_ms=60_000)
    copies.wait_until_stopped("a", "produced")
    planner = copies.drivers["a"].pid
    os.kill(planner, signal.SIGSTOP)
    copies.settle("b")
    stop.unlink()
    os.kill(planner, signal.SIGCONT)
    if lost == "fail":
        assert copies.drivers["a"].wait(30) == 1
        assert "LostMemberError" in copies.log("a")
    copies.write(600)
    copies.settle("a", "b")
    copies.check()
    if lost == "rejoin":
        assert "is left to other members" in copies.log("a")


def by_the_planner(copies: Copies, options: Mapping[str, str]) -> LogStreamReader:
    """A new run of query ``a``, as Spark's planner has it."""
    source = {
        "kafka.bootstrap.servers": copies.broker.bootstrap,
        "kafka.group.id": copies.group,
        "checkpointLocation": str(copies.folder / "a"),
        "subscribe": copies.topic,
        "startingOffsets": "earliest",
        "groupMembership": "true",
        **copies.protocol,
        **options,
    }
    return LogStreamReader(source, StructType([StructField("value", BinaryType())]))


def test_a_change_to_commits_of_the_sink(copies: Copies) -> None:
    """It is refused while the checkpoint alone knows what the query has read, also if that has just begun."""
    folder, sink = copies.folder / "a", {"commitOffsets": "false"}
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "query"}))
    copies.write(60)
    end = {copies.topic: {str(partition): 10 for partition in range(PARTITIONS)}}
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}\n")
    with pytest.raises(OptionError, match="its micro-batch 0 is not complete"):
        by_the_planner(copies, sink).latestOffset(end)
    (folder / "commits" / "0").write_text("v1\n{}\n")
    for known in (0, 9):
        copies.offsets.commit(
            copies.group, {TopicPartition(copies.topic, p): CommittedOffset(known) for p in range(PARTITIONS)}
        )
        with pytest.raises(OptionError, match="has not committed all that it has read"):
            by_the_planner(copies, sink).latestOffset(end)
    copies.offsets.commit(
        copies.group, {TopicPartition(copies.topic, p): CommittedOffset(10) for p in range(PARTITIONS)}
    )
    reader = by_the_planner(copies, sink)
    assert reader.latestOffset(end) == end
    reader.stop()
    for name in ("offsets", "commits"):
        (folder / name / "0").unlink()
    reader = by_the_planner(copies, sink)
    start = reader.initialOffset()
    reader.stop()
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}\n")  # and it is killed
    reader = by_the_planner(copies, sink)
    assert not any(task.splits for task in reader.partitions(start, start))
    reader.stop()
    with pytest.raises(OptionError, match="has left its commits to its sink"):
        by_the_planner(copies, {}).latestOffset(start)


@pytest.mark.soak
def test_a_change_to_commits_of_the_sink_after_a_kill(copies: Copies) -> None:
    """The sink has committed, and the member has not: it goes on as it was until all is committed."""
    copies.write(60)
    stop = copies.stop_at("a", "confirmed")
    copies.start("a", sink_commits=False)
    copies.wait_until_stopped("a", "confirmed")
    copies.kill("a")
    stop.unlink()
    copies.start("a")
    assert copies.drivers["a"].wait(60) == 1
    assert "can't leave its commits to its sink yet" in copies.log("a")
    while sum(copies.committed().values()) < copies.written:
        if not copies.runs_now("a"):
            copies.start("a", sink_commits=False)
        time.sleep(0.2)
    copies.drivers["a"].terminate()
    copies.drivers["a"].wait()
    copies.write(600)
    copies.settle("a")
    copies.check()


@pytest.mark.long
def test_a_micro_batch_of_which_others_have_read_all(copies: Copies) -> None:
    copies.write(600)
    stop = copies.stop_at("a", "produced")
    copies.start("a")
    copies.wait_until_stopped("a", "produced")
    copies.kill("a")
    stop.unlink()
    copies.start("b")
    copies.settle("b")
    copies.start("a")
    deadline = time.monotonic() + 60
    while "micro-batch 1 reads []" not in copies.log("a"):
        assert copies.runs_now("a"), copies.log("a")
        assert time.monotonic() < deadline
        time.sleep(0.1)
    copies.write(600)
    copies.settle("b")
    assert copies.runs_now("a"), copies.log("a")
    copies.check()


@pytest.mark.soak
@pytest.mark.parametrize("rows", [1200, 300])
def test_a_topic_that_is_recreated_before_a_replay(copies: Copies, rows: int) -> None:
    """Others have read more of it than the micro-batch, or it is too short for that."""
    given = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "6000"}
    copies.write(600)
    stop = copies.stop_at("a", "produced")
    copies.start("a", **given)
    copies.wait_until_stopped("a", "produced")
    copies.kill("a")
    stop.unlink()
    copies.broker.delete_topic(copies.topic)
    copies.broker.create_topic(copies.topic, PARTITIONS)
    copies.written = 0
    copies.write(rows)
    copies.start("b")
    while sum(copies.committed().values()) <= 120:
        time.sleep(0.05)
    copies.kill("b")
    copies.start("a", **given)
    copies.settle("a", "b")
    copies.check()
