"""Fetches from a partition's leader or a nearby replica (KIP-392), by topic id (KIP-516)."""

from __future__ import annotations

import logging
import struct
import time
from dataclasses import dataclass

import pyarrow as pa
from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.metadata import Leader
from pyspark_kafkalog.broker.fetch.protocol import (
    FIRST_WITH_TOPIC_ID,
    FRAME_SLACK,
    MAX_VERSION,
    MIN_VERSION,
    Fetched,
    Wanted,
    fetch_request,
    read_fetch_response,
)
from pyspark_kafkalog.broker.fetch.rack import rack_of
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of, is_retriable
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.model import Fetch
from pyspark_kafkalog.options.brokers import FetchOptions

_log = logging.getLogger("pyspark_kafkalog")

_BATCH_SIZE = struct.Struct(">8xi")
_MIN_FETCH_BYTES = 64 << 10
"""Bytes to request even on the slowest link: a record batch comes whole, however large (KIP-74)."""
MAX_FETCH_BYTES = (1 << 31) - 1 - FRAME_SLACK


class RetryFetch(Exception):  # noqa: N818 - not an error, but the normal course
    """A fetch that can't be done now; ``error`` says why, and ``refresh`` whether to look up metadata first.

    ``has_paused`` says that the broker asks for a pause, which the connection keeps.
    """

    def __init__(self, error: KafkaLogError, *, refresh: bool = True, has_paused: bool = False) -> None:
        self.error = error
        self.refresh = refresh
        self.has_paused = has_paused


class PartitionGone(Exception):  # noqa: N818
    """The partition or its topic no longer exists; the text says which."""


@dataclass(frozen=True, slots=True)
class FetchParams:
    """The offset and the limits of the next fetch."""

    offset: int
    max_bytes: int
    max_wait_ms: int
    """The time that the broker may wait for records if it has none."""


class LogWentBack(Exception):  # noqa: N818
    """The leader epoch is older than one that was known; the arguments are that one, and the epoch now."""


