"""The ends of partitions, for a stream that asks again and again: an unchanged end costs next to nothing."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import call_leaders, leaders_of
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.errors import BrokerConnectionError
from pyspark_kafkalog.model import TopicPartition


class _Question(NamedTuple):
    partitions: Collection[TopicPartition]
    read_committed: bool
    generation: int
    """The metadata's generation, which decides which brokers are asked."""


class EndOffsets:
    """High watermarks, or last stable offsets, of the same partitions again and again.

    While no records come, the last encoded request is sent again, and a response with the same bytes is
    not read.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._question: _Question | None = None
        self._topics: frozenset[str] = frozenset()
        self._ends: dict[TopicPartition, int] = {}
        self._at_rest = False
        """Whether the last two look-ups found the same ends."""
        self._by_node: Mapping[int, Mapping[TopicPartition, int]] = {}
        self._bodies: dict[tuple[int, int], bytes] = {}
        """The encoded requests, by node and version."""
        self._responses: list[Any] = []

    def look_up(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """The ends of those partitions that exist, sorted; the same object while they are unchanged."""
        is_repeated = self._question == _Question(partitions, read_committed, self._generation)
        if is_repeated and self._at_rest and self._are_unchanged():
            return self._ends
        found = call_leaders(
            self._cluster,
            partitions,
            partial(list_offsets.ends_requests, read_committed=read_committed),
            list_offsets.read_offsets,
            doing="Looking up offsets",
            min_version=list_offsets.MIN_VERSION,
            max_version=list_offsets.MAX_VERSION,
        )
        ends = dict(sorted(found.items()))
        self._at_rest = ends == self._ends
        if not self._at_rest:
            self._ends = ends
        self._question = _Question(partitions, read_committed, self._generation)
        self._topics = frozenset(partition.topic for partition in partitions)
        self._by_node, self._bodies, self._responses = {}, {}, []
        return self._ends

    @property
    def _generation(self) -> int:
        return self._cluster.metadata.generation

    def _are_unchanged(self) -> bool:
        """Whether the leaders give the same ends as before."""
        assert self._question is not None
        self._cluster.look_up(self._topics)
        if self._question.generation != self._generation:
            return False
        if not self._by_node:
            self._by_node, _ = leaders_of(self._cluster, self._question.partitions)
        taken: list[Connection] = []
        try:
            for node, epochs in self._by_node.items():
                taken.append(self._cluster.connection(node))
                self._send(taken[-1], node, epochs)
            responses = [connection.receive() for connection in taken]
        except BrokerConnectionError:
            return False
        finally:
            for connection in taken:
                self._cluster.release(connection)
        known, self._responses = self._responses, responses
        if len(known) == len(responses) and all(map(operator.is_, known, responses)):
            return True
        found = {p: end for response in responses for p, end in list_offsets.read_offsets([response]).items()}
        return found == self._ends

    def _send(self, connection: Connection, node: int, epochs: Mapping[TopicPartition, int]) -> None:
        assert self._question is not None
        version = connection.version_of(
            ListOffsetsRequest, min_version=list_offsets.MIN_VERSION, max_version=list_offsets.MAX_VERSION
        )
        body = self._bodies.get((node, version))
        if body is None:
            (request,) = list_offsets.ends_requests(epochs, read_committed=self._question.read_committed)
            body = self._bodies[node, version] = bytes(request.encode(version=version))
        connection.send_body(ListOffsetsRequest, version, [body])
