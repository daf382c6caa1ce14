"""The state of a producer: which record batches to send where, and what responses mean. It does no I/O.

The rules are those of Kafka's RecordAccumulator and Sender, with KIP-98 and
KIP-360 for the order of idempotent batches:

- A request carries one record batch per partition, as brokers allow no more.
- The batches of a partition are sent in order, and several in a row only after
  the partition has acknowledged one since the start or its last failure. For a
  broker that does not know a producer accepts any first sequence number, so no
  batch may overtake the first one; and a batch that failed has to be in the log
  before those behind it.
- A failed batch is sent again, byte for byte, so that a broker that already has it
  recognizes it. No other batch is sent twice.
- Once a batch can't be written, nothing more is sent: what is in flight still
  gets its answer, and all else leaves the state.

Times are seconds of one monotonic clock. The caller passes them in, and may stop
the clock while it cannot send.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.broker.produce.protocol import (
    Reaction,
    reaction_to,
    refusal,
)
from pyspark_kafkalog.broker.wire.error_codes import name_of
from pyspark_kafkalog.errors import (
    BrokerError,
    KafkaLogError,
)
from pyspark_kafkalog.model import TopicPartition

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

_GIVEN_UP = "another record batch of the task could not be written"


class OldAnswerError(BrokerError):
    """A broker took a record batch for one that it has had since before the first was sent."""


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The records written to a partition. Offsets are -1 if the broker gave none (acks=0, duplicates)."""

    records: int
    batches: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """The limits of a producer, named like Kafka's producer configs; times in seconds."""

    max_in_flight: int = 5
    max_request_size: int = 1048576
    retries: int = 2147483647
    delivery_timeout: float = 120.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """A broker's answer for one partition of a request."""

    error_code: int
    base_offset: int = -1
    message: str | None = None
    append_time: int = -1
    """ms since the epoch, if the topic has LogAppendTime."""

    @property
    def reason(self) -> str:
        return name_of(self.error_code) + (f" ({self.message})" if self.message else "")


