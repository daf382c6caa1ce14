"""A leader that was paused and resumes as if it still led costs no record and no query."""

from __future__ import annotations

import copy
import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import EARLIEST, LATEST, Fetch, OffsetRange, Seen, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.broker.reading import SCHEMA
from tests.broker.scripted_cluster import WITH_EPOCH_ENDS, Belief, ScriptedCluster, playing

pytestmark = pytest.mark.slow

PARTITION = TopicPartition("t", 0)
DEPOSED = Belief(leader=1, epoch=5, end=50)
LEADER = Belief(leader=2, epoch=6, end=100)
AN_ID = "AAAAAAAAAAAAAAAAAAAABw"
NO_EPOCHS = {18: (0, 3), 3: (0, 6), 1: (4, 8), 2: (1, 3)}
"""Versions of brokers before Kafka 2.1."""
NO_TOPIC_IDS = {18: (0, 3), 3: (0, 9), 1: (4, 12), 2: (1, 6)}


def brokers(cluster: ScriptedCluster, **options: Any) -> Brokers:
    connection = ConnectionOptions(
        tuple(cluster.bootstrap.split(",")),
        request_timeout_ms=3_000,
        retry_backoff_ms=5,
        retry_backoff_max_ms=50,
    )
    fetch = FetchOptions(**{"poll_timeout_ms": 3_000, "retry_interval_ms": 10, **options})
    return Brokers(connection, fetch)


def count(place: Brokers, offsets: OffsetRange, seen: Seen, *, fail_on_data_loss: bool = True) -> int:
    rules = ReadRules(
        SCHEMA, read_committed=False, fail_on_data_loss=fail_on_data_loss, limits=DecodeLimits()
    )
    split = Split(PARTITION, offsets, seen=seen)
    return sum(rows.num_rows for rows in RecordReader(place, rules).read(split))


def told_by(cluster: ScriptedCluster, node: int) -> Brokers:
    """A place whose metadata comes from this broker only."""
    place = brokers(cluster)
    beliefs, cluster.beliefs = cluster.beliefs, dict.fromkeys((1, 2), cluster.beliefs[node])
    place.watermarks([PARTITION], read_committed=False)
    cluster.beliefs = beliefs
    return place


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("answers", [3, 8, 10_000], ids=["briefly", "longer", "for ever"])
def test_a_split_is_read_from_the_leader_of_its_epoch(answers: int, fail_on_data_loss: bool) -> None:
    with playing(ScriptedCluster({1: replace(DEPOSED, until=answers), 2: copy.copy(LEADER)})) as cluster:
        place = told_by(cluster, 1)
        seen = Seen(AN_ID, leader_epoch=6, end=100)
        assert count(place, OffsetRange(0, 100), seen, fail_on_data_loss=fail_on_data_loss) == 100


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("versions", [NO_EPOCHS, NO_TOPIC_IDS], ids=["no epochs", "no topic ids"])
def test_an_end_that_the_planner_saw_is_not_doubted_on_one_brokers_word(
    versions: dict[int, tuple[int, int]], fail_on_data_loss: bool
) -> None:
    beliefs = {1: replace(DEPOSED, until=6, topic_id=None), 2: replace(LEADER, topic_id=None)}
    with playing(ScriptedCluster(beliefs, versions)) as cluster:
        place = told_by(cluster, 1)
        assert count(place, OffsetRange(40, 100), Seen(end=100), fail_on_data_loss=fail_on_data_loss) == 60


def test_an_end_that_stays_away_is_loss_when_patience_ends(caplog: pytest.LogCaptureFixture) -> None:
    """As after the election of a leader that was not in sync."""
    truncated = replace(LEADER, end=50)
    with playing(ScriptedCluster({1: truncated, 2: truncated})) as cluster:
        seen = Seen(AN_ID, leader_epoch=6, end=100)
        with pytest.raises(DataLossError, match="the log ends at 50, before offset 100"):
            count(brokers(cluster, poll_timeout_ms=600), OffsetRange(0, 100), seen)
        with caplog.at_level(logging.WARNING):
            place = brokers(cluster, poll_timeout_ms=600)
            assert count(place, OffsetRange(0, 100), seen, fail_on_data_loss=False) == 50
        assert "the log ends at 50" in caplog.text


