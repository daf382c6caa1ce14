"""What ranges find out about offsets before them, whatever is interleaved, lost, shuffled, copied or gone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import ALL_OFFSETS, DROPPED_FIELD, Fetch, OffsetRange, Slice
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from tests.large_log import DROPPED, SLICE, T0, Log, Message

ROWS = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
WITH_LETTERS = pa.schema([*ROWS, (DROPPED_FIELD[0], DROPPED)])


def read(
    log: Log,
    start: int,
    end: int,
    gap: int,
    *,
    letters: bool = False,
    fail: bool = True,
    capacity: int = 32_000_000,
    within: OffsetRange = ALL_OFFSETS,
) -> list[dict[str, Any]]:
    schema = WITH_LETTERS if letters else ROWS
    rules = ReadRules(schema, False, fail, DecodeLimits(max_rows=3))
    options = LargeMessageOptions(True, letters, False, AssemblerSettings(capacity, gap))
    place: Any = log
    split = Split(T0, OffsetRange(start, end), within)
    batches = WholeMessageReader(place, rules, options).read(split)
    return [row for rows in batches for row in rows.to_pylist()]


def rows_of(found: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    return sorted((row["offset"], row["value"]) for row in found if row.get("dropped") is None)


def letters_of(found: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in found if row["dropped"] is not None)


@st.composite
def logs(draw: st.DrawFn, *, copies: bool) -> list[tuple[Message, int] | None]:
    """Message segments in any order, some lost, maybe some twice, and ordinary records (None) between."""
    records: list[tuple[Message, int] | None] = [None] * draw(st.integers(0, 6))
    for number in range(draw(st.integers(0, 5))):
        message = Message(number + 1, draw(st.integers(2, 4)))
        for segment in range(message.count):
            times = draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3] if copies else [0, 1, 1, 1, 1, 1]))
            records += [(message, segment)] * times
    order = st.permutations(records) if draw(st.booleans()) else st.just(records)
    return list(draw(order))


def as_log(records: list[tuple[Message, int] | None]) -> Log:
    return Log([b"ordinary" if entry is None else entry[0].segment(entry[1]) for entry in records])


def cut(draw: st.DataObject, end: int) -> list[tuple[int, int]]:
    cuts = sorted(draw.draw(st.sets(st.integers(1, end - 1)))) if end > 1 else []
    return list(zip([0, *cuts], [*cuts, end], strict=True))


@pytest.mark.long
@settings(max_examples=150)
@given(logs(copies=False), st.integers(1, 12), st.data())
def test_messages_written_once_are_delivered_if_they_are_complete_within_the_gap(
    records: list[tuple[Message, int] | None], gap: int, data: st.DataObject
) -> None:
    log, end = as_log(records), len(records)
    expected = [(at, b"ordinary") for at, entry in enumerate(records) if entry is None]
    for message in {entry[0] for entry in records if entry is not None}:
        at = [n for n, entry in enumerate(records) if entry is not None and entry[0] == message]
        if len(at) == message.count and at[0] >= at[-1] - 1 - gap:
            expected.append((at[-1], message.value))
    assert rows_of(read(log, 0, end, gap)) == sorted(expected)
    few = read(log, 0, end, gap, capacity=2 * SLICE)
    assert rows_of(few) == sorted(expected), "slices are forgotten, and nothing is evicted"
    found = [row for start, stop in cut(data, end) for row in read(log, start, stop, gap)]
    assert rows_of(found) == sorted(expected)


@pytest.mark.long
@settings(max_examples=100)
@given(logs(copies=True), st.integers(1, 12), st.data())
def test_with_dead_letters_ranges_are_the_whole_whatever_is_copied(
    records: list[tuple[Message, int] | None], gap: int, data: st.DataObject
) -> None:
    log, end = as_log(records), len(records)
    whole = read(log, 0, end, gap, letters=True)
    found = [row for start, stop in cut(data, end) for row in read(log, start, stop, gap, letters=True)]
    assert rows_of(found) == rows_of(whole)
    assert letters_of(found) == letters_of(whole)


LARGE = Message(7, 4)
FOUR = [LARGE.segment(number) for number in range(4)]


def test_no_more_is_read_than_the_missing_message_segments() -> None:
    log = Log([b"x"] * 500 + FOUR + [b"x"] * 500)
    assert rows_of(read(log, 502, 510, 1000))[0] == (503, LARGE.value)
    assert min(log.fetched) >= 480


def test_ordinary_records_are_read_once_and_nothing_before_them() -> None:
    log = Log([b"x"] * 100)
    assert len(read(log, 50, 60, 1000)) == 10
    assert log.fetched == set(range(50, 60))


def test_message_segments_at_the_log_start_look_no_further() -> None:
    log = Log([b"x"] * 10 + FOUR, log_start=12)
    assert read(log, 12, 14, 1000) == []
    assert rows_of(read(replace(log, log_start=10), 12, 14, 1000)) == [(13, LARGE.value)]
    assert read(replace(log, log_start=11), 12, 14, 1000) == [], "the first one is gone"


def test_a_number_that_is_claimed_costs_nothing() -> None:
    hostile = bytearray(LARGE.segment(3))
    hostile[21:29] = struct.pack(">ii", 2**31 - 2, 2**31 - 1)
    log = Log([b"x"] * 100 + [bytes(hostile)] + [b"x"] * 30)
    assert len(read(log, 50, 131, 20)) == 80


@pytest.mark.parametrize("fail", [True, False])
def test_what_is_broken_before_the_range_is_an_error_or_not_there(fail: bool) -> None:
    log = Log([*FOUR, b"x"], broken={1})
    if fail:
        with pytest.raises(CorruptRecordError):
            read(log, 2, 5, 1000)
    else:
        assert rows_of(read(log, 2, 5, 1000, fail=False)) == [(4, b"x")]


@pytest.mark.parametrize("fail", [True, False])
def test_a_log_that_is_another_one_by_then_completes_no_message(fail: bool) -> None:
    class SetBack(Log):
        is_told = False

        def fetch(self, wanted: Fetch) -> Iterator[Slice]:
            offsets = wanted.offsets
            if offsets.start < 2 and not self.is_told:
                self.is_told = True
                raise DataLossError("LOG_WENT_BACK", offset=offsets.start, next_offset=offsets.start)
            return super().fetch(wanted)

    log = SetBack(FOUR)
    if fail:
        with pytest.raises(DataLossError, match="LOG_WENT_BACK"):
            read(log, 2, 4, 1000)
    else:
        assert rows_of(read(log, 2, 4, 1000, fail=False)) == [(3, LARGE.value)]


def test_offsets_that_nobody_wants_are_looked_into_for_message_segments() -> None:
    log = Log([b"x", *FOUR, b"x"])
    wanted = OffsetRange(3, 6)
    assert rows_of(read(log, 0, 6, 1000, within=wanted)) == [(4, LARGE.value), (5, b"x")]


def test_a_segment_that_overtook_the_others_is_found_before_the_range() -> None:
    log = Log([b"x", FOUR[3], b"x", FOUR[0], FOUR[1], FOUR[2], b"y"])
    assert rows_of(read(log, 3, 7, 1000)) == [(5, LARGE.value), (6, b"y")]
    assert rows_of(read(log, 0, 3, 1000)) == [(0, b"x"), (2, b"x")]


@pytest.mark.parametrize("fail", [True, False])
def test_retention_takes_message_segments_that_had_been_seen(fail: bool) -> None:
    class Expiring(Log):
        def fetch(self, wanted: Fetch) -> Iterator[Slice]:
            if len(self.fetched) > 5:
                self.log_start = 2
            return super().fetch(wanted)

    log = Expiring([b"x", *FOUR, b"x"])
    if fail:
        with pytest.raises(
            DataLossError, match=r"Segments of a large message were deleted .*partition t-0, offset 1"
        ):
            read(log, 3, 6, 1000)
    else:
        assert rows_of(read(log, 3, 6, 1000, fail=False)) == [(5, b"x")]


def test_dropped_messages_are_counted_once_a_range(caplog: pytest.LogCaptureFixture) -> None:
    other = Message(8, 3)
    log = Log([FOUR[0], other.segment(1), *[b"x"] * 20])
    read(log, 0, 22, 5)
    assert [record.message for record in caplog.records] == [
        "t-0: dropped large messages from offset 0 on: 2 expired_by_offset. Not all segments came within 5"
        " offsets: if others wrote in between, raise message.assembler.expiration.offset.gap"
    ]
