"""FetchRequest: what to ask of a leader or a replica."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.model import TopicPartition

FRAME_SLACK = 64 << 20
"""By how much a response may exceed the request: a first batch comes whole, however large (KIP-74)."""


class Wanted(NamedTuple):
    """What to ask of one partition: at most ``max_bytes`` from ``offset`` on."""

    partition: TopicPartition
    topic_id: str
    leader_epoch: int
    offset: int
    max_bytes: int


def fetch_request(
    wanted: Iterable[Wanted],
    *,
    max_bytes: int,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    read_committed: bool = False,
    rack: str = "",
) -> Any:
    """A request outside of a fetch session. Up to version 12 its topics go by their names, then by their ids.

    :param max_bytes: of all partitions; the first batch comes whole, however large (KIP-74).
    :param max_wait_ms: how long the broker may wait for ``min_bytes`` if it has fewer.
    """
    kind = FetchRequest.FetchTopic
    topics: dict[tuple[str, str], list[Any]] = {}
    for partition, topic_id, leader_epoch, offset, partition_max_bytes in wanted:
        topics.setdefault((partition.topic, topic_id), []).append(
            kind.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,
        topics=[
            kind(topic=topic, topic_id=uuid_of(topic_id), partitions=partitions)
            for (topic, topic_id), partitions in topics.items()
        ],
        forgotten_topics_data=[],
        rack_id=rack,
    )


def uuid_of(topic_id: str) -> uuid.UUID | None:
    """A topic's id as kafka-python wants it; None for an unknown one."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")) if topic_id else None
