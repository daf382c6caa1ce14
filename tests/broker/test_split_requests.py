"""A split sends no more requests than it must, and notices what has changed since the plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import EARLIEST, LATEST, Fetch, OffsetRange, Seen, TopicPartition
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader, SplitReader
from pyspark_kafkalog.read.splits import Split
from tests.broker.fake_broker import FETCH, LIST_OFFSETS, METADATA, Received
from tests.broker.reading import SCHEMA
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing
from tests.broker.test_deposed_leader import brokers

pytestmark = pytest.mark.slow

PARTITION = TopicPartition("t", 0)
OPEN = OffsetRange(EARLIEST, LATEST)
LEADER = Belief(leader=2, epoch=6, end=100)
AN_ID, ANOTHER_ID = "AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAACQ"
SEEN = Seen(AN_ID, leader_epoch=6, end=100)
NO_FETCH_BY_ID = {18: (0, 3), METADATA: (0, 12), FETCH: (4, 12), LIST_OFFSETS: (1, 9)}
"""Versions of Kafka 2.8 to 3.0."""
NO_IDS_IN_METADATA = {18: (0, 3), METADATA: (0, 9), FETCH: (4, 13), LIST_OFFSETS: (1, 9)}
"""As when one broker is still older than the others."""


@pytest.fixture(autouse=True)
def short_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.1)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with playing(ScriptedCluster({1: replace(LEADER), 2: replace(LEADER)})) as scripted:
        yield scripted


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
    """Change what both brokers believe."""
    for node in cluster.beliefs:
        cluster.beliefs[node] = replace(cluster.beliefs[node], **belief)


def test_a_planned_split_costs_one_request(cluster: ScriptedCluster) -> None:
    """A worker that knows the leader only fetches records, by topic id."""
    assert count(cluster, Split(PARTITION, OffsetRange(0, 10), seen=SEEN)) == 10
    assert [kind for _, kind in cluster.requests] == [METADATA, FETCH]
    cluster.requests.clear()
    for start in range(10, 100, 10):
        assert count(cluster, Split(PARTITION, OffsetRange(start, start + 10), seen=SEEN)) == 10
    assert cluster.requests == 9 * [(2, FETCH)]


def test_a_planned_split_of_whole_messages_costs_one_request_too(cluster: ScriptedCluster) -> None:
    """Unless it has to look back: then it needs to know how far."""
    rules = ReadRules(
        pa.schema([("offset", pa.int64()), ("value", pa.binary())]), False, True, DecodeLimits()
    )
    its = WholeMessageReader(brokers(cluster), rules, LargeMessageOptions(enabled=True))
    for start in (0, 20):
        cluster.requests.clear()
        rows = its.read(Split(PARTITION, OffsetRange(start, start + 10), seen=SEEN))
        assert sum(batch.num_rows for batch in rows) == 10
        assert [kind for _, kind in cluster.requests if kind != METADATA] == [FETCH]
    cluster.requests.clear()
    split = Split(PARTITION, OffsetRange(20, 30), seen=SEEN)
    assert count(cluster, split, whole_messages=True) == 10
    assert [kind for _, kind in cluster.requests][:3] == [FETCH, LIST_OFFSETS, LIST_OFFSETS], (
        "for the header _so"
    )


@pytest.mark.parametrize("whole_messages", [True, False])
@pytest.mark.parametrize("end", [100, 0])
def test_a_split_with_open_ends_asks_for_them_too(
    cluster: ScriptedCluster, end: int, whole_messages: bool
) -> None:
    believe(cluster, end=end)
    split = Split(PARTITION, OPEN, seen=SEEN._replace(end=0))
    assert count(cluster, split, whole_messages=whole_messages) == end
    cluster.requests.clear()
    assert count(cluster, split, whole_messages=whole_messages) == end
    assert cluster.requests == [(2, LIST_OFFSETS), (2, LIST_OFFSETS), (2, FETCH)]


@pytest.mark.parametrize("versions", [NO_FETCH_BY_ID, NO_IDS_IN_METADATA], ids=["fetch", "metadata"])
def test_where_no_id_can_be_asked_for_all_is_asked_as_before(versions: dict[int, tuple[int, int]]) -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER}, versions)) as cluster:
        split = Split(PARTITION, OffsetRange(0, 100), seen=SEEN)
        assert count(cluster, split) == 100
        cluster.requests.clear()
        assert count(cluster, split) == 100
        kinds = [METADATA, LIST_OFFSETS, LIST_OFFSETS, FETCH] if versions is NO_FETCH_BY_ID else [FETCH]
        assert [kind for _, kind in cluster.requests] == kinds


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
    """Whatever its length, even with the old topic's epoch, by a worker that knew the old topic."""
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


