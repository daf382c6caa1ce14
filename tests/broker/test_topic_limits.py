"""What a topic's configurations mean for a write is asked before it, for as long as its records may take."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.produce.topics import TopicLimits, topic_limits
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import API_VERSIONS, METADATA, Received, encoded, metadata, serving

DESCRIBE_CONFIGS = 32
VERSIONS = {API_VERSIONS: (0, 3), METADATA: (0, 12), DESCRIBE_CONFIGS: (1, 1)}
NO_ERROR, TOPIC_AUTHORIZATION_FAILED = 0, 29


def described(received: Received, configs: dict[str, str], error: int = NO_ERROR) -> bytes:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    found = [
        kind.DescribeConfigsResourceResult(name=name, value=value, read_only=False)
        for name, value in configs.items()
    ]
    result = kind(error_code=error, error_message=None, resource_type=2, resource_name="t", configs=found)
    return encoded(received, DescribeConfigsResponse(throttle_time_ms=0, results=[result]))


def test_a_broker_that_is_silent_for_longer_than_a_request_may_take() -> None:
    silent = 3

    def answer(received: Received) -> bytes:
        nonlocal silent
        if received.api_key == METADATA:
            return metadata(received)
        silent -= 1
        return b"" if silent >= 0 else described(received, {"max.message.bytes": "4711"})

    with serving(answer, VERSIONS) as broker:
        cluster = Cluster(ConnectionOptions((broker.address,), request_timeout_ms=200))
        assert topic_limits(cluster, "t", timeout=10) == TopicLimits(4711, is_compacted=False)
        cluster.close()


@pytest.mark.parametrize(
    ("configs", "error", "limits"),
    [
        ({"cleanup.policy": "delete,compact"}, NO_ERROR, TopicLimits(None, is_compacted=True)),
        ({"cleanup.policy": "delete"}, NO_ERROR, TopicLimits(None, is_compacted=False)),
        ({}, TOPIC_AUTHORIZATION_FAILED, TopicLimits(None, is_compacted=False)),
    ],
    ids=["compacted", "deleted", "hidden by ACLs"],
)
def test_whether_a_topic_is_compacted(configs: dict[str, str], error: int, limits: TopicLimits) -> None:
    def answer(received: Received) -> bytes:
        return metadata(received) if received.api_key == METADATA else described(received, configs, error)

    with serving(answer, VERSIONS) as broker:
        cluster = Cluster(ConnectionOptions((broker.address,)))
        assert topic_limits(cluster, "t", timeout=10) == limits
        cluster.close()
