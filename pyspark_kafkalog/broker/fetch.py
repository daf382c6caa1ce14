"""Record batches of one partition from its leader, or from a replica near by (Kafka's Fetcher; KIP-392).

The next fetch is on its way before the bytes of the last one are handed out, so
that the broker works while they are decoded. Where it begins is known from the
headers of record batches alone. Only one partition is fetched at a time, for
which a fetch session (KIP-227) would save nothing.
"""

from __future__ import annotations

import base64
import logging
import math
import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.broker import list_offsets
from pyspark_kafkalog.broker.cluster import UNKNOWN_LOOKS, Backoff, Cluster
from pyspark_kafkalog.broker.connection import Connection
from pyspark_kafkalog.broker.error_codes import (
    CORRUPT_MESSAGE,
    LEADER_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_of,
    is_retriable,
    wants_refresh,
)
from pyspark_kafkalog.broker.fetch_response import (
    FIRST_WITH_TOPIC_ID,
    MAX_VERSION,
    MIN_VERSION,
    Fetched,
    FetchedPartition,
    read_fetch_response,
)
from pyspark_kafkalog.broker.metadata import Leader
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, find_batch, walk
from pyspark_kafkalog.errors import BrokerConnectionError, CorruptRecordError, DataLossError, KafkaLogError
from pyspark_kafkalog.model import OffsetRange, OnCorrupt, Origin, Slice, TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_log = logging.getLogger("pyspark_kafkalog")

_FRAME_SLACK = 64 << 20
"""By how much a response may exceed fetch.max.bytes: its first batch comes whole, however large (KIP-74)."""
_SLACK = 64 << 10
"""Bytes to ask for beyond what the rest of a range is likely to take."""
_MAX_BYTES = (1 << 31) - 1
_EMPTY_LOOKS = 3
"""How often nothing must come, at least, for a range to be held for empty."""
_ORIGIN = Origin()


def fetch(
    cluster: Cluster,
    options: FetchOptions,
    partition: TopicPartition,
    offsets: OffsetRange,
    *,
    read_committed: bool,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Slice]:
    """Record batches that cover ``offsets``. See :meth:`pyspark_kafkalog.model.Place.fetch`.

    :raises DataLossError: if offsets of the range, or the topic, are gone.
    :raises KafkaLogError: if nothing comes for kafkaConsumer.pollTimeoutMs.
    """
    fetching = _Fetching(cluster, options, partition, offsets, read_committed, on_corrupt)
    try:
        yield from fetching.slices()
    finally:
        fetching.release()


class _AskAgain(Exception):  # noqa: N818 - not an error, but the course of things
    """The partition cannot be fetched now; ``trouble`` says why."""

    def __init__(self, trouble: KafkaLogError, *, refresh: bool = True) -> None:
        self.trouble = trouble
        self.refresh = refresh


