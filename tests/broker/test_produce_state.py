"""Which requests a producer sends, and how it handles responses: by example, and against a model."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pyspark_kafkalog.broker.produce.state import (
    OldAnswerError,
    PartitionResult,
    ProduceAnswer,
    ProduceLimits,
    ProduceState,
    Request,
)
from pyspark_kafkalog.errors import AuthorizationError, KafkaLogError, RecordTooLargeError
from pyspark_kafkalog.model import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
OK, TIMED_OUT, NOT_LEADER, TOO_LARGE, NOT_ENOUGH, NOT_ENOUGH_AFTER = 0, 7, 6, 10, 19, 20
OUT_OF_ORDER, DUPLICATE = 45, 46


def batch(text: str, records: int = 1) -> tuple[memoryview, int, int]:
    return memoryview(text.encode()), records, len(text)


def producer(leaders: dict[TopicPartition, int] | None = None, **limits: Any) -> ProduceState:
    """A producer with the batches a1 to a4, b1 to b3, c1."""
    state = ProduceState(ProduceLimits(**limits))
    state.append(A, [batch(f"a{i}") for i in range(1, 5)], 0.0)
    state.append(B, [batch(f"b{i}") for i in range(1, 4)], 0.0)
    state.append(C, [batch("c1", 3)], 0.0)
    state.set_leaders({A: 1, B: 1, C: 1} if leaders is None else leaders)
    return state


def texts(request: Request | None) -> list[str]:
    assert request is not None
    return [bytes(batch.data).decode() for batch in request.batches]


def sent(state: ProduceState, now: float = 0.0) -> list[list[str]]:
    """All requests that may be sent now."""
    requests = []
    while (request := state.next_request(now)) is not None:
        requests.append(texts(request))
    return requests


def answer(state: ProduceState, now: float = 0.0, node: int = 1, **codes: int) -> None:
    """Answer the oldest request: success, except for error codes given as ``a``, ``b``, ``c``."""
    answers = {p: ProduceAnswer(codes.get(name, OK)) for name, p in (("a", A), ("b", B), ("c", C))}
    state.answered(node, answers, now)


def test_a_request_has_one_batch_a_partition_and_the_first_is_waited_for() -> None:
    state = producer()
    assert sent(state) == [["a1", "b1", "c1"]]
    answer(state)
    assert sent(state) == [["a2", "b2"], ["a3", "b3"], ["a4"]]
    for _ in range(3):
        answer(state)
    assert state.is_idle
    assert state.unacknowledged_bytes == state.waiting_bytes == 0


def test_requests_in_flight_and_their_size_are_bounded() -> None:
    state = producer(max_in_flight=2, max_request_size=4)
    assert sent(state) == [["a1", "b1"], ["c1"]]
    answer(state)
    assert sent(state) == [["a2", "b2"]]
    answer(state)
    assert sent(state) == [["a3", "b3"]]
    assert state.in_flight(1) == state.in_flight() == 2


def test_a_batch_over_the_request_size_goes_alone() -> None:
    state = producer(max_request_size=1)
    assert sent(state) == [["a1"], ["b1"], ["c1"]]


def test_partitions_take_turns() -> None:
    state = producer(max_in_flight=1, max_request_size=4)
    seen = []
    while not state.is_idle:
        seen += sent(state)
        answer(state)
    assert seen == [["a1", "b1"], ["c1", "a2"], ["b2", "a3"], ["b3", "a4"]]


def test_each_leader_gets_its_own() -> None:
    state = producer({A: 1, B: 2})
    assert sorted(sent(state)) == [["a1"], ["b1"]]
    assert state.leaderless(0.0) == [C]
    assert sorted(state.nodes_in_flight()) == [1, 2]
    state.set_leaders({C: 2})
    assert not state.leaderless(0.0)
    assert sent(state) == [["c1"]]


def test_only_failed_partitions_are_sent_again_and_in_order() -> None:
    state = producer()
    sent(state)
    answer(state)
    assert sent(state) == [["a2", "b2"], ["a3", "b3"], ["a4"]]
    answer(state, a=NOT_ENOUGH)
    assert sent(state, 10.0) == [], "a3 and a4 are not answered yet"
    answer(state, a=OUT_OF_ORDER)
    answer(state, a=OUT_OF_ORDER)
    assert sent(state, 10.0) == [["a2"]]
    answer(state)
    assert sent(state, 10.0) == [["a3"], ["a4"]]


def test_retries_back_off_and_ever_more() -> None:
    state = ProduceState(ProduceLimits())
    state.append(A, [batch("a1")], 0.0)
    state.set_leaders({A: 1})
    now = 0.0
    for backoff in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert sent(state, now) == [["a1"]]
        answer(state, now, a=NOT_ENOUGH)
        assert sent(state, now + backoff - 0.01) == []
        assert state.wake_at() == pytest.approx(now + backoff)
        now += backoff + 0.01


def test_a_moved_leader_is_asked_for_and_waited_for() -> None:
    state = producer({A: 1})
    sent(state)
    answer(state)
    assert sent(state) == [["a2"], ["a3"], ["a4"]]
    answer(state, a=NOT_LEADER)
    assert A in state.leaderless(10.0)
    state.set_leaders({A: 2})
    assert sent(state, 10.0) == [], "what the old leader has may yet be written there"
    answer(state, a=NOT_LEADER)
    answer(state, a=NOT_LEADER)
    state.set_leaders({A: 2})
    request = state.next_request(10.0)
    assert request is not None
    assert request.node == 2


def test_a_new_leader_waits_for_the_answers_of_the_old_one() -> None:
    state = producer({A: 1}, max_in_flight=2)
    sent(state)
    answer(state)
    assert sent(state) == [["a2"], ["a3"]]
    state.set_leaders({A: 2})
    assert sent(state) == []
    answer(state)
    assert sent(state) == []
    answer(state)
    assert sent(state) == [["a4"]]
    assert state.nodes_in_flight() == [2]


def test_all_in_flight_on_a_lost_connection_goes_again() -> None:
    state = producer({A: 1, B: 2})
    sent(state)
    answer(state)
    assert sent(state) == [["a2"], ["a3"], ["a4"]]
    state.lost(1, "reset", 1.0)
    assert state.nodes_in_flight() == [2]
    assert A in state.leaderless(10.0)
    state.set_leaders({A: 1})
    assert sent(state, 1.01) == []
    assert sent(state, 2.0) == [["a2"]]


def test_leaders_that_cannot_be_reached_are_looked_up_again_after_a_pause() -> None:
    state = producer(max_request_size=1, retries=0)
    request = state.next_request(1.0)
    state.lost(1, "refused", 1.0, unsent=request)
    assert state.leaderless(1.0) == []
    assert sorted(state.leaderless(1.2)) == [A, B, C]
    state.set_leaders({A: 1, B: 1, C: 1})
    assert sent(state, 1.0) == []
    assert sorted(sent(state, 1.2)) == [["a1"], ["b1"], ["c1"]]


def test_look_ups_that_find_no_leader_back_off_and_ever_more() -> None:
    state = producer({A: 1, B: 1})
    sent(state)
    now = 0.0
    for backoff in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        state.no_leader([C], "no broker can be reached", now)
        assert state.leaderless(now + backoff - 0.01) == []
        assert state.wake_at() == pytest.approx(now + backoff)
        now += backoff + 0.01
        assert state.leaderless(now) == [C]
    state.set_leaders({C: 1})
    assert sent(state, now) == [["c1"]]
    with pytest.raises(KafkaLogError, match="no response came"):
        state.check_expired(1000.0)


def test_without_a_pause_only_the_end_of_the_delivery_is_waited_for() -> None:
    state = producer(delivery_timeout=30.0)
    assert state.wake_at() == 0.0
    sent(state)
    assert state.wake_at() == 30.0


def test_a_pause_that_ended_unnoticed_is_no_reason_to_wait() -> None:
    state = producer({A: 1})
    sent(state)
    answer(state, 10.0, a=NOT_ENOUGH)
    state.no_leader([B, C], "the partition has no leader", 20.0)
    assert state.wake_at() == pytest.approx(10.1), "or so long ago, if sending to others took long"
    assert sent(state, 30.0) == [["a1"]]
    assert state.wake_at() == pytest.approx(20.1)


def test_a_broker_that_throttles_is_sent_nothing_meanwhile() -> None:
    state = producer({A: 1, B: 1, C: 2})
    sent(state)
    answer(state)
    state.throttled(1, 5.0)
    assert sent(state, 4.9) == []
    assert state.wake_at() == 5.0
    with pytest.raises(KafkaLogError, match=r"a quota of the cluster throttles.*t-0"):
        state.check_expired(1000.0)
    assert sent(state, 5.0) == [["a2", "b2"], ["a3", "b3"], ["a4"]]


def test_a_duplicate_is_written() -> None:
    state = producer({A: 1})
    sent(state)
    answer(state, a=DUPLICATE)
    assert state.results()[A] == PartitionResult(1, 1, -1, -1)


def test_results_count_what_was_acknowledged() -> None:
    state = producer({A: 1, C: 1})
    sent(state)
    state.answered(1, {A: ProduceAnswer(OK, 70), C: ProduceAnswer(OK, 7)}, 0.0)
    sent(state)
    state.answered(1, {A: ProduceAnswer(OK, 75)}, 0.0)
    assert state.results() == {
        A: PartitionResult(2, 2, 70, 75),
        B: PartitionResult(0, 0, -1, -1),
        C: PartitionResult(3, 1, 7, 9),
    }


def test_out_of_order_with_nothing_before_it_ends_the_producer() -> None:
    state = producer({A: 1})
    sent(state)
    with pytest.raises(KafkaLogError, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER.*t-0.*new producer id"):
        answer(state, a=OUT_OF_ORDER)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            TOO_LARGE,
            RecordTooLargeError,
            r"3 records, 2 bytes: MESSAGE_TOO_LARGE.*batch\.size",
        ),
        (29, AuthorizationError, "TOPIC_AUTHORIZATION_FAILED.*ACL"),
        (87, KafkaLogError, "INVALID_RECORD.*compacted"),
        (-1, KafkaLogError, "UNKNOWN_SERVER_ERROR.*own log"),
        (999, KafkaLogError, "error code 999"),
    ],
)
def test_other_errors_end_the_producer_and_name_the_partition(
    code: int, kind: type[Exception], message: str
) -> None:
    state = producer({C: 1})
    sent(state)
    with pytest.raises(kind, match=message) as raised:
        answer(state, c=code)
    assert "partition t-2" in str(raised.value)


RETRIED = {2, 3, 5, 6, 7, 9, 13, 19, 20, 56, 72, 74, 75, 89, 100, 103}
"""Codes of Kafka whose exceptions in Java are retriable, of those that a leader answers to a producer."""


@pytest.mark.parametrize("code", [-1, *range(1, 134), 999])
def test_every_code_is_retried_or_ends_the_write(code: int) -> None:
    """After a final one nothing more is sent, and the write waits only for what is in flight."""
    state = producer({A: 1, B: 2, C: 1})
    sent(state)
    answer(state)
    state.answered(2, {B: ProduceAnswer(OK)}, 0.0)
    assert sent(state) == [["a2"], ["a3"], ["a4"], ["b2"], ["b3"]]
    if code in RETRIED or code == DUPLICATE:
        answer(state, a=code)
        assert not state.is_idle
        return
    with pytest.raises(KafkaLogError, match=r"refused a record batch of 1 record, .*t-0"):
        answer(state, a=code)
    state.append(C, [batch("c2")], 0.0)
    answer(state, a=OK if code != OUT_OF_ORDER else code)
    answer(state, a=NOT_ENOUGH)
    assert sent(state, 10.0) == []
    assert not state.is_idle, "broker 2 has not answered"
    state.answered(2, {B: ProduceAnswer(OK)}, 0.0)
    state.lost(2, "reset", 0.0)
    assert state.is_idle
    assert state.unacknowledged_bytes == state.waiting_bytes == state.in_flight() == 0
    assert state.results()[B].records == 2
    assert state.results()[A].records == (1 if code == OUT_OF_ORDER else 2)
    state.check_expired(1000.0)


def test_all_answers_of_a_response_count_although_one_is_a_refusal() -> None:
    state = producer()
    sent(state)
    with pytest.raises(AuthorizationError, match="t-0"):
        answer(state, a=29, b=87)
    assert state.results()[C].records == 3
    assert state.is_idle


def test_a_single_record_that_is_too_large_is_helped_by_no_other_batch_size() -> None:
    state = producer({A: 1})
    sent(state)
    with pytest.raises(RecordTooLargeError, match=r"1 record, .*Raise the topic's max\.message\.bytes"):
        answer(state, a=TOO_LARGE)


def test_a_partition_without_an_answer_is_an_error() -> None:
    state = producer()
    sent(state)
    with pytest.raises(KafkaLogError, match=r"lacks a partition of its request.*t-1"):
        state.answered(1, {A: ProduceAnswer(OK), C: ProduceAnswer(OK)}, 0.0)


def test_retries_are_bounded() -> None:
    state = producer({A: 1}, retries=2)
    for now in (0.0, 10.0):
        sent(state, now)
        answer(state, now, a=TIMED_OUT)
    sent(state, 20.0)
    with pytest.raises(KafkaLogError, match=r"3 attempts: REQUEST_TIMED_OUT .*t-0"):
        answer(state, 20.0, a=TIMED_OUT)
    assert state.is_idle


def test_delivery_is_timed_from_the_append() -> None:
    state = producer({B: 1}, delivery_timeout=30.0)
    sent(state)
    answer(state)
    state.check_expired(29.9)
    with pytest.raises(KafkaLogError, match=r"delivery\.timeout\.ms = 30000, in 0 attempts.*not sent.*t-0"):
        state.check_expired(30.0)
    state.set_leaders({A: 1})
    sent(state)
    state.lost(1, "Connection reset by peer", 29.0)
    with pytest.raises(KafkaLogError, match=r"in 1 attempts.*Connection reset by peer .*t-0"):
        state.check_expired(30.0)


def test_without_answers_what_is_sent_is_done() -> None:
    state = producer({A: 1, B: 1, C: 1}, max_in_flight=1)
    seen: list[str] = []
    while (request := state.next_request(0.0)) is not None:
        seen += texts(request)
        state.delivered(1)
    assert state.is_idle
    assert seen == ["a1", "b1", "c1", "a2", "b2", "a3", "b3", "a4"]


def test_nothing_waits_once_all_is_done() -> None:
    state = ProduceState(ProduceLimits())
    assert state.is_idle
    assert state.wake_at() is None
    state.check_expired(1e9)


# The model: brokers like Kafka's ReplicaManager and ProducerStateManager, on a network that
# loses connections, and delivers what was sent before or after that, or never.

CACHED_BATCHES = 5
"""How many batches of a producer a broker recognizes (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


@dataclass
class Sent:
    """A batch as sent: the bytes are its name."""

    partition: TopicPartition
    name: bytes
    number: int


@dataclass
class ModelPartition:
    leader: int
    log: list[bytes] = field(default_factory=list)
    known: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))
    """Number and offset of the newest batches; the number stands for the sequence."""


