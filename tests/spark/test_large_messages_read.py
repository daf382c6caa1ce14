"""The source reassembles large messages: in batches, in streams and over restarts, of both places."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_kafkalog.broker.groups import BrokerGroups
from pyspark_kafkalog.log.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, GroupOffsets, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.kafka import Broker
from tests.large_fixtures import ROOT, Scenario, as_row, requires_large_fixtures, scenarios

pytestmark = [pytest.mark.broker, requires_large_fixtures]

ON = {"large.message.enabled": "true"}
GAP = "message.assembler.expiration.offset.gap"


def scenario(name: str) -> Scenario:
    return next(its for its in scenarios() if repr(its) == name)


class Copies:
    """Topics into which records of the fixtures are written anew, and the groups of their place."""

    def __init__(self, spark: SparkSession, place: dict[str, str], groups: GroupOffsets) -> None:
        self.place = place
        self.groups = groups
        self.topic = f"large-{uuid.uuid4().hex[:8]}"
        self._spark = spark

    def write(self, its: Scenario, first: int = 0, end: int = 1 << 30) -> None:
        """Append the records of the offsets, as they are, to partitions of the same numbers."""
        (folder,) = {partition.topic for partition in its.partitions}
        raw = self._spark.read.format("kafkalog").option("subscribe", folder).option("includeHeaders", "true")
        frame = raw.load(str(ROOT)).where(f"offset >= {first} AND offset < {end}")
        frame = frame.coalesce(1).sortWithinPartitions("partition", "offset").drop("topic")
        options = {**self.place, "topic": self.topic}
        if "path" in self.place:
            options["numPartitions"] = str(len(its.partitions))
        frame.write.format("kafkalog").mode("append").options(**options).save()

    def options(self, **options: str) -> dict[str, str]:
        return {**self.place, "subscribe": self.topic, "includeHeaders": "true", **ON, **options}

    def read(self, **options: str) -> DataFrame:
        return self._spark.read.format("kafkalog").options(**self.options(**options)).load()

    def stream(self, checkpoint: Path, **options: str) -> list[list[Row]]:
        """The rows of each micro-batch until all is read."""
        found: list[list[Row]] = []
        its = self.options(**{"startingOffsets": "earliest", **options})
        query = (
            self._spark.readStream.format("kafkalog")
            .options(**its)
            .load()
            .writeStream.foreachBatch(lambda frame, _: found.append(frame.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return found


@pytest.fixture(params=["broker", "directory"])
def copies(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Callable[[Scenario], Copies]:
    def make(its: Scenario) -> Copies:
        if request.param == "directory":
            root = tmp_path / "log"
            root.mkdir()
            return Copies(spark, {"path": str(root)}, DirectoryGroups.open([str(root)]))
        broker: Broker = request.getfixturevalue("broker")
        groups = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
        made = Copies(spark, {"kafka.bootstrap.servers": broker.bootstrap}, groups)
        broker.create_topic(made.topic, len(its.partitions))
        return made

    return make


def shown(rows: list[Row]) -> list[tuple]:
    """Without timestamps, which are those of the copies, and without the safe offset."""
    found = []
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        headers = [(header.key, header.value and bytes(header.value)) for header in row.headers or []]
        key, value = (None if its is None else bytes(its) for its in (row.key, row.value))
        offset, _, *others = as_row(row.offset, 0, key, value, headers, so=False)
        found.append((row.partition, offset, *others))
    return found


def flat(batches: list[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(batches))


def theirs(its: Scenario) -> list[tuple]:
    return [
        (partition.partition, offset, *others)
        for partition in sorted(its.partitions)
        for offset, _, *others in its.delivered(partition.partition, so=False)
    ]


def test_a_batch_however_it_is_split(copies: Callable[[Scenario], Copies]) -> None:
    its = scenario("li_s13_parts-default")
    topic = copies(its)
    topic.write(its)
    for options in {}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "2"}:
        assert shown(topic.read(**options).collect()) == theirs(its)
    assert shown(topic.read(maxRecordsPerPartition="3").coalesce(1).collect()) == theirs(its)
    assert topic.read().where("offset >= 5").select("offset").count() == sum(r[1] >= 5 for r in theirs(its))


@pytest.mark.parametrize("name", ["li_s13_parts-default", "li_s20_mix-default"])
def test_messages_across_micro_batches_and_a_restart(
    copies: Callable[[Scenario], Copies], tmp_path: Path, name: str
) -> None:
    its = scenario(name)
    topic, checkpoint = copies(its), tmp_path / "c"
    limit = {"maxOffsetsPerTrigger": "7"}
    topic.write(its, 0, 10)
    batches = topic.stream(checkpoint, **limit)
    topic.write(its, 10)
    batches += topic.stream(checkpoint, **limit)
    assert len(batches) > 4
    assert shown(flat(batches)) == theirs(its)
    for before, after in pairwise(batches):
        last = {row.partition: row.offset for row in sorted(before, key=lambda row: row.offset)}
        assert all(row.offset > last.get(row.partition, -1) for row in after)


def test_a_stream_and_their_consumer_take_a_group_over_from_each_other(
    copies: Callable[[Scenario], Copies], tmp_path: Path
) -> None:
    its = scenario("li_s20_mix-default")
    topic, partition = copies(its), TopicPartition
    topic.write(its)
    group = f"group-{uuid.uuid4().hex[:8]}"
    topic.stream(tmp_path / "c", **{"kafka.group.id": group, "maxOffsetsPerTrigger": "9"})
    committed = topic.groups.committed(group)[partition(topic.topic, 0)]
    expected = its.entry["end"]["committed_raw"]["0"]
    assert (committed.offset, committed.metadata) == (expected["offset"], "76,")
    for _, _, offset, metadata, delivered, *_ in its.table("resume")[::6]:
        other = f"group-{uuid.uuid4().hex[:8]}"
        topic.groups.commit(other, {partition(topic.topic, 0): CommittedOffset(offset, metadata=metadata)})
        frame = topic.read(**{"kafka.group.id": other, "startingOffsets": "committed"})
        assert sorted(row.offset for row in frame.select("offset").collect()) == json.loads(delivered)


def test_a_query_that_reassembles_elsewhere_commits_safe_offsets(
    copies: Callable[[Scenario], Copies], tmp_path: Path
) -> None:
    its = scenario("li_s20_mix-default")
    topic = copies(its)
    topic.write(its)
    group = f"group-{uuid.uuid4().hex[:8]}"
    options = {
        "large.message.enabled": "false",
        "large.message.safe.offsets": "true",
        "kafka.group.id": group,
    }
    batches = topic.stream(tmp_path / "c", **options)
    assert sum(map(len, batches)) == 76, "the message segments themselves"
    (committed,) = topic.groups.committed(group).values()
    assert (committed.offset, committed.metadata) == (1, "76,")


def test_dropped_messages_are_rows_on_request(copies: Callable[[Scenario], Copies], tmp_path: Path) -> None:
    its = scenario("li_s20_mix-gap20")
    topic = copies(its)
    topic.write(its)
    options = {GAP: "20", "large.message.dead.letters": "true"}
    whole = topic.read(**options).collect()
    assert shown([row for row in whole if row.dropped is None]) == theirs(its)
    letters = [row for row in whole if row.dropped is not None]
    assert {row.dropped.reason for row in letters} == {"expired_by_offset"}
    assert all(row.key is row.value is row.headers is None for row in letters)
    assert all(one.value for row in letters for one in row.dropped.segments)
    for parts in (
        topic.read(**options, maxRecordsPerPartition="5").collect(),
        flat(topic.stream(tmp_path / "c", **options, maxOffsetsPerTrigger="6")),
    ):
        assert sorted(row.dropped for row in parts if row.dropped) == sorted(row.dropped for row in letters)
        assert shown([row for row in parts if row.dropped is None]) == theirs(its)


def test_an_offset_amid_a_compacted_topic_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = f"compacted-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1, {"cleanup.policy": "compact"})
    start = json.dumps({topic: {"0": 5}})
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": start,
        **ON,
    }
    with pytest.raises(PySparkException, match="offset of a compacted topic"):
        spark.read.format("kafkalog").options(**options).load().collect()
    stream = spark.readStream.format("kafkalog").options(**options).load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="offset of a compacted topic"):
        query.awaitTermination(60)
