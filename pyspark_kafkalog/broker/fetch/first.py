"""The first fetches of several ranges: one request to each leader asks for all that it leads.

They only save time. What does not come, or not as planned, is left out: :mod:`.fetcher` asks for it again,
and says what is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import leaders_of
from pyspark_kafkalog.broker.fetch.request import FRAME_SLACK, Wanted, fetch_request, uuid_of
from pyspark_kafkalog.broker.fetch.response import (
    FIRST_WITH_TOPIC_ID,
    MAX_VERSION,
    MIN_VERSION,
    Fetched,
    FetchedPartition,
    read_fetch_responses,
)
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import OffsetRange, Seen, TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_PATIENCE = 2.0
"""Seconds for everything: a leader that hangs is left to the fetcher, which finds the next one."""


class FirstFetch(NamedTuple):
    """What came of a range. Its leader confirms the topic id, if there is one, and the newest known epoch."""

    broker: str
    frame: pa.Buffer
    partition: FetchedPartition
    is_whole: bool
    """Whether it has every record batch of the range."""

    @property
    def fetched(self) -> Fetched:
        """As the response to a request for this partition alone."""
        return Fetched(0, 0, self.partition)


def fetch_first(
    cluster: Cluster,
    options: FetchOptions,
    ranges: Mapping[TopicPartition, tuple[OffsetRange, Seen]],
    *,
    read_committed: bool,
    max_bytes: int,
) -> dict[TopicPartition, FirstFetch]:
    """The beginnings of ``ranges``, as far as they come at once.

    :param max_bytes: of all record batches from one broker; its first one comes whole, however large.
    """
    if options.client_rack:  # the leader would only name a replica that is nearer
        return {}
    with_ids = {partition for partition, (_, seen) in ranges.items() if seen.topic_id}
    max_version = MAX_VERSION if with_ids else FIRST_WITH_TOPIC_ID - 1
    min_version = FIRST_WITH_TOPIC_ID if with_ids else MIN_VERSION
    deadline = Deadline.after(_PATIENCE)
    found: dict[TopicPartition, FirstFetch] = {}
    asked: list[tuple[Connection, int]] = []
    try:
        by_node, _ = leaders_of(cluster, with_ids or ranges.keys(), deadline=deadline)
        for node_id, epochs in by_node.items():
            wanted = [
                Wanted(partition, seen.topic_id, epoch, offsets.start, max_bytes)
                for partition, epoch in epochs.items()
                for offsets, seen in [ranges[partition]]
            ]
            request = fetch_request(wanted, max_bytes=max_bytes, read_committed=read_committed)
            with contextlib.suppress(BrokerError):
                connection = cluster.connection(node_id, deadline=deadline)
                version = connection.version_of(request, min_version=min_version, max_version=max_version)
                asked.append((connection, version))
                connection.send(request, max_version=version, deadline=deadline)
        for connection, version in asked:
            if connection.in_flight:
                with contextlib.suppress(BrokerError):
                    found.update(_receive(cluster, connection, version, deadline, ranges, max_bytes))
    except BrokerError:
        pass  # no broker says who leads
    finally:
        for connection, _ in asked:
            cluster.release(connection)
    return found


def _receive(
    cluster: Cluster,
    connection: Connection,
    version: int,
    deadline: Deadline,
    ranges: Mapping[TopicPartition, tuple[OffsetRange, Seen]],
    max_bytes: int,
) -> Iterator[tuple[TopicPartition, FirstFetch]]:
    """What a leader sends of ``ranges``."""
    answer = connection.receive_frame(
        pa.allocate_buffer, deadline=deadline, stall=deadline.left, limit=max_bytes + FRAME_SLACK
    )
    if answer.broken is not None:
        raise answer.broken
    with connection.reading():
        frame = memoryview(answer.buffer).cast("B")
        throttle_time_ms, error_code, partitions = read_fetch_responses(frame, answer.body, version)
    connection.throttle(throttle_time_ms)
    if error_code:
        return
    topics = {
        _key(partition.topic, seen, version): partition.topic for partition, (_, seen) in ranges.items()
    }
    for key, fetched in partitions:
        partition = TopicPartition(topics.get(key, ""), fetched.number)
        if partition in ranges and not fetched.error_code and fetched.size:
            batches = walk(answer.buffer.slice(fetched.position, fetched.size), 0)
            if len(batches):
                (start, end), _ = ranges[partition]
                next_offset = int(batches.last_offset[-1]) + 1
                cluster.bytes_per_offset[partition] = int(batches.size.sum()) / max(next_offset - start, 1)
                yield (
                    partition,
                    FirstFetch(str(connection.address), answer.buffer, fetched, next_offset >= end),
                )


def _key(topic: str, seen: Seen, version: int) -> bytes:
    """What stands for the topic in a response."""
    topic_id = uuid_of(seen.topic_id)
    return topic.encode() if version < FIRST_WITH_TOPIC_ID or topic_id is None else topic_id.bytes
