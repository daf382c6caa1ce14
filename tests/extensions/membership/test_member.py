"""A member of a group on real brokers: what it gives up, and when; whom the group has gone on without."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.cluster.coordinator import call_coordinator
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode
from pyspark_kafkalog.errors import GroupError, UnsupportedVersionError
from pyspark_kafkalog.extensions.membership.consumer_protocol import ConsumerProtocolMember
from pyspark_kafkalog.extensions.membership.member import Member
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.model import Assigned, CommittedOffset, TopicPartition
from pyspark_kafkalog.model import Group as KafkaGroup
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests import librdkafka
from tests.kafka import Broker
from tests.kafka_old import OldBroker
from tests.kafka_service import KafkaService

pytestmark = pytest.mark.broker


class Group:
    """A new group, its members in this process, and a topic of six partitions.

    :param bootstrap: where they connect to, if not to the broker itself.
    """

    def __init__(self, broker: KafkaService, bootstrap: str = "") -> None:
        self.name = f"group-{uuid.uuid4().hex[:12]}"
        self.topic = f"shared-{uuid.uuid4().hex[:8]}"
        self.broker = broker
        broker.make_topic(self.topic, 6)
        self.connection = ConnectionOptions((bootstrap or broker.bootstrap,))
        self.offsets = BrokerGroups(self.connection)
        self.members: list[Member] = []

    def member(self, topic: str = "", **options: Any) -> Member:
        given = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 50, **options}
        kind = ConsumerProtocolMember if options.get("protocol") == "consumer" else Member
        member = kind(self.connection, self.name, MembershipOptions(**given))
        member.subscribe({topic or self.topic: 6})
        self.members.append(member)
        return member

    def numbers(self, assigned: Assigned | None) -> list[int] | None:
        return None if assigned is None else sorted(partition for _, partition in assigned.partitions)

    def holds(self, member: Member, count: int) -> Assigned:
        """Wait until a member is assigned so many partitions; then it is held."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assigned = member.hold(0.2)
            if assigned is not None and len(assigned.partitions) == count:
                return assigned
            member.release()
        raise TimeoutError(f"{self.numbers(assigned)} instead of {count} partitions")

    def expel(self, member: Member) -> None:
        """As the session timeout would."""
        me = member._me.member_id
        identity = LeaveGroupRequest.MemberIdentity(member_id=me, group_instance_id=None, reason="test")
        call_coordinator(
            cluster_of(self.connection),
            self.name,
            lambda: LeaveGroupRequest(group_id=self.name, member_id=me, members=[identity]),
            lambda response: response,
            doing="Expelling a member",
            deadline=Deadline.after(10),
        )

    def commits(self) -> dict[int, int]:
        return {p: commit.offset for (_, p), commit in self.offsets.committed(self.name).items()}


@pytest.fixture
def group(broker: Broker) -> Iterator[Group]:
    group = Group(broker)
    yield group
    for member in group.members:
        member.leave()


def state_of(group: Group) -> KafkaGroup:
    (described,) = group.offsets.describe([group.name]).values()
    return described


@contextmanager
def soon(done: Callable[[], bool]) -> Iterator[None]:
    """What is done in the block makes it so."""
    yield
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


