"""spark.read of a directory and of brokers, where both mean the same: one body for both places."""

from __future__ import annotations

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog.model import TopicPartition
from tests.kafka import Broker
from tests.log.writing import write
from tests.spark.conftest import in_order

FIRST = 1_700_000_000_000
"""The timestamp, in ms, of the first record that is written; the next ones have the milliseconds after it."""


class Topics(ABC):
    """Topics of one place, and DataFrames of them."""

    options: dict[str, str]

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @abstractmethod
    def new(self, partitions: int = 1) -> str:
        """Make a topic with a name of its own."""

    @abstractmethod
    def write(self, topic: str, numbers: Iterable[int], partition: int = 0) -> None:
        """Append numbers as values, with timestamps FIRST, FIRST + 1 …"""

    @abstractmethod
    def delete_before(self, topic: str, offset: int) -> None:
        """Move the log start offset of partition 0."""

    def read(self, **options: object) -> DataFrame:
        named = {name: str(value) for name, value in options.items()}
        return self._spark.read.format("kafkalog").options(**self.options, **named).load()


class DirectoryTopics(Topics):
    def __init__(self, spark: SparkSession, root: Path) -> None:
        super().__init__(spark)
        self._root = root
        self._partitions: dict[str, int] = {}
        self.options = {"path": str(root)}
        root.mkdir()

    def new(self, partitions: int = 1) -> str:
        topic = f"t-{uuid.uuid4().hex[:12]}"
        self._partitions[topic] = partitions
        return topic

    def write(self, topic: str, numbers: Iterable[int], partition: int = 0) -> None:
        values = [b"%d" % number for number in numbers]
        records = {TopicPartition(topic, partition): values}
        write(self._root, records, timestamp=FIRST, num_partitions=self._partitions[topic])

    def delete_before(self, topic: str, offset: int) -> None:
        (self._root / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {offset}\n")


class BrokerTopics(Topics):
    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        super().__init__(spark)
        self._broker = broker
        self.options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.metadata.max.age.ms": "100",
            "fetchOffset.retryIntervalMs": "100",
        }

    def new(self, partitions: int = 1) -> str:
        topic = f"t-{uuid.uuid4().hex[:12]}"
        self._broker.create_topic(topic, partitions)
        return topic

    def write(self, topic: str, numbers: Iterable[int], partition: int = 0) -> None:
        with KafkaProducer(bootstrap_servers=self._broker.bootstrap) as producer:
            for n, number in enumerate(numbers):
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=FIRST + n)

    def delete_before(self, topic: str, offset: int) -> None:
        self._broker.delete_records(topic, offset)


@pytest.fixture(params=["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def topics(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Topics:
    if request.param == "directory":
        return DirectoryTopics(spark, tmp_path / "log")
    return BrokerTopics(spark, request.getfixturevalue("broker"))


def values(frame: DataFrame) -> list[int]:
    return [int(row.value) for row in in_order(frame)]


def offsets(topic: str, *each: int) -> str:
    """Spark's JSON of the offsets of partitions 0, 1 ..."""
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(each)}})


def test_offsets_bound_what_is_read(topics: Topics) -> None:
    topic = topics.new(2)
    topics.write(topic, range(10))
    topics.write(topic, range(10, 20), partition=1)
    assert values(topics.read(subscribe=topic)) == list(range(20))
    both = {"startingOffsets": offsets(topic, 7, -2), "endingOffsets": offsets(topic, -1, 3)}
    assert values(topics.read(subscribe=topic, **both)) == [7, 8, 9, 10, 11, 12]
    end = {"startingOffsets": "earliest", "endingOffsets": offsets(topic, 5, 0)}
    assert values(topics.read(subscribe=topic, **end)) == [0, 1, 2, 3, 4]
    with pytest.raises(PySparkException, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        topics.read(subscribe=topic, startingOffsets=offsets(topic, 1)).collect()


@pytest.mark.long
def test_topics_are_chosen_by_name_pattern_and_partition(topics: Topics) -> None:
    topic, other = topics.new(2), topics.new()
    topics.write(topic, [0])
    topics.write(topic, [1], partition=1)
    topics.write(other, [2])
    assert values(topics.read(subscribe=f" {topic} ,")) == [0, 1]
    pattern = f"{re.escape(topic[5:])}|{re.escape(other)}$"
    assert sorted(values(topics.read(subscribePattern=pattern))) == [0, 1, 2]
    assert values(topics.read(subscribePattern="no such topic")) == []
    assert values(topics.read(assign=json.dumps({topic: [1, 7]}))) == [1]
    with pytest.raises(PySparkException, match="No such topic: nothing"):
        topics.read(subscribe=f"{topic},nothing").collect()


def test_timestamps_bound_what_is_read(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, range(10))
    third, sixth, late = FIRST + 3, FIRST + 6, FIRST + 1000
    of_topic = {"subscribe": topic}
    assert values(topics.read(**of_topic, startingTimestamp=third, endingTimestamp=sixth)) == [3, 4, 5]
    assert values(topics.read(**of_topic, startingTimestamp=third)) == list(range(3, 10))
    by_partition = offsets(topic, sixth)
    assert values(topics.read(**of_topic, startingOffsetsByTimestamp=by_partition)) == [6, 7, 8, 9]
    assert values(topics.read(**of_topic, endingOffsetsByTimestamp=by_partition)) == list(range(6))
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy"):
        topics.read(**of_topic, startingTimestamp=late).collect()
    lax = {"startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}
    assert values(topics.read(**of_topic, **lax)) == []


def test_the_same_dataframe_sees_what_has_come_and_not_what_has_gone(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, range(5))
    frame = topics.read(subscribe=topic)
    assert values(frame) == list(range(5))
    topics.write(topic, range(5, 8))
    assert values(frame) == list(range(8))
    topics.delete_before(topic, 2)
    assert values(frame) == list(range(2, 8))


@pytest.mark.parametrize(
    ("options", "tasks"), [({}, 1), ({"minPartitions": 4}, 4), ({"maxRecordsPerPartition": 30}, 4)]
)
def test_partitions_are_split_on_request(topics: Topics, options: dict[str, int], tasks: int) -> None:
    topic = topics.new()
    topics.write(topic, range(100))
    frame = topics.read(subscribe=topic, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert values(frame) == list(range(100))


@pytest.mark.parametrize("options", [{}, {"minPartitions": 2}, {"startingOffsets": "earliest"}])
def test_tasks_are_at_most_so_many(topics: Topics, options: dict[str, int]) -> None:
    topic = topics.new(partitions=5)
    topics.write(topic, range(100))
    frame = topics.read(subscribe=topic, maxPartitions=2, **options)
    assert frame.rdd.getNumPartitions() == 2
    assert values(frame) == list(range(100))
    assert topics.read(subscribe=topic, maxPartitions=9).rdd.getNumPartitions() == 5


def test_records_that_are_gone_are_data_loss_or_left_out(topics: Topics) -> None:
    topic = topics.new()
    topics.write(topic, range(10))
    topics.delete_before(topic, 4)
    for gone in ({"startingOffsets": offsets(topic, 2)}, {"endingOffsets": offsets(topic, 12)}):
        with pytest.raises(PySparkException, match="COULD_NOT_READ_OFFSET_RANGE"):
            topics.read(subscribe=topic, **gone).collect()
        assert values(topics.read(subscribe=topic, failOnDataLoss="false", **gone)) == list(range(4, 10))
