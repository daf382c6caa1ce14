"""Streams that share partitions: no row is skipped, whatever moves, is killed, or is put out of the group."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from pyspark_kafkalog.errors import DataLossError, GroupError
from pyspark_kafkalog.extensions.membership.sharing import SharedGroup
from pyspark_kafkalog.model import Assigned, CommittedOffset, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.stream.committing import as_they_are
from pyspark_kafkalog.stream.history import Shared
from pyspark_kafkalog.stream.planner import StreamPlanner
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace

GROUP = "g"
A0, A1, A2, A3 = (TopicPartition("a", number) for number in range(4))


@dataclass
class FakeMember:
    """A member whose assignment a test sets."""

    groups: FakeGroups
    assigned: Assigned | None = None
    is_held: bool = False
    refuses: int = 0
    """How many commits come to nothing."""
    subscribed: Mapping[str, int] = field(default_factory=dict)

    def assign(self, *partitions: TopicPartition) -> None:
        self.assigned = Assigned(frozenset(partitions))

    def subscribe(self, counts: Mapping[str, int]) -> None:
        self.subscribed = counts

    def hold(self, wait: float) -> Assigned | None:
        self.is_held = self.assigned is not None
        return self.assigned

    def release(self) -> None:
        self.is_held = False

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], assigned: Assigned) -> bool:
        if assigned is not self.assigned or not self.is_held:
            return False
        if self.refuses:
            self.refuses -= 1
            return False
        self.groups.commit(GROUP, offsets)
        return True

    def leave(self) -> None:
        self.assigned = None


@dataclass
class Query:
    """A query over runs: its checkpoint, and what it has read in each run of each micro-batch."""

    place: FakePlace
    groups: FakeGroups
    options: dict[str, str] = field(default_factory=dict)
    initial: Offsets | None = None
    plans: list[Offsets] = field(default_factory=list)
    complete: int = 0
    begins: tuple[int, Offsets] = (-1, {})
    topic_ids: dict[str, str] = field(default_factory=dict)
    shared: Shared = field(default_factory=dict)
    rows: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter)
    runs: dict[int, list[list[tuple]]] = field(default_factory=dict)

    def run(self) -> None:
        """Start, or start again after a kill."""
        self.member = FakeMember(self.groups)
        self.sharing = SharedGroup(
            self.member,
            GROUP,
            self.place,
            lambda: self.groups,
            as_they_are,
            patience=0,
            stored=self.begins[1] if self.begins[0] == len(self.plans) - 1 else {},
            store=self._store,
            fail_on_data_loss=True,
        )
        self.planner = StreamPlanner(
            self.place,
            read_options({"path": "/log", "startingOffsets": "earliest", **self.options}, batch=False),
            groups=self.groups,
            share=self.sharing,
            topic_ids=self.topic_ids,
            store_topic_ids=self._keep_ids,
            shared=self.shared,
            store_shared=partial(setattr, self, "shared"),
        )

    def _keep_ids(self, ids: Mapping[str, str], before: Mapping[str, str] | None) -> None:
        self.topic_ids = dict(ids if before is None else before)

    def _store(self, begins: Offsets) -> None:
        self.begins = len(self.plans) - 1, begins

    @property
    def start(self) -> Offsets:
        """Where Spark says that the next micro-batch begins."""
        if self.complete == 0:
            if self.initial is None:
                self.initial = self.planner.initial_offsets()
            return self.initial
        return self.plans[self.complete - 1]

    def finish(self) -> None:
        """What the reader does first when Spark asks it for more."""
        self.sharing.commit(GROUP, as_they_are(self.sharing.own(self.start)))
        self.sharing.release()

    def offer(self) -> bool:
        """Spark asks for more, and logs the plan if there is more."""
        self.finish()
        start = self.start
        end = self.planner.next_offsets(start)
        if end == start:
            assert not self.member.is_held
            return False
        assert self.member.is_held
        self.plans.append(end)
        return True

    def read(self) -> None:
        """Run the micro-batch that is planned: its rows come to the sink."""
        splits = self.planner.plan(self.start, self.plans[-1])
        ranges = [(split.partition, *split.offsets) for split in splits]
        self.runs.setdefault(len(self.plans) - 1, []).append(ranges)
        self.rows.update((p, offset) for p, begin, end in ranges for offset in range(begin, end))

    def end(self) -> None:
        """Spark logs the micro-batch as complete."""
        self.complete = len(self.plans)

    def batch(self) -> None:
        while self.offer():
            self.read()
            self.end()
        self.finish()

    def resume(self) -> None:
        """Start again; what was planned is run again."""
        self.run()
        if self.complete < len(self.plans):
            self.read()
            self.end()


def query(place: FakePlace, groups: FakeGroups | None = None, **options: str) -> Query:
    found = Query(place, groups or FakeGroups(), options)
    found.run()
    return found


def committed(groups: FakeGroups) -> dict[TopicPartition, int]:
    return {p: commit.offset for p, commit in groups.offsets.get(GROUP, {}).items()}


def test_only_what_is_assigned_is_read_from_where_the_group_is() -> None:
    groups = FakeGroups({GROUP: {A1: CommittedOffset(4)}})
    stream = query(FakePlace({A0: (0, 9), A1: (0, 9), A2: (3, 9)}), groups)
    stream.member.assign(A1, A2)
    assert stream.start == {A1: 4, A2: 3}
    assert committed(groups) == {A1: 4, A2: 3}  # so that others begin there, too
    stream.batch()
    assert stream.plans == [{A1: 9, A2: 9}]
    assert stream.runs == {0: [[(A1, 4, 9), (A2, 3, 9)]]}
    assert committed(groups) == {A1: 9, A2: 9}
    assert stream.planner.latest == {A1: 9, A2: 9}
    assert stream.member.subscribed == {"a": 3}


def test_what_others_have_done_is_skipped_and_each_run_reads_the_same() -> None:
    place, groups = FakePlace({A0: (0, 9), A1: (0, 9)}), FakeGroups()
    stream = query(place, groups)
    stream.member.assign(A0, A1)
    stream.batch()
    stream.member.assign(A0)
    place.bounds |= {A0: (0, 20), A1: (0, 20)}
    groups.commit(GROUP, {A1: CommittedOffset(15)})  # by another member
    stream.batch()
    assert stream.plans[-1] == {A0: 20, A1: 9}
    assert stream.planner.latest == {A0: 20}
    stream.member.assign(A0, A1)
    assert stream.offer()
    stream.read()
    groups.commit(GROUP, {A1: CommittedOffset(18)})  # others go on after a kill
    stream.resume()
    assert stream.runs[2] == [[(A1, 15, 20)], [(A1, 15, 20)]]
    assert committed(groups) == {A0: 20, A1: 18}
    stream.member.assign(A0, A1)
    stream.batch()
    assert committed(groups) == {A0: 20, A1: 20}
    assert stream.rows[A1, 9] == 0
    assert stream.rows[A1, 19] == 2


def test_a_jump_alone_is_a_micro_batch_without_rows() -> None:
    """So that Spark's progress says where the stream is, and the checkpoint, too."""
    groups = FakeGroups()
    stream = query(FakePlace({A0: (0, 5), A1: (0, 5)}), groups)
    stream.member.assign(A0)
    stream.batch()
    groups.commit(GROUP, {A1: CommittedOffset(5)})
    stream.member.assign(A0, A1)
    stream.batch()
    assert stream.plans == [{A0: 5}, {A0: 5, A1: 5}]
    assert stream.runs[1] == [[]]


