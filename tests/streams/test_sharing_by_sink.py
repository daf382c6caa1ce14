"""Streams that share partitions, and whose sinks commit: each row is in one transaction, whatever happens."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import pytest

from pyspark_kafkalog.errors import GroupError
from pyspark_kafkalog.model import Assigned, CommittedOffset, MemberOfGroup, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.streams.committing import as_they_are
from pyspark_kafkalog.streams.planner import StreamPlanner
from pyspark_kafkalog.streams.sharing import CommittedBySink, SharedGroup
from tests.reading.fake_groups import FakeGroups
from tests.reading.fake_place import FakePlace
from tests.streams.test_sharing import A0, A1, A2, GROUP, FakeMember, Query, committed


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
            fail_on_data_loss=True,
            sink=CommittedBySink(
                lambda member, begins: setattr(self, "told", (member, begins)), self.settled.append
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


def test_a_sink_that_does_not_commit() -> None:
    groups = FakeGroups()
    stream = copier(FakePlace({A0: (0, 9)}), groups)
    stream.member.assign(A0)
    assert stream.offer()
    stream.read()
    stream.complete = 1
    with pytest.raises(GroupError, match="leaves its commits to the sink"):
        stream.finish()


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


@pytest.mark.parametrize("seed", range(200))
def test_each_row_is_committed_once(seed: int) -> None:
    chance = random.Random(seed)
    partitions = [A0, A1, A2]
    place, groups = FakePlace(dict.fromkeys(partitions, (0, 0))), FakeGroups()
    queries = [copier(place, groups, maxOffsetsPerTrigger=str(chance.randint(2, 9))) for _ in range(2)]

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
        if step == "write":
            partition = chance.choice(partitions)
            place.bounds |= {partition: (0, place.bounds[partition][1] + chance.randint(1, 20))}
        elif step == "go on" and is_running:
            stream.end()
        elif step == "go on":
            if stream.offer():
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
