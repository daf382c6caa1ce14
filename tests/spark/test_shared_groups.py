"""Queries that share a topic with the other members of a consumer group."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import LeaveGroupRequest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafkalog import LagListener
from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.cluster.coordinator import call_coordinator
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.extensions.membership.member import Member
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.tools.groups.lag import SourceLag
from tests.kafka import Broker
from tests.spark.conftest import NEVER_AGAIN, needs_read_limits

pytestmark = pytest.mark.broker

PARTITIONS = 4


class Shared:
    """A topic of four partitions, a group, and what its queries have read."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.topic, self.group = (f"{word}-{uuid.uuid4().hex[:8]}" for word in ("shared", "group"))
        broker.create_topic(self.topic, PARTITIONS)
        self.connection = ConnectionOptions((broker.bootstrap,))
        self.offsets = BrokerGroups(self.connection)
        self.written = 0
        self.protocol = {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "100"}
        self.queries: list[StreamingQuery] = []

    def write(self, count: int) -> None:
        """Append so many numbers, in turn to the partitions."""
        rows = [(str(n), n % PARTITIONS) for n in range(self.written, self.written + count)]
        self.written += count
        frame = self.spark.createDataFrame(rows, "value string, partition int").coalesce(1)
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic}
        frame.write.format("kafkalog").mode("append").options(**options).save()

    def stream(self, name: str, **options: str) -> DataFrame:
        given = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.topic,
            "kafka.group.id": self.group,
            "startingOffsets": "earliest",
            "groupMembership": "true",
            **self.protocol,
            "checkpointLocation": str(self.folder / name),
            **{option.replace("__", "."): value for option, value in options.items()},
        }
        return self.spark.readStream.format("kafkalog").options(**given).load()

    def start(self, name: str, frame: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        found = self.folder / f"{name}.rows"

        def keep(rows: DataFrame, batch: int) -> None:
            with found.open("a") as file:
                for row in rows.select("partition", "offset", "value").collect():
                    file.write(f"{batch} {row.partition} {row.offset} {row.value.decode()}\n")

        frame = self.stream(name) if frame is None else frame
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.folder / name))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        self.queries.append(query)
        return query

    def rows(self, *names: str) -> Counter[int]:
        """How often each number was read by these queries."""
        files = [self.folder / f"{name}.rows" for name in names]
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        return Counter(int(line.split()[3]) for line in lines)

    def partitions(self, name: str) -> set[int]:
        file = self.folder / f"{name}.rows"
        return {int(line.split()[1]) for line in file.read_text().splitlines()} if file.exists() else set()

    def commits(self) -> dict[int, int]:
        return {p: commit.offset for (_, p), commit in self.offsets.committed(self.group).items()}

    def assigned(self) -> list[list[int]]:
        group = self.offsets.describe([self.group]).get(self.group)
        members = () if group is None else group.members or ()
        return sorted(sorted(number for _, number in member.partitions) for member in members)

    @contextmanager
    def other_member(self) -> Iterator[Member]:
        """A member of this process, in a group that it has joined."""
        options = MembershipOptions(session_timeout_ms=6000, heartbeat_interval_ms=50, assignors=("range",))
        member = Member(self.connection, self.group, options)
        try:
            member.subscribe({self.topic: PARTITIONS})
            self.until(lambda: member.hold(0.1) is not None)
            member.release()
            yield member
        finally:
            member.leave()

    def expel_all(self) -> None:
        """Have the group go on without its members, as the session timeout would."""
        (group,) = self.offsets.describe([self.group]).values()
        identity = LeaveGroupRequest.MemberIdentity
        members = [
            identity(member_id=member.member_id, group_instance_id=None, reason="test")
            for member in group.members or ()
        ]
        assert members
        call_coordinator(
            cluster_of(self.connection),
            self.group,
            lambda: LeaveGroupRequest(group_id=self.group, members=members),
            lambda response: response,
            doing="Expelling members",
            deadline=Deadline.after(10),
            min_version=3,
        )

    def plans(self, name: str) -> list[dict[str, int]]:
        """The end of each micro-batch in a checkpoint."""
        folder = self.folder / name / "offsets"
        files = sorted(
            (file for file in folder.iterdir() if file.name.isdecimal()), key=lambda f: int(f.name)
        )
        return [json.loads(file.read_text().splitlines()[2])[self.topic] for file in files]

    def until(self, done: Callable[[], bool], timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            for query in self.queries:
                assert query.exception() is None, query.exception()
            assert time.monotonic() < deadline, (self.commits(), self.assigned())
            time.sleep(0.05)


@pytest.fixture
def shared(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Shared]:
    shared = Shared(spark, broker, tmp_path)
    yield shared
    for query in shared.queries:
        query.stop()


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.soak), "consumer"])
def test_two_queries_share_and_one_takes_over(shared: Shared, protocol: str) -> None:
    if protocol == "consumer":
        shared.protocol = {"kafka.group.protocol": "consumer"}
    shared.write(40)
    first = shared.start("first")
    shared.until(lambda: shared.rows("first").total() == 40)
    shared.start("second")
    shared.until(lambda: [len(share) for share in shared.assigned()] == [2, 2])
    shared.write(40)
    shared.until(lambda: shared.rows("first", "second").total() == 80)
    assert set(shared.rows("first", "second").values()) == {1}
    assert len(shared.partitions("second")) == 2
    shared.until(lambda: shared.commits() == dict.fromkeys(range(PARTITIONS), 20))
    first.stop()
    shared.until(lambda: shared.assigned() == [[0, 1, 2, 3]], 5)  # it has said that it leaves
    shared.write(40)
    shared.until(lambda: shared.rows("first", "second").total() == 120)
    assert set(shared.rows("first", "second").values()) == {1}
    shared.until(lambda: shared.commits() == dict.fromkeys(range(PARTITIONS), 30))
    # The first comes back: what the second has done in its partitions, it does not do again.
    shared.start("first")
    shared.until(lambda: [len(share) for share in shared.assigned()] == [2, 2])
    shared.write(40)
    shared.until(lambda: shared.rows("first", "second").total() == 160)
    assert set(shared.rows("first", "second").values()) == {1}
    plan = shared.plans("first")[-1]
    assert sorted(plan.values())[-2:] == [40, 40]


