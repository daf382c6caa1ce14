"""The source reassembles large messages: in batches, in streams and over restarts, of both places."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.extensions.large_messages.cases import SCENARIOS, Scenario, as_delivered, without_safe_offset
from tests.fixtures_dir import requires_fixtures
from tests.kafka import Broker

pytestmark = [pytest.mark.broker, requires_fixtures]

ON = {"large.message.enabled": "true"}
GAP = "message.assembler.expiration.offset.gap"


Case = list[Scenario]
"""The partitions of one topic."""


def case(name: str, scenario: str = "default") -> Case:
    return [found for found in SCENARIOS if (found.case, found.entry["scenario"]) == (name, scenario)]


class Copies:
    """Topics with rewritten records of the fixtures, and the groups of their place."""

    def __init__(self, spark: SparkSession, place: dict[str, str], groups: GroupOffsets) -> None:
        self.place = place
        self.groups = groups
        self.topic = f"large-{uuid.uuid4().hex[:8]}"
        self._spark = spark

    def write(self, scenarios: Case, first: int = 0, end: int = 1 << 30, *, where: str = "true") -> None:
        """Append the records of the offsets, as they are, to partitions of the same numbers."""
        raw = self._spark.read.format("kafkalog").options(subscribe=scenarios[0].case, includeHeaders="true")
        frame = raw.load(str(scenarios[0].folder))
        frame = frame.where(f"offset >= {first} AND offset < {end} AND {where}")
        frame = frame.coalesce(1).sortWithinPartitions("partition", "offset").drop("topic")
        options = {**self.place, "topic": self.topic}
        if "path" in self.place:
            options["numPartitions"] = str(len(scenarios))
        frame.write.format("kafkalog").mode("append").options(**options).save()

    def options(self, **options: str) -> dict[str, str]:
        return {**self.place, "subscribe": self.topic, "includeHeaders": "true", **ON, **options}

    def read(self, **options: str) -> DataFrame:
        return self._spark.read.format("kafkalog").options(**self.options(**options)).load()

    def stream(self, checkpoint: Path, **options: str) -> list[list[Row]]:
        """The rows of each micro-batch until all is read."""
        found: list[list[Row]] = []
        options = self.options(**{"startingOffsets": "earliest", **options})
        query = (
            self._spark.readStream.format("kafkalog")
            .options(**options)
            .load()
            .writeStream.foreachBatch(lambda frame, _: found.append(frame.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return found


@pytest.fixture(params=["broker", "directory"])
def copies(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Callable[[Case], Copies]:
    def make(scenarios: Case) -> Copies:
        if request.param == "directory":
            root = tmp_path / "log"
            root.mkdir()
            return Copies(spark, {"path": str(root)}, DirectoryGroups.open([str(root)]))
        broker: Broker = request.getfixturevalue("broker")
        groups = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
        made = Copies(spark, {"kafka.bootstrap.servers": broker.bootstrap}, groups)
        broker.create_topic(made.topic, len(scenarios))
        return made

    return make


def shown(rows: list[Row]) -> list[dict[str, Any]]:
    """Without timestamps, which are those of the copies, and without the safe offset."""
    in_order = sorted(rows, key=lambda row: (row.partition, row.offset))
    return _comparable([as_delivered(row.asDict(recursive=True)) for row in in_order])


def _comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "timestamp": None} for row in without_safe_offset(rows)]


def flat(batches: list[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(batches))


def theirs(scenarios: Case) -> list[dict[str, Any]]:
    return _comparable(
        [
            row
            for scenario in sorted(scenarios, key=lambda scenario: scenario.partition)
            for row in scenario.delivered
        ]
    )


def test_a_batch_however_it_is_split(copies: Callable[[Case], Copies]) -> None:
    scenarios = case("li_s13_parts")
    topic = copies(scenarios)
    topic.write(scenarios)
    for options in {}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "2"}:
        assert shown(topic.read(**options).collect()) == theirs(scenarios)
    assert shown(topic.read(maxRecordsPerPartition="3").coalesce(1).collect()) == theirs(scenarios)
    assert topic.read().where("offset >= 5").select("offset").count() == sum(
        row["offset"] >= 5 for row in theirs(scenarios)
    )


@pytest.mark.parametrize("name", ["li_s13_parts", pytest.param("li_s20_mix", marks=pytest.mark.soak)])
def test_messages_across_micro_batches_and_a_restart(
    copies: Callable[[Case], Copies], tmp_path: Path, name: str
) -> None:
    scenarios = case(name)
    topic, checkpoint = copies(scenarios), tmp_path / "c"
    limit = {"maxOffsetsPerTrigger": "7"}
    topic.write(scenarios, 0, 10)
    batches = topic.stream(checkpoint, **limit)
    topic.write(scenarios, 10)
    batches += topic.stream(checkpoint, **limit)
    assert len(batches) > 4
    assert shown(flat(batches)) == theirs(scenarios)
    for before, after in pairwise(batches):
        last = {row.partition: row.offset for row in sorted(before, key=lambda row: row.offset)}
        assert all(row.offset > last.get(row.partition, -1) for row in after)


def test_partitions_that_come_between_micro_batches(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """They are read from their beginning, and what is open in the others is completed."""
    its = case("li_s13_parts")
    topic = Copies(
        spark,
        {"kafka.bootstrap.servers": broker.bootstrap},
        BrokerGroups(ConnectionOptions((broker.bootstrap,))),
    )
    broker.create_topic(topic.topic, 1)
    topic.write(its, 0, 10, where="partition = 0")
    batches = topic.stream(tmp_path / "c", maxOffsetsPerTrigger="3")
    for count in range(2, len(its) + 1):
        with broker.admin() as admin:
            admin.create_partitions({topic.topic: count})
        topic.write(its, where=f"partition = {count - 1}")
        batches += topic.stream(tmp_path / "c", maxOffsetsPerTrigger="3")
    topic.write(its, 10, where="partition = 0")
    batches += topic.stream(tmp_path / "c", maxOffsetsPerTrigger="3")
    assert len(its) > 1
    assert shown(flat(batches)) == theirs(its)


def test_a_stream_and_their_consumer_take_a_group_over_from_each_other(
    copies: Callable[[Case], Copies], tmp_path: Path
) -> None:
    scenarios = case("li_s20_mix")
    topic, partition = copies(scenarios), TopicPartition
    topic.write(scenarios)
    group = f"group-{uuid.uuid4().hex[:8]}"
    topic.stream(tmp_path / "c", **{"kafka.group.id": group, "maxOffsetsPerTrigger": "9"})
    committed = topic.groups.committed(group)[partition(topic.topic, 0)]
    expected = scenarios[0].end("committed_raw")
    assert (committed.offset, committed.metadata) == (expected["offset"], "76,")
    for _, _, offset, metadata, delivered, *_ in scenarios[0].table("resume")[::6]:
        other = f"group-{uuid.uuid4().hex[:8]}"
        topic.groups.commit(other, {partition(topic.topic, 0): CommittedOffset(offset, metadata=metadata)})
        frame = topic.read(**{"kafka.group.id": other, "startingOffsets": "committed"})
        assert sorted(row.offset for row in frame.select("offset").collect()) == json.loads(delivered)


def test_a_query_that_reassembles_elsewhere_commits_safe_offsets(
    copies: Callable[[Case], Copies], tmp_path: Path
) -> None:
    scenarios = case("li_s20_mix")
    topic = copies(scenarios)
    topic.write(scenarios)
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


def test_dropped_messages_are_rows_on_request(copies: Callable[[Case], Copies], tmp_path: Path) -> None:
    scenarios = case("li_s20_mix", "gap20")
    topic = copies(scenarios)
    topic.write(scenarios)
    options = {GAP: "20", "large.message.dead.letters": "true"}
    whole = topic.read(**options).collect()
    assert shown([row for row in whole if row.dropped is None]) == theirs(scenarios)
    letters = [row for row in whole if row.dropped is not None]
    assert {row.dropped.reason for row in letters} == {"expired_by_offset"}
    assert all(row.key is row.value is row.headers is None for row in letters)
    assert all(segment.value for row in letters for segment in row.dropped.segments)
    for parts in (
        topic.read(**options, maxRecordsPerPartition="5").collect(),
        flat(topic.stream(tmp_path / "c", **options, maxOffsetsPerTrigger="6")),
    ):
        assert sorted(row.dropped for row in parts if row.dropped) == sorted(row.dropped for row in letters)
        assert shown([row for row in parts if row.dropped is None]) == theirs(scenarios)


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
