"""Streams that commit to groups are killed -9: no group is ahead of what its query has finished.

Some rounds kill the Python processes of Spark's driver that plan its queries, which
are what commits; the others, which the soak alone has, kill the whole application. Each
round restarts the queries from their checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets
from tests.faults.application import Application
from tests.faults.test_stream_kills import numbers
from tests.kafka import Broker
from tests.log.writing import write

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(900)]

KINDS, SOAK_KINDS = ("brokers", "directory"), ("brokers", "directory", "brokers")
PLANNERS, SOAK_PLANNERS = 1, 4
"""Rounds that kill only the Python processes that plan and commit, at a random moment of every stream."""
WHOLE = 10
"""Later rounds of the soak, which kill the whole application."""
RECORDS = 20_000


@dataclass
class Stream:
    """A query from a topic of two partitions with the numbers from 0 to the directory ``folder/log``."""

    folder: Path
    topic: str
    groups: GroupOffsets
    source: dict[str, str]

    def plan(self) -> dict[str, Any]:
        source = {
            **self.source,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "kafka.group.id": self.topic,
        }
        return {"source": source, "checkpoint": str(self.folder / "c"), "path": str(self.folder / "log")}

    def committed(self) -> Offsets:
        return {
            partition: committed.offset for partition, committed in self.groups.committed(self.topic).items()
        }

    def finished(self) -> Offsets:
        """The end of the last micro-batch that Spark has noted as complete."""
        logs = [self.folder / "c" / name for name in ("commits", "offsets")]
        done = [int(path.name) for path in logs[0].glob("*") if path.name.isdecimal()]
        if not done:
            return {}
        lines = (logs[1] / str(max(done))).read_text().splitlines()
        return parse_offsets(lines[2], option="the offset log")


@pytest.fixture
def streams(broker: Broker, tmp_path: Path, soak: bool) -> list[Stream]:
    kinds = SOAK_KINDS if soak else KINDS
    return [_stream(broker, tmp_path / str(number), kind) for number, kind in enumerate(kinds)]


def _stream(broker: Broker, folder: Path, kind: str) -> Stream:
    folder.mkdir()
    topic = f"kills-{uuid.uuid4().hex[:8]}"
    options = {"checkpointLocation": str(folder / "c")}
    if kind == "directory":
        root = folder / "source"
        write(root, {TopicPartition(topic, k): [b"%d" % n for n in range(k, RECORDS, 2)] for k in range(2)})
        return Stream(folder, topic, DirectoryGroups.open([str(root)]), {"path": str(root), **options})
    broker.create_topic(topic, 2)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for n in range(RECORDS):
        producer.send(topic, b"%d" % n, partition=n % 2)
    producer.flush()
    producer.close()
    groups = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
    return Stream(folder, topic, groups, {"kafka.bootstrap.servers": broker.bootstrap, **options})


class Killed:
    """The application, its streams, and the commits of their groups at the last kill."""

    def __init__(self, streams: list[Stream], folder: Path, chance: random.Random) -> None:
        self.streams = streams
        self._folder = folder
        self._plan = folder / "streams.json"
        self._plan.write_text(json.dumps([stream.plan() for stream in streams]))
        self._chance = chance
        self._seen: list[Offsets] = [{} for _ in streams]
        self.rounds = 0

    def application(self) -> Application:
        output = self._folder / f"output-{self.rounds}"
        return Application("tests.faults.committing_streams", str(self._plan), output=output)

    def round(self, application: Application, kill: Callable[[Application], None]) -> None:
        """Run all streams until each has committed something, and then at a random moment ``kill``."""
        self.rounds += 1
        application.send("small")
        assert application.receive() == "started", application.output_tail()
        deadline = time.monotonic() + 120
        while any(stream.committed() == before for stream, before in self._pairs()):
            assert time.monotonic() < deadline, application.output_tail()
            time.sleep(0.02)
        time.sleep(self._chance.uniform(0, 1))
        kill(application)
        for number, (stream, before) in enumerate(self._pairs()):
            committed, finished = stream.committed(), stream.finished()
            assert committed.keys() <= finished.keys()
            for partition, offset in committed.items():
                where = f"round {self.rounds}, {partition}"
                assert before.get(partition, 0) <= offset <= finished[partition], where
            self._seen[number] = committed

    def _pairs(self) -> list[tuple[Stream, Offsets]]:
        return list(zip(self.streams, self._seen, strict=True))


def _kill_planners(application: Application) -> None:
    for planner in application.planners():
        planner.kill()
    assert application.receive() == "failed", application.output_tail()


def _finish(application: Application) -> None:
    application.send("all")
    answers = [application.receive() for _ in range(2)]
    assert answers == ["started", "done"], application.output_tail()


@pytest.mark.long
def test_no_group_is_ahead_of_its_query(
    streams: list[Stream], tmp_path: Path, chance: random.Random, soak: bool
) -> None:
    killed = Killed(streams, tmp_path, chance)
    with contextlib.closing(killed.application()) as application:
        for _ in range(SOAK_PLANNERS if soak else PLANNERS):
            killed.round(application, _kill_planners)
        if not soak:
            _finish(application)
    if soak:
        for _ in range(WHOLE):
            with contextlib.closing(killed.application()) as application:
                killed.round(application, Application.kill)
        with contextlib.closing(killed.application()) as application:
            _finish(application)
    for stream in streams:
        assert numbers(stream.folder) == list(range(RECORDS)), "each once"
        assert stream.committed() == {TopicPartition(stream.topic, n): RECORDS // 2 for n in range(2)}
