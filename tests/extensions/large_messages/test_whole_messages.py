"""Ranges of offsets become whole messages: as LinkedIn's consumer delivers them, however they are cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import LargeMessageDroppedError
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import DROPPED_FIELD, EARLIEST, LATEST, OffsetRange, Place
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from tests.extensions.large_messages.cases import (
    SCENARIOS,
    SCHEMA,
    Scenario,
    as_delivered,
    without_safe_offset,
)
from tests.extensions.large_messages.segment_formats import FORMATS
from tests.large_log import DROPPED, T0, Log, Message

pytestmark = pytest.mark.slow

each_scenario = pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if not scenario.evicts], ids=str
)


def read(
    scenario: Scenario, start: int, end: int, *, max_rows: int = 50_000, deserializer: str | None = None
) -> list[dict[str, Any]]:
    rules = ReadRules(SCHEMA, scenario.read_committed, True, DecodeLimits(max_rows=max_rows))
    settings = replace(scenario.settings, deserializer=deserializer)
    options = LargeMessageOptions(enabled=True, settings=settings)
    partition = scenario.topic_partition
    split = Split(partition, OffsetRange(start, end))
    found = []
    for rows in WholeMessageReader(scenario.place, rules, options).read(split):
        assert rows.num_rows
        assert rows.schema == SCHEMA
        assert set(rows.column("topic").to_pylist()) == {partition.topic}
        found += [as_delivered(row) for row in rows.to_pylist()]
    return found


def same(found: list[dict[str, Any]], scenario: Scenario) -> bool:
    """Whether all rows are there, in any order, apart from the safe offset, which covers one range only."""
    rows = without_safe_offset(sorted(found, key=lambda row: row["offset"]))
    return rows == without_safe_offset(scenario.delivered)


@each_scenario
def test_a_whole_partition_is_what_their_consumer_delivers(scenario: Scenario) -> None:
    assert read(scenario, EARLIEST, LATEST) == scenario.delivered
    assert read(scenario, EARLIEST, LATEST, max_rows=1) == scenario.delivered


@each_scenario
@pytest.mark.parametrize("name", ["from_prefix", "from_prefixes"])
def test_a_function_that_finds_their_message_segments_gives_the_same(scenario: Scenario, name: str) -> None:
    deserializer = f"{FORMATS}:{name}"
    assert read(scenario, EARLIEST, LATEST, deserializer=deserializer) == scenario.delivered
    end = scenario.log_end_offset
    cuts = [0, end // 3, end // 2, end]
    parts = [read(scenario, *ends, max_rows=7, deserializer=deserializer) for ends in pairwise(cuts)]
    assert same([row for part in parts for row in part], scenario)


@each_scenario
def test_two_ranges_are_the_whole_wherever_it_is_cut(scenario: Scenario, soak: bool) -> None:
    end = scenario.log_end_offset
    for cut in range(1, end, 1 if soak else 1 + end // 5):
        parts = [read(scenario, *ends, max_rows=7) for ends in ((0, cut), (cut, end))]
        assert same([*parts[0], *parts[1]], scenario), f"cut at {cut}"


@each_scenario
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.soak), 3, 11])
def test_many_ranges_are_the_whole(scenario: Scenario, size: int) -> None:
    end = scenario.log_end_offset
    found = [
        row
        for start in range(0, end, size)
        for row in read(scenario, start, min(start + size, end), max_rows=2)
    ]
    assert same(found, scenario)


def test_what_makes_their_consumer_raise_is_a_dead_letter_however_it_is_cut() -> None:
    scenario = next(scenario for scenario in SCENARIOS if str(scenario) == "li_s17_invalid-0-default")
    schema = pa.schema([("offset", pa.int64()), (DROPPED_FIELD[0], DROPPED)])
    rules = ReadRules(schema, False, True, DecodeLimits(max_rows=5))
    options = LargeMessageOptions(enabled=True, dead_letters=True)

    def letters(start: int, end: int) -> list[dict[str, Any]]:
        split = Split(scenario.topic_partition, OffsetRange(start, end))
        batches = WholeMessageReader(scenario.place, rules, options).read(split)
        return [row for rows in batches for row in rows.to_pylist() if row["dropped"] is not None]

    end = scenario.log_end_offset
    whole = letters(0, end)
    assert [row["offset"] for row in whole] == [row["offset"] for row in scenario.entry["exceptions"]]
    assert len({row["dropped"]["reason"] for row in whole}) > 5
    for cut in range(1, end):
        assert letters(0, cut) + letters(cut, end) == whole, f"cut at {cut}"


def test_a_read_can_fail_where_their_consumer_raises_and_go_on_after_it() -> None:
    scenario = next(scenario for scenario in SCENARIOS if str(scenario) == "li_s17_invalid-0-default")
    rules = ReadRules(pa.schema([("offset", pa.int64())]), False, True, DecodeLimits(max_rows=5))
    settings = AssemblerSettings(exception_on_message_dropped=True)
    reader = WholeMessageReader(scenario.place, rules, LargeMessageOptions(enabled=True, settings=settings))
    offsets, end = [row["offset"] for row in scenario.entry["exceptions"]], scenario.log_end_offset

    def read_from(start: int) -> None:
        for _ in reader.read(Split(scenario.topic_partition, OffsetRange(start, end))):
            pass

    for start, offset in pairwise([-1, *offsets]):
        with pytest.raises(
            LargeMessageDroppedError, match=r"exception\.on\.message\.dropped=false"
        ) as raised:
            read_from(start + 1)
        assert (raised.value.topic_partition, raised.value.offset) == (str(scenario.topic_partition), offset)
    read_from(offsets[-1] + 1)


def test_an_incomplete_message_never_fails_a_read(caplog: pytest.LogCaptureFixture) -> None:
    log = Log([Message(7, 2).segment(0), *[b"x"] * 9])
    settings = AssemblerSettings(1, 3, exception_on_message_dropped=True)
    rules = ReadRules(pa.schema([("offset", pa.int64())]), False, True, DecodeLimits())
    reader = WholeMessageReader(cast(Place, log), rules, LargeMessageOptions(enabled=True, settings=settings))
    found = [row["offset"] for rows in reader.read(Split(T0, OffsetRange(0, 10))) for row in rows.to_pylist()]
    assert found == list(range(1, 10))
    assert "1 expired_by_offset" in caplog.text
