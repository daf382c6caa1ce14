"""Sends record batches to the leaders of their partitions: acknowledged, in order, and once if idempotent.

:class:`~pyspark_kafkalog.broker.produce.state.ProduceState` decides; this module
moves the bytes. Nothing runs in the background: while rows are encoded, requests
and responses wait in the sockets' buffers, and each :meth:`Producer.advance`
takes the responses that have arrived and sends what may follow. Only an append
beyond ``buffer.memory`` and :meth:`Producer.finish` wait.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.metadata import MAX_VERSION as METADATA_VERSION
from pyspark_kafkalog.broker.cluster.metadata import cluster_id_at, metadata_request
from pyspark_kafkalog.broker.produce import ids as produce_ids
from pyspark_kafkalog.broker.produce.protocol import (
    MAX_VERSION,
    MIN_VERSION,
    produce_request,
)
from pyspark_kafkalog.broker.produce.state import (
    PartitionResult,
    ProduceAnswer,
    ProduceLimits,
    ProduceState,
    Request,
)
from pyspark_kafkalog.broker.produce.topics import ProducerTopics, forget_limits
from pyspark_kafkalog.broker.wire.connection import Connection, readable
from pyspark_kafkalog.broker.wire.deadline import SHORTEST_WAIT, Deadline
from pyspark_kafkalog.codec import write_kernels
from pyspark_kafkalog.codec.format import OFFSET
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaLogError,
    RecordTooLargeError,
)
from pyspark_kafkalog.model import Encoded, EncodeSettings, TopicPartition
from pyspark_kafkalog.options.brokers import ProduceOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

_MIN_SEND_BYTES = 256 << 10
"""Bytes to collect before sending while more may follow, so that small batches share requests."""

_log = logging.getLogger("pyspark_kafkalog")


class _Clock:
    """Seconds of work with brokers. It stands still while rows are computed, as brokers are not to blame."""

    def __init__(self) -> None:
        self._stopped = self._stopped_at = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._stopped

    @contextmanager
    def running(self) -> Iterator[None]:
        self._stopped += time.monotonic() - self._stopped_at
        try:
            yield
        finally:
            self._stopped_at = time.monotonic()


class Transaction(NamedTuple):
    """An open transaction (KIP-98).

    ``ends`` are offsets of its partitions from before its first record: see :class:`.state.ProduceState`.
    """

    transactional_id: str
    producer_id: produce_ids.ProducerId
    ends: Mapping[TopicPartition, int]


class Producer:
    """Writes the record batches of one task. It is a context manager: without :meth:`finish`, leaving it
    drops what is not acknowledged yet.

    :param settings: how to encode, before a topic and a producer id are known.
    :param transaction: that all record batches belong to, each stamped already; None without one.
    :param stamped_by: the producer id that all record batches are stamped with already, outside of any
        transaction; None for one of this process.
    :param listener: hears what becomes of each record batch; None if nothing listens.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ProduceOptions,
        settings: EncodeSettings,
        *,
        transaction: Transaction | None = None,
        stamped_by: produce_ids.ProducerId | None = None,
        listener: WriteListener | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._delivery_timeout = options.delivery_timeout_ms / 1000
        self._topics = ProducerTopics(cluster, options, settings)
        self._transactional_id = transaction and transaction.transactional_id
        given = stamped_by if transaction is None else transaction.producer_id
        self._producer_id: produce_ids.ProducerId | None = given
        self._is_borrowed = given is None
        self._connections: dict[int, Connection] = {}
        self._clock = _Clock()
        self._deadlines: defaultdict[int, deque[Deadline]] = defaultdict(deque)
        """The deadlines of the responses to the requests in flight, by broker."""
        self._state = ProduceState(
            ProduceLimits(
                max_in_flight=options.max_in_flight,
                max_request_size=options.max_request_size,
                retries=options.retries,
                delivery_timeout=self._delivery_timeout,
                retry_backoff=cluster.options.retry_backoff_ms / 1000,
                retry_backoff_max=cluster.options.retry_backoff_max_ms / 1000,
            ),
            ends={} if transaction is None else transaction.ends,
            listener=listener,
        )
        self._listener = listener

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            self._cluster.release(connection)
        self._connections.clear()
        self._state.give_up(error.message if isinstance(error, KafkaLogError) else None)

    def partition_count(self, topic: str) -> int:
        """See :meth:`.topics.ProducerTopics.partition_count`."""
        return self._topics.partition_count(topic)

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`.topics.ProducerTopics.has_partition`."""
        return self._topics.has_partition(partition)

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """The encoder's settings for a partition's next records: its sequence numbers, its topic's limits."""
        settings = self._topics.settings(partition.topic)
        if not self._options.enable_idempotence:
            return settings
        producer_id = self._producer_id
        if producer_id is None:
            cluster, timeout = self._cluster, self._delivery_timeout
            producer_id = produce_ids.borrow(
                cluster.options,
                lambda topics: cluster.identity(topics, deadline=Deadline.after(timeout)),
                lambda: cluster.producer_id(deadline=Deadline.after(timeout)),
            )
            self._producer_id = producer_id
        return replace(
            settings,
            producer_id=producer_id.id,
            producer_epoch=producer_id.epoch,
            base_sequence=producer_id.sequences[partition],
        )

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Queue record batches; those of one partition are written in the order of the calls.

        :raises KafkaLogError: if a batch appended earlier cannot be written.
        """
        positions = encoded.positions
        # Brokers recompress a compressed batch whose base offset is not 0.
        write_kernels.put_ints(encoded.data, positions + OFFSET, np.zeros_like(positions), 8)
        data = encoded.data.data
        sizes, counts = encoded.sizes.tolist(), encoded.counts.tolist()
        rows = zip(positions.tolist(), sizes, counts, encoded.sizes_without_compression(), strict=True)
        pieces = [(data[position : position + size], count, plain) for position, size, count, plain in rows]
        if self._producer_id is not None:
            self._producer_id.advance(partition, encoded.records)
        with self._clock.running():
            self._state.append(partition, pieces, self._clock.now())
            while self._state.unacknowledged_bytes > self._options.buffer_memory:
                self._pump(wait=True)

    def advance(self, *, flush: bool = False) -> None:
        """Send queued batches, if there are enough or to ``flush``, and read the responses that have arrived.

        To ``flush``, wait for a broker that is gone: nothing else tries again until more rows come.

        :raises KafkaLogError: if a batch cannot be written.
        """
        if flush or self._state.waiting_bytes >= _MIN_SEND_BYTES:
            with self._clock.running():
                self._pump(wait=False)
                while flush and self._state.waiting_bytes and not self._state.in_flight():
                    self._pump(wait=True)

    def visible_records(self) -> int:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.visible_records`: those that brokers acknowledge.

        Waits for what is on its way, unless that fails.
        """
        with suppress(KafkaLogError), self._clock.running():
            while not self._state.is_idle:
                self._pump(wait=True)
        return sum(result.records for result in self._state.results().values())

    def finish(self) -> dict[TopicPartition, PartitionResult]:
        """Wait until all is acknowledged, or with acks=0 read by the brokers; returns what was written.

        :raises KafkaLogError: if a batch cannot be written.
        """
        with self._clock.running():
            while not self._state.is_idle:
                self._pump(wait=True)
        if self._options.acks == 0:
            self._wait_until_read()
        may_reuse = self._is_borrowed and self._can_reuse_producer_id()
        if self._producer_id is not None and may_reuse:
            known = self._cluster.metadata.topics
            topics = {partition.topic for partition in self._producer_id.sequences} & known.keys()
            self._producer_id.topic_ids = {topic: known[topic].topic_id for topic in topics}
            produce_ids.give_back(self._cluster.options, self._producer_id)
        self._producer_id = None
        return self._state.results()

    def _pump(self, *, wait: bool) -> None:
        """Take the responses that have arrived and send what may be sent; then ``wait`` for more to do."""
        self._receive(0)
        self._state.check_expired(self._clock.now())
        self._look_up_leaders()
        while (request := self._state.next_request(self._clock.now())) is not None:
            self._send(request)
        if wait and not self._state.is_idle:
            self._wait()

    def _wait(self) -> None:
        wake_at = self._state.wake_at()
        pauses = [deadlines[0].left for deadlines in self._deadlines.values() if deadlines]
        if wake_at is not None:
            pauses.append(wake_at - self._clock.now())
        pause = max(min(pauses), 0)
        if self._state.in_flight():
            self._receive(pause)
        else:
            time.sleep(pause)

    def _look_up_leaders(self) -> None:
        partitions = self._state.leaderless(self._clock.now())
        if not partitions:
            return
        try:
            found = {p: self._cluster.leader(p, deadline=self._deadline()) for p in partitions}
        except BrokerConnectionError as e:
            self._state.no_leader(partitions, _reason(e), self._clock.now())
            return
        brokers = self._cluster.metadata.brokers
        leaders = {p: leader.node_id for p, leader in found.items() if leader and leader.node_id in brokers}
        self._state.set_leaders(leaders)
        leaderless = found.keys() - leaders.keys()
        self._cluster.forget({partition.topic for partition in leaderless})
        self._state.no_leader(leaderless, "the partition has no leader", self._clock.now())

    def _send(self, request: Request) -> None:
        node, options = request.node, self._options
        try:
            connection = self._connections.get(node)
            if connection is None:
                connection = self._cluster.connection(node, deadline=self._deadline())
                self._connections[node] = connection
        except BrokerConnectionError as e:
            self._lost(node, _reason(e), unsent=request)
            return
        try:
            self._check_cluster(connection)
            version = _version(connection)
        except BrokerConnectionError as e:
            self._lost(node, _reason(e), unsent=request)
            return
        except BrokerError as e:
            self._lost(node, e.message, unsent=request)
            raise
        batches = [(batch.partition, batch.data) for batch in request.batches]
        body = produce_request(
            version,
            options.acks,
            options.request_timeout_ms,
            batches,
            transactional_id=self._transactional_id,
        )
        if self._listener is not None:
            self._listener.sending(node, request.batches)
        try:
            connection.send_body(
                ProduceRequest,
                version,
                body,
                expect_response=options.acks != 0,
                deadline=self._deadline(),
            )
        except BrokerConnectionError as e:
            self._lost(node, _reason(e))
            return
        if options.acks == 0:
            self._state.delivered(node)
        else:
            self._deadlines[node].append(Deadline.after_ms(options.request_timeout_ms))

    def _check_cluster(self, connection: Connection) -> None:
        """Check that the connection leads to the cluster that gave the producer id.

        :raises BrokerError: if it leads to another one, which may have given the id to another producer.
        """
        if self._producer_id is None:
            return
        cluster_id = cluster_id_at(connection, deadline=self._deadline())
        if cluster_id != self._producer_id.cluster_id:
            raise BrokerError(
                f"The cluster was replaced during the write: expected cluster id"
                f" {self._producer_id.cluster_id}, got {cluster_id}",
                broker=str(connection.address),
                hint="Earlier records are in the old cluster only. Run the write again.",
            )

    def _deadline(self) -> Deadline:
        """The deadline of the next step, by the delivery timeout."""
        return Deadline.after(max(self._state.time_left(self._clock.now()), SHORTEST_WAIT))

    def _receive(self, timeout: float) -> None:
        """Take all responses that have arrived, waiting up to ``timeout`` seconds for the first."""
        while nodes := {self._connections[node]: node for node in self._state.nodes_in_flight()}:
            ready = readable(nodes, timeout)
            for connection in ready:
                self._take_answer(nodes[connection], connection)
            if not ready:
                break
            timeout = 0
        for node, deadlines in list(self._deadlines.items()):
            if deadlines and deadlines[0].expired:
                self._lost(
                    node, f"no response within request.timeout.ms = {self._options.request_timeout_ms}"
                )

    def _take_answer(self, node: int, connection: Connection) -> None:
        try:
            answered_by = Deadline.after_ms(self._options.request_timeout_ms)
            response = connection.receive(deadline=self._deadline().bounded_by(answered_by))
        except BrokerConnectionError as e:
            self._lost(node, _reason(e))
            return
        self._deadlines[node].popleft()
        answers = {
            TopicPartition(topic.name, answer.index): ProduceAnswer(
                answer.error_code, answer.base_offset, answer.error_message, answer.log_append_time_ms
            )
            for topic in response.responses
            for answer in topic.partition_responses
        }
        try:
            self._state.answered(node, answers, self._clock.now())
            self._apply_throttle(node, response.throttle_time_ms / 1000)
        except RecordTooLargeError:
            for partition in answers:
                forget_limits(self._cluster, partition.topic)
            raise
        self._forget_leaders()

    def _apply_throttle(self, node: int, seconds: float) -> None:
        """Extend a broker's deadlines by the seconds in which it reads none of our requests (KIP-219)."""
        if seconds > 0:
            self._state.throttled(node, self._clock.now() + seconds)
            self._deadlines[node] = deque(Deadline(due.at + seconds) for due in self._deadlines[node])
            if self._listener is not None:
                self._listener.throttled(node, seconds)

    def _lost(self, node: int, reason: str, *, unsent: Request | None = None) -> None:
        _log.debug("Lost the connection to broker %d: %s", node, reason)
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        self._deadlines.pop(node, None)
        self._state.lost(node, reason, self._clock.now(), unsent=unsent)
        self._forget_leaders()

    def _forget_leaders(self) -> None:
        self._cluster.forget({partition.topic for partition in self._state.leaderless(math.inf)})

    def _wait_until_read(self) -> None:
        """A broker processes a connection's requests in order: this response covers all before."""
        for connection in self._connections.values():
            try:
                connection.call(metadata_request([], create=False), max_version=METADATA_VERSION)
            except BrokerConnectionError as e:
                _log.warning("With acks=0, some records may not have been written: %s", e)

    def _can_reuse_producer_id(self) -> bool:
        api = InitProducerIdRequest.API_KEY
        versions = [connection.versions.get(api, (0, 0)) for connection in self._connections.values()]
        return all(highest >= produce_ids.KIP_360 for _, highest in versions)


def _version(connection: Connection) -> int:
    version = connection.version_of(ProduceRequest, max_version=MAX_VERSION)
    if version < MIN_VERSION:
        raise BrokerError(
            "Expected Kafka 0.11 or newer, whose record batches have format v2; the broker is older",
            broker=str(connection.address),
        )
    return version


def _reason(error: BrokerConnectionError) -> str:
    return error.message if error.broker is None else f"{error.message} (broker {error.broker})"
