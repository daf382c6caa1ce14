"""Schedules of the campaign follow from the seed, and have every fault in time."""

from __future__ import annotations

from tests.campaign.faults import Faults
from tests.campaign.members import PROTOCOLS
from tests.campaign.schedule import BROKER_FAULTS, FAULTS, MEMBER_FAULTS, OTHER_FAULTS, plan


def test_a_seed_and_a_number_make_a_round() -> None:
    assert plan(1, 2, 60) == plan(1, 2, 60)
    assert str(plan(1, 2, 60)) == str(plan(1, 2, 60))
    assert plan(1, 2, 60) != plan(1, 3, 60)
    assert plan(1, 2, 60) != plan(2, 2, 60)


def test_each_fault_comes_within_some_rounds() -> None:
    rounds = [plan(7, number, 90) for number in range(20)]
    assert {step.fault for planned in rounds for lane in planned.lanes for step in lane} == set(FAULTS)
    for setting in ("topic_ids", "fail_on_data_loss", "read_committed", "rejoins"):
        assert {getattr(planned, setting) for planned in rounds} == {True, False}


def test_brokers_suffer_one_at_a_time_and_longer_than_their_session() -> None:
    brokers, others, members = plan(3, 0, 300).lanes
    assert {step.fault for step in brokers} <= set(BROKER_FAULTS)
    assert {step.fault for step in others} <= set(OTHER_FAULTS)
    assert {step.fault for step in members} == set(MEMBER_FAULTS)
    assert all(step.seconds > 6 for step in brokers)


def test_a_topic_is_not_recreated_where_nobody_could_notice() -> None:
    blind = [planned for planned in (plan(5, number, 120) for number in range(20)) if not planned.topic_ids]
    assert blind
    assert not [step for planned in blind for step in planned.lanes[1] if step.fault == "remake_topic"]


def test_faults_can_be_chosen() -> None:
    planned = plan(1, 1, 60, ["pause"])
    brokers, others, members = planned.lanes
    assert {step.fault for step in brokers} == {"pause"}
    assert not others
    assert not members
    assert not planned.is_shared


def test_a_group_shares_topics_by_each_protocol() -> None:
    rounds = [plan(2, number, 60, ["kill", "pause_member"]) for number in range(20)]
    assert all(planned.is_shared for planned in rounds)
    assert {planned.protocol for planned in rounds} == set(PROTOCOLS)
    assert all(planned.topic_ids for planned in rounds if planned.protocol == "consumer")


def test_each_fault_can_be_done() -> None:
    assert all(callable(getattr(Faults, fault, None)) for fault in FAULTS)
