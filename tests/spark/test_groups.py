"""A stream with a consumer group, as Kafka's own tools see it, and queries that start from a group."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.stream.committing import METADATA
from tests.kafka import Broker, run_kafka_class
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import delay
from tests.spark.conftest import NEVER_AGAIN, needs_read_limits

pytestmark = pytest.mark.broker

OFFSET_COMMIT = 8
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class Orders:
    """A topic of two partitions, on the broker or in a directory, and the groups of its place."""

    def __init__(self, spark: SparkSession, place: dict[str, str], groups: GroupOffsets) -> None:
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.place = place
        self.groups = groups
        self._spark = spark

    def write(self, *per_partition: int) -> None:
        """Append so many records to each partition."""
        rows = [(str(n), number) for number, count in enumerate(per_partition) for n in range(count)]
        frame = self._spark.createDataFrame(rows, "value string, partition int").coalesce(1)
        options = {**self.place, "topic": self.topic}
        if "path" in self.place:
            options["numPartitions"] = "2"
        frame.write.format("kafkalog").mode("append").options(**options).save()

    def read(self, **options: str) -> DataFrame:
        return self._spark.read.format("kafkalog").options(**self._options(options)).load()

    def stream(self, **options: str) -> DataFrame:
        return self._spark.readStream.format("kafkalog").options(**self._options(options)).load()

    def _options(self, options: dict[str, str]) -> dict[str, str]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return {**self.place, "subscribe": self.topic, "kafka.group.id": self.group, **named}

    def offsets(self, *offsets: int) -> str:
        return json.dumps({self.topic: {str(number): offset for number, offset in enumerate(offsets)}})

    def committed(self, group: str | None = None) -> list[int]:
        """By partition."""
        return [offset.offset for _, offset in sorted(self.groups.committed(group or self.group).items())]

    def wait_for_committed(self, *offsets: int) -> None:
        deadline = time.monotonic() + 30
        while self.committed() != list(offsets) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.committed() == list(offsets)


@pytest.fixture
def on_broker(spark: SparkSession, broker: Broker) -> Orders:
    groups = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
    orders = Orders(spark, {"kafka.bootstrap.servers": broker.bootstrap}, groups)
    broker.create_topic(orders.topic, 2)
    return orders


@pytest.fixture(params=["broker", pytest.param("directory", marks=pytest.mark.soak)])
def orders(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Orders:
    if request.param == "broker":
        return request.getfixturevalue("on_broker")
    root = tmp_path / "log"
    root.mkdir()
    return Orders(spark, {"path": str(root)}, DirectoryGroups.open([str(root)]))


def start(frame: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run(frame: DataFrame, checkpoint: Path) -> StreamingQuery:
    query = start(frame, checkpoint, availableNow=True)
    assert query.awaitTermination(120)
    return query


def described(broker: Broker, group: str) -> dict[int, tuple[int, int, int]]:
    """The current offset, log end offset and lag of each partition, from Kafka's own tool."""
    done = run_kafka_class(_TOOL, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(group)]
    return {int(row[2]): (int(row[3]), int(row[4]), int(row[5])) for row in rows}


@pytest.mark.long
@needs_read_limits
@pytest.mark.parametrize("orders", ["broker", "directory"], indirect=True)
def test_available_now_has_committed_all_at_its_end(orders: Orders, tmp_path: Path) -> None:
    orders.write(7, 5)
    frame = orders.stream(startingOffsets="earliest", maxOffsetsPerTrigger="5")
    assert sum(progress.numInputRows for progress in run(frame, tmp_path / "c").recentProgress) == 12
    assert orders.committed() == [7, 5]
    first = orders.groups.committed(orders.group)[TopicPartition(orders.topic, 0)]
    assert first.metadata == METADATA
    orders.write(1, 0)
    run(frame, tmp_path / "c")
    assert orders.committed() == [8, 5]


@pytest.mark.long
def test_kafkas_tools_see_the_query(on_broker: Orders, broker: Broker, tmp_path: Path) -> None:
    on_broker.write(7, 5)
    run(on_broker.stream(startingOffsets="earliest"), tmp_path / "c")
    assert described(broker, on_broker.group) == {0: (7, 7, 0), 1: (5, 5, 0)}
    listed = run_kafka_class(_TOOL, "--bootstrap-server", broker.bootstrap, "--list").stdout.split()
    assert on_broker.group in listed
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        offsets = admin.list_group_offsets([on_broker.group])[on_broker.group]
    finally:
        admin.close()
    assert sorted((p.partition, o.offset, o.leader_epoch) for p, o in offsets.items()) == [
        (0, 7, 0),
        (1, 5, 0),
    ]