def test_a_kill_before_the_jump_is_noted_skips_nothing() -> None:
    groups = FakeGroups()
    place = FakePlace({A0: (0, 5), A1: (0, 8)})
    stream = query(place, groups)
    stream.member.assign(A0)
    stream.batch()
    groups.commit(GROUP, {A1: CommittedOffset(5)})
    stream.member.assign(A0, A1)
    assert stream.offer()
    stream.resume()  # killed before plan()
    assert stream.runs[1] == [[(A1, 5, 8)]]
    # Nor where the partition was in the checkpoint before: then it reads again what others have done.
    stream.member.assign(A0)
    stream.batch()
    place.bounds[A1] = (0, 12)
    groups.commit(GROUP, {A1: CommittedOffset(10)})
    stream.member.assign(A0, A1)
    assert stream.offer()
    stream.resume()
    assert stream.runs[2] == [[(A1, 8, 12)]]


def test_a_checkpoint_that_was_set_back_says_what_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    place, groups = FakePlace({A0: (0, 5), A1: (0, 5)}), FakeGroups()
    stream = query(place, groups)
    for end in (5, 8, 12):
        place.bounds |= {A0: (0, end), A1: (0, end)}
        stream.member.assign(A0, A1)
        stream.planner._history._next = 0.0  # it is time to note
        stream.batch()
    del stream.plans[1:]
    stream.complete = 1
    stream.run()
    stream.member.assign(A0, A1)
    stream.batch()
    assert "so it does not read a-0 from 5 to 12, a-1 from 5 to 12 again" in caplog.text
    assert stream.plans == [{A0: 5, A1: 5}, {A0: 12, A1: 12}]
    # What others have done since is not of that kind.
    caplog.clear()
    groups.commit(GROUP, {A1: CommittedOffset(20)})
    place.bounds[A1] = (0, 20)
    stream.run()
    stream.member.assign(A0, A1)
    stream.batch()
    assert stream.plans[-1] == {A0: 12, A1: 20}
    assert "again" not in caplog.text


