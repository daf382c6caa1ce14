"""A query migrates its group's offsets from ZooKeeper to Kafka and back, as Kafka's documentation says."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_kafkalog import connect
from tests.kafka_old import OldBroker
from tests.old_consumers import Topic

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("ended_sessions")]

TO_KAFKA = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
KAFKA = {"offsets.storage": "kafka", "dual.commit.enabled": "false"}
TO_ZOOKEEPER = {"offsets.storage": "zookeeper", "dual.commit.enabled": "true"}
ZOOKEEPER = {"offsets.storage": "zookeeper", "dual.commit.enabled": "false"}


class Query:
    """A query that reads the topic as the topic's group, and keeps the values that it reads."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        self._spark, self._topic, self._folder = spark, topic, folder
        self.place = {
            "kafka.bootstrap.servers": topic.broker.bootstrap,
            "zookeeper.connect": topic.broker.zookeeper_connect,
            "subscribe": topic.name,
            "kafka.group.id": topic.name,
            "startingOffsets": "committed",
        }

    def run(self, checkpoint: str, stored: dict[str, str], **options: str) -> list[str]:
        """The values of one run, from ``checkpoint`` on, or, if it is new, from where the group is."""
        reader = self._spark.readStream.format("kafkalog").options(**self.place).options(**stored)
        values: list[str] = []

        def keep(frame: object, number: int) -> None:
            values.extend(row.value for row in frame.selectExpr("CAST(value AS STRING)").collect())  # type: ignore[attr-defined]

        query = (
            reader.options(**{"commitOffsets": "required", "maxOffsetsPerTrigger": "8", **options})
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return values

    def run_after_the_dead(self, checkpoint: str, stored: dict[str, str]) -> list[str]:
        """The same, once the sessions of consumers that were killed have ended; until then it is refused."""
        for number in range(60):
            with suppress(StreamingQueryException):
                return self.run(
                    f"{checkpoint}-{number}", stored, startingOffsetsByCommittedStrategy="earliest"
                )
            time.sleep(0.5)
        raise TimeoutError("The group still has live consumers")

    def unread(self, stored: dict[str, str]) -> int:
        """How many records a batch finds from the committed offsets on."""
        reader = self._spark.read.format("kafkalog").options(**self.place).options(**stored)
        return reader.option("startingOffsetsByCommittedStrategy", "error").load().count()

    def committed(self) -> tuple[int, int]:
        """How many records the group has read, as ZooKeeper and Kafka know."""
        found = []
        for place in (f"zk://{self._topic.broker.zookeeper_connect}", self._topic.broker.bootstrap):
            with connect(place) as kafka:
                commits = kafka.groups.committed(self._topic.name)
                found.append(sum(commit.offset for commit in commits.values()))
        in_zookeeper, in_kafka = found
        return in_zookeeper, in_kafka


@pytest.mark.soak
def test_migration_by_dual_commits_and_back(
    spark: SparkSession, zookeeper_broker: OldBroker, tmp_path: Path
) -> None:
    topic = Topic(zookeeper_broker)
    query = Query(spark, topic, tmp_path)
    read: list[str] = []

    topic.produce(20)
    read += topic.read_by_the_old_consumer(7, "auto.offset.reset=smallest")
    assert query.committed() == (7, 0)
    assert query.unread(ZOOKEEPER) == query.unread(TO_KAFKA) == 13

    read += query.run("first", TO_KAFKA)
    assert query.committed() == (20, 20), "both know all"
    topic.produce(4)
    read += topic.read_by_the_old_consumer(4)
    assert query.committed() == (24, 20), "the old consumer can have it back at any time"

    topic.produce(4)
    dual = [f"{name}={value}" for name, value in TO_KAFKA.items()]
    read += topic.read_by_the_old_consumer(4, *dual)
    assert query.committed() == (28, 28), "the old consumer itself commits to both"
    topic.produce(6)
    assert query.unread(TO_KAFKA) == query.unread(KAFKA) == 6
    read += query.run("second", TO_KAFKA)
    topic.produce(5)
    read += query.run("second", KAFKA)
    assert query.committed() == (34, 39), "the migration is over"
    topic.produce(3)
    read += topic.read_by_a_new_consumer(3)

    topic.produce(4)
    read += query.run("third", TO_ZOOKEEPER)
    assert query.committed() == (46, 46), "on the way back, both know all"
    topic.produce(2)
    read += query.run("third", ZOOKEEPER)
    assert query.committed() == (48, 46)
    topic.produce(3)
    read += topic.read_by_the_old_consumer(3)
    assert query.committed() == (51, 46)
    assert sorted(read, key=int) == topic.produced, "nothing is lost, and nothing repeated, at any step"


@pytest.mark.long
def test_a_query_does_not_commit_while_an_old_consumer_lives(
    spark: SparkSession, zookeeper_broker: OldBroker, tmp_path: Path
) -> None:
    topic = Topic(zookeeper_broker)
    query = Query(spark, topic, tmp_path)
    topic.produce(6)
    consumer = topic.broker.console_consumer(topic.name, topic.name, ["auto.offset.reset=smallest"])
    try:
        assert consumer.stdout is not None
        for _ in topic.produced:
            assert consumer.stdout.readline()
        for stored in (TO_KAFKA, ZOOKEEPER):
            with pytest.raises(StreamingQueryException, match=f"Group '{topic.name}' has live consumers"):
                query.run("refused", stored, startingOffsets="earliest")
            with connect(topic.broker.bootstrap) as kafka:
                assert kafka.groups.committed(topic.name) == {}
    finally:
        consumer.terminate()
        consumer.communicate(timeout=60)


@pytest.mark.soak
def test_consumers_that_are_killed(
    spark: SparkSession, zookeeper_broker: OldBroker, tmp_path: Path, chance: random.Random
) -> None:
    """The query goes on once the dead one's session has ended: what was not committed is read again."""
    topic = Topic(zookeeper_broker)
    query = Query(spark, topic, tmp_path)
    read: list[str] = []
    uncommitted: set[str] = set()
    for number in range(6):
        topic.produce(20)
        properties = ["zookeeper.session.timeout.ms=4000"]
        properties += [] if number else ["auto.offset.reset=smallest"]
        consumer = topic.broker.console_consumer(topic.name, topic.name, properties)
        assert consumer.stdout is not None
        by_the_dead = [consumer.stdout.readline().strip() for _ in range(chance.randrange(1, 20))]
        time.sleep(chance.random() * 2)
        consumer.kill()
        by_the_dead += consumer.stdout.read().split()
        consumer.communicate()
        read += by_the_dead
        by_the_query = query.run_after_the_dead(f"round-{number}", TO_KAFKA)
        uncommitted |= {*by_the_dead} & {*by_the_query}
        read += by_the_query
        assert sorted(set(read), key=int) == topic.produced, "nothing is lost"
        repeated = {value for value, times in Counter(read).items() if times > 1}
        assert repeated == uncommitted, "nothing is repeated but what one that was killed had not committed"
        assert max(query.committed()) == len(topic.produced)


def test_a_wrong_chroot_is_an_error_before_any_work(
    spark: SparkSession, zookeeper_broker: OldBroker, tmp_path: Path
) -> None:
    topic = Topic(zookeeper_broker)
    query = Query(spark, topic, tmp_path)
    query.place["zookeeper.connect"] = zookeeper_broker.zookeeper.address
    topic.produce(1)
    for stored in (TO_KAFKA, ZOOKEEPER):
        for options in ({}, {"startingOffsets": "earliest", "commitOffsets": "true"}):
            with pytest.raises(
                StreamingQueryException, match=r"ZooKeeper has no /consumers.*Check the chroot"
            ):
                query.run("wrong", stored, **options)
