"""Queries and Java's consumers share a topic; members join, leave, hang and are killed: no row is missing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.kafka import Broker
from tests.kafka_jars import java, kafka_jars

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK"),
]

PARTITIONS = 24
AT_ONCE = 400
"""Rows of a micro-batch, and of a poll, at most; so many may be read again after each harm."""
SESSION_MS = 6000


class Storm:
    """A topic, a group, two queries and two Java consumers, and what is done to them."""

    def __init__(
        self, spark: SparkSession, broker: Broker, folder: Path, chance: random.Random, strategy: str
    ) -> None:
        self.spark, self.broker, self.folder, self.chance = spark, broker, folder, chance
        self.strategy = strategy
        self.topic, self.group = (f"{word}-{uuid.uuid4().hex[:8]}" for word in ("storm", "group"))
        broker.create_topic(self.topic, PARTITIONS)
        self.offsets = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
        self.written = 0
        self.harms = 0
        self.classes = folder / "classes"
        source = Path(__file__).with_name("ConsumeShared.java")
        command = ["javac", "-cp", f"{kafka_jars()}/*", "-d", str(self.classes), str(source)]
        subprocess.run(command, check=True)
        self.queries: dict[str, StreamingQuery | None] = {"query-0": None, "query-1": None}
        self.consumers: dict[str, subprocess.Popen[bytes] | None] = {"java-0": None, "java-1": None}
        self.runs = Counter[str]()

    def write(self, count: int) -> None:
        rows = self.spark.range(self.written, self.written + count, numPartitions=1)
        frame = rows.selectExpr("CAST(id AS STRING) AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition")
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic}
        frame.write.format("kafkalog").mode("append").options(**options).save()
        self.written += count

    def start(self, name: str) -> None:
        self.runs[name] += 1
        if name in self.queries:
            self.queries[name] = self._start_query(name)
        else:
            self.consumers[name] = self._start_consumer(name)

    def _start_query(self, name: str) -> StreamingQuery:
        given = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.topic,
            "kafka.group.id": self.group,
            "startingOffsets": "earliest",
            "groupMembership": "true",
            "groupMembershipLost": self.chance.choice(["fail", "rejoin"]),
            **{f"kafka.{name}": value for name, value in self._protocol().items()},
            "maxOffsetsPerTrigger": str(AT_ONCE),
            "checkpointLocation": str(self.folder / name),
        }
        file = self.folder / f"{name}.rows"

        def keep(rows: DataFrame, batch: int) -> None:
            found = rows.select("partition", "offset").collect()
            with file.open("a") as kept:
                kept.write("".join(f"{row.partition} {row.offset}\n" for row in found))

        frame = self.spark.readStream.format("kafkalog").options(**given).load()
        writer = frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", given["checkpointLocation"]
        )
        return writer.start()

    def _start_consumer(self, name: str) -> subprocess.Popen[bytes]:
        settings = {"max.poll.records": AT_ONCE, **self._protocol()}
        command = [java(), "-Xmx96m", "-XX:TieredStopAtLevel=1", "-cp", f"{self.classes}:{kafka_jars()}/*"]
        command += ["ConsumeShared", self.broker.bootstrap, self.group, self.topic]
        command += [str(self.folder / f"{name}.rows"), *(f"{key}={value}" for key, value in settings.items())]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _protocol(self) -> dict[str, str]:
        """Settings of both kinds of members."""
        if self.strategy == "consumer":
            return {"group.protocol": "consumer"}
        return {
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "500",
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{self.strategy}",
        }

    def _planners(self) -> list[int]:
        """The processes of Python that plan the queries of this session."""
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                command = Path("/proc", pid, "cmdline").read_bytes()
                status = Path("/proc", pid, "stat").read_text()
                if b"python_streaming_source_runner" in command and self._is_ours(int(status.split()[3])):
                    found.append(int(pid))
        return found

    def _is_ours(self, pid: int) -> bool:
        while pid > 1:
            if pid == os.getpid():
                return True
            try:
                pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                return False
        return False

    def strike(self) -> str:
        """One event: a member joins, leaves, hangs for longer than its session, or is killed."""
        members = {**self.queries, **self.consumers}
        absent = [name for name, running in members.items() if not self._runs(running)]
        if absent and self.chance.random() < 0.6:
            name = self.chance.choice(absent)
            self.start(name)
            return f"{name} joins"
        present = [name for name in members if name not in absent]
        if len(present) < 2:
            return "nothing"
        name, event = self.chance.choice(present), self.chance.choice(["leaves", "hangs", "is killed"])
        self.harms += 1
        consumer, query = self.consumers.get(name), self.queries.get(name)
        if consumer is not None:
            pids = [consumer.pid]
        elif event == "leaves":
            assert query is not None
            query.stop()
            return f"{name} leaves"
        else:
            pids = self.chance.sample(planners, 1) if (planners := self._planners()) else []
        for pid in pids:
            if event == "hangs":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(SESSION_MS / 1000 + 1)
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGTERM if event == "leaves" else signal.SIGKILL)
                if consumer is not None:
                    consumer.wait(30)
        return f"{name} {event}"

    def _runs(self, member: StreamingQuery | subprocess.Popen[bytes] | None) -> bool:
        if isinstance(member, subprocess.Popen):
            return member.poll() is None
        return member is not None and member.isActive

    def settle(self) -> None:
        """All members run, until all is committed."""
        deadline = time.monotonic() + 180
        while self._committed() < self.written:
            for name, member in {**self.queries, **self.consumers}.items():
                if not self._runs(member):
                    self.start(name)
            assert time.monotonic() < deadline, (self._committed(), self.written)
            time.sleep(0.5)

    def _committed(self) -> int:
        return sum(commit.offset for commit in self.offsets.committed(self.group).values())

    def rows(self) -> Counter[str]:
        found = Counter[str]()
        for file in self.folder.glob("*.rows"):
            found.update(file.read_text().splitlines())
        return found

    def end(self) -> None:
        for query in self.queries.values():
            if query is not None:
                query.stop()
        for consumer in self.consumers.values():
            if consumer is not None:
                consumer.kill()
                consumer.wait()


@pytest.fixture(
    params=[
        "RangeAssignor",
        pytest.param("CooperativeStickyAssignor", marks=pytest.mark.soak),
        pytest.param("consumer", marks=pytest.mark.soak),
    ]
)
def storm(
    request: pytest.FixtureRequest, spark: SparkSession, broker: Broker, tmp_path: Path, chance: random.Random
) -> Iterator[Storm]:
    storm = Storm(spark, broker, tmp_path, chance, request.param)
    yield storm
    storm.end()


@pytest.mark.long
def test_no_row_is_missing(storm: Storm, soak: bool) -> None:
    events, records = (60, 500_000) if soak else (3, 6_000)
    for name in storm.queries | storm.consumers:
        storm.start(name)
    for _ in range(events):
        storm.write(records // events)
        print(storm.strike(), storm._committed(), "of", storm.written)
        time.sleep(storm.chance.uniform(0.5, 3.0))
    storm.settle()
    rows = storm.rows()
    ends = Counter(number % PARTITIONS for number in range(storm.written))
    expected = {f"{p} {offset}" for p, end in ends.items() for offset in range(end)}
    missing = expected - rows.keys()
    repeated = rows.total() - len(rows)
    print(f"{storm.harms} harms, {storm.runs.total()} runs, {repeated} repeated rows")
    assert not missing, f"{len(missing)} rows are missing, such as {min(missing)}"
    assert rows.keys() == expected
    # A harm leaves one step of one member uncommitted; a query runs that again, and so does another member.
    assert repeated <= 2 * AT_ONCE * (storm.harms + storm.runs.total())