def test_what_others_have_read_of_open_transactions_is_no_loss() -> None:
    """A consumer that reads uncommitted may be above the last stable offset."""
    groups, place = FakeGroups(), FakePlace({A0: (0, 50, 40), A1: (0, 10)})
    stream = query(place, groups)
    stream.planner._options = replace(stream.planner._options, read_committed=True)
    stream.member.assign(A1)
    stream.batch()
    groups.commit(GROUP, {A0: CommittedOffset(45)})
    stream.planner.prepare_for_available_now()
    stream.member.assign(A0, A1)
    stream.batch()
    assert stream.plans[-1] == {A0: 45, A1: 10}
    stream.run()
    stream.planner._options = replace(stream.planner._options, read_committed=True)
    stream.member.assign(A0, A1)
    place.bounds[A0] = (0, 60, 43)
    stream.batch()
    place.bounds[A0] = (0, 60)
    stream.batch()
    assert [stream.runs[batch] for batch in stream.runs] == [[[(A1, 0, 10)]], [[]], [[(A0, 45, 60)]]]


def test_a_query_that_was_killed_before_its_commit_goes_on_where_it_was() -> None:
    groups = FakeGroups()
    stream = query(FakePlace({A0: (0, 5)}), groups)
    stream.member.assign(A0)
    assert stream.offer()
    stream.read()
    stream.end()
    assert committed(groups) == {A0: 0}
    stream.resume()
    stream.member.assign(A0)
    assert not stream.offer()
    assert committed(groups) == {A0: 5}
    assert stream.rows == dict.fromkeys([(A0, offset) for offset in range(5)], 1)


def test_a_lost_assignment_leaves_the_rows_uncommitted() -> None:
    groups = FakeGroups()
    stream = query(FakePlace({A0: (0, 5), A1: (0, 5)}), groups)
    stream.member.assign(A0, A1)
    assert stream.offer()
    stream.read()
    stream.member.assign(A0)  # as another, after the session timeout
    stream.end()
    stream.finish()
    assert committed(groups) == {A0: 0, A1: 0}
    assert not stream.offer()
    assert committed(groups) == {A0: 5, A1: 0}


