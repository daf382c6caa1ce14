"""The first fetches from several partitions: one request to each leader asks for all that it leads.

They only save time. What does not come, or not as planned, is left out: :mod:`.fetcher` asks for it again,
and says what is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import leaders_of
from pyspark_kafkalog.broker.fetch.protocol import (
    FIRST_WITH_TOPIC_ID,
    FRAME_SLACK,
    MAX_VERSION,
    MIN_VERSION,
    Fetched,
    FetchedPartition,
    Wanted,
    fetch_request,
    read_fetch_responses,
    uuid_of,
)
from pyspark_kafkalog.broker.fetch.rack import rack_of
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import Fetch, TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_PATIENCE = 2.0
"""Seconds for everything: a leader that hangs is left to the fetcher, which finds the next one."""


class FirstFetch(NamedTuple):
    """The result of a fetch: its leader confirms the topic id, if any, and the newest known epoch."""

    broker: str
    frame: pa.Buffer
    partition: FetchedPartition

    @property
    def fetched(self) -> Fetched:
        """The result as the response to a request for this partition alone."""
        return Fetched(0, 0, self.partition)


def fetch_first(
    cluster: Cluster,
    options: FetchOptions,
    wanted: Collection[Fetch],
    *,
    max_bytes: int,
) -> dict[Fetch, FirstFetch]:
    """The beginnings of what is ``wanted``, as far as they come at once.

    :param wanted: from different partitions, all of them of one isolation level.
    :param max_bytes: of all record batches from one broker; its first one comes whole, however large.
    """
    if rack_of(options.client_rack):  # the leader would only name a replica that is nearer
        return {}
    of_partition = {fetch.partition: fetch for fetch in wanted}
    with_ids = {fetch.partition for fetch in wanted if fetch.topic_id}
    read_committed = any(fetch.read_committed for fetch in wanted)
    max_version = MAX_VERSION if with_ids else FIRST_WITH_TOPIC_ID - 1
    min_version = FIRST_WITH_TOPIC_ID if with_ids else MIN_VERSION
    deadline = Deadline.after(_PATIENCE)
    found: dict[Fetch, FirstFetch] = {}
    asked: list[tuple[Connection, int]] = []
    try:
        by_node, _ = leaders_of(cluster, with_ids or of_partition.keys(), deadline=deadline)
        for node_id, epochs in by_node.items():
            partitions = [
                Wanted(partition, fetch.topic_id, epoch, fetch.offsets.start, max_bytes)
                for partition, epoch in epochs.items()
                for fetch in [of_partition[partition]]
            ]
            request = fetch_request(partitions, max_bytes=max_bytes, read_committed=read_committed)
            with contextlib.suppress(BrokerError):
                connection = cluster.connection(node_id, deadline=deadline)
                version = connection.version_of(request, min_version=min_version, max_version=max_version)
                asked.append((connection, version))
                connection.send(request, max_version=version, deadline=deadline)
        for connection, version in asked:
            if connection.in_flight:
                with contextlib.suppress(BrokerError):
                    found.update(_receive(cluster, connection, version, deadline, of_partition, max_bytes))
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
    wanted: Mapping[TopicPartition, Fetch],
    max_bytes: int,
) -> Iterator[tuple[Fetch, FirstFetch]]:
    """The part of what is ``wanted`` that a leader sends."""
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
    topics = {_key(fetch, version): partition.topic for partition, fetch in wanted.items()}
    for key, fetched in partitions:
        partition = TopicPartition(topics.get(key, ""), fetched.number)
        if partition in wanted and not fetched.error_code and fetched.size:
            batches = walk(answer.buffer.slice(fetched.position, fetched.size), 0)
            if len(batches):
                offsets = int(batches.last_offset[-1]) + 1 - wanted[partition].offsets.start
                cluster.bytes_per_offset[partition] = int(batches.size.sum()) / max(offsets, 1)
                yield wanted[partition], FirstFetch(str(connection.address), answer.buffer, fetched)


def _key(wanted: Fetch, version: int) -> bytes:
    """The key of the topic in a response: its name or its id."""
    topic_id = uuid_of(wanted.topic_id)
    if version < FIRST_WITH_TOPIC_ID or topic_id is None:
        return wanted.partition.topic.encode()
    return topic_id.bytes