RANGE = {"assignors": ("range",)}
COOPERATIVE = {"assignors": ("cooperative-sticky",)}
CONSUMER = {"protocol": "consumer"}
KINDS = [RANGE, COOPERATIVE, CONSUMER]
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=["eager", "cooperative", "consumer"])


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        (RANGE, [0, 1, 2]),
        ({"assignors": ("roundrobin",)}, None),
        (COOPERATIVE, None),
        (CONSUMER, None),
        ({**CONSUMER, "remote_assignor": "range"}, [0, 1, 2]),
    ],
)
def test_a_second_member_gets_its_share_when_the_first_is_between_two_steps(
    group: Group, kind: dict[str, Any], share: list[int] | None
) -> None:
    first = group.member(**kind)
    assigned = group.holds(first, 6)
    second = group.member(**kind)
    assert second.hold(1.0) is None or not second.hold(0).partitions
    offsets = {p: CommittedOffset(p.partition + 10) for p in assigned.partitions}
    assert first.commit(offsets, assigned)
    first.release()
    theirs, ours = group.holds(second, 3), group.holds(first, 3)
    assert not theirs.partitions & ours.partitions
    assert share in (None, group.numbers(theirs), group.numbers(ours))
    assert group.commits() == {n: n + 10 for n in range(6)}
    assert not first.commit(offsets, assigned)  # of an assignment that is past
    first.release()
    second.release()
    second.leave()
    assert len(group.holds(first, 6).partitions) == 6


@of_each_kind
def test_kafkas_tools_see_the_members(group: Group, kind: dict[str, Any]) -> None:
    assigned = group.holds(group.member(**kind), 6)
    with soon(lambda: state_of(group).state == "Stable"):
        pass
    described = state_of(group)
    (member,) = described.members or ()
    assert described.protocol == kind.get("assignors", ["uniform"])[0]
    assert set(member.partitions) == assigned.partitions


@of_each_kind
def test_a_member_that_was_put_out_does_not_commit(group: Group, kind: dict[str, Any]) -> None:
    member = group.member(**kind)
    assigned = group.holds(member, 6)
    group.expel(member)
    offsets = {TopicPartition(group.topic, 0): CommittedOffset(5)}
    with pytest.raises(GroupError, match=r"no longer a member of group .*UNKNOWN_MEMBER_ID.*can't be commit"):
        member.commit(offsets, assigned)
    with pytest.raises(GroupError, match="groupMembershipLost=rejoin"):
        member.hold(1.0)
    assert group.commits() == {}


@of_each_kind
def test_a_member_that_is_to_rejoin_leaves_its_rows_uncommitted(group: Group, kind: dict[str, Any]) -> None:
    member = group.member(**kind, rejoins=True)
    assigned = group.holds(member, 6)
    group.expel(member)
    assert not member.commit({TopicPartition(group.topic, 0): CommittedOffset(5)}, assigned)
    member.release()
    again = group.holds(member, 6)
    assert again is not assigned
    assert member.commit({TopicPartition(group.topic, 0): CommittedOffset(7)}, again)
    assert group.commits() == {0: 7}


@pytest.mark.long
@of_each_kind
def test_of_a_partition_that_does_not_exist_nothing_is_committed(group: Group, kind: dict[str, Any]) -> None:
    member = group.member(**kind)
    assigned = group.holds(member, 6)
    gone, there = TopicPartition(f"{group.topic}-gone", 0), TopicPartition(group.topic, 0)
    assert member.commit({gone: CommittedOffset(7), there: CommittedOffset(5)}, assigned)
    assert group.commits() == {0: 5}


@of_each_kind
def test_between_two_steps_nothing_is_lost_and_the_member_joins_again(
    group: Group, kind: dict[str, Any]
) -> None:
    member = group.member(**kind)
    assigned = group.holds(member, 6)
    member.release()
    with soon(lambda: member._assigned not in (assigned, None)):
        group.expel(member)
    assert group.holds(member, 6) is not assigned