@pytest.mark.parametrize("answers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_topic_made_anew_is_noticed_though_a_broker_has_not_heard_of_it(
    cluster: ScriptedCluster, answers: int, fail_on_data_loss: bool
) -> None:
    """The new one is as long, and its leader epochs start at 0; a look at the topic ids shows the old id."""
    its = reader(cluster, fail_on_data_loss=fail_on_data_loss)
    assert isinstance(its, RecordReader)
    look_up = its.place.topic_ids
    cluster.beliefs[2] = replace(LEADER, topic_id=uuid.UUID(int=9), epoch=0)
    cluster.beliefs[1] = replace(LEADER, until=answers)

    def late(topics: Any) -> dict[str, str]:
        """As a broker told just before it heard the news."""
        look_up(topics)
        return {"t": AN_ID}

    its.place.topic_ids = late  # type: ignore[method-assign]
    rows = its.read(PLANS["fixed"])
    if fail_on_data_loss:
        with pytest.raises(DataLossError):
            next(rows)
    else:
        assert list(rows) == []


def test_a_topic_made_anew_that_begins_later_is_named_so(cluster: ScriptedCluster) -> None:
    believe(cluster, topic_id=uuid.UUID(int=9), start=60)
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        count(cluster, PLANS["half open"])


@pytest.mark.parametrize("whole_messages", [True, False])
def test_what_filters_leave_is_read(cluster: ScriptedCluster, whole_messages: bool) -> None:
    """Bounds are still looked up: skipped records must exist."""
    for name, rows in (("filtered", 10), ("all filtered", 0)):
        assert count(cluster, PLANS[name], whole_messages=whole_messages) == rows
        kinds = [kind for _, kind in cluster.requests if kind != METADATA]
        assert kinds[:3] == [LIST_OFFSETS, LIST_OFFSETS, FETCH]
        assert whole_messages or len(kinds) == 3
        assert set(kinds[3:]) <= {FETCH}, "a look back"
        cluster.requests.clear()
    believe(cluster, start=10)
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE: offsets 0 to 9 are below"):
        count(cluster, PLANS["filtered"], whole_messages=whole_messages)