class ModelCluster:
    def __init__(self, partitions: list[TopicPartition], *, idempotent: bool) -> None:
        self.idempotent = idempotent
        self.partitions = {partition: ModelPartition(partition.partition % 2) for partition in partitions}
        self.fault = OK
        """The error code for the next batch, whether or not it is appended."""

    def append(self, node: int, sent: Sent) -> ProduceAnswer:
        partition = self.partitions[sent.partition]
        fault, self.fault = self.fault, OK
        if partition.leader != node:
            return ProduceAnswer(NOT_LEADER)
        if fault not in (OK, NOT_ENOUGH_AFTER, TIMED_OUT):
            return ProduceAnswer(fault)
        if self.idempotent:
            for number, offset in partition.known:
                if number == sent.number:
                    return ProduceAnswer(fault, offset)
            # A broker that does not know the producer accepts any number.
            if partition.known and partition.known[-1][0] + 1 != sent.number:
                return ProduceAnswer(OUT_OF_ORDER)
        partition.known.append((sent.number, len(partition.log)))
        partition.log.append(sent.name)
        return ProduceAnswer(fault, len(partition.log) - 1)


PARTITIONS = [TopicPartition("t", number) for number in range(3)]


class ProducerAndBrokers(RuleBasedStateMachine):
    """A producer against the model, with every fault at every moment."""

    idempotent = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.appended: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        self.cluster = ModelCluster(PARTITIONS, idempotent=self.idempotent)
        self.requests: defaultdict[int, deque[list[Sent]]] = defaultdict(deque)
        """Sent on the open connection, and not processed yet."""
        self.answers: defaultdict[int, deque[dict[TopicPartition, ProduceAnswer]]] = defaultdict(deque)
        self.orphans: list[tuple[int, deque[list[Sent]]]] = []
        """What brokers have received on closed connections, and will process later."""

    @initialize(in_flight=st.integers(1, 5), request_size=st.sampled_from([1, 12, 1000]))
    def begin(self, in_flight: int, request_size: int) -> None:
        self.limits = ProduceLimits(
            max_in_flight=in_flight, max_request_size=request_size, delivery_timeout=1e12
        )
        self.state = ProduceState(self.limits)
        for partition in PARTITIONS:
            self.append(partition, 5)
        self.look_up_leaders(stale=False)

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 7))
    def append(self, partition: TopicPartition, count: int) -> None:
        first = len(self.appended[partition])
        names = [f"{partition}:{number}".encode() for number in range(first, first + count)]
        self.appended[partition] += names
        self.state.append(partition, [(memoryview(name), 1, len(name)) for name in names], self.now)

    @rule(stale=st.booleans())
    def look_up_leaders(self, stale: bool) -> None:
        leaders = {p: model.leader for p, model in self.cluster.partitions.items()}
        self.state.set_leaders({p: 1 - leader if stale else leader for p, leader in leaders.items()})

    @rule(most=st.integers(1, 10))
    def send(self, most: int) -> None:
        for _ in range(most):
            request = self.state.next_request(self.now)
            if request is None:
                return
            partitions = [batch.partition for batch in request.batches]
            assert len(set(partitions)) == len(partitions)
            assert len(request.batches) == 1 or (
                sum(len(batch.data) for batch in request.batches) <= self.limits.max_request_size
            )
            self.requests[request.node].append(
                [Sent(batch.partition, bytes(batch.data), batch.number) for batch in request.batches]
            )

    @rule(
        most=st.integers(1, 5), fault=st.sampled_from([OK, OK, TIMED_OUT, NOT_ENOUGH, NOT_ENOUGH_AFTER, 2, 5])
    )
    def process(self, most: int, fault: int = OK) -> None:
        self.cluster.fault = fault
        for node, requests in self.requests.items():
            for _ in range(min(most, len(requests))):
                answers = {sent.partition: self.cluster.append(node, sent) for sent in requests.popleft()}
                self.answers[node].append(answers)

    @rule(most=st.integers(1, 5))
    def receive(self, most: int) -> None:
        for node, answers in self.answers.items():
            for _ in range(min(most, len(answers))):
                self.state.answered(node, answers.popleft(), self.now)

    @rule()
    def go_on_for_a_while(self) -> None:
        self.now += 2.0
        self.send(10)
        self.process(5)
        self.receive(5)

    @rule(node=st.integers(0, 1), received=st.integers(0, 5))
    def lose_the_connection(self, node: int, received: int) -> None:
        requests = self.requests.pop(node, deque())
        self.answers.pop(node, None)
        if requests and received:
            self.orphans.append((node, deque(list(requests)[:received])))
        self.state.lost(node, "reset", self.now)

    @rule()
    def find_no_connection(self) -> None:
        request = self.state.next_request(self.now)
        if request is not None:
            requests = self.requests.pop(request.node, None)
            if requests:
                self.orphans.append((request.node, requests))
            self.answers.pop(request.node, None)
            self.state.lost(request.node, "refused", self.now, unsent=request)

    @rule()
    def find_no_leaders(self) -> None:
        self.state.no_leader(self.state.leaderless(self.now), "none", self.now)

    @precondition(lambda self: self.orphans)
    @rule(data=st.data())
    def process_an_orphan(self, data: st.DataObject) -> None:
        node, requests = data.draw(st.sampled_from(self.orphans))
        for sent in requests.popleft():
            self.cluster.append(node, sent)
        self.orphans = [orphan for orphan in self.orphans if orphan[1]]

    @rule(partition=st.sampled_from(PARTITIONS))
    def move_the_leader(self, partition: TopicPartition) -> None:
        model = self.cluster.partitions[partition]
        model.leader = 1 - model.leader

    @invariant()
    def in_flight_is_bounded(self) -> None:
        for node in (0, 1):
            assert len(self.requests[node]) + len(self.answers[node]) <= 5

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        for _ in range(1000):
            if self.state.is_idle:
                break
            self.look_up_leaders(stale=False)
            self.go_on_for_a_while()
        assert self.state.is_idle
        for node, requests in self.orphans:
            for request in requests:
                for sent in request:
                    self.cluster.append(node, sent)
        self.check_logs()

    def check_logs(self) -> None:
        results = self.state.results()
        for partition, model in self.cluster.partitions.items():
            assert model.log == self.appended[partition], "once, and in order"
            assert not model.log or results[partition].records == len(model.log)


