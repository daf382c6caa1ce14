"""Resets for readers of large messages lead where a seek of LinkedIn's consumer does."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_kafkalog.extensions.large_messages.reassembler import Reassembler
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.tools.groups.reset import ResetStep, for_whole_messages
from tests.extensions.large_messages.cases import SCENARIOS, Scenario

SOUGHT = [
    scenario
    for scenario in SCENARIOS
    if scenario.table("seek")
    and not scenario.entry["consumer_config"]
    and not scenario.expected("exceptions")
]
"""Where their consumer raises it moves on, and so no longer has what was open."""


def delivered(scenario: Scenario, position: int, wanted: int) -> list[int]:
    """Offsets of messages from ``wanted`` on, read from ``position`` on."""
    offsets = scenario.rows.column("offset").to_numpy()
    rows = scenario.rows.slice(int(offsets.searchsorted(position)))
    reassembler = Reassembler(scenario.topic_partition, scenario.settings)
    found: pa.RecordBatch = reassembler.feed(rows).rows
    return [offset for offset in found.column("offset").to_pylist() if offset >= wanted]


@pytest.mark.parametrize("scenario", SOUGHT, ids=str)
def test_what_is_delivered_after_a_reset_is_what_their_seek_delivers(scenario: Scenario) -> None:
    place = LogDirectory.open(str(scenario.folder))
    last = max(row["offset"] for row in scenario.expected("delivered"))
    for _, offset, position, theirs in scenario.table("seek"):
        if isinstance(position, str) or offset > last:
            continue
        step = ResetStep("g", *scenario.topic_partition, None, offset)
        (reset,) = for_whole_messages(place, [step])
        assert reset.metadata == f"{offset},"
        assert reset.offset <= offset
        assert str(delivered(scenario, reset.offset, offset)).replace(" ", "") == theirs, offset
