"""The assignors of a classic group, by which its leader gives partitions to members, as Kafka's do.

Range and round robin are those of Kafka's RangeAssignor, which knows racks (KIP-881), and RoundRobinAssignor,
which does not. Kafka-python has both without racks, but loses members where static ones follow dynamic ones,
and fails where subscriptions differ. Its cooperative sticky assignor (KIP-429) is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pyspark_kafkalog.model import TopicPartition

Counts = Mapping[str, int]
"""The number of partitions of each topic that exists."""
Racks = Mapping[TopicPartition, frozenset[str]]
"""The racks that have a replica of each partition."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member of a group as its leader sees it.

    ``owned`` are the partitions that it says it has since ``generation``. ``rack`` is where it reads; empty
    if it names none.
    """

    member_id: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    owned: tuple[TopicPartition, ...] = field(default=())
    generation: int = -1
    rack: str = ""


GroupAssignment = Mapping[str, Sequence[TopicPartition]]
"""The partitions of each member, by its id."""
Assignor = Callable[[Sequence[Subscriber], Counts, Racks], GroupAssignment]


def assign_ranges(members: Sequence[Subscriber], counts: Counts, racks: Racks) -> GroupAssignment:
    """A range of each topic's partitions for each member; the first members get one more.

    If members and replicas are in the same racks, but not all replicas in all of them, a member first gets
    partitions that have a replica in its rack, as far as the shares stay equal. Topics with the same members
    and the same number of partitions are still assigned alike.
    """
    assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    topics = [
        _TopicShares(topic, count, [each for each in _in_order(members) if topic in each.topics], racks)
        for topic, count in sorted(counts.items())
    ]
    if any(topic.needs_racks for topic in topics):
        _assign_by_racks(topics, assignment)
    for topic in topics:
        topic.assign_rest(assignment)
    return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


class _TopicShares:
    """The assignment of one topic so far, as RangeAssignor.TopicAssignmentState has it."""

    def __init__(self, topic: str, count: int, members: Sequence[Subscriber], racks: Racks) -> None:
        self.topic = topic
        self.members = members
        self.unassigned = dict.fromkeys(TopicPartition(topic, number) for number in range(count))
        """The partitions without a member, in order."""
        self._racks = {p: racks.get(p, frozenset()) for p in self.unassigned}
        self._share, self._with_one_more = divmod(count, len(members)) if members else (0, 0)
        self._taken = dict.fromkeys((member.member_id for member in members), 0)
        everywhere = frozenset[str]().union(*self._racks.values())
        self.needs_racks = any(member.rack in everywhere for member in members) and not all(
            each == everywhere for each in self._racks.values()
        )

    def room(self, member: Subscriber) -> int:
        """The number of partitions that a member may still get."""
        return max(self._share + (self._with_one_more > 0) - self._taken[member.member_id], 0)

    def is_near(self, member: Subscriber, partition: TopicPartition) -> bool:
        """Whether a partition has a replica in the member's rack, or the member names none."""
        return not member.rack or member.rack in self._racks.get(partition, ())

    def take(
        self,
        member: Subscriber,
        partitions: Sequence[TopicPartition],
        assignment: Mapping[str, list[TopicPartition]],
    ) -> None:
        """Give partitions to a member."""
        assignment[member.member_id].extend(partitions)
        for each in partitions:
            del self.unassigned[each]
        self._taken[member.member_id] += len(partitions)
        self._with_one_more -= self._taken[member.member_id] > self._share

    def assign_rest(self, assignment: Mapping[str, list[TopicPartition]], *, only_near: bool = False) -> None:
        """Give each member in turn what it has room for."""
        for member in self.members:
            possible = (p for p in self.unassigned if not only_near or self.is_near(member, p))
            if chosen := list(islice(possible, self.room(member))):
                self.take(member, chosen, assignment)


def _assign_by_racks(topics: Sequence[_TopicShares], assignment: Mapping[str, list[TopicPartition]]) -> None:
    """Give members what is near them: partitions of one number in all topics that are partitioned alike."""
    alike: dict[tuple[frozenset[str], int], list[_TopicShares]] = {}
    for topic in topics:
        members = frozenset(member.member_id for member in topic.members)
        alike.setdefault((members, len(topic.unassigned)), []).append(topic)
    for (_, count), group in alike.items():
        if len(group) > 1:
            _assign_alike(group, count, assignment)
        elif group[0].needs_racks:
            group[0].assign_rest(assignment, only_near=True)


def _assign_alike(
    topics: Sequence[_TopicShares], count: int, assignment: Mapping[str, list[TopicPartition]]
) -> None:
    for number in range(count):
        for member in topics[0].members:
            parts = [(topic, TopicPartition(topic.topic, number)) for topic in topics]
            if all(topic.is_near(member, part) and topic.room(member) for topic, part in parts):
                for topic, part in parts:
                    topic.take(member, [part], assignment)
                break


def assign_in_turn(members: Sequence[Subscriber], counts: Counts, racks: Racks) -> GroupAssignment:
    """The partitions in order of topic and number, to one member after the other that wants them."""
    assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    turns, turn = _in_order(members), 0
    for topic, count in sorted(counts.items()):
        if not any(topic in member.topics for member in turns):
            continue
        for number in range(count):
            while topic not in turns[turn % len(turns)].topics:
                turn += 1
            assignment[turns[turn % len(turns)].member_id].append(TopicPartition(topic, number))
            turn += 1
    return assignment


def assign_cooperatively(members: Sequence[Subscriber], counts: Counts, racks: Racks) -> GroupAssignment:
    """An even assignment that moves few partitions; one that moves is left out until its owner revokes it."""
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    subscription = ConsumerProtocolSubscription.TopicPartition
    joined = [
        _Joined(
            member.member_id,
            ConsumerProtocolSubscription(
                version=3,
                topics=sorted(member.topics & counts.keys()),
                user_data=b"",
                owned_partitions=[
                    subscription(topic=p.topic, partitions=[p.partition]) for p in member.owned
                ],
                generation_id=member.generation,
                rack_id=None,
            ),
        )
        for member in members
    ]
    found = CooperativeStickyAssignor().assign(_Topics(counts), joined)
    return {
        member_id: [TopicPartition(topic, number) for topic, number in assigned.partitions()]
        for member_id, assigned in found.items()
    }


ASSIGNORS: Mapping[str, Assignor] = {
    "range": assign_ranges,
    "roundrobin": assign_in_turn,
    "cooperative-sticky": assign_cooperatively,
}
"""The assignors by the names that members give to the group."""


def _in_order(members: Sequence[Subscriber]) -> list[Subscriber]:
    """Static members by their names, then the others by their ids (Kafka's MemberInfo)."""
    return sorted(
        members,
        key=lambda member: (member.instance_id is None, _utf16(member.instance_id or member.member_id)),
    )


def _utf16(text: str) -> bytes:
    """A key that sorts like a string of Java."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Joined:
    """A member, as kafka-python's assignor asks it."""

    member_id: str
    metadata: Any
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Topics:
    """The cluster, as kafka-python's assignor asks it."""

    counts: Counts

    def topics(self) -> set[str]:
        return set(self.counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self.counts.get(topic)
        return None if count is None else set(range(count))
