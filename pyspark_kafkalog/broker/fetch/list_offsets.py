"""ListOffsets: the bounds of partitions, and offsets by timestamp. One request per broker and question.

A stream asks for the ends again and again: an unchanged end costs next to nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import by_topic, call_leaders, leaders_of
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.error_codes import Refused
from pyspark_kafkalog.errors import BrokerConnectionError
from pyspark_kafkalog.model import EARLIEST, LATEST, TopicPartition, Watermarks

MIN_VERSION = 1
"""The first that returns a single offset (KIP-79)."""
FIRST_WITH_EPOCH = 4
"""The first that returns the epoch of an offset (KIP-320)."""
FIRST_WITH_NEWEST = 8
"""The first that knows both EARLIEST_LOCAL (KIP-405) and MAX_TIMESTAMP (KIP-734)."""
MAX_VERSION = 9
"""Later versions concern tiered storage."""
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4


def bounds_requests(epochs: Mapping[TopicPartition, int], *, read_committed: bool = False) -> Sequence[Any]:
    """Requests for log start offset, high watermark and, if ``read_committed``, last stable offset."""
    requests = [
        _request(epochs, dict.fromkeys(epochs, EARLIEST)),
        _request(epochs, dict.fromkeys(epochs, LATEST)),
    ]
    if read_committed:  # LATEST then means the last stable offset
        requests.append(_request(epochs, dict.fromkeys(epochs, LATEST), isolation_level=1))
    return requests


def read_bounds(responses: Sequence[Any]) -> dict[TopicPartition, Watermarks | Refused]:
    """The bounds in the responses to :func:`bounds_requests`."""
    earliest, *latest = (_read(response) for response in responses)
    result: dict[TopicPartition, Watermarks | Refused] = {}
    for partition, start in earliest.items():
        ends = [answer.get(partition, Refused(-1)) for answer in latest]
        refused = [answer for answer in (start, *ends) if isinstance(answer, Refused)]
        if refused:
            result[partition] = refused[0]
        else:
            result[partition] = Watermarks(int(start), int(ends[0]), int(ends[-1]))  # type: ignore[arg-type]
    return result


def ends_requests(epochs: Mapping[TopicPartition, int], *, read_committed: bool) -> Sequence[Any]:
    """A request for the high watermark only or, if ``read_committed``, for the last stable offset only."""
    return [_request(epochs, dict.fromkeys(epochs, LATEST), isolation_level=int(read_committed))]


def times_requests(
    epochs: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]
) -> Sequence[Any]:
    """A request for the first offset at or after a timestamp."""
    return [_request(epochs, {partition: times[partition] for partition in epochs})]


def read_offsets(responses: Sequence[Any]) -> dict[TopicPartition, int | Refused]:
    """The offsets in the response to a single request; -1 if there is no such record."""
    return _read(responses[0])


def read_timestamps(responses: Sequence[Any]) -> dict[TopicPartition, int | Refused]:
    """The timestamps of the records in the response to :func:`times_requests`; -1 for none."""
    return _read(responses[0], "timestamp")


def epoch_requests(epochs: Mapping[TopicPartition, int]) -> Sequence[Any]:
    """A request for the newest epoch in a leader's log, whatever metadata says."""
    return [_request(dict.fromkeys(epochs, -1), dict.fromkeys(epochs, LATEST))]


def read_epochs(responses: Sequence[Any]) -> dict[TopicPartition, int | Refused]:
    """The newest epochs; -1 if the leader knows none."""
    return _read(responses[0], "leader_epoch")


def newest_requests(epochs: Mapping[TopicPartition, int]) -> Sequence[Any]:
    """Requests for the greatest timestamp, the start of the log, and the start of its local part."""
    specs = (_MAX_TIMESTAMP, EARLIEST, _EARLIEST_LOCAL)
    return [_request(epochs, dict.fromkeys(epochs, spec)) for spec in specs]


def read_newest(responses: Sequence[Any]) -> dict[TopicPartition, int | Refused | None]:
    """The greatest timestamps, -1 without records.

    None if part of the log is in tiered storage: the greatest timestamp is then that of the local part.
    """
    start, local_start = _read(responses[1]), _read(responses[2])
    result: dict[TopicPartition, int | Refused | None] = {}
    for topic in responses[0].topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            codes = [answer.error_code, *_codes(start.get(partition), local_start.get(partition))]
            if any(codes):
                result[partition] = Refused(next(filter(None, codes)))
            else:
                result[partition] = answer.timestamp if start[partition] == local_start[partition] else None
    return result


def _codes(*answers: int | Refused | None) -> list[int]:
    return [answer.error_code for answer in answers if isinstance(answer, Refused)]


def _request(
    epochs: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int], *, isolation_level: int = 0
) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = by_topic(
        times,
        lambda p: kind.ListOffsetsPartition(
            partition_index=p.partition, current_leader_epoch=epochs[p], timestamp=times[p]
        ),
    )
    topics = [kind(name=topic, partitions=partitions) for topic, partitions in asked.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def _read(response: Any, field: str = "offset") -> dict[TopicPartition, int | Refused]:
    return {
        TopicPartition(topic.name, answer.partition_index): (
            Refused(answer.error_code) if answer.error_code else getattr(answer, field)
        )
        for topic in response.topics
        for answer in topic.partitions
    }


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
            partial(ends_requests, read_committed=read_committed),
            read_offsets,
            doing="Looking up offsets",
            min_version=MIN_VERSION,
            max_version=MAX_VERSION,
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
        found = {p: end for response in responses for p, end in read_offsets([response]).items()}
        return found == self._ends

    def _send(self, connection: Connection, node: int, epochs: Mapping[TopicPartition, int]) -> None:
        assert self._question is not None
        version = connection.version_of(ListOffsetsRequest, min_version=MIN_VERSION, max_version=MAX_VERSION)
        body = self._bodies.get((node, version))
        if body is None:
            (request,) = ends_requests(epochs, read_committed=self._question.read_committed)
            body = self._bodies[node, version] = bytes(request.encode(version=version))
        connection.send_body(ListOffsetsRequest, version, [body])
