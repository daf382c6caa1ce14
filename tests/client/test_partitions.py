"""What an administrator sees of the partitions of a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.client.partitions import PartitionState, topics
from pyspark_kafkalog.errors import UnknownTopicOrPartitionError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import Selection
from tests.fixtures_dir import case
from tests.read.fake_place import FakePlace

A0, A1, HIDDEN = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("__consumer_offsets", 0)


def test_each_partition_has_a_row() -> None:
    place = FakePlace({A1: (2, 5, 3), A0: (0, 0), HIDDEN: (0, 1)}, {A1: 10}, ids={"a": "x" * 22})
    empty = PartitionState("a", 0, "x" * 22, 0, 0, 0, None, None, None, None)
    filled = PartitionState("a", 1, "x" * 22, 2, 5, 3, 30, 2000, 4000, 1)
    assert topics(place) == [empty, filled]
    assert topics(place, Selection(partitions=(A1,))) == [filled]
    assert [row.topic for row in topics(place, internal=True)] == ["__consumer_offsets", "a", "a"]
    assert topics(place, Selection(topics=("__consumer_offsets",)))[0].topic_id is None
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        topics(place, Selection(topics=("nothing",)))
    assert topics(FakePlace({})) == []


def test_bounds_and_sizes_of_a_brokers_directory() -> None:
    fixture = case("txn-basic")
    rows = topics(LogDirectory.open(str(fixture.directory)))
    assert [f"{row.topic}-{row.partition}" for row in rows] == sorted(fixture.partitions)
    for row in rows:
        name = f"{row.topic}-{row.partition}"
        times = [record["timestamp"] for record in fixture.records if record["partition"] == row.partition]
        files = fixture.segments(name)
        assert row.stored_bytes == sum(Path(file).stat().st_size for file in files)
        assert row.segments == len(files)
        assert row.earliest_timestamp == times[0]
        assert row.latest_timestamp is not None
        assert row.latest_timestamp >= max(times), "markers have timestamps, too"