@each_plan
def test_a_topic_that_is_gone_is_noticed(cluster: ScriptedCluster, split: Split) -> None:
    assert count(cluster, Split(PARTITION, OffsetRange(0, 10), seen=SEEN)) == 10
    believe(cluster, exists=False)
    with pytest.raises(DataLossError, match="The partition no longer exists"):
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
    """Like that of a new leader, until its followers have reported their progress."""
    cluster.beliefs[2] = replace(LEADER, end=40, until=answers)
    split = PLANS["fixed"]
    assert count(cluster, split, fail_on_data_loss=fail_on_data_loss) == 100


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("answers", [1, 2, 5])
def test_an_end_that_was_looked_up_is_not_doubted_either(
    cluster: ScriptedCluster, answers: int, fail_on_data_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the plan left the end open: the end goes back for a while before the first fetch."""
    opened = reader(cluster, fail_on_data_loss=fail_on_data_loss)
    assert isinstance(opened, RecordReader)
    look_up = opened.place.watermarks

    def going_back(*args: Any, **kwargs: Any) -> Any:
        found = look_up(*args, **kwargs)
        cluster.beliefs[2] = replace(LEADER, end=40, until=answers)
        monkeypatch.undo()
        return found

    monkeypatch.setattr(opened.place, "watermarks", going_back)
    assert sum(rows.num_rows for rows in opened.read(PLANS["open"])) == 100


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_an_end_that_goes_back_while_it_is_read_is_waited_for_once(
    cluster: ScriptedCluster, fail_on_data_loss: bool
) -> None:
    """The fetch waits for it; the look at the bounds that follows does not wait as long once more."""
    believe(cluster, most=1)
    rows = reader(cluster, fail_on_data_loss=fail_on_data_loss, poll_timeout_ms=500).read(PLANS["fixed"])
    next(rows)
    believe(cluster, end=5)
    if fail_on_data_loss:
        with pytest.raises(DataLossError, match="the log ends at 5, before offset 100"):
            list(rows)
    else:
        assert sum(batch.num_rows for batch in rows) in (0, 10), "maybe those that were prefetched"
    kinds = [kind for _, kind in cluster.requests]
    last_fetch = len(kinds) - 1 - kinds[::-1].index(FETCH)
    assert kinds[last_fetch + 1 :] == [LIST_OFFSETS, LIST_OFFSETS, METADATA, LIST_OFFSETS, LIST_OFFSETS]


@pytest.mark.parametrize("answers", [1, 2, 5])
def test_retention_does_not_make_a_lagging_end_believed(cluster: ScriptedCluster, answers: int) -> None:
    """Both befall the reader at once: what is below the log start is left out, and nothing else."""
    believe(cluster, most=1)
    rows = reader(cluster, fail_on_data_loss=False).read(PLANS["fixed"])
    offsets = next(rows).column("offset").to_pylist()
    believe(cluster, start=60)
    cluster.beliefs[2] = replace(LEADER, start=60, end=70, until=answers + 1)
    for batch in rows:
        offsets += batch.column("offset").to_pylist()
    assert offsets in ([*range(20), *range(60, 100)], [*range(10), *range(60, 100)])


def altered(cluster: ScriptedCluster, alter: Callable[[int, Any], None], monkeypatch: Any) -> None:
    """Have ``alter`` change the fetch responses of each node."""
    answer = cluster._records

    def records(node: int, belief: Belief, request: Received) -> Any:
        body = answer(node, replace(belief, leader=node), request)
        alter(node, body)
        return body

    monkeypatch.setattr(cluster, "_records", records)


@pytest.mark.parametrize("answers", [1, 2])
@pytest.mark.parametrize("throttled", [True, False])
def test_answers_without_records_are_no_loss(
    cluster: ScriptedCluster, throttled: bool, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(answers))

    def emptied(_: int, body: Any) -> None:
        if next(left, None) is not None:
            body.responses[0].partitions[0].records = b""
            body.responses = [] if throttled else body.responses

    altered(cluster, emptied, monkeypatch)
    assert count(cluster, PLANS["fixed"], fail_on_data_loss=False) == 100


def test_a_replica_near_by_is_gone_to_at_once(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-392: the leader's first answer has no records, and all that is to be known of the log."""

    def sent_away(node: int, body: Any) -> None:
        if node == LEADER.leader:
            body.responses[0].partitions[0].preferred_read_replica = 1
            body.responses[0].partitions[0].records = b""

    altered(cluster, sent_away, monkeypatch)
    assert count(cluster, PLANS["fixed"]) == 100
    assert [request for request in cluster.requests if request[1] != METADATA] == [(2, FETCH), (1, FETCH)]


@each_plan
@pytest.mark.parametrize("answers", [1, 2, 4])
def test_a_leader_that_has_just_started_is_not_believed(
    cluster: ScriptedCluster, split: Split, answers: int
) -> None:
    """It does not know the topic yet."""
    expected = count(cluster, split)
    cluster.beliefs[2] = replace(LEADER, exists=False, until=answers)
    assert count(cluster, split, fail_on_data_loss=False) == expected


def test_the_headers_of_a_slice_are_those_of_its_batches(cluster: ScriptedCluster) -> None:
    place = brokers(cluster)
    pieces = list(place.fetch(Fetch(PARTITION, OffsetRange(15, 45))))
    for piece in pieces:
        assert (piece.headers == walk(piece.buffer).table).all()
    assert sum(piece.headers.shape[1] for piece in pieces) == 4


def test_a_range_that_nobody_saw_is_looked_up(cluster: ScriptedCluster) -> None:
    split = Split(PARTITION, OffsetRange(90, 200), seen=SEEN)
    with pytest.raises(DataLossError, match="the log ends at 100, before offset 200"):
        next(reader(cluster, poll_timeout_ms=60_000).read(split))
    assert count(cluster, split, fail_on_data_loss=False, poll_timeout_ms=60_000) == 10
