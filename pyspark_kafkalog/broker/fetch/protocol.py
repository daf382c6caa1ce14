"""FetchRequest, and FetchResponse of versions 4 to 13, read in place: record batches are not copied.

    throttle_time_ms int32, (v7+: error_code int16, session_id int32), [responses]
    response:    topic string (v13+: topic_id uuid), [partitions]
    partition:   partition_index int32, error_code int16, high_watermark int64,
                 last_stable_offset int64, (v5+: log_start_offset int64),
                 [aborted: producer_id int64, first_offset int64],
                 (v11+: preferred_read_replica int32), records bytes

From version 12 on, lengths are unsigned varints of length + 1 instead of int32
(for strings int16), and each struct ends in tagged fields (KIP-482).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.broker.wire.answers import read_varint
from pyspark_kafkalog.model import AbortedTransaction, TopicPartition
from pyspark_kafkalog.model.kafka_uuid import uuid_from_text

MIN_VERSION = 4
"""The first that carries v2 record batches and aborted transactions (KIP-98)."""
MAX_VERSION = 13
"""The first that names topics by their ids (KIP-516)."""
FIRST_WITH_TOPIC_ID = 13
_FIRST_FLEXIBLE = 12
_SIZE_OF_ABORTED = 16
"""Bytes of one aborted transaction, at least."""
FRAME_SLACK = 64 << 20
"""Bytes by which a response may exceed the request: a first batch comes whole, however large (KIP-74)."""


class Wanted(NamedTuple):
    """The request for one partition: at most ``max_bytes`` from ``offset`` on."""

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
    return uuid_from_text(topic_id) if topic_id else None


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The response for one partition."""

    number: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    """-1 if the broker does not send it."""
    aborted: tuple[AbortedTransaction, ...]
    preferred_read_replica: int
    """The broker to fetch from next; -1 for the same one (KIP-392)."""
    position: int
    """The position in the frame at which the records begin."""
    size: int
    """Bytes of the records; the last batch may be incomplete."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response for the one partition requested. A broker that throttles may leave it out."""

    throttle_time_ms: int
    error_code: int
    partition: FetchedPartition | None


class _Cursor:
    def __init__(self, frame: memoryview, position: int, version: int) -> None:
        self.frame = frame
        self.position = position
        self.flexible = version >= _FIRST_FLEXIBLE

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self.frame, self.position)
        self.position += struct.calcsize(layout)
        return values

    def varint(self) -> int:
        value, self.position = read_varint(self.frame, self.position)
        return value

    def length(self, layout: str = ">i") -> int:
        """The length of an array, bytes or string; -1 for null."""
        return self.varint() - 1 if self.flexible else self.take(layout)[0]

    def skip_tags(self) -> None:
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.skip(self.varint())

    def skip(self, size: int) -> None:
        if size > len(self.frame) - self.position:
            raise ValueError(f"{size} bytes at byte {self.position} of {len(self.frame)}")
        self.position += max(size, 0)


def read_fetch_response(frame: memoryview, position: int, version: int, size: int | None = None) -> Fetched:
    """Read the response whose body begins at ``position``.

    :param size: of the whole response if ``frame`` is only its beginning: the records may then break off.
    :raises ValueError: or struct.error or IndexError, if it is malformed.
    """
    size = len(frame) if size is None else size
    cursor = _Cursor(frame, position, version)
    throttle_time_ms, error_code = _read_head(cursor, version)
    if cursor.length() < 1:
        return Fetched(throttle_time_ms, error_code, None)
    _read_topic(cursor, version)
    if cursor.length() < 1:
        return Fetched(throttle_time_ms, error_code, None)
    partition = _read_partition(cursor, version, size)
    if len(frame) < size:
        return Fetched(throttle_time_ms, error_code, partition)
    cursor.position += partition.size
    for _ in ("partition", "topic", "response"):
        cursor.skip_tags()
    _check_end(cursor)
    return Fetched(throttle_time_ms, error_code, partition)


def read_fetch_responses(
    frame: memoryview, position: int, version: int
) -> tuple[int, int, list[tuple[bytes, FetchedPartition]]]:
    """Read a response for several partitions: throttle_time_ms, the error code of all, and each of them.

    Each comes with its topic: the name, from version 13 on the 16 bytes of its id.

    :raises ValueError: or struct.error or IndexError, if it is malformed.
    """
    cursor = _Cursor(frame, position, version)
    throttle_time_ms, error_code = _read_head(cursor, version)
    found = list(_read_partitions(cursor, version))
    cursor.skip_tags()
    _check_end(cursor)
    return throttle_time_ms, error_code, found


def _read_head(cursor: _Cursor, version: int) -> tuple[int, int]:
    (throttle_time_ms,) = cursor.take(">i")
    return throttle_time_ms, cursor.take(">hi")[0] if version >= 7 else 0


def _read_partitions(cursor: _Cursor, version: int) -> Iterator[tuple[bytes, FetchedPartition]]:
    for _ in range(cursor.length()):
        topic = _read_topic(cursor, version)
        for _ in range(cursor.length()):
            partition = _read_partition(cursor, version, len(cursor.frame))
            cursor.position += partition.size
            cursor.skip_tags()
            yield topic, partition
        cursor.skip_tags()


def _read_topic(cursor: _Cursor, version: int) -> bytes:
    size = 16 if version >= FIRST_WITH_TOPIC_ID else cursor.length(">h")
    begin = cursor.position
    cursor.skip(size)
    return bytes(cursor.frame[begin : cursor.position])


def _check_end(cursor: _Cursor) -> None:
    if cursor.position != len(cursor.frame):
        raise ValueError(f"its layout ends at byte {cursor.position} of {len(cursor.frame)}")


def _read_partition(cursor: _Cursor, version: int, size_of_response: int) -> FetchedPartition:
    number, error_code, high_watermark, last_stable_offset = cursor.take(">ihqq")
    log_start_offset = cursor.take(">q")[0] if version >= 5 else -1
    aborted = []
    count = cursor.length()
    if count > (len(cursor.frame) - cursor.position) // _SIZE_OF_ABORTED:
        raise ValueError(f"{count} aborted transactions in {len(cursor.frame) - cursor.position} bytes")
    for _ in range(count):
        aborted.append(AbortedTransaction(*cursor.take(">qq")))
        cursor.skip_tags()
    preferred_read_replica = cursor.take(">i")[0] if version >= 11 else -1
    size = max(cursor.length(), 0)
    if size > size_of_response - cursor.position:
        raise ValueError("the records are longer than the response")
    return FetchedPartition(
        number,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        tuple(aborted),
        preferred_read_replica,
        cursor.position,
        min(size, len(cursor.frame) - cursor.position),
    )