@dataclass(slots=True, eq=False)
class Batch:
    """A record batch to send: see :class:`pyspark_kafkalog.model.listening.BatchOnItsWay`.

    ``data`` is empty once the batch is written, or never will be.
    """

    partition: TopicPartition
    data: memoryview
    records: int
    plain_size: int
    number: int
    created: float
    attempts: int = 0
    last_error: str = "not sent yet"
    done: bool = False

    @property
    def size(self) -> int:
        """Bytes of the batch."""
        return len(self.data)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request to one broker: one batch each of several partitions."""

    node: int
    batches: Sequence[Batch]


@dataclass(slots=True, eq=False)
class _Partition:
    waiting: deque[Batch]
    """The batches to send, in the order of their numbers: failed ones come before those never sent."""
    leader: int | None = None
    in_flight: int = 0
    in_flight_node: int | None = None
    acknowledges: bool = False
    """Whether the last answer, if any, was a success."""
    not_before: float = 0.0
    """The time before which nothing is sent, and the leader is not looked up."""
    look_ups: int = 0
    """The number of look-ups in a row that found no leader."""
    appended: int = 0
    records: int = 0
    batches: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def may_follow(self, node: int) -> bool:
        """Whether the next batch may be sent, from ``not_before`` on, without waiting for an answer."""
        return self.in_flight == 0 or (self.acknowledges and self.in_flight_node == node)


class ProduceState:
    """The queues of one producer.

    The caller appends, looks up the leaders of :meth:`leaderless` partitions, takes
    requests and sends them, reports their outcomes, for each broker in the order in
    which it sent them, and calls :meth:`check_expired` before it waits.

    :param ends: offsets of partitions from before the first batch. A success below, or without an offset, is
        that of an earlier batch with the same producer id, epoch and sequence numbers: the batch is not in
        the log. What is sent twice is answered with the offset that it got, which is not below.
    :param listener: hears what becomes of each batch; None if nothing listens.
    """

    def __init__(
        self,
        limits: ProduceLimits,
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        listener: WriteListener | None = None,
    ) -> None:
        self.waiting_bytes = 0
        self.unacknowledged_bytes = 0
        self._limits = limits
        self._ends = ends or {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ready: defaultdict[int, dict[TopicPartition, _Partition]] = defaultdict(dict)
        """The partitions with batches to send, by leader, in the order in which they are served."""
        self._leaderless: dict[TopicPartition, _Partition] = {}
        """Partitions with batches to send and no known leader."""
        self._in_flight: defaultdict[int, deque[Request]] = defaultdict(deque)
        self._throttled_until: dict[int, float] = {}
        """The time before which a broker that throttles us must not be sent anything."""
        self._by_age: deque[Batch] = deque()
        self._has_failed = False
        self._listener = listener

    def append(
        self, partition: TopicPartition, batches: Iterable[tuple[memoryview, int, int]], now: float
    ) -> None:
        """Queue record batches behind the partition's earlier ones.

        :param batches: each with its number of records, and its size in bytes without compression.
        """
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = _Partition(deque())
        for data, records, plain_size in batches:
            batch = Batch(partition, data, records, plain_size, state.appended, now)
            state.appended += 1
            state.waiting.append(batch)
            self._by_age.append(batch)
            self.waiting_bytes += len(data)
            self.unacknowledged_bytes += len(data)
            if self._listener is not None:
                self._listener.enqueued(batch)
        if state.waiting:
            self._queue(state.leader).setdefault(partition, state)

    def leaderless(self, now: float) -> list[TopicPartition]:
        """Partitions with batches to send whose leader should be looked up now."""
        return [partition for partition, state in self._leaderless.items() if now >= state.not_before]

    def set_leaders(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Note the leaders of partitions."""
        for partition, leader in leaders.items():
            state = self._partitions.get(partition)
            if state is not None and state.leader != leader:
                self._move(partition, state, leader)

    def no_leader(self, partitions: Iterable[TopicPartition], reason: str, now: float) -> None:
        """Note that a look-up did not find these leaders: the next look-up has to wait."""
        for partition in partitions:
            state = self._partitions[partition]
            self._move(partition, state, None)
            state.not_before = now + self._backoff(state.look_ups)
            state.look_ups += 1
            if state.waiting:
                state.waiting[0].last_error = reason

    def _backoff(self, earlier: int) -> float:
        """The pause before another attempt, after ``earlier`` attempts (KIP-580)."""
        return min(self._limits.retry_backoff * 2.0 ** min(earlier, 30), self._limits.retry_backoff_max)

    def next_request(self, now: float) -> Request | None:
        """A request to send now, if there is one; call again until there is none."""
        for node, ready in self._ready.items():
            if ready and self._has_room(node) and now >= self._throttled_until.get(node, 0.0):
                batches = self._take(node, ready, now)
                if batches:
                    request = Request(node, batches)
                    self._in_flight[node].append(request)
                    return request
        return None

    def _take(self, node: int, ready: dict[TopicPartition, _Partition], now: float) -> list[Batch]:
        batches: list[Batch] = []
        size = 0
        for partition in list(ready):
            state = ready[partition]
            if now < state.not_before or not state.may_follow(node):
                continue
            next_size = size + len(state.waiting[0].data)
            if batches and next_size > self._limits.max_request_size:
                break
            size = next_size
            batch = state.waiting.popleft()
            batch.attempts += 1
            batch.last_error = "no response came"
            batches.append(batch)
            state.in_flight += 1
            state.in_flight_node = node
            del ready[partition]
            if state.waiting:
                ready[partition] = state
        self.waiting_bytes -= size
        return batches

    def throttled(self, node: int, until: float) -> None:
        """Note that the broker wants no requests before then (KIP-219)."""
        self._throttled_until[node] = until
        for state in self._ready[node].values():
            state.waiting[0].last_error = "a quota of the cluster throttles this client"

    def in_flight(self, node: int | None = None) -> int:
        """The number of requests without a response yet, to one broker or to all."""
        if node is not None:
            return len(self._in_flight[node])
        return sum(map(len, self._in_flight.values()))

    def nodes_in_flight(self) -> list[int]:
        """The brokers that owe a response."""
        return [node for node, requests in self._in_flight.items() if requests]

    def answered(self, node: int, answers: Mapping[TopicPartition, ProduceAnswer], now: float) -> None:
        """Note the broker's response to the oldest of its requests in flight.

        :raises KafkaLogError: if a batch cannot be written, the first time.
        """
        refused: list[KafkaLogError | None] = []
        for batch in self._in_flight[node].popleft().batches:
            answer = answers.get(batch.partition)
            if answer is None:
                refused.append(self._failed(batch, _unanswered(batch, node)))
            else:
                refused.append(self._handle_answer(batch, answer, now))
        self._raise_first(refused)

    def delivered(self, node: int) -> None:
        """Note that the oldest request to the broker was sent, and gets no response (acks=0)."""
        for batch in self._in_flight[node].popleft().batches:
            self._handle_answer(batch, ProduceAnswer(0), 0.0)

    def lost(self, node: int, reason: str, now: float, *, unsent: Request | None = None) -> None:
        """Note that the connection broke: what is in flight may or may not have been written.

        :param unsent: the request that could not be sent for lack of a connection.
        :raises KafkaLogError: if a batch has no retry left.
        """
        refused: list[KafkaLogError | None] = []
        for request in self._in_flight.pop(node, ()):
            for batch in request.batches:
                if request is unsent:
                    batch.attempts -= 1
                    self._put_back(batch)
                else:
                    refused.append(self._retry(batch, reason, now, refresh=True))
        self._raise_first(refused)
        if unsent is not None:  # the broker's other partitions cannot be sent either
            self.no_leader(list(self._ready[node]), reason, now)

    def _raise_first(self, refused: Iterable[KafkaLogError | None]) -> None:
        """Raise the first error, unless one was raised before; after an error drop what is not in flight."""
        error = next((error for error in refused if error is not None), None)
        has_failed, self._has_failed = self._has_failed, self._has_failed or error is not None
        if not self._has_failed:
            return
        for state in self._partitions.values():
            while state.waiting:
                batch = state.waiting.popleft()
                if self._listener is not None:
                    self._listener.failed(batch, _GIVEN_UP)
                self._drop(batch)
        self._ready.clear()
        self._leaderless.clear()
        self.waiting_bytes = 0
        if error is not None and not has_failed:
            raise error

    def _failed(self, batch: Batch, error: KafkaLogError) -> KafkaLogError:
        """``error``; its batch, which was in flight, is not in flight any more."""
        self._partitions[batch.partition].in_flight -= 1
        if self._listener is not None:
            self._listener.failed(batch, error.message)
        self._drop(batch)
        return error

    def _drop(self, batch: Batch) -> None:
        """Forget a batch that is written, or never will be."""
        batch.done = True
        self.unacknowledged_bytes -= len(batch.data)
        batch.data = memoryview(b"")

    def _handle_answer(self, batch: Batch, answer: ProduceAnswer, now: float) -> KafkaLogError | None:
        """Note an answer; returned is why the batch can't be written."""
        state = self._partitions[batch.partition]
        reaction = reaction_to(answer.error_code)
        if reaction is Reaction.DONE:
            if answer.base_offset < self._ends.get(batch.partition, answer.base_offset):
                return self._failed(batch, _old(batch, answer, self._ends[batch.partition]))
            state.in_flight -= 1
            state.acknowledges = True
            state.look_ups = 0
            state.records += batch.records
            state.batches += 1
            if answer.base_offset >= 0:
                state.last_offset = answer.base_offset + batch.records - 1
                if state.first_offset < 0:
                    state.first_offset = answer.base_offset
            if self._listener is not None:
                self._listener.acknowledged(batch, answer.base_offset, answer.append_time)
            self._drop(batch)
            return None
        if reaction is Reaction.FAIL or (
            reaction is Reaction.RETRY_BEHIND and not self._waits_for_earlier(batch, state)
        ):
            return self._failed(
                batch,
                refusal(answer.error_code, answer.message, batch.records, len(batch.data), batch.partition),
            )
        return self._retry(batch, answer.reason, now, refresh=reaction is Reaction.REFRESH)

    @staticmethod
    def _waits_for_earlier(batch: Batch, state: _Partition) -> bool:
        """Whether an earlier batch has yet to be written; answers come in order, so it is already waiting."""
        return bool(state.waiting) and state.waiting[0].number < batch.number

    def _retry(self, batch: Batch, reason: str, now: float, *, refresh: bool) -> KafkaLogError | None:
        """Queue a batch again; returned is why it is not sent once more."""
        batch.last_error = reason
        if batch.attempts > self._limits.retries:
            error = BrokerError(
                f"A record batch was not written in {batch.attempts} attempts: {reason}",
                topic_partition=batch.partition,
                hint="Raise kafka.retries, or omit it: kafka.delivery.timeout.ms also limits the attempts.",
            )
            return self._failed(batch, error)
        state = self._put_back(batch)
        state.not_before = now + self._backoff(batch.attempts - 1)
        self._move(batch.partition, state, None if refresh else state.leader)
        if self._listener is not None:
            self._listener.retried(batch, reason)
        return None

    def _put_back(self, batch: Batch) -> _Partition:
        """Queue a batch again, in its place."""
        state = self._partitions[batch.partition]
        state.in_flight -= 1
        state.acknowledges = False
        place = next(
            (i for i, other in enumerate(state.waiting) if other.number > batch.number), len(state.waiting)
        )
        state.waiting.insert(place, batch)
        self.waiting_bytes += len(batch.data)
        self._move(batch.partition, state, state.leader)
        return state

    def _move(self, partition: TopicPartition, state: _Partition, leader: int | None) -> None:
        """Note the partition's leader, and move it, if it has anything to send, to that leader's queue."""
        self._queue(state.leader).pop(partition, None)
        state.leader = leader
        if state.waiting:
            self._queue(leader)[partition] = state

    def _queue(self, leader: int | None) -> dict[TopicPartition, _Partition]:
        return self._leaderless if leader is None else self._ready[leader]

    def check_expired(self, now: float) -> None:
        """Fail if any batch has waited longer than the delivery timeout.

        :raises KafkaLogError: with the partition of the oldest such batch.
        """
        oldest = self._oldest()
        if oldest is not None and now >= oldest.created + self._limits.delivery_timeout:
            raise BrokerError(
                f"A record batch was not acknowledged within delivery.timeout.ms ="
                f" {round(self._limits.delivery_timeout * 1000)}, in {oldest.attempts} attempts."
                f" Last error: {oldest.last_error}",
                topic_partition=oldest.partition,
                hint="Check that the partition's leader is up and reachable, or raise"
                " kafka.delivery.timeout.ms, or lower kafka.buffer.memory if the cluster is slow."
                " Records acknowledged before stay written.",
            )

    def time_left(self, now: float) -> float:
        """Seconds until the delivery timeout of the oldest batch."""
        oldest = self._oldest()
        return self._limits.delivery_timeout - (0.0 if oldest is None else max(now - oldest.created, 0.0))

    def wake_at(self) -> float | None:
        """The time when there may be something to do without a response from a broker; None if nothing waits.

        It may lie in the past: a pause may end while something else is sent.
        """
        oldest = self._oldest()
        if oldest is None:
            return None
        times = [oldest.created + self._limits.delivery_timeout]
        times += [state.not_before for state in self._leaderless.values()]
        for node, ready in self._ready.items():
            if self._has_room(node):
                throttled_until = self._throttled_until.get(node, 0.0)
                times += [max(s.not_before, throttled_until) for s in ready.values() if s.may_follow(node)]
        return min(times)

    def _has_room(self, node: int) -> bool:
        return len(self._in_flight[node]) < self._limits.max_in_flight

    def _oldest(self) -> Batch | None:
        while self._by_age and self._by_age[0].done:
            self._by_age.popleft()
        return self._by_age[0] if self._by_age else None

    def give_up(self, reason: str | None) -> None:
        """Tell the listener that all batches have failed of which it has not heard the end.

        :param reason: why the write ends; None for what last happened to each.
        """
        if self._listener is None:
            return
        while (batch := self._oldest()) is not None:
            self._listener.failed(batch, reason or batch.last_error)
            self._drop(batch)

    @property
    def is_idle(self) -> bool:
        """Whether everything appended is acknowledged, or never will be."""
        return self._oldest() is None

    def results(self) -> dict[TopicPartition, PartitionResult]:
        """The results of what was written so far, by partition."""
        return {
            partition: PartitionResult(state.records, state.batches, state.first_offset, state.last_offset)
            for partition, state in self._partitions.items()
        }


def _unanswered(batch: Batch, node: int) -> KafkaLogError:
    return BrokerError(
        f"A response of broker {node} lacks a partition of its request", topic_partition=batch.partition
    )


def _old(batch: Batch, answer: ProduceAnswer, end: int) -> KafkaLogError:
    return OldAnswerError(
        f"A broker took a record batch for an earlier one: expected offset {end} or later,"
        f" got {answer.base_offset}",
        topic_partition=batch.partition,
    )
