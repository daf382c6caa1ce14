"""APIs that an endpoint may lack, as some that speak Kafka's protocol do, and what to do without them."""

from __future__ import annotations

from collections.abc import Mapping

_WITHOUT = {
    3: (
        "Metadata",
        10,
        "Topics have ids since Kafka 2.8. Without, one that was deleted and recreated is noticed by its"
        " record batches alone.",
    ),
    10: ("FindCoordinator", 0, "Consumer groups and exactly-once need it: leave out kafka.group.id."),
    19: (
        "CreateTopics",
        4,
        "Numbers are left to brokers since Kafka 2.4: give --partitions and --replication-factor.",
    ),
    21: ("DeleteRecords", 0, "That needs Kafka 0.11. Without, records end by the topic's retention."),
    22: (
        "InitProducerId",
        0,
        "Set kafka.enable.idempotence to false: then a retry may write records twice.",
    ),
    23: (
        "OffsetForLeaderEpoch",
        3,
        "That needs Kafka 2.3. Without, a log that was cut and has grown again is noticed by its record"
        " batches alone, and a reader waits for one that ends too soon.",
    ),
    24: ("AddPartitionsToTxn", 0, "Exactly-once needs it: leave out delivery.guarantee."),
    32: (
        "DescribeConfigs",
        0,
        "Records are read and written without it; configurations of topics are not known.",
    ),
    37: ("CreatePartitions", 0, "That needs Kafka 1.0. Other software has ways of its own."),
    42: ("DeleteGroups", 0, "That needs Kafka 1.1. Without, groups end by the brokers' retention."),
    44: (
        "IncrementalAlterConfigs",
        0,
        "That needs Kafka 2.3. Older brokers need kafka-configs of their version, and other software has"
        " ways of its own.",
    ),
    47: ("OffsetDelete", 0, "That needs Kafka 2.4. To delete all offsets of a group, delete the group."),
}
"""APIs by key (see :mod:`kafka.protocol`): the name, the lowest version to want, and a way out."""


_METADATA, _VOTE, _REGISTRATION = 3, 52, 62
"""The APIs by which clients begin, and those of a KRaft quorum alone."""


def is_controller(versions: Mapping[int, tuple[int, int]]) -> bool:
    """Whether what answers is the listener of a KRaft controller, which serves no client of records."""
    return _METADATA not in versions and not {_VOTE, _REGISTRATION}.isdisjoint(versions)


def way_out(api_key: int, highest: int) -> str:
    """The way out where a broker has no version of an API above ``highest``, which is -1 if it has none."""
    if api_key in _WITHOUT and highest < _WITHOUT[api_key][1]:
        return _WITHOUT[api_key][2]
    return "Kafka 1.0 and newer have what is needed; other software may lack it."


def lacking(versions: Mapping[int, tuple[int, int]]) -> list[tuple[str, str]]:
    """APIs that a broker lacks or has in too old versions, and a way out for each."""
    found = []
    for api_key, (name, needed, instead) in _WITHOUT.items():
        highest = versions.get(api_key, (0, -1))[1]
        if highest < needed:
            found.append((f"{name} v{needed}" if highest >= 0 else name, instead))
    return found