def test_a_member_whose_heart_stood_still_asks_before_it_goes_on(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP: the clock has gone on, and the next heartbeat has not been sent."""
    member = group.member(heartbeat_interval_ms=5000)
    assigned = group.holds(member, 6)
    member.release()
    group.expel(member)
    assert member.hold(0) is assigned  # a heart that has beaten within the session timeout is believed
    member.release()
    member._beat -= 6.0
    again = member.hold(10)
    assert again is not assigned
    assert again is not None


def test_a_check_of_the_assignment_takes_microseconds(group: Group) -> None:
    member = group.member()
    group.holds(member, 6)
    began = time.perf_counter()
    for _ in range(10_000):
        member.hold(1.0)
        member.release()
    assert (time.perf_counter() - began) / 10_000 < 100e-6


@of_each_kind
def test_a_static_member_that_comes_back_moves_nothing(group: Group, kind: dict[str, Any]) -> None:
    first = group.member(instance_id="one", **kind)
    group.holds(first, 6)
    first.release()
    second = group.member(instance_id="two", **kind)
    before = group.holds(second, 3)
    with soon(lambda: first._me.generation == second._me.generation and not first._is_claiming):
        pass  # the answer to the first may come later than that to the second
    kept = group.holds(first, 3)
    second.leave()
    first.release()
    returned = group.member(instance_id="two", **kind)
    assert group.holds(returned, 3).partitions == before.partitions
    assert first.hold(1.0) is kept
    if kind is CONSUMER:  # it has left, to return
        return
    second._heartbeat()  # the one whose name was taken
    with pytest.raises(GroupError, match=r"another member has its kafka\.group\.instance\.id, two"):
        second.hold(0)


@of_each_kind
def test_other_topics_are_taken_up_by_all(group: Group, kind: dict[str, Any]) -> None:
    other = f"{group.topic}-2"
    group.broker.make_topic(other, 2)
    first, second = group.member(**kind), group.member(**kind)
    for member in (first, second):
        group.holds(member, 3)
        member.release()
    for member in (first, second):
        member.subscribe({group.topic: 6, other: 2})
    assert group.holds(first, 4).partitions.isdisjoint(group.holds(second, 4).partitions)


def test_a_group_of_another_application_is_not_disturbed(group: Group) -> None:
    member = group.member()
    group.holds(member, 6)
    with pytest.raises(GroupError, match=rf"is used by .*, which read {group.topic}, but no topic of this"):
        group.member("another-topic")
    assert member.hold(1.0) is member._assigned


def test_an_assignor_that_others_do_not_have(group: Group) -> None:
    group.holds(group.member(assignors=("roundrobin",)), 6)
    member = group.member(assignors=("range",))
    with pytest.raises(GroupError, match=r"no assignor in common .*=range; they use roundrobin"):
        member.hold(10)


def test_a_session_timeout_out_of_bounds(group: Group) -> None:
    member = group.member(session_timeout_ms=100)
    with pytest.raises(GroupError, match=r"INVALID_SESSION_TIMEOUT.*group\.min\.session\.timeout\.ms"):
        member.hold(10)


def test_a_commit_waits_for_a_rebalance_as_long_as_that_may_take(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a leader that hangs between JoinGroup and SyncGroup."""
    leader = group.member(**COOPERATIVE)
    group.holds(leader, 6)
    leader.release()
    member = group.member(**COOPERATIVE)
    assigned = group.holds(member, 3)
    leader.hold(1.0)
    leader.release()
    began, free, real = threading.Event(), threading.Event(), leader._assignments

    def hang(joined: Any, led: Any) -> dict[str, bytes]:
        began.set()
        free.wait(20)
        return real(joined, led)

    def clock() -> float:
        """Forty seconds from one attempt to the next; the leader goes on at the third."""
        number = next(numbers)
        if number == 2:
            free.set()
            time.sleep(1)
        return 40.0 * number

    numbers = itertools.count()
    monkeypatch.setattr(leader, "_assignments", hang)
    group.member(**COOPERATIVE)
    assert began.wait(30)
    times = SimpleNamespace(monotonic=clock, clock_gettime=time.clock_gettime)
    monkeypatch.setattr("pyspark_kafkalog.extensions.membership.member.time", times)
    partition = min(assigned.partitions)
    assert member.commit({partition: CommittedOffset(5)}, assigned)
    assert group.commits() == {partition.partition: 5}


def test_a_commit_waits_for_an_answer_that_makes_its_generation_old(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has let it join again; it does not know so yet."""
    member = group.member(**COOPERATIVE)
    assigned = group.holds(member, 6)
    joined, free, call = threading.Event(), threading.Event(), member._call

    def late(request: Any, *args: Any, **kwargs: Any) -> Any:
        response = call(request, *args, **kwargs)
        if isinstance(request, JoinGroupRequest):
            joined.set()
            assert free.wait(20)
        return response

    monkeypatch.setattr(member, "_call", late)
    group.member(**COOPERATIVE)
    assert joined.wait(30)
    threading.Timer(0.5, free.set).start()
    partition = min(assigned.partitions)
    assert member.commit({partition: CommittedOffset(5)}, assigned)
    assert group.commits() == {partition.partition: 5}


def held_with_more_to_come(group: Group, kind: dict[str, Any]) -> tuple[Member, Assigned]:
    """A member with half of the partitions in its step; the group has given it all, as the other has left."""
    member, other = group.member(**kind), group.member(**kind)
    group.holds(other, 3)
    other.release()
    held = group.holds(member, 3)
    with soon(lambda: member._next is not None):
        other.leave()
    return member, held


@pytest.mark.parametrize("kind", [COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])
def test_nothing_is_taken_up_that_a_request_under_way_does_not_claim(
    group: Group, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]
) -> None:
    """The group may give it to another one at once."""
    member, before = held_with_more_to_come(group, kind)
    asked, free, call = threading.Event(), threading.Event(), member._call

    def late(request: Any, *args: Any, **kwargs: Any) -> Any:
        asked.set()
        assert free.wait(20)
        return call(request, *args, **kwargs)

    monkeypatch.setattr(member, "_call", late)
    with member._changed:
        member._is_to_join = True
        member._changed.notify_all()
    assert asked.wait(30)
    member.release()
    assert member.hold(1) is before
    free.set()
    member.release()
    group.holds(member, 6)


def test_nothing_is_taken_up_that_the_generation_before_has_given(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member has joined the next one without claiming it, and its SyncGroup comes too late."""
    member, before = held_with_more_to_come(group, COOPERATIVE)
    is_late, joins, again, free, call = False, 0, threading.Event(), threading.Event(), member._call

    def late(request: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_late, joins
        if isinstance(request, SyncGroupRequest) and not is_late:
            is_late = True
            member.release()
            return SimpleNamespace(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        if isinstance(request, JoinGroupRequest):
            joins += 1
            if joins == 2:
                again.set()
                assert free.wait(20)
        return call(request, *args, **kwargs)

    monkeypatch.setattr(member, "_call", late)
    with member._changed:
        member._is_to_join = True
        member._changed.notify_all()
    assert again.wait(30)
    assert member.hold(1) is before
    free.set()
    member.release()
    group.holds(member, 6)


@pytest.mark.parametrize("kind", [RANGE, CONSUMER], ids=["eager", "consumer"])
def test_a_member_that_is_too_slow_is_put_out(group: Group, kind: dict[str, Any]) -> None:
    """It has not finished its step within max.poll.interval.ms, while another waited."""
    slow = group.member(max_poll_interval_ms=500, **kind)
    assigned = group.holds(slow, 6)
    other = group.member(max_poll_interval_ms=500, **kind)
    group.holds(other, 6)
    with pytest.raises(GroupError, match=r"max\.poll\.interval\.ms"):
        slow.commit({TopicPartition(group.topic, 0): CommittedOffset(5)}, assigned)
    assert group.commits() == {}
    threads = [thread.name for thread in threading.enumerate()]
    assert threads.count(f"kafkalog member of {group.name}") <= 2


def test_an_assignor_that_the_brokers_do_not_have(group: Group) -> None:
    member = group.member(protocol="consumer", remote_assignor="no-such")
    with pytest.raises(GroupError, match=r"UNSUPPORTED_ASSIGNOR.*group\.consumer\.assignors"):
        member.hold(10)


def test_a_static_name_that_is_in_use(group: Group) -> None:
    group.holds(group.member(protocol="consumer", instance_id="one"), 6)
    member = group.member(protocol="consumer", instance_id="one", session_timeout_ms=1000)
    with pytest.raises(GroupError, match=r"UNRELEASED_INSTANCE_ID.*kafka\.group\.instance\.id of its own"):
        member.hold(10)


@pytest.mark.parametrize("kinds", [(RANGE, CONSUMER), (CONSUMER, RANGE)], ids=["classic first", "last"])
def test_members_of_both_protocols_share(group: Group, kinds: tuple[dict[str, Any], ...]) -> None:
    """Brokers translate between them (KIP-848's migration), as Kafka 4 does by default."""
    first = group.member(**kinds[0])
    group.holds(first, 6)
    first.release()
    second = group.member(**kinds[1])
    theirs = group.holds(second, 3)
    assert theirs.partitions.isdisjoint(group.holds(first, 3).partitions)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_it_shares_with_librdkafka(group: Group, strategy: str, leads: bool) -> None:
    """Either may lead the group: it reads what we tell of us, and we what it tells."""
    settings = {
        "bootstrap.servers": group.broker.bootstrap,
        "group.id": group.name,
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 6000,
    }
    with librdkafka.member(settings) as consumer:
        member = group.member(assignors=(strategy,)) if leads else None
        if member is not None:
            group.holds(member, 6)
            member.release()
        consumer.subscribe([group.topic])
        with soon(lambda: bool(consumer.poll(0.05) or consumer.assignment())):
            pass
        member = member or group.member(assignors=(strategy,))
        with soon(lambda: bool(consumer.poll(0.05)) or len(consumer.assignment()) == 3):
            pass
        ours = group.holds(member, 3)
        theirs = {TopicPartition(p.topic, p.partition) for p in consumer.assignment()}
        assert ours.partitions.isdisjoint(theirs)


def test_a_member_on_kafka_2_8(old_broker: OldBroker) -> None:
    group = Group(old_broker)
    first, second = (group.member(instance_id=name) for name in ("one", "two"))
    offsets = {TopicPartition(group.topic, n): CommittedOffset(n) for n in range(6)}
    shares = [group.holds(first, 3)]
    first.release()
    shares += [group.holds(second, 3)]
    assert second.commit({p: offsets[p] for p in shares[1].partitions}, shares[1])
    assert len(group.commits()) == 3
    for member in group.members:
        member.leave()
    new = group.member(protocol="consumer")
    with pytest.raises(UnsupportedVersionError, match=r"needs Kafka 4\.0"):
        new.hold(10)


@pytest.mark.timeout(900)
def test_stable_groups_stay_as_they_are(broker: Broker, soak: bool) -> None:
    """For ten minutes of idling, as often as Spark asks, with Kafka's own intervals."""
    timing = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3000} if soak else {}
    groups = [Group(broker) for _ in KINDS]
    members = [group.member(**kind, **timing) for group, kind in zip(groups, KINDS, strict=True)]
    members += [group.member(**kind, **timing) for group, kind in zip(groups, KINDS, strict=True)]
    with ExitStack() as leaving:
        for member in members:
            leaving.callback(member.leave)
        held: list[Assigned] = []
        for _ in range(2):  # the first share of a member may come before the other one has joined
            held = [group.holds(member, 3) for group, member in zip(groups * 2, members, strict=True)]
            for member in members:
                member.release()
        before = [member._me for member in members]
        end = time.monotonic() + (600 if soak else 1)
        while time.monotonic() < end:
            for member, assigned in zip(members, held, strict=True):
                assert member.hold(1.0) is assigned
                member.release()
            time.sleep(1 / 90)
        assert [member._me for member in members] == before
        assert [state_of(group).state for group in groups] == ["Stable"] * len(KINDS)
