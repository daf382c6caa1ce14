"""Ranges of offsets become whole messages: as LinkedIn's consumer delivers them, however they are cut."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.log.directory import LogDirectory
from pyspark_kafkalog.model import DROPPED_FIELD, EARLIEST, LATEST, OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.largemessages import LargeMessageOptions, assembler_settings
from pyspark_kafkalog.transfer.reading import ReadRules
from pyspark_kafkalog.transfer.reassembling import read_reassembled
from tests.large_fixtures import ROOT, Scenario, as_row, requires_large_fixtures, scenarios
from tests.large_log import DROPPED

SCHEMA = pa.schema(list(ROW_TYPES.items()))
NOT_EVICTING = [scenario for scenario in scenarios() if not scenario.evicts]


def read(
    scenario: Scenario,
    place: Place,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    so: bool = True,
    max_rows: int = 50_000,
) -> list[tuple[Any, ...]]:
    rules = ReadRules(SCHEMA, scenario.read_committed, True, DecodeLimits(max_rows=max_rows))
    settings = {n: v for n, v in scenario.settings.items() if n != "isolation.level"}
    options = LargeMessageOptions(enabled=True, settings=assembler_settings(settings, others=()))
    found = []
    for rows in read_reassembled(place, partition, OffsetRange(start, end), rules, options=options):
        assert rows.num_rows
        assert rows.schema == SCHEMA
        for row in rows.to_pylist():
            headers = [(pair["key"], pair["value"]) for pair in row["headers"] or []]
            assert (row["topic"], row["partition"]) == partition
            timestamp = round(row["timestamp"].timestamp() * 1000)
            found.append(as_row(row["offset"], timestamp, row["key"], row["value"], headers, so=so))
    return found


@requires_large_fixtures
@pytest.mark.parametrize("scenario", NOT_EVICTING, ids=repr)
def test_a_whole_partition_is_what_their_consumer_delivers(scenario: Scenario) -> None:
    place = LogDirectory.open(str(ROOT))
    for partition in scenario.partitions:
        expected = scenario.delivered(partition.partition)
        assert read(scenario, place, partition, EARLIEST, LATEST) == expected
        assert read(scenario, place, partition, EARLIEST, LATEST, max_rows=1) == expected


@requires_large_fixtures
@pytest.mark.parametrize("scenario", NOT_EVICTING, ids=repr)
def test_two_ranges_are_the_whole_wherever_it_is_cut(scenario: Scenario) -> None:
    place = LogDirectory.open(str(ROOT))
    for partition, end in scenario.partitions.items():
        expected = scenario.delivered(partition.partition, so=False)
        for cut in range(1, end):
            first = read(scenario, place, partition, 0, cut, so=False, max_rows=7)
            second = read(scenario, place, partition, cut, end, so=False, max_rows=7)
            assert sorted(first + second) == sorted(expected), f"cut at {cut}"


@requires_large_fixtures
@pytest.mark.parametrize("scenario", NOT_EVICTING, ids=repr)
@pytest.mark.parametrize("size", [1, 3, 11])
def test_many_ranges_are_the_whole(scenario: Scenario, size: int) -> None:
    place = LogDirectory.open(str(ROOT))
    for partition, end in scenario.partitions.items():
        expected = scenario.delivered(partition.partition, so=False)
        found = [
            row
            for start in range(0, end, size)
            for row in read(scenario, place, partition, start, min(start + size, end), so=False, max_rows=2)
        ]
        assert sorted(found) == sorted(expected)


@requires_large_fixtures
def test_what_makes_their_consumer_raise_is_a_dead_letter_however_it_is_cut() -> None:
    scenario = next(its for its in scenarios() if repr(its) == "li_s17_invalid-default")
    place, (partition,) = LogDirectory.open(str(ROOT)), scenario.partitions
    schema = pa.schema([("offset", pa.int64()), (DROPPED_FIELD[0], DROPPED)])
    rules = ReadRules(schema, False, True, DecodeLimits(max_rows=5))
    options = LargeMessageOptions(enabled=True, dead_letters=True)

    def letters(start: int, end: int) -> list[dict[str, Any]]:
        batches = read_reassembled(place, partition, OffsetRange(start, end), rules, options=options)
        return [row for rows in batches for row in rows.to_pylist() if row["dropped"] is not None]

    end = scenario.partitions[partition]
    whole = letters(0, end)
    assert [row["offset"] for row in whole] == [its["offset"] for its in scenario.entry["exceptions"]]
    assert len({row["dropped"]["reason"] for row in whole}) > 5
    for cut in range(1, end):
        assert letters(0, cut) + letters(cut, end) == whole, f"cut at {cut}"
