"""DescribeLogDirs: how many bytes a leader stores of each partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest

from pyspark_kafkalog.model import TopicPartition


def sizes_request(epochs: Mapping[TopicPartition, int]) -> Any:
    """A request for the sizes of these partitions."""
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    by_topic = defaultdict(list)
    for topic, number in epochs:
        by_topic[topic].append(number)
    topics = [kind(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return DescribeLogDirsRequest(topics=topics)


def read_sizes(response: Any) -> dict[TopicPartition, int]:
    """The bytes of each partition in the response; empty if ACLs hide them."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for log_dir in response.results
        for topic in log_dir.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
