"""DeleteRecords: raise the log start offsets of partitions. One request per broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DeleteRecordsRequest

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.cluster.leaders import by_topic, call_leaders
from pyspark_kafkalog.broker.wire.error_codes import Refused
from pyspark_kafkalog.errors import (
    KafkaLogError,
    no_such_partition,
)
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

_MAX_VERSION = 2


def delete_records(
    connection: ConnectionOptions, offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaLogError]]:
    """Delete the records before these offsets, on all replicas.

    :param offsets: -1 stands for the high watermark.
    :returns: the log start offset of each partition then, and the errors of those that refuse, such as an
        offset above the high watermark, or whose leader does not answer.
    :raises KafkaLogError: if no broker can be asked.
    """
    cluster = cluster_of(connection)

    def make_requests(epochs: Mapping[TopicPartition, int]) -> Sequence[Any]:
        return [_request({p: offsets[p] for p in epochs}, connection.request_timeout_ms)]

    failures: dict[TopicPartition, KafkaLogError] = {}
    found: dict[TopicPartition, int] = call_leaders(
        cluster,
        offsets,
        make_requests,
        _read,
        doing="Deleting records",
        max_version=_MAX_VERSION,
        failures=failures,
    )
    for missing in offsets.keys() - found.keys() - failures.keys():
        failures[missing] = no_such_partition([missing])
    return found, failures


def _request(offsets: Mapping[TopicPartition, int], timeout_ms: int) -> Any:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    asked = by_topic(
        offsets, lambda p: kind.DeleteRecordsPartition(partition_index=p.partition, offset=offsets[p])
    )
    topics = [kind(name=topic, partitions=partitions) for topic, partitions in asked.items()]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def _read(responses: Sequence[Any]) -> dict[TopicPartition, int | Refused]:
    return {
        TopicPartition(topic.name, answer.partition_index): (
            Refused(answer.error_code) if answer.error_code else answer.low_watermark
        )
        for topic in responses[0].topics
        for answer in topic.partitions
    }
