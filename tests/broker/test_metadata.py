"""Metadata never goes back: epochs only rise, and topics vanish only on good evidence."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from pyspark_kafkalog.broker.cluster.metadata import NO_LEADER, Leader, Metadata
from pyspark_kafkalog.model import TopicPartition
from tests.broker.fake_broker import metadata_response, topic_metadata

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
AN_ID, ANOTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
UNKNOWN, LEADER_NOT_AVAILABLE, NOT_AUTHORIZED = 3, 5, 29


def response(
    leaders: Mapping[int, tuple[int, int]] | None,
    topic_id: uuid.UUID | None = AN_ID,
    *,
    code: int = 0,
    brokers: Collection[int] = (1, 2, 3),
) -> Any:
    """A response of a cluster of these brokers; without leaders the topic does not exist."""
    topic = topic_metadata(
        "t",
        leaders or {},
        topic_id=topic_id if leaders is not None else None,
        error_code=UNKNOWN if leaders is None else code,
    )
    return metadata_response({node: f"h:{node}" for node in brokers}, [topic])


def knowing(leaders: Mapping[int, tuple[int, int]], topic_id: uuid.UUID | None = AN_ID) -> Metadata:
    metadata = Metadata()
    metadata.learn(response(leaders, topic_id), ["t"], node_id=1, now=0)
    return metadata


def test_a_leader_epoch_never_goes_back() -> None:
    metadata = knowing({0: (2, 6), 1: (3, 4)})
    metadata.learn(response({0: (1, 5), 1: (1, 7)}), ["t"], node_id=1, now=1)
    assert metadata.leader(T0) == Leader(2, 6)
    assert metadata.leader(T1) == Leader(1, 7), "of each partition the newest counts"
    assert metadata.contradicting_brokers(["t"]) == {1}, "who is behind is asked last"
    metadata.learn(response({0: (2, 6), 1: (1, 7)}), ["t"], node_id=1, now=2)
    assert metadata.contradicting_brokers(["t"]) == set()


def test_a_leader_of_an_epoch_before_the_plans_leads_no_more() -> None:
    metadata = knowing({0: (1, 5)})
    metadata.expect(T0, leader_epoch=6)
    assert metadata.leader(T0) == Leader(NO_LEADER, 6)
    metadata.learn(response({0: (1, 5)}), ["t"], node_id=1, now=1)
    assert metadata.leader(T0) == Leader(NO_LEADER, 6)
    metadata.learn(response({0: (2, 6)}), ["t"], node_id=2, now=2)
    assert metadata.leader(T0) == Leader(2, 6)


def test_epochs_that_brokers_do_not_tell_are_no_older_ones() -> None:
    metadata = knowing({0: (1, 5)})
    metadata.learn(response({0: (2, -1)}), ["t"], node_id=1, now=1)
    assert metadata.leader(T0) == Leader(2, -1)


@pytest.mark.parametrize(
    "claim",
    [response(None), response({0: (3, 0)}, ANOTHER_ID), response({1: (3, 9)})],
    ids=["gone", "recreated", "the partition is gone"],
)
class TestWhatContradicts:
    def test_is_believed_of_two_brokers_after_some_seconds(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        for node, now in ((1, 1.0), (2, 2.0), (3, 5.9)):
            metadata.learn(claim, ["t"], node_id=node, now=now)
            assert (metadata.leader(T0), metadata.in_doubt(["t"])) == (Leader(2, 6), {"t"})
            assert not metadata.is_gone(T0)
        metadata.learn(claim, ["t"], node_id=1, now=6.0)
        assert metadata.leader(T0) != Leader(2, 6)
        assert not metadata.in_doubt(["t"])

    def test_is_not_believed_of_one_broker(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        for now in range(1, 100):
            metadata.learn(claim, ["t"], node_id=1, now=now)
        assert (metadata.leader(T0), metadata.in_doubt(["t"])) == (Leader(2, 6), {"t"})
        assert metadata.contradicting_brokers(None) == {1}

    def test_is_forgotten_when_another_broker_knows_better(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        metadata.learn(claim, ["t"], node_id=1, now=1)
        metadata.learn(response({0: (2, 6)}), ["t"], node_id=2, now=2)
        assert not metadata.in_doubt(["t"])
        metadata.learn(claim, ["t"], node_id=1, now=20)
        metadata.learn(claim, ["t"], node_id=3, now=21)
        assert metadata.leader(T0) == Leader(2, 6)


def test_a_topic_that_was_planned_for_is_missed_by_its_id() -> None:
    metadata = Metadata()
    metadata.expect(T0, "AAAAAAAAAAAAAAAAAAAAAQ", 3)
    metadata.learn(response({0: (1, 8)}, ANOTHER_ID), ["t"], node_id=1, now=0)
    assert metadata.leader(T0) is None
    assert not metadata.is_gone(T0)
    metadata.learn(response({0: (1, 4)}), ["t"], node_id=2, now=1)
    assert metadata.leader(T0) == Leader(1, 4)


def test_a_topic_made_anew_begins_with_epochs_of_its_own() -> None:
    metadata = knowing({0: (2, 6)})
    for node, now in ((1, 1), (2, 7)):
        metadata.learn(response({0: (3, 0)}, ANOTHER_ID), ["t"], node_id=node, now=now)
    assert metadata.leader(T0) == Leader(3, 0)


def test_without_topic_ids_an_older_epoch_is_a_topic_made_anew_or_a_deposed_leader() -> None:
    metadata = knowing({0: (2, 6)}, None)
    metadata.learn(response({0: (1, 0)}, None), ["t"], node_id=1, now=1)
    assert metadata.leader(T0) == Leader(2, 6)
    metadata.learn(response({0: (1, 0)}, None), ["t"], node_id=3, now=7)
    assert metadata.leader(T0) == Leader(1, 0)


@pytest.mark.parametrize(
    "claim",
    [
        response(None, brokers=[1]),
        response({0: (1, 0)}, ANOTHER_ID, brokers=[1]),
        response({1: (1, 9)}, brokers=[1]),
        response({0: (1, 4)}, brokers=[1]),
    ],
    ids=["gone", "recreated", "the partition is gone", "an older epoch"],
)
class TestABrokerThatListsItselfOnly:
    """It is cut off from the others, or was paused when it was the only one, and they are out of reach."""

    def test_is_not_believed(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        for now in range(1, 100):
            metadata.learn(claim, ["t"], node_id=1, now=now)
        assert metadata.leader(T0) == Leader(2, 6)
        assert sorted(metadata.brokers) == [1, 2, 3], "the others are asked, too"

    def test_is_not_believed_where_it_has_contradicted_nothing_before(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        metadata.learn(response({0: (2, 6)}, brokers=[1]), ["t"], node_id=1, now=1)
        assert sorted(metadata.brokers) == [1]
        for now in range(2, 100):
            metadata.learn(claim, ["t"], node_id=1, now=now)
        assert metadata.leader(T0) == Leader(2, 6)

    def test_is_believed_if_it_has_long_been_the_only_one(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        metadata.learn(response({0: (2, 6)}, brokers=[1]), ["t"], node_id=1, now=1)
        for now in (50, 55):
            metadata.learn(claim, ["t"], node_id=1, now=now)
        assert metadata.leader(T0) != Leader(2, 6)
        assert sorted(metadata.brokers) == [1]

    def test_adds_brokers(self, claim: Any) -> None:
        metadata = knowing({0: (2, 6)})
        listing_another = copy.copy(claim)
        listing_another.brokers = metadata_response({4: "h:4"}).brokers
        metadata.learn(listing_another, ["t"], node_id=4, now=1)
        assert sorted(metadata.brokers) == [1, 2, 3, 4]


class TestAClusterThatWentBack:
    """Its metadata with it: the topic's id is the same, and leader epochs are older."""

    BACK = response({0: (1, 4), 1: (1, 9)})

    def test_is_believed_of_two_brokers_after_some_seconds(self) -> None:
        metadata = knowing({0: (2, 6), 1: (2, 8)})
        for node, now in ((1, 1.0), (2, 2.0), (3, 5.9)):
            metadata.learn(self.BACK, ["t"], node_id=node, now=now)
            assert metadata.leader(T0) == Leader(2, 6)
            assert metadata.leader(T1) == Leader(1, 9), "what is newer counts at once"
            assert not metadata.in_doubt(["t"]), "the topic is the same"
        metadata.learn(self.BACK, ["t"], node_id=1, now=6.0)
        assert (metadata.leader(T0), metadata.leader(T1)) == (Leader(1, 4), Leader(1, 9))
        assert not metadata.is_gone(T0)
        assert metadata.contradicting_brokers(["t"]) == set()

    def test_is_not_believed_of_one_broker_of_several(self) -> None:
        metadata = knowing({0: (2, 6)})
        for now in range(1, 100):
            metadata.learn(response({0: (1, 4)}), ["t"], node_id=1, now=now)
        assert metadata.leader(T0) == Leader(2, 6)

    def test_is_not_believed_of_brokers_that_are_behind_by_turns(self) -> None:
        """Leaders move, and each time another broker learns it a little late."""
        metadata = knowing({0: (2, 6)})
        metadata.learn(response({0: (1, 5)}), ["t"], node_id=1, now=1)
        metadata.expect(T0, leader_epoch=7)
        metadata.learn(response({0: (2, 6)}), ["t"], node_id=2, now=7)
        assert metadata.leader(T0) == Leader(NO_LEADER, 7)

    def test_of_which_a_plan_has_seen_more(self) -> None:
        metadata = Metadata()
        metadata.expect(T0, "AAAAAAAAAAAAAAAAAAAAAQ", 6)
        for node, now in ((1, 1.0), (2, 5.0)):
            metadata.learn(response({0: (1, 4)}), ["t"], node_id=node, now=now)
            assert metadata.leader(T0) == Leader(NO_LEADER, 6)
        metadata.learn(response({0: (1, 4)}), ["t"], node_id=1, now=6.0)
        assert metadata.leader(T0) == Leader(1, 4)


