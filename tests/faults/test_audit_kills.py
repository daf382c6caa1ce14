"""Counts of an audit are those of an independent counter, whatever was killed, in a folder and in a topic."""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import audit_counts, connect
from tests import librdkafka
from tests.faults.audited import BUCKET_MS, TENANTS
from tests.faults.steps import KILLED, Runner, step_runner
from tests.kafka import Broker

STEPS = 10
"""The steps of a run, before and after each change of its audit: two of a write, and three of a read."""
ALARMED = -14


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with step_runner("tests.faults.audited") as run:
        yield run


class Place:
    """A topic with batches of an audited writer, and where its counts are."""

    def __init__(
        self, folder: Path, broker: Broker | None, *, in_topic: bool, rows: int, auditor: str
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.topic = f"audited-{uuid.uuid4().hex[:8]}"
        self.rows = rows
        self.batches = 0
        self._broker = broker
        self.options = {"path": str(folder / "log")}
        audit, write = {"auditLocation": str(folder / "audit")}, {"numPartitions": "2"}
        self.source = {"path": str(folder / "audit")}
        if broker is not None:
            self.options = {
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.isolation.level": "read_committed",
            }
            write = {"delivery.guarantee": "exactly-once", "stagingLocation": str(folder / "staging")}
            broker.create_topic(self.topic, 2)
        else:
            (folder / "log").mkdir()
        if in_topic:
            assert broker is not None
            counts = f"{self.topic}-counts"
            broker.create_topic(counts, 3)
            audit = {"auditTopic": counts}
            self.source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": counts}
        audit = {
            **audit,
            "auditor.class": f"tests.faults.audited:{auditor}",
            "auditor.bucket.ms": str(BUCKET_MS),
        }
        self.plan = {"topic": self.topic, "audit": audit, "write": write, "rows": rows}

    def next_batches(self, count: int) -> None:
        """Let the next run write some more batches."""
        self.batches += count
        plan = {**self.plan, "options": self.options, "batches": self.batches}
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def counts(self) -> dict[str, Counter[tuple[str, int, int]]]:
        """For each side the counts of SUCCESS: messages and bytes by tenant and bucket."""
        found: dict[str, Counter[tuple[str, int, int]]] = {"producer": Counter(), "consumer": Counter()}
        for row in audit_counts(self.source).to_pylist():
            if row["kind"] == "SUCCESS":
                start = int(row["bucketStart"].timestamp() * 1000)
                found[row["side"]][row["auditKey"], start, 0] += row["messages"]
                found[row["side"]][row["auditKey"], start, 1] += row["bytes"]
        return found

    def counted(self) -> Counter[tuple[str, int, int]]:
        """The same, counted by a reader of its own: librdkafka's, or for a directory a read of all rows."""
        found: Counter[tuple[str, int, int]] = Counter()
        for tenant, timestamp, size in self._messages():
            start = timestamp // BUCKET_MS * BUCKET_MS
            found[tenant, start, 0] += 1
            found[tenant, start, 1] += size
        return found

    def _messages(self) -> Iterator[tuple[str, int, int]]:
        if self._broker is None:
            for row in connect(self.options).read(self.topic).read_all().to_pylist():
                timestamp = round(row["timestamp"].timestamp() * 1000)
                yield row["key"][:1].decode(), timestamp, len(row["key"]) + len(row["value"])
            return
        yield from consumed(self._broker, self.topic, self.batches * self.rows)


def consumed(broker: Broker, topic: str, count: int) -> Iterator[tuple[str, int, int]]:
    """Tenant, timestamp and size of all committed messages, by librdkafka, which must be this many."""
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": False,
    }
    with librdkafka.member(settings) as consumer:
        consumer.subscribe([topic])
        got = 0
        while got < count:
            messages = consumer.consume(min(count - got, 10_000), timeout=30)
            assert messages, f"{got} of {count} messages"
            for message in messages:
                assert message.error() is None
                key, value = message.key(), message.value()
                yield key[:1].decode(), message.timestamp()[1], len(key) + len(value)
            got += len(messages)
        assert not consumer.consume(1, timeout=1), "more than were written"


@pytest.mark.slow
def test_a_directory_killed_at_each_step(runner: Runner, tmp_path: Path) -> None:
    at_each_step(runner, Place(tmp_path / "p", None, in_topic=False, rows=200, auditor="ByTenant"))


@pytest.mark.long
@pytest.mark.broker
def test_brokers_killed_at_each_step_have_the_same_counts_in_a_topic_and_in_a_folder(
    runner: Runner, broker: Broker, tmp_path: Path
) -> None:
    in_topic = Place(tmp_path / "t", broker, in_topic=True, rows=200, auditor="ByTenant")
    in_folder = Place(tmp_path / "f", broker, in_topic=False, rows=200, auditor="ByTenantInArrow")
    for place in in_topic, in_folder:
        at_each_step(runner, place)
    assert in_topic.counts() == in_folder.counts()


def at_each_step(runner: Runner, place: Place) -> None:
    """Run a batch for each step, killed there, and then again."""
    ended = []
    for step in range(1, STEPS + 2):
        place.next_batches(1)
        ended.append(runner(place.folder, step))
        assert runner(place.folder, 0) == 0
    assert ended == [KILLED] * STEPS + [0]
    expected = place.counted()
    assert sum(count for (*_, which), count in expected.items() if not which) == place.batches * place.rows
    assert len({tenant for tenant, *_ in expected}) == TENANTS
    assert place.counts() == {"producer": expected, "consumer": expected}


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("in_topic", [True, False], ids=["topic", "folder"])
def test_a_million_records_with_kills_in_between(
    runner: Runner, broker: Broker, tmp_path: Path, in_topic: bool
) -> None:
    chance, kills = random.Random(7), 0
    place = Place(tmp_path / "p", broker, in_topic=in_topic, rows=10_000, auditor="ByTenantInArrow")
    for _ in range(10):
        place.next_batches(10)
        for _ in range(3):
            kills += runner(place.folder, -chance.randrange(200, 4000)) == ALARMED
        assert runner(place.folder, 0) == 0
    assert kills > 5
    expected = place.counted()
    assert sum(count for (*_, which), count in expected.items() if not which) == 1_000_000
    assert place.counts() == {"producer": expected, "consumer": expected}
