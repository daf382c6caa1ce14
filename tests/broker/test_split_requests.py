"""What a split asks a cluster for: no more than it must, and what went wrong since the plan is noticed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, Seen, TopicPartition
from pyspark_kafkalog.options.largemessages import LargeMessageOptions
from pyspark_kafkalog.reading.ranges import ReadRules, RecordReader, SplitReader
from pyspark_kafkalog.reading.splits import Split
from pyspark_kafkalog.reading.whole_messages import WholeMessageReader
from tests.broker.fake_broker import FETCH, METADATA
from tests.broker.reading import SCHEMA
from tests.broker.scripted_cluster import LIST_OFFSETS, Belief, ScriptedCluster, playing
from tests.broker.test_deposed_leader import brokers

pytestmark = pytest.mark.slow

PARTITION = TopicPartition("t", 0)
OPEN = OffsetRange(EARLIEST, LATEST)
LEADER = Belief(leader=2, epoch=6, end=100)
AN_ID, ANOTHER_ID = "AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAACQ"
SEEN = Seen(AN_ID, leader_epoch=6, end=100)
NO_FETCH_BY_ID = {18: (0, 3), METADATA: (0, 12), FETCH: (4, 12), LIST_OFFSETS: (1, 9)}
"""As of Kafka 2.8 to 3.0."""
NO_IDS_IN_METADATA = {18: (0, 3), METADATA: (0, 9), FETCH: (4, 13), LIST_OFFSETS: (1, 9)}
"""As where one broker is still older than the others."""


@pytest.fixture(autouse=True)
def short_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.1)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with playing(ScriptedCluster({1: replace(LEADER), 2: replace(LEADER)})) as its:
        yield its


def reader(
    cluster: ScriptedCluster, *, whole_messages: bool = False, fail_on_data_loss: bool = True, **options: Any
) -> SplitReader:
    rules = ReadRules(SCHEMA, False, fail_on_data_loss, DecodeLimits())
    place = brokers(cluster, **options)
    if whole_messages:
        return WholeMessageReader(place, rules, LargeMessageOptions(enabled=True))
    return RecordReader(place, rules)


def count(cluster: ScriptedCluster, split: Split, **how: Any) -> int:
    return sum(rows.num_rows for rows in reader(cluster, **how).read(split))


def believe(cluster: ScriptedCluster, **belief: Any) -> None:
    """What both brokers hold for true from now on."""
    for node in cluster.beliefs:
        cluster.beliefs[node] = replace(cluster.beliefs[node], **belief)


def test_a_planned_split_costs_one_request(cluster: ScriptedCluster) -> None:
    """A worker that knows the leader asks for records, by the topic's id, and for nothing else."""
    assert count(cluster, Split(PARTITION, OffsetRange(0, 10), seen=SEEN)) == 10
    assert [kind for _, kind in cluster.asked] == [METADATA, FETCH]
    cluster.asked.clear()
    for start in range(10, 100, 10):
        assert count(cluster, Split(PARTITION, OffsetRange(start, start + 10), seen=SEEN)) == 10
    assert cluster.asked == 9 * [(2, FETCH)]


@pytest.mark.parametrize("whole_messages", [True, False])
@pytest.mark.parametrize("end", [100, 0])
def test_a_split_with_open_ends_asks_for_them_too(
    cluster: ScriptedCluster, end: int, whole_messages: bool
) -> None:
    believe(cluster, end=end)
    split = Split(PARTITION, OPEN, seen=SEEN._replace(end=0))
    assert count(cluster, split, whole_messages=whole_messages) == end
    cluster.asked.clear()
    assert count(cluster, split, whole_messages=whole_messages) == end
    assert cluster.asked == [(2, LIST_OFFSETS), (2, LIST_OFFSETS), (2, FETCH)]


@pytest.mark.parametrize("versions", [NO_FETCH_BY_ID, NO_IDS_IN_METADATA], ids=["fetch", "metadata"])
def test_where_no_id_can_be_asked_for_all_is_asked_as_before(versions: dict[int, tuple[int, int]]) -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER}, versions)) as cluster:
        split = Split(PARTITION, OffsetRange(0, 100), seen=SEEN)
        assert count(cluster, split) == 100
        cluster.asked.clear()
        assert count(cluster, split) == 100
        kinds = [METADATA, LIST_OFFSETS, LIST_OFFSETS, FETCH] if versions is NO_FETCH_BY_ID else [FETCH]
        assert [kind for _, kind in cluster.asked] == kinds


PLANS = {
    "fixed": Split(PARTITION, OffsetRange(0, 100), seen=SEEN),
    "open": Split(PARTITION, OPEN, seen=SEEN._replace(end=0)),
    "half open": Split(PARTITION, OffsetRange(50, LATEST), seen=SEEN),
    "filtered": Split(PARTITION, OffsetRange(0, 100), OffsetRange(20, 30), SEEN),
    "all filtered": Split(PARTITION, OPEN, OffsetRange(200, 300), SEEN),
}
each_plan = pytest.mark.parametrize("split", PLANS.values(), ids=PLANS.keys())
each_version = pytest.mark.parametrize("versions", [None, NO_FETCH_BY_ID], ids=["by id", "by name"])