@pytest.mark.parametrize("code", [LEADER_NOT_AVAILABLE, UNKNOWN])
def test_a_topic_that_a_broker_cannot_tell_of_stays_known(code: int) -> None:
    metadata = knowing({0: (2, 6)})
    metadata.learn(response({}, code=code), ["t"], node_id=1, now=1)
    assert metadata.leader(T0) == Leader(2, 6)


def test_a_topic_that_may_not_be_seen_is_no_longer_known() -> None:
    metadata = knowing({0: (2, 6)})
    metadata.learn(response({}, code=NOT_AUTHORIZED), ["t"], node_id=1, now=1)
    assert metadata.topics["t"].error_code == NOT_AUTHORIZED


def test_all_topics_are_told_where_none_is_named() -> None:
    metadata = knowing({0: (2, 6)})
    nothing = response({0: (2, 6)})
    nothing.topics = []
    metadata.learn(nothing, None, node_id=1, now=1)
    assert metadata.leader(T0) == Leader(2, 6)
    metadata.learn(nothing, None, node_id=2, now=7)
    assert metadata.topics == {}


def test_a_broker_that_knows_no_brokers_is_not_believed() -> None:
    metadata = knowing({0: (2, 6)})
    nothing = response({0: (2, 6)})
    nothing.brokers = []
    metadata.learn(nothing, ["t"], node_id=1, now=1)
    assert sorted(metadata.brokers) == [1, 2, 3]


