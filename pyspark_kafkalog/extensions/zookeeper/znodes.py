"""Kafka's znodes in ZooKeeper, read strictly (kafka.utils.ZkUtils 0.8 to 1.1, kafka.zk.ZkData 1.1 to 3.9).

::

    /brokers/ids/[id]                                JSON 1 to 5: host and port, since 2 endpoints, since 4
                                                     listener_security_protocol_map
    /brokers/topics/[topic]                          JSON 1 to 3: partitions, since 2 adding_replicas and
                                                     removing_replicas, since 3 topic_id
    /cluster/id                                      JSON "1", as text: id; since 0.10.1
    /consumers/[group]/ids/[consumer]                JSON 1: subscription, pattern, timestamp; ephemeral
    /consumers/[group]/owners/[topic]/[partition]    text: consumer, a hyphen, number of its thread; ephemeral
    /consumers/[group]/offsets/[topic]/[partition]   text: the next offset to read
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark_kafkalog.errors import UNREADABLE, ZooKeeperError
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG

BROKER_IDS = "/brokers/ids"
CLUSTER_ID = "/cluster/id"
TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(
    r"(?P<listener>[\w.-]+)://(?P<host>\[[0-9a-fA-F:.%\w]+\]|[\w.-]+):(?P<port>[0-9]{1,5})", re.ASCII
)
_NUMBER = re.compile("0|[1-9][0-9]{0,18}", re.ASCII)
_THREAD = re.compile(r"(?P<consumer>.+)-[0-9]+", re.DOTALL | re.ASCII)
_PATTERNS = ("static", "white_list", "black_list")
_SHOWN = 60


def parse_broker(data: bytes, where: str) -> list[tuple[str, str]]:
    """The security protocol and ``host:port`` of each listener of a broker.

    :raises ZooKeeperError: for another version, and for JSON of another form.
    """
    version, found = _json(data, where, 5)
    if version == 1:
        return [("PLAINTEXT", _address(found.get("host"), found.get("port"), where))]
    endpoints, protocols = found.get("endpoints"), found.get("listener_security_protocol_map", {})
    if not isinstance(endpoints, list) or not isinstance(protocols, dict):
        raise _unexpected("endpoints, and a map of their security protocols", data, where)
    listeners = []
    for endpoint in endpoints:
        match = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
        protocol = None if match is None else protocols.get(match["listener"], match["listener"])
        if match is None or protocol not in _PROTOCOLS:
            raise _unexpected("endpoints such as SSL://host:9093, of known security protocols", data, where)
        listeners.append((protocol, _address(match["host"], int(match["port"]), where)))
    return listeners


def parse_topic(data: bytes, where: str) -> tuple[int, ...]:
    """The numbers of a topic's partitions, in order.

    :raises ZooKeeperError: for another version, and for JSON of another form.
    """
    _, found = _json(data, where, 3)
    partitions = found.get("partitions")
    if not isinstance(partitions, dict) or not all(isinstance(each, list) for each in partitions.values()):
        raise _unexpected("partitions with their replicas", data, where)
    return tuple(sorted(parse_partition(name, where) for name in partitions))


def parse_cluster_id(data: bytes, where: str) -> str:
    """The id of a cluster, whose JSON has its version as text.

    :raises ZooKeeperError: for another version, and for JSON of another form.
    """
    found = _parsed(data, where)
    if not isinstance(found, dict) or found.get("version") != "1" or not isinstance(found.get("id"), str):
        raise _unexpected('version "1" of the JSON, and an id', data, where)
    return str(found["id"])


def parse_consumer(data: bytes, where: str) -> frozenset[str] | None:
    """The topics to which a consumer has subscribed; None if it has by a regular expression.

    :raises ZooKeeperError: for another version, and for JSON of another form.
    """
    _, found = _json(data, where, 1)
    subscription, pattern = found.get("subscription"), found.get("pattern")
    if not isinstance(subscription, dict) or pattern not in _PATTERNS:
        raise _unexpected(f"a subscription, and a pattern that is one of {', '.join(_PATTERNS)}", data, where)
    return frozenset(subscription) if pattern == "static" else None


def parse_owner(data: bytes, where: str) -> str:
    """The consumer that owns a partition.

    :raises ZooKeeperError: for text of another form.
    """
    match = _THREAD.fullmatch(_text(data, where))
    if match is None:
        raise _unexpected("a consumer and the number of its thread, such as group_host-1-0", data, where)
    return match["consumer"]


def parse_offset(data: bytes, where: str) -> int:
    """A committed offset.

    :raises ZooKeeperError: for anything but a number from 0 on.
    """
    text = _text(data, where)
    if not _NUMBER.fullmatch(text) or int(text) > MAX_LONG:
        raise _unexpected("an offset of 0 or more", data, where)
    return int(text)


def parse_partition(name: str, where: str) -> int:
    """The number of a partition, from the name of a znode.

    :raises ZooKeeperError: for any other name, such as ``0-0``, which Kafka 0.7 gives.
    """
    if not _NUMBER.fullmatch(name) or int(name) > MAX_INT:
        raise ZooKeeperError(f"Expected the number of a partition, got {name[:_SHOWN]!r}", file=where)
    return int(name)


def _json(data: bytes, where: str, newest: int) -> tuple[int, Mapping[str, Any]]:
    """The version and the fields of a JSON object, of version 1 to ``newest``."""
    found = _parsed(data, where)
    version = found.get("version") if isinstance(found, dict) else None
    if type(version) is not int:
        raise _unexpected("a JSON object with a version", data, where)
    if not 1 <= version <= newest:
        raise ZooKeeperError(
            f"Expected version {'1' if newest == 1 else f'1 to {newest}'} of the JSON, got {version}",
            file=where,
            hint="No Kafka up to 3.9, the last with ZooKeeper, writes that.",
        )
    return version, found


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(_text(data, where))
    except UNREADABLE as e:
        raise _unexpected("JSON", data, where) from e


def _address(host: object, port: object, where: str) -> str:
    if not isinstance(host, str) or not host or type(port) is not int or not 0 < port < 1 << 16:
        raise ZooKeeperError("Expected host and port of a broker", file=where)
    return f"{host}:{port}"


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _unexpected("text in UTF-8", data, where) from None


def _unexpected(expected: str, data: bytes, where: str) -> ZooKeeperError:
    return ZooKeeperError(f"Expected {expected}, got {data[:_SHOWN]!r}", file=where)