def test_a_position_that_the_group_did_not_take_is_looked_for_again() -> None:
    """Not that of the assignment before: in between, others have read on."""
    groups = FakeGroups()
    stream = query(FakePlace({A0: (0, 5), A1: (0, 5)}), groups)
    stream.member.assign(A0)
    stream.batch()
    stream.place.bounds[A0] = (0, 9)
    stream.member.assign(A1)
    stream.member.refuses = 1
    assert not stream.offer()
    assert stream.offer()
    stream.read()
    assert stream.runs[1] == [[(A1, 0, 5)]]
    assert stream.plans[-1] == {A0: 5, A1: 5}


def test_without_an_assignment_there_is_nothing_new() -> None:
    stream = query(FakePlace({A0: (0, 5)}))
    stream.member.assign(A0)
    stream.batch()
    stream.member.assigned = None
    stream.place.bounds[A0] = (0, 9)
    assert not stream.offer()
    assert stream.planner.latest == {}
    stream.member.assign()
    assert not stream.offer()


def test_new_partitions_of_a_topic_begin_at_their_log_start() -> None:
    groups = FakeGroups()
    stream = query(FakePlace({A0: (0, 5)}), groups, startingOffsets="latest")
    stream.member.assign(A0)
    stream.batch()
    stream.place.bounds[A1] = (2, 7)
    stream.member.assign(A0, A1)
    stream.batch()
    assert stream.runs == {0: [[(A1, 2, 7)]]}
    assert stream.member.subscribed == {"a": 2}


def test_deleted_partitions_of_others_are_not_this_querys_loss() -> None:
    stream = query(FakePlace({A0: (0, 5), A1: (0, 5)}))
    stream.member.assign(A0, A1)
    stream.batch()
    stream.member.assign(A0)
    assert not stream.offer()
    del stream.place.bounds[A1]
    stream.place.bounds[A0] = (0, 6)
    stream.batch()
    assert stream.plans[-1] == {A0: 6, A1: 5}


@pytest.mark.parametrize("others", [{}, {A0: 7}, {A0: 7, A1: 9}])
def test_a_topic_that_was_recreated_is_a_loss(others: Offsets) -> None:
    groups = FakeGroups()
    place = FakePlace({A0: (0, 50), A1: (0, 50)}, ids={"a": "one"})
    stream = query(place, groups)
    stream.member.assign(A0, A1)
    stream.batch()
    place.bounds, place.ids["a"] = {A0: (0, 60), A1: (0, 60)}, "two"
    groups.offsets[GROUP] = {
        p: CommittedOffset(offset) for p, offset in others.items()
    }  # as Kafka drops them
    stream.run()
    for assigned in ((A0,), (A1,), (A0, A1)):
        stream.member.assign(*assigned)
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            stream.offer()
        stream.run()
    assert committed(groups) == others
    other = query(place, groups)
    other.member.assign(A0, A1)
    other.batch()
    assert other.runs[0] == [[(A0, others.get(A0, 0), 60), (A1, others.get(A1, 0), 60)]]


@pytest.mark.parametrize("end", [50, 60, 40])
def test_a_topic_that_was_recreated_is_read_from_its_start(end: int) -> None:
    place = FakePlace({A0: (0, 50), A1: (0, 50)}, ids={"a": "one"})
    stream = query(place, failOnDataLoss="false")
    stream.member.assign(A0, A1)
    stream.batch()
    place.bounds, place.ids["a"] = {A0: (0, end), A1: (0, 45)}, "two"
    stream.groups.offsets[GROUP].clear()
    stream.run()
    stream.member.assign(A0, A1)
    assert stream.offer()
    assert committed(stream.groups) == {}
    stream.read()
    stream.resume()
    assert stream.runs[1] == [[(A0, 0, end), (A1, 0, 45)]] * 2
    stream.member.assign(A0, A1)
    stream.batch()
    assert committed(stream.groups) == {A0: end, A1: 45}


