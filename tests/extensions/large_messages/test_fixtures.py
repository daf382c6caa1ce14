"""Every row, error, safe offset, commit and seek that the real consumer gave."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.extensions.large_messages.cases import SCENARIOS, Scenario, as_delivered
from tests.extensions.large_messages.model import Model, Record, SegmentError
from tests.extensions.large_messages.reader import NegativeWatermarkError, Reader
from tests.extensions.large_messages.tracker import OffsetNotTrackedError

pytestmark = pytest.mark.slow

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)

_THEIR_NAMES = {
    OffsetNotTrackedError: "OffsetNotTrackedException",
    NegativeWatermarkError: "IllegalArgumentException",
}


@pytest.fixture
def some(soak: bool, chance: random.Random) -> Callable[[list[Any]], list[Any]]:
    """Picks rows of a table of which each means to read the log once more; the soak takes all."""
    return lambda rows: rows if soak else chance.sample(rows, min(len(rows), 20))


def outcome(question: Callable[[], Any]) -> Any:
    """The answer, or the name of their exception."""
    try:
        return question()
    except tuple(_THEIR_NAMES) as e:
        return _THEIR_NAMES[type(e)]


@each_scenario
def test_delivered_rows_and_errors(scenario: Scenario) -> None:
    reader = Reader(scenario)
    rows = [as_delivered(row) for row in reader.read()]
    tracker = reader.tracker
    assert tracker is not None
    for row in rows:
        row["starting_offset"] = outcome(lambda: tracker.message(row["offset"]).starting_offset)  # noqa: B023
        row["safe_offset_of_message"] = outcome(lambda: tracker.message(row["offset"]).safe_offset)  # noqa: B023
    assert rows == scenario.expected("delivered")
    assert reader.errors == [row["offset"] for row in scenario.expected("exceptions")]


@each_scenario
def test_offsets_in_the_end(scenario: Scenario) -> None:
    reader = Reader(scenario)
    reader.read_offsets()
    assert reader.position == scenario.end("position")
    assert reader.tracker is not None
    assert reader.tracker.safe_offset == scenario.end("safe_offset")
    offset, metadata = reader.commit() or (None, None)
    assert {"offset": offset, "metadata": metadata} == scenario.end("committed_raw")
    number, text = reader.api_committed()
    assert {"offset": number, "metadata": text, "safe_offset": offset} == scenario.end("committed_api")


@each_scenario
def test_commit_after_each_message(scenario: Scenario) -> None:
    reader = Reader(scenario)
    rows: list[dict[str, Any]] = []
    for row in reader.read():
        rows += [{"exception": offset} for offset in reader.errors]
        reader.errors.clear()
        offset, metadata = reader.commit() or (None, None)
        rows.append(
            {
                "partition": scenario.partition,
                "delivered": row["offset"],
                "position": reader.position,
                "safe_offset": reader.tracker and reader.tracker.safe_offset,
                "committed_offset": offset,
                "metadata": metadata,
            }
        )
    rows += [{"exception": offset} for offset in reader.errors]
    expected = [
        {"exception": row["exception"]["offset"]} if "exception" in row else row
        for row in scenario.table("commit_each")
    ]
    assert rows == expected


@each_scenario
def test_commit_of_any_offset(scenario: Scenario) -> None:
    reader = Reader(scenario)
    reader.read_offsets()
    for _, offset, committed, metadata in scenario.table("commit_map"):
        answer = outcome(lambda: reader.commit_at(offset, f"u{offset}"))  # noqa: B023
        assert answer == (committed if metadata is None else (committed, metadata)), offset


@each_scenario
def test_seek(scenario: Scenario, some: Callable[[list[Any]], list[Any]]) -> None:
    for _, offset, position, delivered in some(scenario.table("seek")):
        reader = Reader(scenario)
        reader.read_offsets()
        failed = outcome(lambda: reader.seek(offset))  # noqa: B023
        assert (failed or reader.position) == position, offset
        if delivered is not None:
            assert reader.read_offsets() == delivered, offset


@each_scenario
def test_start_anywhere(scenario: Scenario, some: Callable[[list[Any]], list[Any]]) -> None:
    for _, offset, delivered, safe_offset, committed, metadata in some(scenario.table("start_at")):
        reader = Reader(scenario)
        reader.seek(offset)
        assert reader.read_offsets() == delivered, offset
        assert (reader.tracker and reader.tracker.safe_offset) == safe_offset, offset
        assert reader.commit() == (committed, metadata), offset


@each_scenario
def test_restart_in_the_group(scenario: Scenario, some: Callable[[list[Any]], list[Any]]) -> None:
    rows = pairwise([[None, None], *scenario.table("resume")])
    for (_, previous, *_), (_, last, committed, metadata, delivered, *after) in some(list(rows)):
        first = Reader(scenario)
        for row in first.read():
            if row["offset"] == last != previous:  # the same offset twice: it read to the end for another
                break
        assert first.commit() == (committed, metadata), last
        second = Reader(scenario, first.committed)
        assert second.read_offsets() == delivered, last
        second.commit()
        assert second.committed == tuple(after), last


@each_scenario
def test_take_over_from_any_commit(scenario: Scenario) -> None:
    for _, offset, metadata, api_offset, api_metadata, delivered, *after in scenario.table("resume_from"):
        reader = Reader(scenario, (offset, metadata))
        answer = outcome(reader.api_committed)
        assert answer == (api_offset if api_metadata is None else (api_offset, api_metadata)), metadata
        assert reader.read_offsets() == delivered, (offset, metadata)
        reader.commit()
        assert reader.committed == tuple(after), (offset, metadata)


@each_scenario
def test_seek_to_what_is_committed(scenario: Scenario) -> None:
    for _, offset, metadata, sought, position, *expected in scenario.table("seek_to_committed"):
        seeker = Reader(scenario, (offset, metadata))
        seeker.seek(seeker.api_committed()[0])
        assert seeker.position == sought, (offset, metadata)
        reader = Reader(scenario, (offset, metadata))
        reader.seek_to_committed()
        assert reader.position == position, (offset, metadata)
        first = reader.commit() or (None, None)
        delivered = reader.read_offsets()
        assert [*first, delivered, *(reader.commit() or ())] == expected, (offset, metadata)


@each_scenario
def test_the_model_is_right(scenario: Scenario) -> None:
    """The model with which :mod:`.test_reassembly` compares."""
    model = Model(scenario.settings.buffer_capacity, scenario.settings.expiration_offset_gap)
    delivered, errors = [], []
    for row in scenario.rows.to_pylist():
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        try:
            message = model.record(Record(row["offset"], row["value"], headers))
        except SegmentError:
            errors.append(row["offset"])
            continue
        if message is not None:
            header_rows = [{"key": name, "value": value} for name, value in message.headers]
            delivered.append(as_delivered({**row, "value": message.value, "headers": header_rows}))
    wanted = [
        {name: row[name] for name in row if name not in ("starting_offset", "safe_offset_of_message")}
        for row in scenario.expected("delivered")
    ]
    assert delivered == wanted
    if not scenario.settings.exception_on_message_dropped:
        assert errors == [row["offset"] for row in scenario.expected("exceptions")]