class ProducerWithoutIdempotence(ProducerAndBrokers):
    """At least once; and in order where nothing was sent twice."""

    idempotent = False

    def check_logs(self) -> None:
        for partition, model in self.cluster.partitions.items():
            written = Counter(model.log)
            assert written.keys() == set(self.appended[partition]), "at least once"
            if max(written.values(), default=1) == 1 and self.limits.max_in_flight == 1:
                assert model.log == self.appended[partition]


@pytest.mark.parametrize("machine", [ProducerAndBrokers, ProducerWithoutIdempotence])
def test_against_a_model_of_brokers(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=300, stateful_step_count=40))


def test_a_success_that_is_an_earlier_batchs() -> None:
    """It has the same producer id, epoch and sequence numbers. A batch that was only sent twice succeeds."""
    state = ProduceState(ProduceLimits(), ends={A: 10, B: 10})
    state.append(A, [batch("a1")], 0.0)
    state.append(B, [batch("b1")], 0.0)
    state.append(C, [batch("c1")], 0.0)
    state.set_leaders({A: 1, B: 1, C: 1})
    assert len(sent(state)) == 1
    state.lost(1, "the connection broke", 0.0)
    state.set_leaders({A: 1, B: 1, C: 1})
    assert len(sent(state, 1.0)) == 1
    with pytest.raises(OldAnswerError, match=r"earlier one: expected offset 10 or later, got 9 .*t-1"):
        state.answered(1, {A: ProduceAnswer(0, 10), B: ProduceAnswer(0, 9), C: ProduceAnswer(0, 0)}, 1.0)
    assert state.is_idle
    assert state.results()[A].first_offset == 10
    assert state.results()[B].records == 0


@pytest.mark.parametrize("code", [0, 46])
def test_a_success_without_an_offset_may_be_an_earlier_batchs(code: int) -> None:
    state = ProduceState(ProduceLimits(), ends={A: 0})
    state.append(A, [batch("a1")], 0.0)
    state.set_leaders({A: 1})
    assert sent(state) == [["a1"]]
    with pytest.raises(OldAnswerError, match="expected offset 0 or later, got -1"):
        state.answered(1, {A: ProduceAnswer(code, -1)}, 0.0)
