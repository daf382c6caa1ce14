"""The ends of leader epochs in the leaders' logs (OffsetForLeaderEpoch, KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import by_topic, call_leaders
from pyspark_kafkalog.broker.wire.error_codes import Refused
from pyspark_kafkalog.errors import UnsupportedVersionError
from pyspark_kafkalog.model import TopicPartition

_MIN_VERSION = 3
"""The first that needs no more rights than to describe the topic (KIP-392), as in Java's consumer."""
_MAX_VERSION = 4


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """See :meth:`pyspark_kafkalog.broker.place.Brokers.epoch_ends`."""

    def requests(current: Mapping[TopicPartition, int]) -> Sequence[Any]:
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = by_topic(
            current,
            lambda p: kind.OffsetForLeaderPartition(
                partition=p.partition, current_leader_epoch=current[p], leader_epoch=epochs[p]
            ),
        )
        topics = [kind(topic=topic, partitions=partitions) for topic, partitions in asked.items()]
        return [OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)]

    try:
        return call_leaders(
            cluster,
            epochs,
            requests,
            _read,
            doing="Looking up the end of a leader epoch",
            min_version=_MIN_VERSION,
            max_version=_MAX_VERSION,
        )
    except UnsupportedVersionError:
        return {}


def _read(responses: Sequence[Any]) -> dict[TopicPartition, tuple[int, int] | Refused]:
    return {
        TopicPartition(topic.topic, answer.partition): (
            Refused(answer.error_code) if answer.error_code else (answer.leader_epoch, answer.end_offset)
        )
        for topic in responses[0].topics
        for answer in topic.partitions
    }
