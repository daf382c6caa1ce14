"""Both formats behave as Spark's own suites require; what the peer does is checked by the soak only."""

from __future__ import annotations

import pytest

from tests.parity.case import Case
from tests.parity.cases import CASES
from tests.parity.conftest import OutcomeOf
from tests.parity.lab import OURS, PEER, TASKS

pytestmark = pytest.mark.broker


LONG = (
    "KafkaSourceStressForDontFailOnDataLossSuite: stress test for failOnDataLoss=false",
    "stress test with multiple topics and partitions",
    "ensure stream-stream self-join generates only one offset in log and correct metrics",
    "minOffsetsPerTrigger",
    "cannot stop Kafka stream",
    "a topic is deleted between micro-batches",
    "delete a topic when a Spark job is running",
    "streaming - write to non-existing topic",
    "subscribing topic by name from latest offsets (failOnDataLoss: true and false)",
    "subscribing topic by name from specific timestamps (failOnDataLoss: true and false)",
    "subscribing topic by name from global timestamp per topic (failOnDataLoss: true and false)",
    "subscribing topic by pattern from earliest offsets (failOnDataLoss: true and false)",
    "subscribing topic by pattern from global timestamp per topic (failOnDataLoss: true and false)",
    "assign from latest offsets (failOnDataLoss: true and false)",
)
"""Cases that the soak alone runs."""


def _id(case: Case) -> str:
    return f"{case.suite}: {case.name}"


@pytest.mark.parametrize(
    "format", [OURS, *(pytest.param(each, marks=pytest.mark.soak) for each in (TASKS, PEER))]
)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.soak if case.name in LONG else ()) for case in CASES],
    ids=_id,
)
def test_case(case: Case, format: str, outcome_of: OutcomeOf) -> None:
    assert outcome_of(case, format) == case.expected(format)