@pytest.mark.long
@needs_read_limits
def test_a_paced_stream_shows_its_true_lag(on_broker: Orders, broker: Broker, tmp_path: Path) -> None:
    """A micro-batch is committed when it is complete, long before the next trigger."""
    on_broker.write(30, 10)
    frame = on_broker.stream(
        startingOffsets="earliest", maxOffsetsPerTrigger="8", checkpointLocation=str(tmp_path / "c")
    )
    for lag in {0: (6, 30, 24), 1: (2, 10, 8)}, {0: (12, 30, 18), 1: (4, 10, 6)}:
        query = start(frame, tmp_path / "c", processingTime=NEVER_AGAIN)
        try:
            on_broker.wait_for_committed(*(current for current, _, _ in lag.values()))
            assert described(broker, on_broker.group) == lag
        finally:
            query.stop()


def test_a_query_that_is_stopped_between_triggers_has_committed(orders: Orders, tmp_path: Path) -> None:
    orders.write(7, 5)
    checkpoint = tmp_path / "c"
    frame = orders.stream(startingOffsets="earliest", checkpointLocation=str(checkpoint))
    query = start(frame, checkpoint, processingTime=NEVER_AGAIN)
    orders.wait_for_committed(7, 5)
    query.stop()


def test_without_the_checkpoint_the_next_trigger_commits(orders: Orders, tmp_path: Path) -> None:
    orders.write(7, 5)
    query = start(orders.stream(startingOffsets="earliest"), tmp_path / "c")
    try:
        orders.wait_for_committed(7, 5)
    finally:
        query.stop()


