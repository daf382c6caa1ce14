"""The topics that a task writes to: their partitions, and the limits of their record batches."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from typing import NamedTuple

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of, is_retriable
from pyspark_kafkalog.errors import UnknownTopicOrPartitionError
from pyspark_kafkalog.model import EncodeSettings, TopicPartition
from pyspark_kafkalog.model.topics import cleanup_policies
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions

_CREATION_TIMEOUT = 10.0
"""Seconds within which an automatically created topic, or a new partition, has to appear."""


class TopicLimits(NamedTuple):
    """The limits that a topic's configurations set for writes, as far as the brokers show them.

    Without the right to describe them, no limit is known, and no topic counts as compacted.
    """

    max_message_bytes: int | None
    is_compacted: bool


_limits: dict[tuple[ConnectionOptions, str], tuple[float, TopicLimits]] = {}
"""The limits of each topic, and when its configurations were looked up."""


class ProducerTopics:
    """The topics of one task: their partitions, limits and encoding.

    :param settings: how to encode, before a topic is known.
    """

    def __init__(self, cluster: Cluster, options: ProduceOptions, settings: EncodeSettings) -> None:
        self._cluster = cluster
        self._max_request_size = options.max_request_size
        self._timeout = options.delivery_timeout_ms / 1000
        self._settings = settings
        self._partition_counts: dict[str, int] = {}
        self._by_topic: dict[str, EncodeSettings] = {}

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic at the first call: so equal keys stay in one partition.

        :raises UnknownTopicOrPartitionError: if there is no such topic.
        """
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = partition_count(
                self._cluster, topic, timeout=self._timeout
            )
        return count

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether a partition has been added since they were counted; it gets some seconds to appear.

        Kafka's producer waits for it, too (KafkaProducer.waitOnMetadata).
        """
        topic, number = partition
        try:
            partition_count(self._cluster, topic, timeout=self._timeout, beyond=number)
        except UnknownTopicOrPartitionError:
            if topic not in self._cluster.metadata.topics:
                raise
            return False
        return True

    def settings(self, topic: str) -> EncodeSettings:
        """The settings of the encoder for a topic, without the sequence numbers of a producer."""
        settings = self._by_topic.get(topic)
        if settings is None:
            settings = self._by_topic[topic] = self._settings_of(topic)
        return settings

    def _settings_of(self, topic: str) -> EncodeSettings:
        """The settings within the topic's limits, as brokers refuse larger batches."""
        size, limit = self._max_request_size, "kafka.max.request.size"
        topic_limit, is_compacted = topic_limits(self._cluster, topic, timeout=self._timeout)
        if topic_limit is not None and topic_limit < size:
            size, limit = topic_limit, "the topic's max.message.bytes"
        settings = self._settings
        return replace(
            settings,
            batch_size=min(settings.batch_size, size),
            max_message_bytes=size,
            limit=limit,
            is_compacted=is_compacted,
        )


def partition_count(cluster: Cluster, topic: str, *, timeout: float, beyond: int = 0) -> int:
    """The number of partitions of a topic. Brokers create it if auto.create.topics.enable is set.

    :param timeout: seconds to wait for brokers that do not respond.
    :param beyond: the topic gets some seconds to have more partitions than this.
    :raises UnknownTopicOrPartitionError: if it still has no more, or does not exist.
    """
    cluster.leader(TopicPartition(topic, 0), deadline=Deadline.after(timeout))
    appearance = min(cluster.options.request_timeout_ms / 1000, _CREATION_TIMEOUT)
    backoff = cluster.new_backoff(Deadline.after(appearance))
    while True:
        known = cluster.metadata.topics.get(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error_code
        count = 0 if known is None or code else len(known.leaders)
        if count > beyond:
            return count
        if count:
            code, hint = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
            what = f"Looking for partition {beyond} of topic {topic!r}, which has {count}, counted from 0"
        else:
            code = code or ErrorCode.LEADER_NOT_AVAILABLE
            hint = "Create it, or set the brokers' auto.create.topics.enable." if is_retriable(code) else None
            what = f"Looking up the topic {topic!r} to write to"
        error = error_of(code, what, hint=hint)
        if not is_retriable(code):
            raise error
        backoff.pause(error)
        cluster.refresh([topic], create=True, deadline=Deadline.after(timeout))


def topic_limits(cluster: Cluster, topic: str, *, timeout: float) -> TopicLimits:
    """A topic's limits, not older than metadata.max.age.ms.

    :param timeout: seconds to wait for brokers that do not respond.
    """
    key = cluster.options, topic
    looked_up_at, known = _limits.get(key, (-math.inf, TopicLimits(None, False)))
    if time.monotonic() - looked_up_at > cluster.options.metadata_max_age_ms / 1000:
        configs = cluster.topic_config(topic, deadline=Deadline.after(timeout)) or {}
        text = configs.get("max.message.bytes", "")
        size = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None
        known = TopicLimits(size, "compact" in cleanup_policies(configs))
        _limits[key] = time.monotonic(), known
    return known


def forget_limits(cluster: Cluster, topic: str) -> None:
    """Look up a topic's limits before their next use: brokers have refused a record batch."""
    _limits.pop((cluster.options, topic), None)