@each_plan
@each_version
@pytest.mark.parametrize("end", [0, 10, 100])
@pytest.mark.parametrize("whole_messages", [True, False])
def test_a_topic_made_anew_is_noticed(
    split: Split, versions: dict[int, tuple[int, int]] | None, end: int, whole_messages: bool
) -> None:
    """However long it is, and with the epoch that the old one had, by a worker that knew the old one."""
    given = {} if versions is None else {"versions": versions}
    with playing(ScriptedCluster({1: LEADER, 2: LEADER}, **given)) as cluster:
        assert count(cluster, Split(PARTITION, OffsetRange(0, 10), seen=SEEN)) == 10
        believe(cluster, topic_id=uuid.UUID(int=9), end=end)
        how: dict[str, Any] = {"whole_messages": whole_messages, "poll_timeout_ms": 1_500}
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            count(cluster, split, **how)
        assert count(cluster, split, fail_on_data_loss=False, **how) == 0
        new = replace(split, seen=split.seen._replace(topic_id=ANOTHER_ID))
        if end == 100 and split is not PLANS["all filtered"]:
            assert count(cluster, new, **how) > 0, "a plan for the new one reads it"


def test_a_topic_made_anew_that_begins_later_is_named_so(cluster: ScriptedCluster) -> None:
    believe(cluster, topic_id=uuid.UUID(int=9), start=60)
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        count(cluster, PLANS["half open"])


@pytest.mark.parametrize("whole_messages", [True, False])
def test_what_filters_leave_is_read(cluster: ScriptedCluster, whole_messages: bool) -> None:
    """All the same, bounds are asked for: what is skipped must exist."""
    for name, rows in (("filtered", 10), ("all filtered", 0)):
        assert count(cluster, PLANS[name], whole_messages=whole_messages) == rows
        assert [kind for _, kind in cluster.asked if kind != METADATA] == [LIST_OFFSETS, LIST_OFFSETS, FETCH]
        cluster.asked.clear()
    believe(cluster, start=10)
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE: offsets 0 to 9 are below"):
        count(cluster, PLANS["filtered"], whole_messages=whole_messages)


@each_plan
def test_a_topic_that_is_gone_is_noticed(cluster: ScriptedCluster, split: Split) -> None:
    assert count(cluster, Split(PARTITION, OffsetRange(0, 10), seen=SEEN)) == 10
    believe(cluster, exists=False)
    with pytest.raises(DataLossError, match="The partition is gone"):
        count(cluster, split)
    assert count(cluster, split, fail_on_data_loss=False) == 0


@pytest.mark.parametrize("plan", ["fixed", "filtered"])
def test_records_that_retention_took_are_noticed(cluster: ScriptedCluster, plan: str) -> None:
    believe(cluster, start=30)
    split = PLANS[plan]
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE: offsets 0 to 29 are below"):
        count(cluster, split)
    expected = 70 if plan == "fixed" else 0
    assert count(cluster, split, fail_on_data_loss=False) == expected


@pytest.mark.parametrize("plan", ["fixed", "filtered", "half open"])
def test_an_end_that_goes_back_is_noticed_before_any_row(cluster: ScriptedCluster, plan: str) -> None:
    believe(cluster, end=40)
    split = PLANS[plan]
    with pytest.raises(DataLossError, match="the log ends at 40, before offset"):
        next(reader(cluster, poll_timeout_ms=500).read(split))
    found = count(cluster, split, fail_on_data_loss=False, poll_timeout_ms=500)
    assert found == {"fixed": 40, "filtered": 10, "half open": 0}[plan]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("answers", [1, 2, 5, 9])
def test_an_end_that_goes_back_for_a_while_costs_nothing(
    cluster: ScriptedCluster, answers: int, fail_on_data_loss: bool
) -> None:
    """As that of a new leader, until its followers have told it where they are."""
    cluster.beliefs[2] = replace(LEADER, end=40, until=answers)
    split = PLANS["fixed"]
    assert count(cluster, split, fail_on_data_loss=fail_on_data_loss) == 100


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("answers", [1, 2, 5])
def test_an_end_that_was_looked_up_is_not_doubted_either(
    cluster: ScriptedCluster, answers: int, fail_on_data_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the plan left it open: it goes back for a while before the first fetch."""
    its = reader(cluster, fail_on_data_loss=fail_on_data_loss)
    assert isinstance(its, RecordReader)
    look_up = its.place.watermarks

    def going_back(*args: Any, **kwargs: Any) -> Any:
        found = look_up(*args, **kwargs)
        cluster.beliefs[2] = replace(LEADER, end=40, until=answers)
        monkeypatch.undo()
        return found

    monkeypatch.setattr(its.place, "watermarks", going_back)
    assert sum(rows.num_rows for rows in its.read(PLANS["open"])) == 100


def test_a_range_that_nobody_saw_is_looked_up(cluster: ScriptedCluster) -> None:
    split = Split(PARTITION, OffsetRange(90, 200), seen=SEEN)
    with pytest.raises(DataLossError, match="the log ends at 100, before offset 200"):
        next(reader(cluster, poll_timeout_ms=60_000).read(split))
    assert count(cluster, split, fail_on_data_loss=False, poll_timeout_ms=60_000) == 10