@pytest.mark.soak
@pytest.mark.slow
def test_a_query_that_is_stopped_under_load_has_committed_all_but_what_it_planned_last(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Also where each commit takes longer than a micro-batch."""
    groups = BrokerGroups(ConnectionOptions(tuple(cluster.bootstrap.split(","))))
    orders = Orders(spark, {"kafka.bootstrap.servers": cluster.proxied_bootstrap}, groups)
    cluster.create_topic(orders.topic, 2)
    orders.write(5000, 5000)
    # The first commit of all waits until the brokers have made __consumer_offsets.
    groups.commit(orders.group, {TopicPartition(orders.topic, 0): CommittedOffset(0)})
    behind = []
    for round in range(8):
        checkpoint = tmp_path / f"c{round}"
        orders.group = f"group-{uuid.uuid4().hex[:8]}"
        for proxy in cluster.proxies.values():
            proxy.strike(OFFSET_COMMIT, delay(0.8), times=1000)
        frame = orders.stream(startingOffsets="earliest", maxOffsetsPerTrigger="20")
        query = start(frame, checkpoint)
        deadline = time.monotonic() + 60
        while len(list((checkpoint / "commits").glob("[0-9]*"))) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1 * round)
        query.stop()
        for proxy in cluster.proxies.values():
            proxy.heal()
        # The last one planned was not complete, or was in the moment in which its planner was killed.
        planned = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
        before = (checkpoint / "offsets" / str(planned - 1)).read_text().splitlines()[-1]
        ends = json.loads(before)[orders.topic].values()
        behind.append(
            [end - committed for end, committed in zip(ends, orders.committed() or [0, 0], strict=True)]
        )
    assert max(chain(*behind)) <= 0


@pytest.mark.long
def test_a_restart_makes_up_for_what_was_not_committed(orders: Orders, tmp_path: Path) -> None:
    orders.write(7, 5)
    run(orders.stream(startingOffsets="earliest", commitOffsets="false"), tmp_path / "c")
    assert orders.committed() == []
    run(orders.stream(), tmp_path / "c")
    assert orders.committed() == [7, 5]


@pytest.mark.long
def test_a_checkpoint_that_was_set_back_leaves_the_group_where_it_is(orders: Orders, tmp_path: Path) -> None:
    """Until a micro-batch is complete: a sink that refuses it asks for a new checkpoint, to begin there."""

    def refuse(rows: DataFrame, number: int) -> None:
        raise ValueError("refused")

    orders.write(7, 5)
    run(orders.stream(startingOffsets="earliest"), tmp_path / "c")
    shutil.copytree(tmp_path / "c", tmp_path / "older")
    orders.write(3, 2)
    run(orders.stream(), tmp_path / "c")
    orders.write(1, 1)
    writer = orders.stream().writeStream.option("checkpointLocation", str(tmp_path / "older"))
    query = writer.foreachBatch(refuse).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="refused"):
        query.awaitTermination(120)
    assert orders.committed() == [10, 7]
    run(orders.stream(), tmp_path / "older")
    assert orders.committed() == [11, 8]


def test_a_new_query_that_finds_nothing_commits_nothing(orders: Orders, tmp_path: Path) -> None:
    orders.write(7, 5)
    run(orders.stream(startingOffsets="latest"), tmp_path / "c")
    assert orders.committed() == []


def test_the_querys_name_names_the_group(on_broker: Orders, tmp_path: Path) -> None:
    on_broker.write(1, 1)
    frame = on_broker.stream(startingOffsets="earliest").sparkSession.readStream.format("kafkalog")
    options = {**on_broker.place, "subscribe": on_broker.topic, "startingOffsets": "earliest"}
    named = {"commitOffsets": "true", "queryName": on_broker.group, "groupIdPrefix": "etl"}
    run(frame.options(**options, **named).load(), tmp_path / "c")
    assert on_broker.committed(f"etl-{on_broker.group}") == [1, 1]


@pytest.mark.long
def test_a_group_with_members_is_left_alone(on_broker: Orders, broker: Broker, tmp_path: Path) -> None:
    """The query reads on, or, where commits are required, ends and says why."""
    on_broker.write(3, 3)
    with broker.member(on_broker.group, on_broker.topic):
        frame = on_broker.stream(startingOffsets="earliest")
        assert sum(progress.numInputRows for progress in run(frame, tmp_path / "c").recentProgress) == 6
        assert on_broker.committed() == []
        frame = on_broker.stream(startingOffsets="earliest", commitOffsets="required")
        with pytest.raises(StreamingQueryException, match=f"(?s)GroupError.*{on_broker.group}.*members"):
            run(frame, tmp_path / "d")


@pytest.mark.long
def test_two_queries_in_one_group_both_read_all(orders: Orders, tmp_path: Path) -> None:
    """Neither fails; the group has what was committed last, as no tool can tell the two apart."""
    orders.write(7, 5)
    ahead = start(orders.stream(startingOffsets="earliest"), tmp_path / "a")
    behind = start(orders.stream(startingOffsets="earliest", maxOffsetsPerTrigger="4"), tmp_path / "b")
    try:
        for query in (ahead, behind):
            query.processAllAvailable()
            assert sum(progress.numInputRows for progress in query.recentProgress) == 12
        orders.wait_for_committed(7, 5)
        assert ahead.isActive
        assert behind.isActive
    finally:
        ahead.stop()
        behind.stop()


@pytest.fixture
def half_read(orders: Orders) -> Orders:
    """The group has committed 4 of the 7 records of one partition, and nothing of the other."""
    orders.write(7, 5)
    orders.groups.commit(orders.group, {TopicPartition(orders.topic, 0): CommittedOffset(4)})
    return orders


def found(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


FROM_FOUR = [(0, offset) for offset in range(4, 7)]


@pytest.mark.parametrize(
    ("strategy", "others"), [("auto", [(1, n) for n in range(5)]), ("latest", [])], ids=["auto", "latest"]
)
def test_a_batch_starts_where_the_group_is(
    half_read: Orders, strategy: str, others: list[tuple[int, int]]
) -> None:
    frame = half_read.read(startingOffsets="committed", startingOffsetsByCommittedStrategy=strategy)
    assert found(frame) == FROM_FOUR + others
    assert half_read.committed() == [4], "a batch commits nothing"


@pytest.mark.long
def test_a_stream_starts_where_the_group_is(half_read: Orders, tmp_path: Path) -> None:
    frame = half_read.stream(startingOffsets="committed", startingOffsetsByCommittedStrategy="earliest")
    query = run(frame, tmp_path / "c")
    assert sum(progress.numInputRows for progress in query.recentProgress) == 8
    assert half_read.committed() == [7, 5]


def test_where_nothing_is_committed_can_be_an_error(half_read: Orders) -> None:
    options = {"startingOffsets": "committed", "startingOffsetsByCommittedStrategy": "error"}
    with pytest.raises(Exception, match=f"has committed nothing for {half_read.topic}-1"):
        half_read.read(**options).collect()
