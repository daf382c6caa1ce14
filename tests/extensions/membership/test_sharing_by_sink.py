"""Streams that share partitions, and whose sinks commit: each row is in one transaction, whatever happens."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import NoReturn

import pytest

from pyspark_kafkalog.errors import GroupError
from pyspark_kafkalog.extensions.membership.sharing import CommittedBySink, SharedGroup
from pyspark_kafkalog.model import Assigned, CommittedOffset, MemberOfGroup, TopicPartition
from pyspark_kafkalog.model.groups import PendingOffsetsError
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.read import commits
from pyspark_kafkalog.stream.committing import as_they_are
from pyspark_kafkalog.stream.planner import StreamPlanner
from tests.extensions.membership.test_sharing import A0, A1, A2, GROUP, FakeMember, Query, committed
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace


@dataclass
class Copier(Query):
    """A query whose sink commits, or is refused if the assignment under which it has read is not the last."""

    marker: int = -1
    """The micro-batch that its sink has committed last."""
    settled: list[Offsets] = field(default_factory=list)
    told: tuple[MemberOfGroup | None, Offsets] = (None, {})
    read_as: Assigned | None = None

    def run(self) -> None:
        self.member = FakeMember(self.groups)
        self.sharing = SharedGroup(
            self.member,
            GROUP,
            self.place,
            lambda: self.groups,
            as_they_are,
            patience=0,
            noted={},
            note=lambda begins: pytest.fail("the sink is told"),
            fail_on_data_loss="failOnDataLoss" not in self.options,
            sink=CommittedBySink(
                lambda member, begins, changes: setattr(self, "told", (member, begins)), self.settled.append
            ),
        )
        self.planner = StreamPlanner(
            self.place,
            read_options({"path": "/log", "startingOffsets": "earliest", **self.options}, batch=False),
            groups=self.groups,
            sharing=self.sharing,
            topic_ids=self.topic_ids,
            keep_topic_ids=self._keep_ids,
            shared=self.shared,
            keep_shared=partial(setattr, self, "shared"),
        )

    def read(self) -> None:
        """Run the micro-batch that is planned: its rows are staged."""
        self.read_as = self.member.assigned
        splits = self.planner.plan(self.start, self.plans[-1])
        self.runs.setdefault(len(self.plans) - 1, []).append([(s.partition, *s.offsets) for s in splits])

    def commit(self) -> None:
        """Rows and offsets at once, unless that was done before; given up if the member has lost it."""
        number, (member, begins) = len(self.plans) - 1, self.told
        rows = self.runs[number][-1]
        assert {p for p, _, _ in rows} == begins.keys()
        if self.marker < number and member is not None and self.read_as is self.member.assigned:
            self.rows.update((p, offset) for p, begin, end in rows for offset in range(begin, end))
            self.groups.commit(GROUP, {p: CommittedOffset(self.plans[-1][p]) for p in begins})
        self.marker = number

    def end(self) -> None:
        self.commit()
        super().end()


def copier(place: FakePlace, groups: FakeGroups, **options: str) -> Copier:
    found = Copier(place, groups, options)
    found.run()
    return found


def test_the_group_is_believed_also_if_the_checkpoint_is_further() -> None:
    place, groups = FakePlace({A0: (0, 9), A1: (0, 9)}), FakeGroups()
    stream = copier(place, groups)
    stream.member.assign(A0, A1)
    assert stream.offer()
    stream.read()  # and is killed before the commit
    groups.commit(GROUP, {A1: CommittedOffset(4)})  # by who has taken it over
    stream.run()
    stream.member.assign(A0)
    stream.read()
    assert stream.runs[0] == [[(A0, 0, 9), (A1, 0, 9)], [(A0, 0, 9)]]
    stream.end()
    assert stream.settled == [{A0: 9, A1: 9}]
    assert committed(groups) == {A0: 9, A1: 4}
    stream.finish()
    stream.member.assign(A0, A1)
    place.bounds |= {A1: (0, 12)}
    stream.batch()
    assert stream.runs[1] == [[(A1, 4, 12)]]
    assert committed(groups) == {A0: 9, A1: 12}


def that_has_read(groups: FakeGroups) -> Copier:
    """A query that has read nine rows, and that Spark takes for complete."""
    stream = copier(FakePlace({A0: (0, 9)}), groups)
    stream.member.assign(A0)
    assert stream.offer()
    stream.read()
    stream.complete = 1
    return stream


def test_a_sink_that_does_not_commit() -> None:
    stream = that_has_read(FakeGroups())
    with pytest.raises(GroupError, match="leaves its commits to the sink"):
        stream.finish()


def test_brokers_that_are_late_to_end_the_transaction_of_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = FakeGroups()
    stream = that_has_read(groups)
    with monkeypatch.context() as patch:
        patch.setattr(groups, "committed", stays_open)
        stream.finish()
    stream.commit()
    assert committed(groups) == {A0: 9}


def stays_open(*given: object, **rules: object) -> NoReturn:
    raise PendingOffsetsError("Its commits are in a transaction that stays open")


def test_others_have_gone_on_while_the_planner_was_paused() -> None:
    """The heart of the member has not learnt yet that it is out."""
    groups = FakeGroups()
    stream = copier(FakePlace({A0: (0, 9)}), groups)
    stream.member.assign(A0)
    assert stream.offer()
    stream.read()
    stream.commit()
    groups.commit(GROUP, {A0: CommittedOffset(12)})
    stream.complete = 1
    stream.finish()
    assert stream.rows == Counter((A0, offset) for offset in range(9))


def test_offsets_that_have_expired_are_not_guessed() -> None:
    place, groups = FakePlace({A0: (0, 9)}), FakeGroups()
    stream = copier(place, groups)
    stream.member.assign(A0)
    stream.batch()
    groups.offsets[GROUP].clear()
    place.bounds |= {A0: (0, 12)}
    stream.run()
    stream.member.assign(A0)
    with pytest.raises(GroupError, match="has no offset of a-0, which the query has read"):
        stream.offer()


def recreate(place: FakePlace, groups: FakeGroups, **ends: int) -> None:
    """Brokers delete what groups have committed of a topic that is deleted."""
    place.ids["a"] += "'"
    place.bounds = {TopicPartition("a", int(name[1:])): (0, end) for name, end in ends.items()}
    groups.offsets[GROUP] = {}


@pytest.mark.parametrize("end", [60, 9, 6])
def test_a_topic_that_was_recreated_before_a_replay(end: int) -> None:
    """It goes on where others are in the new topic, which may be too short for the end that was planned."""
    place, groups = FakePlace({A0: (0, 9), A1: (0, 9)}, ids={"a": "one"}), FakeGroups()
    stream = copier(place, groups, failOnDataLoss="false")
    stream.member.assign(A0, A1)
    assert stream.offer()
    stream.read()  # and is killed before the commit
    recreate(place, groups, a0=end, a1=end)
    groups.commit(GROUP, {A0: CommittedOffset(4)})  # by who has taken it over
    stream.run()
    stream.member.assign(A0, A1)
    stream.read()
    assert stream.told[1] == {p: begin for p, begin, _ in stream.runs[0][1]}
    assert bool(stream.told[1]) == (end >= 9)
    stream.end()
    stream.finish()
    stream.member.assign(A0, A1)
    stream.batch()
    stream.batch()
    assert stream.rows == Counter([(p, o) for p, begin in ((A0, 4), (A1, 0)) for o in range(begin, end)])
    assert committed(groups) == {A0: end, A1: end}


def test_a_log_that_was_replaced_by_a_shorter_one_without_topic_ids() -> None:
    place, groups = FakePlace({A0: (0, 9)}), FakeGroups()
    stream = copier(place, groups, failOnDataLoss="false")
    stream.member.assign(A0)
    assert stream.offer()
    stream.read()
    place.bounds[A0] = (0, 6)
    groups.commit(GROUP, {A0: CommittedOffset(4)})
    stream.run()
    stream.member.assign(A0)
    stream.read()
    stream.end()
    assert committed(groups) == {A0: 4}
    stream.finish()
    place.bounds[A0] = (0, 20)
    stream.batch()
    assert stream.rows == Counter([(A0, offset) for offset in range(4, 20)])


@pytest.mark.parametrize("others", [4, 9, 20])
def test_a_topic_that_was_recreated_while_a_query_was_stopped(others: int) -> None:
    place, groups = FakePlace({A0: (0, 9), A1: (0, 9)}, ids={"a": "one"}), FakeGroups()
    stream = copier(place, groups, failOnDataLoss="false")
    stream.member.assign(A0, A1)
    stream.batch()
    stream.rows.clear()
    recreate(place, groups, a0=20, a1=20)
    groups.commit(GROUP, {A0: CommittedOffset(others)})
    stream.run()
    stream.member.assign(A0)
    stream.batch()
    place.bounds[A0] = (0, 30)
    stream.batch()
    stream.member.assign(A0, A1)
    stream.batch()
    assert stream.rows == Counter(
        [(p, o) for p, b, e in ((A0, others, 30), (A1, 0, 20)) for o in range(b, e)]
    )
    recreate(place, groups, a0=5, a1=40)  # under it
    groups.commit(GROUP, {A0: CommittedOffset(3)})  # by a late request of its sink
    stream.rows.clear()
    stream.finish()
    assert not stream.offer()
    assert committed(groups) == {A0: 0, A1: 0}
    stream.batch()
    assert stream.rows == Counter([(p, o) for p, e in ((A0, 5), (A1, 40)) for o in range(e)])


def test_a_topic_that_is_recreated_after_topics_were_listed() -> None:
    """The group is asked again: what it has given may be a position in another log."""
    place, groups = FakePlace({A0: (0, 9)}, ids={"a": "one"}), FakeGroups()
    stream = copier(place, groups, failOnDataLoss="false")
    stream.planner._subscription._max_age = 60
    stream.member.assign()
    stream.batch()
    recreate(place, groups, a0=20)
    groups.commit(GROUP, {A0: CommittedOffset(4)})
    stream.member.assign(A0)
    stream.batch()
    assert not stream.rows
    stream.batch()
    assert stream.rows == Counter([(A0, offset) for offset in range(4, 20)])


@pytest.mark.parametrize(("seed", "recreates"), [*product(range(200), [False]), *product(range(100), [True])])
def test_each_row_is_committed_once(seed: int, recreates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And if topics are recreated while the queries are down, of the new one."""
    monkeypatch.setattr(commits, "_PAUSE", 0)
    chance = random.Random(seed)
    partitions = [A0, A1, A2]
    place, groups = FakePlace(dict.fromkeys(partitions, (0, 0)), ids={"a": "one"}), FakeGroups()
    options = {"failOnDataLoss": "false"} if recreates else {}
    queries = [
        copier(place, groups, maxOffsetsPerTrigger=str(chance.randint(2, 9)), **options) for _ in range(2)
    ]

    def rebalance(*out: Copier) -> None:
        """The group goes on without some, and the others give up what they have between two steps."""
        owners = {p: chance.choice(queries) for p in partitions}
        for each in queries:
            if each.complete < len(each.plans) and each not in out and each.read_as is each.member.assigned:
                return  # the group waits for its micro-batch
        for each in queries:
            each.member.assign(*(p for p in partitions if owners[p] is each))

    rebalance()
    for _ in range(60):
        stream = chance.choice(queries)
        is_running = stream.complete < len(stream.plans)
        step = chance.choice(["write", "go on", "go on", "go on", "rebalance", "kill", "expel"])
        if recreates and chance.random() < 0.04:
            for each in queries:  # they are down meanwhile
                if each.complete < len(each.plans) and chance.random() < 0.5:
                    each.commit()
                each.run()
                each.rows.clear()
            recreate(place, groups, **{f"a{n}": chance.choice([0, 5, 20, 40]) for n in range(3)})
            others = {
                p: chance.randint(0, end) for p, (_, end) in place.bounds.items() if chance.random() < 0.5
            }
            queries[0].rows.update((p, offset) for p, end in others.items() for offset in range(end))
            groups.commit(GROUP, {p: CommittedOffset(end) for p, end in others.items()})
            rebalance(*queries)
            for each in queries:
                if each.complete < len(each.plans):
                    each.read()
        elif step == "write":
            partition = chance.choice(partitions)
            place.bounds |= {partition: (0, place.bounds[partition][1] + chance.randint(1, 20))}
        elif step == "go on" and is_running:
            stream.end()
        elif step == "go on":
            try:
                goes_on = stream.offer()
            except GroupError:  # no run has known the topic's id in its first micro-batch: ask the user
                assert recreates
                zeros = dict.fromkeys(partitions, CommittedOffset(0))
                groups.commit(GROUP, zeros | groups.offsets[GROUP])
            else:
                if goes_on:
                    stream.read()
        elif step == "rebalance":
            rebalance()
        elif step == "expel":
            rebalance(stream)
        elif step == "kill":
            if is_running and chance.random() < 0.3:
                stream.commit()
            stream.run()
            rebalance(stream)
            if stream.member.assigned is None:
                stream.member.assign()
            if is_running:
                stream.read()
    for _ in range(4):
        for stream in queries:
            if stream.complete < len(stream.plans):
                stream.end()
            stream.finish()
        rebalance(*queries)
        for stream in queries:
            stream.batch()
    written = Counter[tuple[TopicPartition, int]]()
    for stream in queries:
        written.update(stream.rows)
    expected = {(p, offset) for p in partitions for offset in range(place.bounds[p][1])}
    assert written.keys() == expected
    assert set(written.values()) <= {1}
