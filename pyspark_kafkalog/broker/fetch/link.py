"""The way to a partition's records: its leader or a replica near by (KIP-392), by topic id (KIP-516)."""

from __future__ import annotations

import base64
import logging
import struct
import time
import uuid
from dataclasses import dataclass

import pyarrow as pa
from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.metadata import Leader
from pyspark_kafkalog.broker.fetch.response import (
    FIRST_WITH_TOPIC_ID,
    MAX_VERSION,
    MIN_VERSION,
    Fetched,
    read_fetch_response,
)
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.error_codes import (
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_of,
    is_retriable,
)
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_log = logging.getLogger("pyspark_kafkalog")

_BATCH_SIZE = struct.Struct(">8xi")
_LEAST_FETCH = 64 << 10
"""Bytes that are asked for even on the slowest link: a record batch comes whole, however large (KIP-74)."""
LARGEST_FETCH = (1 << 31) - 1 - (64 << 20)
_FRAME_SLACK = 64 << 20
"""By how much a response may exceed what was asked for: a first batch comes whole, however large (KIP-74)."""


class AskAgain(Exception):  # noqa: N818 - not an error, but the course of things
    """There is nothing to fetch now; ``trouble`` says why, and ``refresh`` whether to look up metadata."""

    def __init__(self, trouble: KafkaLogError, *, refresh: bool = True) -> None:
        self.trouble = trouble
        self.refresh = refresh


class PartitionGone(Exception):  # noqa: N818
    """The partition, or the topic that it was of, is no longer there; the text says which."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask for next."""

    offset: int
    max_bytes: int
    read_committed: bool
    max_wait_ms: int
    """For how long the broker may wait for records where it has none."""


