"""Both formats behave as Spark's own suites require, and alike, except for differences noted with a case."""

from __future__ import annotations

import pytest

from tests.parity.case import Case
from tests.parity.cases import CASES
from tests.parity.conftest import OutcomeOf
from tests.parity.lab import FORMATS, OURS, PEER

pytestmark = pytest.mark.broker


def _id(case: Case) -> str:
    return f"{case.suite}: {case.name}"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=_id)
def test_case(case: Case, format: str, outcome_of: OutcomeOf) -> None:
    assert outcome_of(case, format) == case.expected(format)


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_formats_differ_only_as_told(case: Case, outcome_of: OutcomeOf) -> None:
    peer, ours = (outcome_of(case, format) for format in (PEER, OURS))
    different = {name for name in peer.keys() | ours.keys() if peer.get(name) != ours.get(name)}
    assert different == case.ours.keys()
    assert case.note or not different
