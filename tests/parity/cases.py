"""All cases, in the order of the table."""

from __future__ import annotations

# Each registers its cases.
from tests.parity import batches, beyond, exchange, losses, microbatches, refusals, sinks, starts  # noqa: F401
from tests.parity.case import REGISTERED, Case
from tests.parity.suites import IN_ORDER

CASES: list[Case] = sorted(REGISTERED, key=lambda case: IN_ORDER.index(case.suite))
