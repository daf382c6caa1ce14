"""PARITY.md shows the existing cases."""

from __future__ import annotations

from collections import Counter

from tests.parity.cases import CASES
from tests.parity.elsewhere import ELSEWHERE
from tests.parity.table import PATH, table


def test_the_table_is_that_of_the_cases() -> None:
    assert PATH.read_text(encoding="utf-8") == table(), "Run python -m tests.parity.table"


def test_every_case_stands_once() -> None:
    names = [(case.suite, case.name) for case in CASES]
    names += [(cases.suite, name) for cases in ELSEWHERE for name in cases.names]
    assert not [name for name, count in Counter(names).items() if count > 1]


def test_every_difference_is_explained() -> None:
    assert not [case.name for case in CASES if case.ours and not case.note]
    assert not [case.name for case in CASES if case.ours.keys() - case.peer.keys()]


def test_what_is_told_as_a_difference_is_one() -> None:
    same = [
        (case.name, name) for case in CASES for name in case.ours if case.ours[name] == case.peer.get(name)
    ]
    assert not same
