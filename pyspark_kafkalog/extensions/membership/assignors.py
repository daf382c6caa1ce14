"""The assignors of a classic group, by which its leader gives partitions to members, as Kafka's do.

Range and round robin are those of Kafka's RangeAssignor and RoundRobinAssignor for members without a rack.
Kafka-python has both, but loses members where static ones follow dynamic ones, and fails where subscriptions
differ. Its cooperative sticky assignor (KIP-429) is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark_kafkalog.model import TopicPartition

Counts = Mapping[str, int]
"""The number of partitions of each topic that exists."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member of a group as its leader sees it.

    ``owned`` are the partitions that it says it has since ``generation``.
    """

    member_id: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    owned: tuple[TopicPartition, ...] = field(default=())
    generation: int = -1


GroupAssignment = Mapping[str, Sequence[TopicPartition]]
"""The partitions of each member, by its id."""
Assignor = Callable[[Sequence[Subscriber], Counts], GroupAssignment]


def assign_ranges(members: Sequence[Subscriber], counts: Counts) -> GroupAssignment:
    """A range of each topic's partitions for each member; the first members get one more."""
    assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic, count in sorted(counts.items()):
        subscribed = [member for member in _in_order(members) if topic in member.topics]
        begin = 0
        for number, member in enumerate(subscribed):
            end = begin + count // len(subscribed) + (number < count % len(subscribed))
            assignment[member.member_id] += [TopicPartition(topic, p) for p in range(begin, end)]
            begin = end
    return assignment


def assign_in_turn(members: Sequence[Subscriber], counts: Counts) -> GroupAssignment:
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


def assign_cooperatively(members: Sequence[Subscriber], counts: Counts) -> GroupAssignment:
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