def test_a_log_that_was_cut_gets_no_commit_beyond_its_end() -> None:
    groups = FakeGroups()
    stream = query(FakePlace({A0: (0, 50)}), groups)
    stream.member.assign(A0)
    stream.batch()
    stream.place.bounds[A0] = (0, 30)
    groups.commit(GROUP, {A0: CommittedOffset(20)})
    stream.run()
    stream.member.assign(A0)
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        stream.offer()
    assert committed(groups) == {A0: 20}


def test_a_topic_that_is_deleted_under_its_member_is_a_loss() -> None:
    b0 = TopicPartition("b", 0)
    stream = query(FakePlace({A0: (0, 50), b0: (0, 50)}), maxOffsetsPerTrigger="20")
    stream.member.assign(A0, b0)
    assert stream.offer()
    stream.read()
    stream.end()
    del stream.place.bounds[b0]
    stream.member.assign(A0)  # the leader knows it, too
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED: b-0"):
        stream.offer()


def test_a_topic_that_is_deleted_under_its_member_is_left_out() -> None:
    b0 = TopicPartition("b", 0)
    options = {"maxOffsetsPerTrigger": "20", "failOnDataLoss": "false"}
    stream = query(FakePlace({A0: (0, 50), b0: (0, 50)}), **options)
    stream.planner._subscription._max_age = 1000  # it is listed for a while
    stream.member.assign(A0, b0)
    assert stream.offer()
    stream.read()
    stream.end()
    del stream.place.bounds[b0]
    stream.batch()
    assert stream.plans[-1] == {A0: 50}


def test_an_assignment_that_is_lost_before_anything_is_read() -> None:
    stream = query(FakePlace({A0: (0, 50)}))
    stream.member.assign(A0)
    real, lost = stream.member.commit, []

    def commit(offsets: Mapping[TopicPartition, CommittedOffset], assigned: Assigned) -> bool:
        if not lost:
            lost.append(assigned)
            stream.member.assign(A0)
            return False
        return real(offsets, assigned)

    stream.member.commit = commit  # type: ignore[method-assign]
    assert stream.start == {A0: 0}
    lost.clear()
    stream.groups.offsets.clear()
    stream.planner.prepare_for_available_now()
    stream.member.assign(A0)
    assert stream.planner.next_offsets(stream.start) == {A0: 50}


def test_a_first_partition_that_others_have_to_give_up() -> None:
    stream = query(FakePlace({A0: (0, 50)}))
    stream.sharing._patience = 60
    stream.member.assign()
    real, looks = stream.member.hold, []

    def hold(wait: float) -> Assigned | None:
        looks.append(wait)
        if len(looks) == 2:
            stream.member.assign(A0)
        return real(wait)

    stream.member.hold = hold  # type: ignore[method-assign]
    assert stream.start == {A0: 0}
    stream.sharing._patience = 0.2
    stream.member.assign()
    stream.finish()
    stream.planner.prepare_for_available_now()
    assert stream.planner.next_offsets(stream.start) == stream.start  # all are others'


def test_a_partition_that_came_back_further_on_stays_there() -> None:
    place = FakePlace({A0: (0, 100), A1: (0, 100)})
    stream = query(place, minOffsetsPerTrigger="40", maxTriggerDelay="1h")
    stream.member.assign(A0, A1)
    stream.batch()
    place.bounds[A0] = (0, 155)
    stream.groups.commit(GROUP, {A0: CommittedOffset(150)})
    stream.member.assign(A0)
    assert not stream.offer()  # 5 rows are too few
    place.bounds[A2] = (0, 0)  # the subscription has changed, the assignment has not yet
    assert not stream.offer()
    place.bounds[A0] = (0, 200)
    stream.batch()
    assert stream.runs[1] == [[(A0, 150, 200)]]


def test_a_commit_beyond_the_end_of_the_log_is_refused() -> None:
    groups = FakeGroups({GROUP: {A0: CommittedOffset(7)}})
    stream = query(FakePlace({A0: (0, 5)}), groups)
    stream.member.assign(A0)
    with pytest.raises(GroupError, match="the log ends at 5"):
        _ = stream.start


