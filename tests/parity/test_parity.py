"""Both formats behave as Spark's own suites require; ``ci/test`` runs some cases, all else is the soak's."""

from __future__ import annotations

import pytest

from tests.parity.case import Case
from tests.parity.cases import CASES
from tests.parity.conftest import OutcomeOf
from tests.parity.lab import OURS, PEER

pytestmark = pytest.mark.broker


ALWAYS = (
    "Kafka column types",
    "bad source options",
    "assign from specific offsets (failOnDataLoss: true and false)",
    "subscribing topic by pattern with topic deletions",
    "deserialization of initial offset written by Spark 2.1.0 (SPARK-19517)",
    "Trigger.AvailableNow",
    "test custom metrics - with rate limit",
    "global timestamp provided for starting and ending",
    "unresolved start offset greater than end offset",
    "streaming - write to kafka with topic field",
    "batch - partition column and partitioner priorities",
    "failOnDataLoss=false should not return duplicated records: batch v1",
    "SPARK-30656: getOffsetRangesFromResolvedOffsets",
    "SubscribePatternStrategy.assignedTopicPartitions must give back all assigned",
    "micro-batch mode - options should be handled as case-insensitive",
    "written with zstd, read by both",
    "a query goes on where one of Spark's connector has stopped",
    "a topic is recreated, and grows longer than what was read",
    "one source read twice in a query",
)
"""Cases of each suite that ``ci/test`` runs with ``kafkalog``; those of other formats are the soak's."""


def test_the_cases_that_always_run_are_there() -> None:
    assert {case.name for case in CASES}.issuperset(ALWAYS)


def _id(case: Case) -> str:
    return f"{case.suite}: {case.name}"


@pytest.mark.parametrize("format", [OURS, pytest.param(PEER, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in ALWAYS else pytest.mark.soak) for case in CASES],
    ids=_id,
)
def test_case(case: Case, format: str, outcome_of: OutcomeOf) -> None:
    assert outcome_of(case, format) == case.expected(format)
