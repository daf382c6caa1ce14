"""Queries that share a topic with the other members of a group, and write each row exactly once."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery

from tests.kafka import Broker
from tests.spark.test_shared_groups import PARTITIONS, Shared

pytestmark = pytest.mark.broker


class Copying(Shared):
    """Queries that copy a topic to another one."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        super().__init__(spark, broker, folder)
        self.out = f"copy-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.out, 2)

    def copy(
        self, name: str, frame: DataFrame | None = None, *, audit: str = "", **options: str
    ) -> StreamingQuery:
        frame = self.stream(name, commitOffsets="false", **options) if frame is None else frame
        sink = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "topic": self.out,
            "delivery.guarantee": "exactly-once",
            "commitSourceOffsets": "transaction",
            "kafka.group.id": self.group,
            "checkpointLocation": str(self.folder / name),
            **({"auditLocation": audit} if audit else {}),
        }
        query = frame.select("value").writeStream.format("kafkalog").options(**sink).start()
        self.queries.append(query)
        return query

    def copied(self) -> Counter[int]:
        """How often each number is in the copy."""
        given = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.out,
            "kafka.isolation.level": "read_committed",
        }
        rows = self.spark.read.format("kafkalog").options(**given).load().select("value").collect()
        return Counter(int(row.value) for row in rows)

    def until_all_is_copied(self) -> None:
        ends = {p: len(range(p, self.written, PARTITIONS)) for p in range(PARTITIONS)}
        self.until(lambda: self.commits() == ends)
        assert self.copied() == Counter(range(self.written))


@pytest.fixture
def copying(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Copying]:
    copying = Copying(spark, broker, tmp_path)
    yield copying
    for query in copying.queries:
        query.stop()


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.soak)])
def test_two_queries_copy_each_row_once(copying: Copying, protocol: str) -> None:
    if protocol == "consumer":
        copying.protocol = {"kafka.group.protocol": "consumer"}
    copying.write(40)
    first = copying.copy("first")
    copying.until_all_is_copied()
    copying.copy("second")
    copying.until(lambda: [len(share) for share in copying.assigned()] == [2, 2])
    copying.write(40)
    copying.until_all_is_copied()
    first.stop()
    copying.until(lambda: copying.assigned() == [[0, 1, 2, 3]], 10)
    copying.write(40)
    copying.until_all_is_copied()
    # As if its driver had died before it logged the last commit.
    commits = copying.folder / "first" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    copying.copy("first")
    copying.until(lambda: [len(share) for share in copying.assigned()] == [2, 2])
    copying.write(40)
    copying.until_all_is_copied()
    assert (commits / str(last)).exists()


def test_a_sink_that_does_not_commit_is_refused(copying: Copying) -> None:
    copying.write(8)
    query = copying.start("first", copying.stream("first", commitOffsets="false"))
    with pytest.raises(StreamingQueryException, match="has not got the end of the micro-batch"):
        query.awaitTermination(60)
    copying.queries.clear()
    assert copying.commits() == dict.fromkeys(range(PARTITIONS), 0)


@pytest.mark.long
@pytest.mark.parametrize("rejoins", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_query_that_was_put_out_while_a_micro_batch_ran(copying: Copying, rejoins: bool) -> None:
    """Its transaction is refused: it ends with an error, or gives the micro-batch up and goes on.

    An audit does not count what it has given up.
    """
    copying.write(40)
    audit = str(copying.folder / "audit")
    waits, seen = str(copying.folder / "waits"), str(copying.folder / "seen")
    Path(waits).touch()

    def wait(value: Any) -> Any:
        Path(seen).touch()
        while Path(waits).exists():
            time.sleep(0.05)
        return value

    waiting = udf(wait, "binary", useArrow=False)
    lost = {"groupMembershipLost": "rejoin"} if rejoins else {}
    frame = copying.stream("first", commitOffsets="false", **lost)
    query = copying.copy("first", frame.select(waiting("value").alias("value")), audit=audit)
    copying.until(Path(seen).exists)
    copying.expel_all()
    Path(waits).unlink()
    if not rejoins:
        with pytest.raises(StreamingQueryException, match="no longer a member of group"):
            query.awaitTermination(60)
        copying.queries.clear()
        assert not copying.copied()
        assert copying.commits() == dict.fromkeys(range(PARTITIONS), 0)
        copying.copy("first", audit=audit)
    copying.until_all_is_copied()
    copying.write(4)
    copying.until_all_is_copied()
    assert query.isActive == rejoins
    counts = copying.spark.read.format("kafkalog").option("view", "audit").load(audit)
    written = counts.where("kind = 'SUCCESS'")
    copying.until(lambda: sum(row.messages for row in written.collect()) == 44)
