"""What brokers say about configurations while one is behind, and of topics that they don't describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from pyspark_kafkalog.broker.topics.topics import BrokerTopics
from pyspark_kafkalog.errors import AuthorizationError, BrokerConnectionError
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    METADATA,
    FakeBroker,
    Received,
    encoded,
    metadata_response,
    serving,
    topic_metadata,
)

DESCRIBE_CONFIGS = 32
VERSIONS = {API_VERSIONS: (0, 3), METADATA: (0, 12), DESCRIBE_CONFIGS: (1, 4)}
UNKNOWN_TOPIC, NOT_AUTHORIZED = 3, 29
TYPE = "message.timestamp.type"


class Brokers:
    """Brokers 1 and 2, which lead a partition each of ``t``; ``said`` is what each says at a time.

    That is an error code, or the topic's own configurations; the last is said again and again.
    """

    def __init__(self, stack: ExitStack, said: Mapping[int, list[Any]]) -> None:
        self.said = said
        self.topics = {"t": said}
        self.brokers: dict[int, FakeBroker] = {
            node: stack.enter_context(serving(partial(self._answer, node), VERSIONS)) for node in (1, 2)
        }
        addresses = tuple(broker.address for broker in self.brokers.values())
        self.client = BrokerTopics(ConnectionOptions(addresses, request_timeout_ms=2000))

    def _answer(self, node: int, received: Received) -> bytes:
        if received.api_key == METADATA:
            topics = [topic_metadata(name, {0: (1, 0), 1: (2, 0)}) for name in self.topics]
            addresses = {node: broker.address for node, broker in self.brokers.items()}
            return encoded(received, metadata_response(addresses, topics))
        results = [
            _result(name, said[node].pop(0) if len(said[node]) > 1 else said[node][0])
            for name, said in self.topics.items()
            if name.encode() in received.frame
        ]
        return encoded(received, DescribeConfigsResponse(throttle_time_ms=0, results=results))


def _result(name: str, said: Any) -> Any:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    own = said if isinstance(said, dict) else {}
    values = {TYPE: "CreateTime", "retention.ms": "5", **own}
    configs = [
        kind.DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=False,
            config_source=1 if name in own else 5,
            is_sensitive=False,
            synonyms=[],
        )
        for name, value in values.items()
    ]
    code = 0 if isinstance(said, dict) else said
    return kind(error_code=code, error_message=None, resource_type=2, resource_name=name, configs=configs)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_all_leaders_are_waited_for(stack: ExitStack) -> None:
    late = [UNKNOWN_TOPIC, {TYPE: "LogAppendTime"}, {TYPE: "LogAppendTime"}, {TYPE: "CreateTime"}]
    brokers = Brokers(stack, {1: [{TYPE: "CreateTime"}], 2: late})
    found = brokers.client.leader_configs({"t": {TYPE: "CreateTime"}})
    assert found == {"t": {TYPE: "CreateTime", "retention.ms": None}}
    assert late == [{TYPE: "CreateTime"}]


def test_a_leader_that_stays_behind(stack: ExitStack) -> None:
    brokers = Brokers(stack, {1: [{}], 2: [{TYPE: "LogAppendTime"}]})
    with pytest.raises(
        BrokerConnectionError, match=f"Broker 2 does not have {TYPE}=CreateTime of topic t yet"
    ):
        brokers.client.leader_configs({"t": {TYPE: "CreateTime"}})
    assert brokers.client.leader_configs({"t": {}})["t"] == {TYPE: "LogAppendTime", "retention.ms": None}


def test_other_topics_may_be_gone_or_not_be_described(stack: ExitStack) -> None:
    """Names are those of any topic, whatever is refused of the others."""
    brokers = Brokers(stack, {1: [{}], 2: [{}]})
    for name, code in (("audit", NOT_AUTHORIZED), ("being-deleted", UNKNOWN_TOPIC)):
        brokers.topics[name] = {1: [code], 2: [code]}
    assert brokers.client.config_names() == {TYPE, "retention.ms"}
    assert brokers.client.leader_configs({"t": {}}).keys() == {"t"}
    with pytest.raises(AuthorizationError):
        brokers.client.leader_configs({"audit": {}})
