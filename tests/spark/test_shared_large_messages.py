"""Queries of one group share a topic of large messages, and members come and go in the middle of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import CommittedOffset, TopicPartition
from tests.kafka import Broker
from tests.large_log import Message
from tests.spark.test_shared_groups import PARTITIONS, Shared

pytestmark = pytest.mark.broker

COUNT = 3
"""The message segments of a message."""
PROTOCOLS = {
    "range": {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "100"},
    "cooperative": {
        "kafka.session.timeout.ms": "6000",
        "kafka.heartbeat.interval.ms": "100",
        "kafka.partition.assignment.strategy": "cooperative-sticky",
    },
    "consumer": {"kafka.group.protocol": "consumer"},
}


class Large(Shared):
    """A topic with one message in each partition, whose segments are written one by one, each before a small
    value."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        super().__init__(spark, broker, folder)
        self.segments = 0
        """The message segments that were written to each partition."""
        self.small = Counter[int]()

    def stream(self, name: str, **options: str) -> DataFrame:
        return super().stream(name, large__message__enabled="true", **options)

    def write_next(self) -> None:
        """Append the next message segment to each partition, and a small value."""
        message, number = divmod(self.segments, COUNT)
        rows = []
        for partition in range(PARTITIONS):
            small = 100 * self.segments + partition
            self.small[small] += 1
            segment = Message(message * PARTITIONS + partition, COUNT).segment(number)
            rows += [(segment, partition), (str(small).encode(), partition)]
        self.segments += 1
        frame = self.spark.createDataFrame(rows, "value binary, partition int").coalesce(1)
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic}
        frame.write.format("kafkalog").mode("append").options(**options).save()

    @property
    def whole(self) -> Counter[int]:
        """The messages that are complete."""
        numbers = range(self.segments // COUNT * PARTITIONS)
        return Counter(int(Message(number, COUNT).value) for number in numbers)

    def wait_for_commits(self) -> None:
        """Wait until everything is committed as LinkedIn's consumer does: where an open message begins, with
        the end as its consumer high watermark."""
        end = 2 * self.segments
        begins = end if self.segments % COUNT == 0 else end // (2 * COUNT) * 2 * COUNT
        wanted = dict.fromkeys(range(PARTITIONS), (begins, f"{end},"))

        def commits() -> dict[int, tuple[int, str]]:
            found = self.offsets.committed(self.group).items()
            return {number: (commit.offset, commit.metadata) for (_, number), commit in found}

        self.until(lambda: commits() == wanted)


@pytest.fixture
def large(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Large]:
    large = Large(spark, broker, tmp_path)
    yield large
    for query in large.queries:
        query.stop()


@pytest.mark.parametrize(
    "protocol",
    ["range", *(pytest.param(name, marks=pytest.mark.long) for name in ("cooperative", "consumer"))],
)
def test_members_join_and_leave_in_the_middle_of_messages(large: Large, protocol: str) -> None:
    """Each message and each small value comes once, from the member that has its partition then."""
    large.protocol = PROTOCOLS[protocol]

    def read_next() -> None:
        large.write_next()
        large.until(lambda: large.rows("first", "second") >= large.small + large.whole)
        assert large.rows("first", "second") == large.small + large.whole
        large.wait_for_commits()

    first = large.start("first")
    read_next()
    large.start("second")
    large.until(lambda: [len(share) for share in large.assigned()] == [2, 2])
    read_next()
    first.stop()
    large.until(lambda: large.assigned() == [[0, 1, 2, 3]])
    read_next()
    assert large.whole, "whose first segments only the query has read that has left"
    read_next()
    large.start("first")
    large.until(lambda: [len(share) for share in large.assigned()] == [2, 2])
    read_next()
    read_next()
    of_each = [large.rows(name) for name in ("first", "second")]
    assert all(found & large.whole for found in of_each)
    assert sum(of_each, Counter()) == large.small + large.whole


@pytest.mark.long
def test_a_member_that_was_put_out_in_the_middle_of_messages(large: Large) -> None:
    """What it has read and not committed is read again by others. No message is lost, and those that are
    complete only later come once."""
    large.write_next()
    expelled = False

    def expel(rows: DataFrame, batch: int) -> None:
        nonlocal expelled
        found = [int(row.value.decode()) for row in rows.select("value").collect()]
        with (large.folder / "first.rows").open("a") as file:
            file.writelines(f"{batch} 0 0 {number}\n" for number in found)
        if not expelled and found:
            expelled = True
            large.expel_all()
            large.start("second")
            large.until(lambda: large.assigned() != [])

    frame = large.stream("first", groupMembershipLost="rejoin")
    writer = frame.writeStream.foreachBatch(expel).option("checkpointLocation", str(large.folder / "first"))
    large.queries.append(writer.start())
    large.until(lambda: [len(share) for share in large.assigned()] == [2, 2])
    large.wait_for_commits()
    for _ in range(1, COUNT):
        large.write_next()
        large.wait_for_commits()
    found = large.rows("first", "second")
    assert found.keys() == (large.small + large.whole).keys()
    assert {number: found[number] for number in large.whole} == large.whole
    again = {number for number, count in found.items() if count > 1}
    assert again <= set(range(PARTITIONS)), "the small values of the micro-batch that was not committed"


def test_a_group_of_linkedins_consumer_is_taken_over_where_it_has_got(large: Large) -> None:
    """Messages below its consumer high watermark were delivered, even if they are read again."""
    for _ in range(COUNT + 1):
        large.write_next()
    partitions = [TopicPartition(large.topic, number) for number in range(PARTITIONS)]
    commits = [CommittedOffset(*at) for at in ((0, -1, "2,"), (0, -1, "5,"), (6, -1, "7,"), (6, -1, "8,"))]
    large.offsets.commit(large.group, dict(zip(partitions, commits, strict=True)))
    large.start("first")
    large.wait_for_commits()
    offsets = [line.split()[1:3] for line in (large.folder / "first.rows").read_text().splitlines()]
    found = [sorted(int(o) for p, o in offsets if int(p) == number) for number in range(PARTITIONS)]
    delivered = [1, 3, 4, 5, 7]
    assert found == [[offset for offset in delivered if offset >= wanted] for wanted in (2, 5, 7, 8)]
