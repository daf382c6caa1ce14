"""What Kafka writes into znodes, in all versions, and what it never writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import ZooKeeperError
from pyspark_kafkalog.extensions.zookeeper.znodes import (
    parse_broker,
    parse_cluster_id,
    parse_consumer,
    parse_offset,
    parse_owner,
    parse_partition,
    parse_topic,
)

WHERE = "zk://host:2181/x"
V1 = {"jmx_port": 9999, "timestamp": "2233345666", "host": "localhost", "version": 1, "port": 9092}
V2 = {**V1, "version": 2, "endpoints": ["PLAINTEXT://host1:9092", "SSL://[::1]:9093"]}
V3 = {**V2, "version": 3, "rack": "dc1"}
MAP = {"CLIENT": "SASL_SSL", "REPLICATION": "PLAINTEXT"}
V4 = {
    **V3,
    "version": 4,
    "host": None,
    "port": -1,
    "endpoints": ["CLIENT://host1:9092", "REPLICATION://host1:9093"],
    "listener_security_protocol_map": MAP,
}
V5 = {**V4, "version": 5, "features": {"feature": {"min_version": 1, "max_version": 3}}}
PLAIN_AND_SSL = [("PLAINTEXT", "host1:9092"), ("SSL", "[::1]:9093")]
NAMED = [("SASL_SSL", "host1:9092"), ("PLAINTEXT", "host1:9093")]


@pytest.mark.parametrize(
    ("registration", "listeners"),
    [
        (V1, [("PLAINTEXT", "localhost:9092")]),
        (V2, PLAIN_AND_SSL),
        (V3, PLAIN_AND_SSL),
        (V4, NAMED),
        (V5, NAMED),
    ],
    ids=["1", "2", "3", "4", "5"],
)
def test_a_broker(registration: dict[str, Any], listeners: list[tuple[str, str]]) -> None:
    assert parse_broker(json.dumps(registration).encode(), WHERE) == listeners


PARTITIONS = {"1": [0], "0": [0, 1], "10": []}
T1 = {"version": 1, "partitions": PARTITIONS}
T2 = {**T1, "version": 2, "adding_replicas": {}, "removing_replicas": {"0": [1]}}
T3 = {**T2, "version": 3, "topic_id": "dZCsI0kXQ5e7NOkSmCLbTQ"}


@pytest.mark.parametrize("assignment", [T1, T2, T3], ids=["1", "2", "3"])
def test_a_topic(assignment: dict[str, Any]) -> None:
    assert parse_topic(json.dumps(assignment).encode(), WHERE) == (0, 1, 10)


CONSUMER = {"version": 1, "subscription": {"t": 1, "u": 2}, "pattern": "static", "timestamp": "1416974430"}


def test_a_consumer() -> None:
    assert parse_consumer(json.dumps(CONSUMER).encode(), WHERE) == {"t", "u"}
    for pattern in ("white_list", "black_list"):
        assert parse_consumer(json.dumps({**CONSUMER, "pattern": pattern}).encode(), WHERE) is None


def test_a_cluster() -> None:
    assert parse_cluster_id(b'{"version":"1","id":"abc"}', WHERE) == "abc"
    for data in (
        b'{"version":1,"id":"abc"}',
        b'{"version":"2","id":"abc"}',
        b'{"version":"1"}',
        b"[]",
        b"abc",
    ):
        with pytest.raises(ZooKeeperError, match="Expected"):
            parse_cluster_id(data, WHERE)


def test_text() -> None:
    assert parse_owner(b"g_host-1416974430-1a2b-0", WHERE) == "g_host-1416974430-1a2b"
    assert parse_offset(b"9223372036854775807", WHERE) == 2**63 - 1
    assert parse_partition("0", WHERE) == 0


@pytest.mark.parametrize(
    ("parse", "sound", "newest"),
    [(parse_broker, V5, 5), (parse_topic, T3, 3), (parse_consumer, CONSUMER, 1)],
    ids=["broker", "topic", "consumer"],
)
def test_another_version_is_refused(parse: Callable[..., Any], sound: dict[str, Any], newest: int) -> None:
    for version in (0, newest + 1, -1):
        with pytest.raises(
            ZooKeeperError, match=rf"Expected version 1.* of the JSON, got {version} \(file zk:"
        ):
            parse(json.dumps({**sound, "version": version}).encode(), WHERE)
    for version in ("1", True, 1.0, None):
        with pytest.raises(ZooKeeperError, match="Expected a JSON object with a version"):
            parse(json.dumps({**sound, "version": version}).encode(), WHERE)


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (parse_broker, {**V1, "host": ""}),
        (parse_broker, {**V1, "port": 65536}),
        (parse_broker, {**V1, "port": "9092"}),
        (parse_broker, {**V1, "version": 2}),
        (parse_broker, {**V2, "endpoints": ["CLIENT://host1:9092"]}),
        (parse_broker, {**V2, "endpoints": ["SSL://host1:99999"]}),
        (parse_broker, {**V2, "endpoints": ["host1:9092"]}),
        (parse_broker, {**V2, "endpoints": [1]}),
        (parse_broker, {**V4, "listener_security_protocol_map": {"CLIENT": "TRACE"}}),
        (parse_broker, {**V4, "listener_security_protocol_map": {"CLIENT": []}}),
        (parse_broker, {**V4, "listener_security_protocol_map": []}),
        (parse_topic, {"version": 1}),
        (parse_topic, {**T1, "partitions": {"-1": [0]}}),
        (parse_topic, {**T1, "partitions": {"00": [0]}}),
        (parse_topic, {**T1, "partitions": {"2147483648": [0]}}),
        (parse_topic, {**T1, "partitions": {"0": 1}}),
        (parse_topic, {**T1, "partitions": [0]}),
        (parse_consumer, {**CONSUMER, "pattern": "grey_list"}),
        (parse_consumer, {**CONSUMER, "pattern": []}),
        (parse_consumer, {**CONSUMER, "subscription": ["t"]}),
    ],
)
def test_another_form_is_refused(parse: Callable[..., Any], data: dict[str, Any]) -> None:
    with pytest.raises(ZooKeeperError, match=r"^Expected .*\(file zk://host:2181/x\)"):
        parse(json.dumps(data).encode(), WHERE)


def test_the_layout_of_kafka_0_7_is_refused() -> None:
    with pytest.raises(ZooKeeperError, match="Expected the number of a partition, got '0-1'"):
        parse_partition("0-1", WHERE)
    with pytest.raises(ZooKeeperError, match="Expected JSON, got"):
        parse_consumer(b"*4*whitetopic.*", WHERE)


@given(
    st.sampled_from([parse_broker, parse_topic, parse_consumer, parse_owner, parse_offset]),
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*V5, *T3, *CONSUMER]) | st.text(max_size=5),
                inner | st.integers(1, 5),
                max_size=8,
            )
        ),
    ).map(lambda value: json.dumps(value).encode()),
)
def test_hostile_bytes_are_refused_or_understood(parse: Callable[..., Any], data: bytes) -> None:
    with suppress(ZooKeeperError):
        parse(data, WHERE)