class FetchLink:
    """Asks for one partition's records, one request at a time. Nothing is tried twice here.

    :param topic_id: that of its topic; by default the one that is found first.
    """

    def __init__(
        self, cluster: Cluster, options: FetchOptions, partition: TopicPartition, topic_id: str = ""
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._partition = partition
        self._connection: Connection | None = None
        self._address: str | None = None
        self._version = MAX_VERSION
        self._leader = Leader(-1, -1)
        self._topic_id = topic_id
        self._replica: int | None = None
        self._replica_until = 0.0
        self._largest = 0
        cluster.metadata.expect(partition)
        self.max_bytes = options.max_partition_fetch_bytes
        """How much to ask for at most, as what was asked for took to come."""

    @property
    def broker(self) -> str | None:
        """``host:port`` of the broker that was asked last."""
        return self._address

    def error(self, code: int) -> KafkaLogError:
        """The error for a code of this partition."""
        return error_of(code, "Fetching records", broker=self.broker, topic_partition=self._partition)

    def connect(self) -> bool:
        """Find a broker to ask; whether it is asked by topic id, as those since Kafka 3.1 are.

        :raises AskAgain: as :meth:`receive`, like the others.
        """
        self._connected()
        return self._version >= FIRST_WITH_TOPIC_ID

    def ask_ahead(self, wanted: Wanted) -> None:
        """Send a request, if there is a connection; :meth:`receive` finds out if that fails."""
        if self._connection is not None and not self._connection.closed:
            try:
                self._ask(self._connection, wanted)
            except BrokerConnectionError:
                self.release()

    def receive(self, wanted: Wanted) -> tuple[pa.Buffer, Fetched]:
        """The answer to the last request, or to one that is sent now.

        :raises AskAgain: if nobody can be asked now.
        :raises PartitionGone: if there is nothing to ask for any more.
        :raises BrokerConnectionError: if no answer came.
        """
        connection = self._connected()
        if not connection.in_flight:
            self._ask(connection, wanted)
        begun = time.monotonic()
        stall_ms = self._cluster.options.request_timeout_ms + self._options.fetch_max_wait_ms
        answer = connection.receive_frame(
            pa.allocate_buffer,
            timeout=max(self._options.poll_timeout_ms, stall_ms) / 1000,
            stall=stall_ms / 1000,
            limit=self._largest + _FRAME_SLACK,
        )
        try:
            with connection.reading():
                frame = memoryview(answer.buffer).cast("B")
                fetched = read_fetch_response(frame[: answer.size], answer.body, self._version, len(frame))
        except BrokerConnectionError:
            if answer.broken is not None:
                raise answer.broken from None
            raise
        self._fit_to_link(time.monotonic() - begun, fetched, is_part=answer.broken is not None)
        if answer.broken is None:
            connection.throttle(fetched.throttle_time_ms)
        else:
            self.release()
            if not _begins_with_batch(frame, fetched):
                raise answer.broken
            _log.info("Reading on with a part of an answer: %s", answer.broken)
        return answer.buffer, fetched

    def _fit_to_link(self, seconds: float, fetched: Fetched, *, is_part: bool) -> None:
        """Ask for less where an answer is long in coming, and again for more where it is quick."""
        seconds += fetched.throttle_time_ms / 1000
        share = seconds / (self._cluster.options.request_timeout_ms / 1000)
        if is_part or share > 1 / 2:
            self.max_bytes = max(self.max_bytes // 2, min(_LEAST_FETCH, self.max_bytes))
        elif share < 1 / 8:
            self.max_bytes = min(self.max_bytes * 2, self._options.max_partition_fetch_bytes)

    def go_to_replica(self, node_id: int) -> None:
        """Ask this broker from now on, for metadata.max.age.ms (Java does so, too)."""
        self.release()
        self._replica = node_id
        self._replica_until = time.monotonic() + self._cluster.options.metadata_max_age_ms / 1000

    def go_to_leader(self) -> bool:
        """Ask the leader from now on; whether it was another that was asked before."""
        was_elsewhere = self._replica is not None
        self._replica = None
        self.release()
        return was_elsewhere

    def release(self) -> None:
        """Leave the connection to others; one that owes an answer is closed."""
        if self._connection is not None:
            self._cluster.release(self._connection)
            self._connection = None

    def _connected(self) -> Connection:
        if self._replica is not None and time.monotonic() > self._replica_until:
            self.go_to_leader()
        if self._connection is None:
            self._leader = self._find_leader()
            node_id = self._leader.node_id if self._replica is None else self._replica
            if node_id not in self._cluster.metadata.brokers:
                raise AskAgain(self.error(LEADER_NOT_AVAILABLE))
            self._connection = self._cluster.connection(node_id)
            self._address = str(self._connection.address)
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
            trouble = self.error(code or UNKNOWN_TOPIC_OR_PARTITION)
            if code and not is_retriable(code):
                raise trouble
            if self._cluster.metadata.is_gone(self._partition):
                raise PartitionGone("the partition no longer exists")
            raise AskAgain(trouble)
        if self._cluster.metadata.is_another(self._partition.topic, self._topic_id):
            raise PartitionGone("the topic was deleted and created anew")
        self._topic_id = self._topic_id or topic.topic_id
        return leader

    def _ask(self, connection: Connection, wanted: Wanted) -> None:
        options, topic = self._options, FetchRequest.FetchTopic
        self._largest = max(options.fetch_max_bytes, wanted.max_bytes)
        partition = topic.FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=self._leader.epoch,
            fetch_offset=wanted.offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=wanted.max_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=wanted.max_wait_ms,
            min_bytes=max(options.fetch_min_bytes, 1),
            max_bytes=self._largest,
            isolation_level=int(wanted.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                topic(topic=self._partition.topic, topic_id=_uuid(self._topic_id), partitions=[partition])
            ],
            forgotten_topics_data=[],
            rack_id=options.client_rack,
        )
        timeout = self._options.poll_timeout_ms / 1000  # also of a pause that the broker asks for
        connection.send(request, max_version=self._version, timeout=timeout)


def _begins_with_batch(frame: memoryview, fetched: Fetched) -> bool:
    """Whether the first record batch (base offset int64, size int32, ...) is all there, or none will come."""
    found = fetched.partition
    if found is None or found.error_code:
        return True
    if found.size < _BATCH_SIZE.size:
        return False
    (size,) = _BATCH_SIZE.unpack_from(frame, found.position)
    return bool(0 <= size <= found.size - _BATCH_SIZE.size)


def _uuid(topic_id: str) -> uuid.UUID | None:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")) if topic_id else None