def test_available_now_reads_what_was_there_of_what_it_keeps() -> None:
    place = FakePlace({A0: (0, 10), A1: (0, 10), A2: (0, 10)})
    stream = query(place, maxOffsetsPerTrigger="4")
    stream.member.assign(A0, A1)
    stream.planner.prepare_for_available_now()
    assert stream.offer()
    stream.read()
    stream.end()
    place.bounds |= {A0: (0, 20), A1: (0, 20)}
    stream.member.assign(A1, A2)
    stream.batch()
    assert stream.plans[-1] == {A0: 2, A1: 10}


class Coordinator:
    """Moves partitions between queries at random, as a group does: between steps, or after a fence."""

    def __init__(self, chance: random.Random, queries: list[Query]) -> None:
        self.chance, self.queries = chance, queries

    def rebalance(self, *, patient: bool) -> bool:
        """Whether it came to one: a patient group waits for members in the middle of a step."""
        if patient and any(query.member.is_held for query in self.queries):
            return False
        partitions = [A0, A1, A2, A3]
        self.chance.shuffle(partitions)
        shares: list[list[TopicPartition]] = [[] for _ in self.queries]
        for partition in partitions:
            shares[self.chance.randrange(len(shares))].append(partition)
        for query, share in zip(self.queries, shares, strict=True):
            query.member.is_held = False
            query.member.assign(*share)
        return True


@pytest.mark.parametrize("harm", ["none", "kills", "kills and fences"])
def test_no_row_is_skipped(harm: str, chance: random.Random, soak: bool) -> None:
    """Queries are killed between any two steps, and put out of the group in the middle of any."""
    for _ in range(3000 if soak else 150):
        place, groups = FakePlace(dict.fromkeys((A0, A1, A2, A3), (0, 0))), FakeGroups()
        queries = [query(place, groups, maxOffsetsPerTrigger="7") for _ in range(chance.randint(1, 3))]
        coordinator = Coordinator(chance, queries)
        coordinator.rebalance(patient=False)
        steps = {id(one): step(one) for one in queries}
        for _ in range(chance.randint(10, 120)):
            one = chance.choice(queries)
            match chance.randrange(10 if harm == "none" else 12 if harm == "kills" else 13):
                case 0 | 1:
                    partition = chance.choice([A0, A1, A2, A3])
                    place.bounds[partition] = (0, place.bounds[partition][1] + chance.randint(1, 9))
                case 2:
                    coordinator.rebalance(patient=True)
                case 10 | 11:  # killed; the group gives its partitions to others at once, or when it is back
                    one.run()
                    steps[id(one)] = step(one)
                    if chance.random() < 0.5:
                        coordinator.rebalance(patient=False)
                    one.member.assign()
                case 12:
                    coordinator.rebalance(patient=False)
                case _:
                    next(steps[id(one)])
        for one in queries:  # all come to rest, and one of them is left alone
            while one.member.is_held or one.complete < len(one.plans):
                next(steps[id(one)])
        last = queries[0]
        for one in queries[1:]:
            one.member.assign()
        last.member.assign(A0, A1, A2, A3)
        last.batch()
        rows = sum((one.rows for one in queries), Counter[tuple[TopicPartition, int]]())
        ends = {(p, offset) for p, (_, end) in place.bounds.items() for offset in range(end)}
        assert rows.keys() == ends
        assert committed(groups) == {p: end for p, (_, end) in place.bounds.items()}
        if harm == "none":
            assert set(rows.values()) <= {1}
        for one in queries:  # a micro-batch holds the same rows each time
            assert all(ranges == runs[0] for runs in one.runs.values() for ranges in runs)


def step(one: Query):  # type: ignore[no-untyped-def]
    """The life of a query, between whose steps it may be killed."""
    if one.complete < len(one.plans):
        one.read()
        yield
        one.end()
        yield
    while True:
        if one.member.assigned is not None and one.offer():
            yield
            one.read()
            yield
            one.end()
        yield