@pytest.mark.parametrize("node", [1, 2])
def test_what_a_broker_said_long_ago_bears_out_no_other(node: int) -> None:
    """Two brokers restart one after the other, and each does not know the topic for a moment."""
    metadata = knowing({0: (2, 6)})
    metadata.learn(response(None), ["t"], node_id=1, now=1)
    metadata.learn(response(None), ["t"], node_id=node, now=100)
    metadata.learn(response(None), ["t"], node_id=2, now=101)
    assert (metadata.leader(T0), metadata.is_gone(T0)) == (Leader(2, 6), False)


def test_epochs_of_partitions_that_are_there_outlive_one_that_is_gone() -> None:
    metadata = knowing({0: (2, 6)})
    metadata.expect(T1)
    for node, now in ((1, 1), (3, 7)):
        metadata.learn(response({0: (1, 5)}), ["t"], node_id=node, now=now)
    assert metadata.is_gone(T1)
    assert metadata.leader(T0) == Leader(2, 6)


def test_what_has_just_proved_to_be_gone_needs_no_second_proof() -> None:
    metadata = knowing({0: (2, 6)})
    for node, now in ((1, 1), (2, 7)):
        metadata.learn(response(None), ["t"], node_id=node, now=now)
    metadata.expect_unless_gone(T0)
    assert metadata.is_gone(T0)
    metadata.expect(T0)
    assert not metadata.is_gone(T0), "a plan that has seen it contradicts"


def test_what_is_there_again_needs_proof_again() -> None:
    metadata = knowing({0: (2, 6)})
    for node, now in ((1, 1), (2, 7)):
        metadata.learn(response(None), ["t"], node_id=node, now=now)
    metadata.learn(response({0: (1, 0)}, ANOTHER_ID), ["t"], node_id=1, now=8)
    metadata.learn(response(None), ["t"], node_id=2, now=9)
    metadata.expect_unless_gone(T0)
    assert (metadata.leader(T0), metadata.is_gone(T0)) == (Leader(1, 0), False)


def test_a_proof_does_not_last_for_ever() -> None:
    metadata = knowing({0: (2, 6)})
    for node, now in ((1, 1), (2, 7)):
        metadata.learn(response(None), ["t"], node_id=node, now=now)
    metadata.expect(T1)
    for node, now in ((1, 100), (2, 107)):  # proves that T1 is gone
        metadata.learn(response(None), ["t"], node_id=node, now=now)
    metadata.expect_unless_gone(T0)
    assert not metadata.is_gone(T0)


def test_a_topic_that_may_not_be_seen_is_no_matter_of_doubt() -> None:
    metadata = knowing({0: (2, 6)})
    metadata.learn(response(None), ["t"], node_id=1, now=1)
    metadata.learn(response({}, code=NOT_AUTHORIZED), ["t"], node_id=2, now=2)
    assert not metadata.in_doubt(["t"])