PLANNED = Seen(leader_epoch=-1, end=100)
"""What a checkpoint says: no topic id, and no epoch."""


def waited(cluster: ScriptedCluster, poll_timeout_ms: int) -> float:
    """Seconds until the end below what was planned is loss."""
    place, begun = brokers(cluster, poll_timeout_ms=poll_timeout_ms), time.monotonic()
    with pytest.raises(DataLossError, match="the log ends at 50, before offset 100"):
        count(place, OffsetRange(50, 100), PLANNED)
    return time.monotonic() - begun


def test_an_end_below_the_planned_one_is_settled_by_two_brokers_that_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the topic was recreated while the query was down."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.3)
    shorter = replace(LEADER, end=50)
    with playing(ScriptedCluster({1: shorter, 2: shorter}, WITH_EPOCH_ENDS)) as cluster:
        assert waited(cluster, 120_000) < 60


def test_but_not_if_the_other_one_knows_an_older_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.05)
    beliefs = {1: Belief(leader=1, epoch=5, end=60), 2: replace(LEADER, end=50)}
    with playing(ScriptedCluster(beliefs, WITH_EPOCH_ENDS)) as cluster:
        assert waited(cluster, 2_000) > 1.9


def test_nor_if_the_leader_no_longer_knows_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be cut off."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.05)
    with playing(ScriptedCluster({2: LEADER}, WITH_EPOCH_ENDS, dead={3: "127.0.0.1:1"})) as cluster:
        place = brokers(cluster, poll_timeout_ms=2_000)
        place.watermarks([PARTITION], read_committed=False)
        cluster.dead.clear()
        cluster.beliefs[2] = replace(LEADER, end=50)
        place._cluster.refresh(["t"])
        begun = time.monotonic()
        with pytest.raises(DataLossError, match="the log ends at 50, before offset 100"):
            count(place, OffsetRange(0, 100), Seen(AN_ID, 6, 100))
        assert time.monotonic() - begun > 1.9


def test_nor_by_the_high_watermark_of_a_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rises when followers report, and one of them may just have died."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.05)
    behind = replace(LEADER, end=50, log_end=100)
    with playing(ScriptedCluster({1: behind, 2: behind}, WITH_EPOCH_ENDS)) as cluster:
        assert waited(cluster, 2_000) > 1.9


def test_an_end_that_nobody_saw_is_not_waited_for() -> None:
    with (
        playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster,
        pytest.raises(DataLossError, match="the log ends at 100, before offset 200"),
    ):
        count(brokers(cluster, poll_timeout_ms=60_000), OffsetRange(0, 200), Seen(AN_ID, 6, 100))


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_an_epoch_before_the_plans_is_never_evidence(fail_on_data_loss: bool) -> None:
    """If no broker knows the plan's epoch, the read fails, but does not report loss."""
    with playing(ScriptedCluster({1: DEPOSED, 2: DEPOSED})) as cluster:
        place = brokers(cluster, num_retries=1)
        with pytest.raises(Exception, match="LEADER_NOT_AVAILABLE") as caught:
            count(place, OffsetRange(0, 100), Seen(AN_ID, 6, 100), fail_on_data_loss=fail_on_data_loss)
        assert not isinstance(caught.value, DataLossError)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_a_topic_that_one_broker_does_not_know_is_not_gone(
    fail_on_data_loss: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a broker in ZooKeeper mode that has just started and has no metadata yet."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", seconds)
    unaware = replace(LEADER, exists=False)
    with playing(ScriptedCluster({1: unaware, 2: LEADER})) as cluster:
        for seen in (Seen(), Seen(AN_ID, 6, 100)):
            place = brokers(cluster)
            place._cluster.close()
            assert count(place, OffsetRange(0, 100), seen, fail_on_data_loss=fail_on_data_loss) == 100


