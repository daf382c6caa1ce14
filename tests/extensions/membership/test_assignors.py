"""Assignments by our leader: equal to those of Kafka's own classes, and in the end even and whole."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.extensions.membership.assignors import (
    ASSIGNORS,
    GroupAssignment,
    Subscriber,
    assign_cooperatively,
)
from pyspark_kafkalog.model import TopicPartition
from tests.kafka_jars import java, kafka_jars

TOPICS = ["a", "B", "b-1", "zz", "z.z", "_x"]
NAMES = ["c", "C-1", "\uffee", "\U0001f600", "ä", "consumer-g-1", "consumer-g-10", "consumer-g-2", ""]


NO_RACK = "-"


class Case(NamedTuple):
    assignor: str
    counts: dict[str, int]
    replicas: dict[TopicPartition, list[str]]
    """The racks of a partition's replicas, NO_RACK for one without."""
    members: list[Subscriber]

    @property
    def racks(self) -> dict[TopicPartition, frozenset[str]]:
        return {p: frozenset(found) - {NO_RACK} for p, found in self.replicas.items()}

    def __str__(self) -> str:
        """A line for AssignPartitions.java."""
        told = [
            f"{m.member_id}|{m.instance_id or ''}|{','.join(sorted(m.topics))}|{m.rack}" for m in self.members
        ]
        existing = []
        for topic, count in self.counts.items():
            parts = [" ".join(self.replicas[TopicPartition(topic, n)]) for n in range(count)]
            existing += ["/".join([f"{topic}={count}", *parts])] * bool(count)
        return "\t".join([self.assignor, ",".join(existing), *told])


def cases(chance: random.Random, count: int) -> list[Case]:
    found = []
    for _ in range(count):
        most = chance.choice([3, 9])  # with few, more topics have the same number
        counts = {topic: chance.randint(0, most) for topic in chance.sample(TOPICS, chance.randint(0, 5))}
        racks = chance.choice([[NO_RACK], ["r1"], ["r1", "r2"], ["r1", "r2", "r3"], ["r1", "r2", NO_RACK]])
        copies = chance.randint(1, len(racks))
        replicas = {
            TopicPartition(topic, number): chance.sample(racks, copies)
            for topic, size in counts.items()
            for number in range(size)
        }
        its, members = chance.choice([[""], racks, [*racks, ""], ["r4"], ["r1", "r4"]]), []
        same = frozenset(chance.sample(TOPICS, chance.randint(0, 6))) if chance.random() < 0.5 else None
        for number, name in enumerate(chance.sample(NAMES, chance.randint(1, 7))):
            instance = chance.choice([None, None, f"i{chance.randint(0, 99)}-{number}"])
            topics = frozenset(chance.sample(TOPICS, chance.randint(0, 4))) if same is None else same
            rack = chance.choice(its)
            members.append(Subscriber(f"{name}-{number}", instance, topics, rack=rack.replace(NO_RACK, "")))
        found.append(Case(chance.choice(["range", "range", "roundrobin"]), counts, replicas, members))
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_range_and_round_robin_are_kafkas(chance: random.Random, tmp_path: Path, soak: bool) -> None:
    tried, file = cases(chance, 100_000 if soak else 4000), tmp_path / "cases"
    file.write_text("\n".join(map(str, tried)), "utf-8")
    command = [java(), "-Dstdout.encoding=UTF-8", "-cp", f"{kafka_jars()}/*"]
    source = Path(__file__).with_name("AssignPartitions.java")
    printed = subprocess.run([*command, str(source), str(file)], capture_output=True, text=True, check=True)
    shared = Counter[str]()
    by_racks = 0
    for case, line in zip(tried, printed.stdout.splitlines(), strict=True):
        known = {topic: count for topic, count in case.counts.items() if count}
        found = ASSIGNORS[case.assignor](case.members, known, case.racks)
        ours = [",".join(sorted(f"{t}-{p}" for t, p in found[m.member_id])) for m in case.members]
        assert ours == line.split("\t"), str(case)
        shared[case.assignor] += sum(map(bool, ours)) > 1
        by_racks += found != ASSIGNORS[case.assignor](case.members, known, {})
    assert min(shared.values()) > len(tried) // 10
    assert by_racks > len(tried) // 20


def once(assignment: GroupAssignment) -> dict[TopicPartition, str]:
    """The owner of each partition; no partition has two."""
    owners: dict[TopicPartition, str] = {}
    for member, partitions in assignment.items():
        for partition in partitions:
            assert partition not in owners
            owners[partition] = member
    return owners


def settled(members: Sequence[Subscriber], counts: Mapping[str, int]) -> list[Subscriber]:
    """The members after so many rebalances that none is needed any more."""
    for generation in range(1, 10):
        assigned = assign_cooperatively(members, counts, {})
        owners = once(assigned)
        for member in members:
            for partition in member.owned:  # it moves only when its owner has given it up
                assert owners.get(partition, member.member_id) == member.member_id
        after = [
            replace(member, owned=tuple(sorted(assigned[member.member_id])), generation=generation)
            for member in members
        ]
        if not any(set(member.owned) - set(now.owned) for member, now in zip(members, after, strict=True)):
            return after
        members = after
    raise AssertionError("the group does not come to rest")


@given(
    counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1, max_size=3),
    rounds=st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_cooperative_members_come_to_an_even_share(counts: dict[str, int], rounds: list[set[int]]) -> None:
    """However members come and go, a partition has one owner, and in the end all is read, evenly."""
    everything = {TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)}
    known: dict[str, Subscriber] = {}
    for present in rounds:
        members = [known.get(f"m{n}", Subscriber(f"m{n}", None, frozenset(counts))) for n in present]
        members = settled(members, counts)
        known = {member.member_id: member for member in members}
        sizes = [len(member.owned) for member in members]
        assert {partition for member in members for partition in member.owned} == everything
        assert max(sizes) - min(sizes) <= 1


def test_few_partitions_move() -> None:
    counts = {"a": 12}
    alone = settled([Subscriber("m0", None, frozenset(counts))], counts)
    both = settled([*alone, Subscriber("m1", None, frozenset(counts))], counts)
    assert len(both[1].owned) == 6
    assert set(both[0].owned) <= set(alone[0].owned)


def test_an_owner_of_an_older_generation_does_not_count() -> None:
    """It was out of the group, and another has its partition now."""
    partition = TopicPartition("a", 0)
    members = [
        Subscriber("old", None, frozenset("a"), (partition,), 3),
        Subscriber("new", None, frozenset("a"), (partition,), 5),
    ]
    assert "old" not in once(assign_cooperatively(members, {"a": 1}, {})).values()