def test_a_query_that_stops_between_two_micro_batches_has_committed_the_last(shared: Shared) -> None:
    """Spark has not asked for more since."""
    shared.write(40)
    first = shared.start("first", processingTime=NEVER_AGAIN)
    shared.until(lambda: (shared.folder / "first" / "commits" / "0").exists())
    first.stop()
    shared.until(lambda: not shared.assigned())
    assert shared.commits() == dict.fromkeys(range(PARTITIONS), 10)


@pytest.mark.long
@needs_read_limits
def test_alone_it_has_the_rows_and_the_checkpoint_of_a_query_without(shared: Shared) -> None:
    kinds = {"alone": {}, "without": {"groupMembership": "false"}}
    for count in (40, 8):
        shared.write(count)
        for name, options in kinds.items():
            given = {"maxOffsetsPerTrigger": "9", "kafka.group.id": f"{shared.group}-{name}", **options}
            query = shared.start(name, shared.stream(name, **given), availableNow=True)
            assert query.awaitTermination(120)
    assert len(shared.plans("alone")) == 6
    assert shared.plans("alone") == shared.plans("without")
    assert shared.rows("alone") == shared.rows("without") == Counter(range(48))
    kept = [sorted(path.name for path in (shared.folder / name).iterdir()) for name in kinds]
    assert kept[0] == kept[1]


@pytest.mark.long
def test_progress_and_lag_are_those_of_its_own_partitions(shared: Shared) -> None:
    shared.write(40)
    listener = LagListener()

    def lag() -> SourceLag:
        (found,) = listener.latest[str(query.id)].sources
        assert found is not None
        return found

    shared.spark.streams.addListener(listener)
    try:
        query = shared.start("first")
        shared.until(lambda: shared.rows("first").total() == 40)
        with shared.other_member():
            shared.until(lambda: len(shared.assigned()) == 2)
            shared.write(40)
            shared.until(lambda: shared.rows("first").total() == 60)
            shared.until(lambda: query.lastProgress.batchId >= 1)
            source = query.lastProgress.sources[0]
            assert set(json.loads(source.latestOffset)[shared.topic].values()) == {20}
            assert len(json.loads(source.latestOffset)[shared.topic]) == 2
            assert sorted(json.loads(source.endOffset)[shared.topic].values()) == [10, 10, 20, 20]
            shared.until(lambda: str(query.id) in listener.latest and len(lag().partitions) == 2)
            assert lag().offsets_behind == 0
    finally:
        shared.spark.streams.removeListener(listener)


@pytest.mark.long
@pytest.mark.parametrize("rejoins", [False, True])
def test_a_query_that_was_put_out_while_a_micro_batch_ran(shared: Shared, rejoins: bool) -> None:
    """Its commit is refused. It ends with an error that says so; or its rows count as unfinished."""
    shared.write(40)
    lost = {"groupMembershipLost": "rejoin"} if rejoins else {}
    expelled = False

    def expel(rows: DataFrame, batch: int) -> None:
        nonlocal expelled
        rows.collect()
        if not expelled:
            expelled = True
            shared.expel_all()

    checkpoint = str(shared.folder / "first")
    frame = shared.stream("first", **lost)
    query = frame.writeStream.foreachBatch(expel).option("checkpointLocation", checkpoint).start()
    shared.queries.append(query)
    if not rejoins:
        with pytest.raises(StreamingQueryException, match=r"no longer a member of group.*UNKNOWN_MEMBER_ID"):
            query.awaitTermination(60)
        assert shared.commits() == dict.fromkeys(range(PARTITIONS), 0)
        # Its rows are processed all the same: it goes on after them.
        shared.queries.clear()
        shared.start("first")
    shared.until(lambda: shared.commits() == dict.fromkeys(range(PARTITIONS), 10))
    shared.write(4)
    shared.until(lambda: shared.commits() == dict.fromkeys(range(PARTITIONS), 11))
    assert query.isActive == rejoins


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"kafka.partition.assignment.strategy": "roundrobin"}, "no assignor in common"),
        ({"subscribe": "another-topic"}, "but no topic of this query"),
    ],
)
def test_a_group_that_it_does_not_fit_is_refused_before_any_work(
    shared: Shared, options: dict[str, str], error: str
) -> None:
    shared.write(4)
    if "subscribe" in options:
        options = {"subscribe": f"{shared.topic}-2"}
        shared.broker.create_topic(options["subscribe"], 1)
    with shared.other_member():
        query = shared.start("first", shared.stream("first", **options))
        with pytest.raises(StreamingQueryException, match=error):
            query.awaitTermination(60)
        shared.queries.clear()
        assert not list((shared.folder / "first" / "offsets").iterdir())
        assert len(shared.assigned()) == 1
