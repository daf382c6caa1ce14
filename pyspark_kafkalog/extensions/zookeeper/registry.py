"""The brokers and topics of which ZooKeeper knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from pyspark_kafkalog.errors import BrokerConnectionError, ZooKeeperError
from pyspark_kafkalog.extensions.zookeeper.client import ZooKeeper
from pyspark_kafkalog.extensions.zookeeper.options import ZooKeeperOptions
from pyspark_kafkalog.extensions.zookeeper.znodes import (
    BROKER_IDS,
    CLUSTER_ID,
    TOPICS,
    parse_broker,
    parse_cluster_id,
    parse_topic,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions

Found = TypeVar("Found")


def registered_brokers(options: ZooKeeperOptions, brokers: ConnectionOptions) -> tuple[str, ...]:
    """The live brokers, ``host:port``, with the listener for the security protocol of ``brokers``.

    :raises BrokerConnectionError: if there is none.
    :raises ZooKeeperError: if ZooKeeper can't be asked, or knows no brokers because the chroot is wrong.
    """
    protocol = brokers.security.protocol
    with ZooKeeper(options, brokers, brokers.request_timeout_ms / 1000) as zookeeper:
        ids = zookeeper.children([BROKER_IDS])
        if BROKER_IDS not in ids:
            raise wrong_chroot(zookeeper, BROKER_IDS)
        znodes = readable(zookeeper.read(f"{BROKER_IDS}/{name}" for name in readable(ids)[BROKER_IDS]))
    listeners = [
        listener
        for path, znode in znodes.items()
        for listener in parse_broker(znode.data, zookeeper.where(path))
    ]
    found = tuple(dict.fromkeys(server for name, server in listeners if name == protocol))
    if not found:
        others = sorted({name for name, _ in listeners})
        raise BrokerConnectionError(
            f"No broker with a listener for {protocol} is registered in ZooKeeper"
            if others
            else "No broker is registered in ZooKeeper",
            file=zookeeper.where(BROKER_IDS),
            hint=f"Set kafka.security.protocol to {' or '.join(others)}." if others else None,
        )
    return found


def registered_partitions(zookeeper: ZooKeeper, topics: Collection[str]) -> dict[str, tuple[int, ...]]:
    """The partition numbers of those of ``topics`` that exist."""
    found = readable(zookeeper.read(f"{TOPICS}/{topic}" for topic in sorted(topics)))
    return {
        path.rpartition("/")[2]: parse_topic(znode.data, zookeeper.where(path))
        for path, znode in found.items()
    }


def cluster_id(zookeeper: ZooKeeper) -> str | None:
    """The id of the cluster; None before Kafka 0.10.1."""
    found = readable(zookeeper.read([CLUSTER_ID])).get(CLUSTER_ID)
    return None if found is None else parse_cluster_id(found.data, zookeeper.where(CLUSTER_ID))


def readable(answers: Mapping[str, Found | ZooKeeperError]) -> dict[str, Found]:
    """The answers.

    :raises ZooKeeperError: if ACLs hide one.
    """
    for answer in answers.values():
        if isinstance(answer, ZooKeeperError):
            raise answer
    return {path: answer for path, answer in answers.items() if not isinstance(answer, ZooKeeperError)}


def wrong_chroot(zookeeper: ZooKeeper, path: str) -> ZooKeeperError:
    """The error where something is missing that every broker makes when it starts."""
    chroot = zookeeper.address.chroot
    return ZooKeeperError(
        f"ZooKeeper has no {path}{f' below {chroot}' if chroot else ''}",
        file=str(zookeeper.address),
        hint="Check the chroot: it is what zookeeper.connect of the brokers has behind the servers.",
    )
