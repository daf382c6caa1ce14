"""Requests before a write are waited for as long as its records are."""

from __future__ import annotations

from kafka.protocol.admin import DescribeConfigsResponse

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.produce import topics
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import API_VERSIONS, METADATA, Received, encoded, metadata, serving

DESCRIBE_CONFIGS = 32


def test_a_broker_that_is_silent_for_longer_than_a_request_may_take() -> None:
    silent = 3

    def answer(received: Received) -> bytes:
        nonlocal silent
        if received.api_key == METADATA:
            return metadata(received)
        silent -= 1
        if silent >= 0:
            return b""
        kind = DescribeConfigsResponse.DescribeConfigsResult
        config = kind.DescribeConfigsResourceResult(name="max.message.bytes", value="4711", read_only=False)
        result = kind(error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[config])
        body = DescribeConfigsResponse(throttle_time_ms=0, results=[result])
        return encoded(received, body)

    versions = {API_VERSIONS: (0, 3), METADATA: (0, 12), DESCRIBE_CONFIGS: (1, 1)}
    with serving(answer, versions) as broker:
        cluster = Cluster(ConnectionOptions((broker.address,), request_timeout_ms=200))
        assert topics.max_message_bytes(cluster, "t", timeout=10) == 4711
        cluster.close()