class _Fetching:
    """The state of one call of :func:`fetch`."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions,
        partition: TopicPartition,
        offsets: OffsetRange,
        read_committed: bool,
        on_corrupt: OnCorrupt | None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._partition = partition
        self._position, self._end = offsets
        self._read_committed = read_committed
        self._on_corrupt = on_corrupt
        self._connection: Connection | None = None
        self._version = MAX_VERSION
        self._leader = Leader(-1, -1)
        self._topic_id = ""
        self._replica: int | None = None
        self._replica_until = 0.0
        self._smallest = 0
        """Bytes to ask for at least, once a batch did not fit."""
        self._unknown = 0
        self._empty = 0
        self._stride = 1
        self._patience = self._new_patience()

    def slices(self) -> Iterator[Slice]:
        """The record batches, each response as a slice or, where it has gaps of damage, several."""
        while self._position < self._end:
            fetched = self.records()
            if fetched is not None:
                yield from self._sound(*fetched)
                self._patience = self._new_patience()

    def records(self) -> tuple[pa.Buffer, FetchedPartition] | None:
        """The next response with records in it; None if the rest of the range turned out to hold none."""
        while self._position < self._end:
            try:
                frame, fetched = self._receive()
                has_records = self._has_records(fetched)
            except _AskAgain as e:
                self._pause(e.trouble, refresh=e.refresh)
            except BrokerConnectionError as e:
                self._pause(e)
            else:
                if has_records and fetched.partition is not None:
                    found = fetched.partition
                    return frame.slice(found.position, found.size), found
        return None

    def release(self) -> None:
        """Leave the connection to others; one that owes an answer is closed."""
        if self._connection is not None:
            self._cluster.release(self._connection)
            self._connection = None

    # One request and its response

    def _receive(self) -> tuple[pa.Buffer, Fetched]:
        connection = self._connected()
        if not connection.in_flight:
            self._ask(connection)
        timeout_ms = self._cluster.options.request_timeout_ms + self._options.fetch_max_wait_ms
        limit = min(self._options.fetch_max_bytes + _FRAME_SLACK, _MAX_BYTES)
        frame, body = connection.receive_frame(pa.allocate_buffer, timeout=timeout_ms / 1000, limit=limit)
        try:
            fetched = read_fetch_response(memoryview(frame).cast("B"), body, self._version)
        except (ValueError, IndexError, struct.error) as e:
            connection.close()
            raise BrokerConnectionError(
                f"A fetch response cannot be understood: {e}", broker=str(connection.address)
            ) from e
        connection.throttle(fetched.throttle_time_ms)
        return frame, fetched

    def _connected(self) -> Connection:
        if self._replica is not None and time.monotonic() > self._replica_until:
            self._replica = None
            self.release()
        if self._connection is None or self._connection.closed:
            self.release()
            self._leader = self._find_leader()
            node_id = self._leader.node_id if self._replica is None else self._replica
            if node_id not in self._cluster.metadata.brokers:
                raise _AskAgain(self._error(LEADER_NOT_AVAILABLE))
            self._connection = self._cluster.connection(node_id)
            self._version = self._connection.version_of(
                FetchRequest,
                min_version=MIN_VERSION,
                max_version=MAX_VERSION if self._topic_id else FIRST_WITH_TOPIC_ID - 1,
            )
        return self._connection

    def _find_leader(self) -> Leader:
        leader = self._cluster.leader(self._partition)
        topic = self._cluster.metadata.topics.get(self._partition.topic)
        if leader is None or topic is None:
            code = topic.error_code if topic is not None else 0
            trouble = self._error(code or UNKNOWN_TOPIC_OR_PARTITION)
            if code and not is_retriable(code):
                raise trouble
            self._unknown += 1
            if self._unknown >= UNKNOWN_LOOKS:
                raise self._lost("the partition no longer exists")
            raise _AskAgain(trouble)
        self._unknown = 0
        if self._topic_id and topic.topic_id != self._topic_id:
            raise self._lost("the topic was deleted and created anew")
        self._topic_id = topic.topic_id
        return leader

    def _ask(self, connection: Connection) -> None:
        options = self._options
        kind = FetchRequest.FetchTopic
        wanted = kind.FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=self._leader.epoch,
            fetch_offset=self._position,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._bytes_to_ask_for(),
        )
        topic_id = (
            uuid.UUID(bytes=base64.urlsafe_b64decode(self._topic_id + "==")) if self._topic_id else None
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=max(options.fetch_min_bytes, 1),
            max_bytes=max(options.fetch_max_bytes, self._smallest),
            isolation_level=int(self._read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[kind(topic=self._partition.topic, topic_id=topic_id, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id=options.client_rack,
        )
        connection.send(request, max_version=self._version)

    def _bytes_to_ask_for(self) -> int:
        """Enough for the rest of the range, going by what its offsets took so far."""
        largest = max(self._options.max_partition_fetch_bytes, self._smallest)
        mean = self._cluster.bytes_per_offset.get(self._partition)
        if mean is None:
            return largest
        return max(
            min(largest, math.ceil((self._end - self._position) * mean * 1.1) + _SLACK), self._smallest
        )

    def _has_records(self, fetched: Fetched) -> bool:
        """Whether there is something to read; sees to it that the next request is the right one if not."""
        found = fetched.partition
        if fetched.error_code:
            raise _AskAgain(self._error(fetched.error_code), refresh=False)
        if found is None:
            raise _AskAgain(self._trouble("The broker throttles, and answers nothing"), refresh=False)
        if found.error_code:
            self._refused(found.error_code)
            return False
        is_sent_away = found.preferred_read_replica not in (-1, self._replica)
        if is_sent_away:
            self._replica = found.preferred_read_replica
            self._replica_until = time.monotonic() + self._cluster.options.metadata_max_age_ms / 1000
            self.release()
        if found.size or is_sent_away:
            self._empty = 0
            return found.size > 0
        end = found.last_stable_offset if self._read_committed else found.high_watermark
        self._empty += 1
        if end >= self._end and self._empty >= _EMPTY_LOOKS and self._empty >= self._looks_until_empty():
            self._position = self._end
            return False
        raise _AskAgain(self._trouble(f"Up to offset {end} it has no records there"), refresh=False)

    def _looks_until_empty(self) -> float:
        """How often nothing must come from below the end of the log for there to be nothing.

        Compaction leaves such a gap where the last records of a segment were
        overwritten, and nothing else does. But a fetch from tiered storage that
        took too long looks the same.
        """
        configs = self._cluster.topic_config(self._partition.topic)
        if configs is None:
            return 3 * _EMPTY_LOOKS
        is_tiered = configs.get("remote.storage.enable") == "true"
        return _EMPTY_LOOKS if "compact" in configs["cleanup.policy"] and not is_tiered else math.inf

    def _refused(self, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE and self._replica is not None:  # which may lag behind the leader
            self._replica = None
            self.release()
        elif code == OFFSET_OUT_OF_RANGE:
            raise self._lost(self._why_out_of_range())
        elif code == CORRUPT_MESSAGE:
            self._step_over(self._damaged("The broker finds damage there"))
        elif is_retriable(code):
            raise _AskAgain(self._error(code), refresh=wants_refresh(code))
        else:
            raise self._error(code)

    # The records of a response

    def _sound(self, records: pa.Buffer, found: FetchedPartition) -> Iterator[Slice]:
        begin: int | None = 0
        while begin is not None and self._position < self._end:
            batches = walk(records, begin)
            if not len(batches) and batches.status is not WalkStatus.INVALID:
                if begin == 0:
                    self._widen(batches.needed or 2 * len(records))
                return
            begin = None
            piece = self._advance(batches, records)
            if batches.status is WalkStatus.INVALID:
                begin = find_batch(records, batches.end + 1, min_offset=self._position)
            elif self._position < self._end:
                self._ask_ahead()
            if piece is not None:
                yield Slice(piece, _ORIGIN, found.aborted)
            if batches.status is WalkStatus.INVALID and self._position < self._end:
                damaged = self._damaged("No record batch can be read here", batches.end)
                if begin is None:
                    self._step_over(damaged)
                else:
                    self._tell(damaged)

    def _advance(self, batches: Batches, records: pa.Buffer) -> pa.Buffer | None:
        """Move on behind the batches, and return the bytes of those that the range needs."""
        if not len(batches):
            return None
        last_offset = batches.last_offset
        first = int(np.searchsorted(last_offset, self._position))
        last = min(int(np.searchsorted(last_offset, self._end - 1)), len(batches) - 1)
        if first > last:
            return None
        begin = int(batches.position[first])
        size = int(batches.position[last] + batches.size[last]) - begin
        next_offset = int(last_offset[last]) + 1
        self._cluster.bytes_per_offset[self._partition] = size / (next_offset - self._position)
        self._position = next_offset
        self._smallest, self._stride = 0, 1
        return records.slice(begin, size)

    def _ask_ahead(self) -> None:
        if self._connection is not None:
            try:
                self._ask(self._connection)
            except BrokerConnectionError as e:
                _log.debug("%s: the fetch ahead could not be sent: %s", self._partition, e)

    def _widen(self, needed: int) -> None:
        """The first batch did not fit, as may be with brokers that convert what they have for us."""
        if needed <= self._smallest:
            raise self._damaged(f"A record batch of {needed} bytes comes only in part")
        self._smallest = min(needed, _MAX_BYTES - _FRAME_SLACK)

    def _step_over(self, damaged: CorruptRecordError) -> None:
        """Try ever farther offsets: the broker finds its place in the log by its index."""
        if self._stride == 1:
            self._tell(damaged)
        self._position = min(self._position + self._stride, self._end)
        self._stride *= 2

    def _tell(self, damaged: CorruptRecordError) -> None:
        if self._on_corrupt is None:
            raise damaged
        self._on_corrupt(damaged)

    # Trouble

    def _new_patience(self) -> Backoff:
        return Backoff(self._cluster.options, self._options.poll_timeout_ms / 1000)

    def _pause(self, trouble: KafkaLogError, *, refresh: bool = True) -> None:
        if refresh:
            self._replica = None
            self.release()
            self._cluster.forget([self._partition.topic])
        given_up = KafkaLogError(
            f"No records came within kafkaConsumer.pollTimeoutMs = {self._options.poll_timeout_ms}."
            f" The last trouble: {trouble.message}",
            topic_partition=self._partition,
            offset=self._position,
            broker=trouble.broker,
            hint=trouble.hint or "See whether the partition's leader is up and reachable.",
        )
        given_up.__cause__ = trouble
        self._patience.pause(given_up)

    def _broker(self) -> str | None:
        return None if self._connection is None else str(self._connection.address)

    def _trouble(self, message: str) -> KafkaLogError:
        return KafkaLogError(message, topic_partition=self._partition, broker=self._broker())

    def _error(self, code: int) -> KafkaLogError:
        return error_of(code, "Fetching records", broker=self._broker(), topic_partition=self._partition)

    def _damaged(self, message: str, position: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(
            message,
            topic_partition=self._partition,
            offset=self._position,
            position=position,
            broker=self._broker(),
            hint="With failOnDataLoss=false reading goes on at the next valid batch.",
        )

    def _why_out_of_range(self) -> str:
        bounds = self._cluster.call_leaders(
            [self._partition],
            list_offsets.bounds_requests,
            list_offsets.read_bounds,
            doing="Looking up offsets",
            min_version=list_offsets.MIN_VERSION,
            max_version=list_offsets.MAX_VERSION,
        ).get(self._partition)
        if bounds is None:
            return "the partition no longer exists"
        if self._position < bounds.log_start_offset:
            return f"the log now starts at offset {bounds.log_start_offset}"
        return f"the log ends at offset {bounds.high_watermark}"

    def _lost(self, why: str) -> DataLossError:
        return DataLossError(
            f"Offsets {self._position} to {self._end - 1} are gone: {why}",
            topic_partition=self._partition,
            offset=self._position,
            broker=self._broker(),
            hint="With failOnDataLoss=false reading goes on without them.",
        )


def headers_at(
    cluster: Cluster,
    options: FetchOptions,
    partition: TopicPartition,
    offsets: OffsetRange,
    max_bytes: int,
) -> Batches | None:
    """The headers of the first record batches of ``offsets``; None if there are none.

    They take ``max_bytes`` at most, or it is one batch.
    """
    sample = replace(options, max_partition_fetch_bytes=max_bytes)
    fetching = _Fetching(cluster, sample, partition, offsets, False, None)
    try:
        fetched = fetching.records()
        return None if fetched is None else walk(fetched[0])
    finally:
        fetching.release()