def test_a_topic_that_all_brokers_have_forgotten_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.5)
    unaware = replace(LEADER, exists=False)
    with playing(ScriptedCluster({1: unaware, 2: unaware})) as cluster:
        with pytest.raises(DataLossError, match="The partition no longer exists"):
            count(brokers(cluster), OffsetRange(0, 100), Seen(AN_ID, 6, 100))
        assert {node for node, _ in cluster.requests} == {1, 2}


def test_a_topic_made_anew_is_told_by_two_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.5)
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            count(brokers(cluster), OffsetRange(0, 100), Seen("AAAAAAAAAAAAAAAAAAAACQ", 6, 100))
        assert {node for node, _ in cluster.requests} == {1, 2}


BACK = {1: Belief(leader=1, epoch=3, end=150), 2: Belief(leader=1, epoch=3, end=150)}
"""Two brokers of a cluster that was set back and has grown again."""


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize(
    "offsets", [OffsetRange(0, 100), OffsetRange(EARLIEST, LATEST), OffsetRange(40, LATEST)]
)
@pytest.mark.parametrize("topic_id", [AN_ID, ""])
def test_a_cluster_that_went_back_since_the_plan(
    topic_id: str,
    offsets: OffsetRange,
    fail_on_data_loss: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has the offsets that were planned, of the same topic, with other records."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.3)
    seen = Seen(topic_id, leader_epoch=6, end=100)
    beliefs = copy.deepcopy(BACK)
    if not topic_id:
        beliefs = {node: replace(belief, topic_id=None) for node, belief in BACK.items()}
    with playing(ScriptedCluster(beliefs, WITH_EPOCH_ENDS if topic_id else NO_TOPIC_IDS)) as cluster:
        place = brokers(cluster)
        if fail_on_data_loss:
            with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*leader epoch 6.*back at 3.*t-0"):
                count(place, offsets, seen)
        else:
            count(place, offsets, seen, fail_on_data_loss=False)
            assert caplog.text.count("LOG_WENT_BACK") == 1


def test_a_cluster_that_goes_back_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """To an epoch that is newer than the plan's, but not than that of the records that came."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.3)
    before = Belief(leader=1, epoch=6, end=150, most=1)
    with playing(ScriptedCluster({1: before, 2: before}, WITH_EPOCH_ENDS)) as cluster:
        pieces = brokers(cluster).fetch(Fetch(PARTITION, OffsetRange(0, 100)))
        next(pieces)
        cluster.beliefs = copy.deepcopy(BACK)
        with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*leader epoch 6.*back at 3.*t-0") as error:
            list(pieces)
        assert error.value.offset == error.value.next_offset, "nothing is gone"


def test_a_cluster_that_goes_back_while_rows_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.3)
    before = Belief(leader=1, epoch=6, end=150, most=1)
    for fail_on_data_loss in (True, False):
        with playing(ScriptedCluster({1: before, 2: before}, WITH_EPOCH_ENDS)) as cluster:
            place = brokers(cluster)
            rules = ReadRules(SCHEMA, False, fail_on_data_loss, DecodeLimits())
            split = Split(PARTITION, OffsetRange(0, 100), seen=Seen(AN_ID, leader_epoch=2, end=100))
            rows = RecordReader(place, rules).read(split)
            found = next(rows).num_rows
            cluster.beliefs = copy.deepcopy(BACK)
            if fail_on_data_loss:
                with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*leader epoch 6.*back at 3"):
                    list(rows)
            else:
                assert found + sum(batch.num_rows for batch in rows) == 100
                assert caplog.text.count("LOG_WENT_BACK") == 1
