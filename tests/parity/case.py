"""What a case of parity is, and the register of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.parity.lab import PEER, Lab

Outcome = Mapping[str, object]
"""What can be seen of a case, by name; plain values, with nothing in them that changes from run to run."""


@dataclass(frozen=True, eq=False)
class Case:
    """One case, run for both formats."""

    suite: str
    name: str
    """As in the suite of Spark."""
    run: Callable[[Lab], Outcome]
    peer: Outcome
    """What Spark's connector shows."""
    ours: Outcome = field(default_factory=dict)
    """What ``kafkalog`` shows instead, where that is meant to be so."""
    note: str = ""
    """Why it is meant to be so; or what the case does otherwise than Spark's."""

    def expected(self, format: str) -> Outcome:
        if format == PEER:
            return self.peer
        return {**self.peer, **self.ours}


@dataclass(frozen=True)
class Elsewhere:
    """Cases of Spark's suites that are not run here."""

    suite: str
    names: tuple[str, ...]
    reason: str
    """Why the case does not exist in Python, or where it is tested."""


REGISTERED: list[Case] = []


def case(
    suite: str,
    name: str,
    *,
    peer: Outcome,
    ours: Outcome | None = None,
    note: str = "",
) -> Callable[[Callable[[Lab], Outcome]], Callable[[Lab], Outcome]]:
    """Register a function as a case."""

    def register(run: Callable[[Lab], Outcome]) -> Callable[[Lab], Outcome]:
        REGISTERED.append(Case(suite, name, run, peer, ours or {}, note))
        return run

    return register
