"""Requests that make, change and delete topics, and what brokers refuse (KIP-4, KIP-195, KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)

from pyspark_kafkalog.broker.cluster.cluster import TOPIC_RESOURCE
from pyspark_kafkalog.model.topics import NewTopic

LAST_BY_NAME = 5
"""The last version of DeleteTopics that names topics; later ones may name them by their ids."""
FIRST_WITH_DEFAULTS = 4
"""The first version of CreateTopics that leaves numbers to the brokers (KIP-464)."""
_SET, _DELETE = 0, 1


class Refusal(NamedTuple):
    """The refusal of a request by a broker: Kafka's error code, and the broker's own words."""

    code: int
    message: str | None = None


Answers = dict[str, Refusal]
"""The topics that were refused."""


def create_request(new: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool) -> Any:
    """CreateTopics; -1 leaves a number to the brokers."""
    kind = CreateTopicsRequest.CreatableTopic
    topics = [
        kind(
            name=topic.topic,
            num_partitions=-1 if topic.partitions is None else topic.partitions,
            replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
            assignments=[],
            configs=[
                kind.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
            ],
        )
        for topic in new
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def read_created(response: Any) -> Answers:
    """The error of each topic that CreateTopics refused."""
    return _refused(response.topics, lambda topic: topic.name)


def delete_request(topics: Collection[str], *, timeout_ms: int) -> Any:
    """DeleteTopics, up to :data:`LAST_BY_NAME`."""
    return DeleteTopicsRequest(topics=[], topic_names=sorted(topics), timeout_ms=timeout_ms)


def read_deleted(response: Any) -> Answers:
    """The error of each topic that DeleteTopics refused."""
    return _refused(response.responses, lambda topic: topic.name)


def partitions_request(topic: str, count: int, *, timeout_ms: int, validate_only: bool) -> Any:
    """CreatePartitions, for one topic."""
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(
        topics=[kind(name=topic, count=count, assignments=None)],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def read_partitions(response: Any) -> Answers:
    """The error of each topic that CreatePartitions refused."""
    return _refused(response.results, lambda topic: topic.name)


def alter_request(changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool) -> Any:
    """IncrementalAlterConfigs, by topic; None deletes a configuration."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [
        kind(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic,
            configs=[
                kind.AlterableConfig(
                    name=name, config_operation=_DELETE if value is None else _SET, value=value
                )
                for name, value in configs.items()
            ],
        )
        for topic, configs in changes.items()
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def read_altered(response: Any) -> Answers:
    """The error of each topic that IncrementalAlterConfigs refused."""
    return _refused(response.responses, lambda resource: resource.resource_name)


def read_described(response: Any) -> Answers:
    """The error of each topic that DescribeConfigs refused."""
    return _refused(response.results, lambda resource: resource.resource_name)


def _refused(results: Sequence[Any], name: Callable[[Any], str]) -> Answers:
    return {
        name(result): Refusal(result.error_code, getattr(result, "error_message", None))
        for result in results
        if result.error_code
    }