class FetchLink:
    """Fetches one partition's records, one request at a time, without retries.

    Without a topic id in ``wanted``, the first one found counts.

    :param broker: the one that has been asked already.
    """

    def __init__(
        self, cluster: Cluster, options: FetchOptions, wanted: Fetch, broker: str | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._partition = wanted.partition
        self._read_committed = wanted.read_committed
        self._connection: Connection | None = None
        self._address = broker
        self._version = MAX_VERSION
        self._leader = Leader(-1, -1)
        self._topic_id = wanted.topic_id
        self._replica: int | None = None
        self._replica_until = 0.0
        self._largest = 0
        cluster.metadata.expect_unless_gone(self._partition)
        self._epoch = cluster.metadata.newest_epoch(self._partition)
        """The newest leader epoch that was known, -1 for none."""
        self.max_bytes = options.max_partition_fetch_bytes
        """The most bytes to request, adapted to how long responses take."""

    @property
    def broker(self) -> str | None:
        """``host:port`` of the broker asked last."""
        return self._address

    def error(self, code: int) -> KafkaLogError:
        """The error for a code of this partition."""
        return error_of(code, "Fetching records", broker=self.broker, topic_partition=self._partition)

    def connect(self) -> bool:
        """Connect to a broker; whether it accepts topic ids, as brokers since Kafka 3.1 do.

        :raises RetryFetch: like all other exceptions, as in :meth:`receive`.
        """
        self._connected()
        return self._version >= FIRST_WITH_TOPIC_ID

    def prefetch(self, params: FetchParams) -> None:
        """Send a request if there is a connection; if that fails, :meth:`receive` finds out."""
        if self._connection is not None and not self._connection.closed:
            try:
                self._send(self._connection, params)
            except BrokerConnectionError:
                self.release()

    def receive(self, params: FetchParams) -> tuple[pa.Buffer, Fetched]:
        """The response to the request in flight, or to one that is sent now.

        :raises RetryFetch: if no broker can be asked now.
        :raises PartitionGone: if the partition no longer exists.
        :raises LogWentBack: if its cluster proves to be back at an older leader epoch.
        :raises BrokerConnectionError: if no response came.
        """
        connection = self._connected()
        if not connection.in_flight:
            self._send(connection, params)
        started = time.monotonic()
        stall_ms = self._cluster.options.request_timeout_ms + self._options.fetch_max_wait_ms
        answer = connection.receive_frame(
            pa.allocate_buffer,
            deadline=Deadline.after_ms(max(self._options.poll_timeout_ms, stall_ms)),
            stall=stall_ms / 1000,
            limit=self._largest + FRAME_SLACK,
        )
        try:
            with connection.reading():
                frame = memoryview(answer.buffer).cast("B")
                fetched = read_fetch_response(frame[: answer.size], answer.body, self._version, len(frame))
        except BrokerConnectionError:
            if answer.broken is not None:
                raise answer.broken from None
            raise
        self._fit_to_link(time.monotonic() - started, fetched, is_part=answer.broken is not None)
        if answer.broken is None:
            connection.throttle(fetched.throttle_time_ms)
        else:
            self.release()
            if not _begins_with_batch(frame, fetched):
                raise answer.broken
            _log.info("Continuing with part of a response: %s", answer.broken)
        return answer.buffer, fetched

    def _fit_to_link(self, seconds: float, fetched: Fetched, *, is_part: bool) -> None:
        """Request less if responses are slow or beyond a quota, and more again if they are quick."""
        seconds += fetched.throttle_time_ms / 1000
        share = seconds / (self._cluster.options.request_timeout_ms / 1000)
        if fetched.partition is None and not fetched.error_code:
            # Of many that share a quota, none gets anything while the responses of a few take all of it.
            self.max_bytes = min(_MIN_FETCH_BYTES, self.max_bytes)
        elif is_part or share > 1 / 2:
            self.max_bytes = max(self.max_bytes // 2, min(_MIN_FETCH_BYTES, self.max_bytes))
        elif share < 1 / 8:
            self.max_bytes = min(self.max_bytes * 2, self._options.max_partition_fetch_bytes)

    @property
    def says_when_it_throttles(self) -> bool:
        """Whether the broker of the last response does, or is gone.

        Kafka does, and has had DeleteRecords for as long as its topics have configurations. Azure
        Event Hubs also throttles by mere silence, and lacks it.
        """
        from kafka.protocol.admin import DeleteRecordsRequest

        return self._connection is None or DeleteRecordsRequest.API_KEY in self._connection.versions

    def go_to_replica(self, node_id: int) -> None:
        """Fetch from this broker for metadata.max.age.ms (as Java does)."""
        self.release()
        self._replica = node_id
        self._replica_until = time.monotonic() + self._cluster.options.metadata_max_age_ms / 1000

    def go_to_leader(self) -> bool:
        """Fetch from the leader from now on; whether a replica was used before."""
        was_replica = self._replica is not None
        self._replica = None
        self.release()
        return was_replica

    def release(self) -> None:
        """Return the connection; one that owes a response is closed."""
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
                raise RetryFetch(self.error(ErrorCode.LEADER_NOT_AVAILABLE))
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
            error = self.error(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code and not is_retriable(code):
                raise error
            if self._cluster.metadata.is_gone(self._partition):
                raise PartitionGone("the partition no longer exists")
            raise RetryFetch(error)
        if self._cluster.metadata.is_recreated(self._partition.topic, self._topic_id):
            raise PartitionGone("the topic was deleted and recreated")
        self._topic_id = self._topic_id or topic.topic_id
        if -1 < leader.epoch < self._epoch:
            raise LogWentBack(self._epoch, leader.epoch)
        self._epoch = max(self._epoch, leader.epoch)
        return leader

    def _send(self, connection: Connection, params: FetchParams) -> None:
        options = self._options
        self._largest = max(options.fetch_max_bytes, params.max_bytes)
        request = fetch_request(
            [Wanted(self._partition, self._topic_id, self._leader.epoch, params.offset, params.max_bytes)],
            max_bytes=self._largest,
            min_bytes=max(options.fetch_min_bytes, 1),
            max_wait_ms=params.max_wait_ms,
            read_committed=self._read_committed,
            rack=rack_of(options.client_rack),
        )
        deadline = Deadline.after_ms(
            self._options.poll_timeout_ms
        )  # includes a pause that the broker asks for
        connection.send(request, max_version=self._version, deadline=deadline)


def _begins_with_batch(frame: memoryview, fetched: Fetched) -> bool:
    """Whether the first record batch (base offset int64, size int32, ...) is complete, or none will come."""
    found = fetched.partition
    if found is None or found.error_code:
        return True
    if found.size < _BATCH_SIZE.size:
        return False
    (size,) = _BATCH_SIZE.unpack_from(frame, found.position)
    return bool(0 <= size <= found.size - _BATCH_SIZE.size)
