"""Splits give the rows that one reader of the whole log gives, with all headers, wherever they are cut."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.extensions.large_messages.looking_back import WANTED, OpenMessages
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.reassembler import Reassembler
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import OffsetRange, Place
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from tests.extensions.large_messages.cases import InMemory
from tests.extensions.large_messages.interleaved import interleaved
from tests.large_log import T0, Log, Message

Rows = list[dict[str, Any]]


def left_of(log: Log) -> list[bytes | None]:
    return [None] * log.log_start + log.values[log.log_start :]


def whole(log: Log, gap: int) -> tuple[Rows, int]:
    """What ``reassemble`` gives, and how many messages it drops."""
    limits = AssemblerSettings(expiration_offset_gap=gap)
    found = Reassembler(T0, limits).feed(InMemory(left_of(log), limits).rows)
    return found.rows.to_pylist(), len(found.dropped)


def in_splits(
    log: Log, gap: int, cuts: list[int], *, max_rows: int = 50_000, capacity: int = 32_000_000
) -> tuple[Rows, int]:
    place: Any = log
    rules = ReadRules(WANTED, False, True, DecodeLimits(max_rows=max_rows))
    options = LargeMessageOptions(enabled=True, settings=AssemblerSettings(capacity, gap))
    rows: Rows = []
    dropped: list[object] = []
    reader = WholeMessageReader(place, rules, options, on_dropped=dropped.extend)
    for start, end in pairwise(cuts):
        for batch in reader.read(Split(T0, OffsetRange(start, end))):
            rows += batch.to_pylist()
    return rows, len(dropped)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Several producers' messages, each sent once and in order; some are not whole.

    They lack a segment, or have only the last one, as compaction leaves them. Between some are
    offsets without a record, and the log may begin among them.
    """
    lost, compacted = draw(st.sampled_from([0, 0.1, 0.4])), draw(st.sampled_from([0, 0, 0.5]))
    producers, chance = draw(st.sampled_from([1, 3, 6])), Random(draw(st.integers(0, 2**32)))
    written = interleaved(str(chance.random()), 60, producers=producers, size=10, lost=lost).records
    last = {value[:21]: offset for offset, value in enumerate(written) if value.startswith(b"\0")}
    gone = {value for value in last if chance.random() < compacted}
    holes = draw(st.dictionaries(st.integers(0, 80), st.integers(1, 45), max_size=4))
    values: list[bytes | None] = []
    for offset, value in enumerate(written):
        values += [None] * holes.get(offset, 0)
        values.append(None if value[:21] in gone and offset != last[value[:21]] else value)
    return Log(values, log_start=draw(st.sampled_from([0, 0, 1, len(values) // 2])))


GAPS = st.sampled_from([1, 5, 25, 40, 1000])


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(logs(), GAPS, st.sampled_from([1, 7, 50_000]), st.data())
def test_splits_give_all_rows_and_headers_of_reassemble(
    log: Log, gap: int, max_rows: int, data: st.DataObject
) -> None:
    cuts = cuts_of(log, data)
    assert in_splits(log, gap, cuts, max_rows=max_rows) == whole(log, gap)


def cuts_of(log: Log, data: st.DataObject) -> list[int]:
    start, end = log.log_start, len(log.values)
    return sorted(data.draw(st.sets(st.integers(start, end), max_size=5)) | {start, end})


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(logs(), GAPS, st.data())
def test_safe_offsets_are_those_of_one_reader(log: Log, gap: int, data: st.DataObject) -> None:
    limits, place = AssemblerSettings(expiration_offset_gap=gap), cast("Place", log)
    rules = ReadRules(WANTED, False, True, DecodeLimits(max_rows=7))
    from_the_first = OpenMessages(lambda: place, rules, limits)
    for end in cuts_of(log, data)[1:]:
        reader, rows = Reassembler(T0, limits), InMemory(left_of(log)[:end], limits).rows
        reader.feed(rows)
        last = rows.column("offset")[-1].as_py() if rows.num_rows else -1
        oldest = reader.safe_offset(last)
        wanted = {T0: end if oldest is None else oldest}
        assert from_the_first.safe_offsets({T0: end}) == wanted
        assert OpenMessages(lambda: place, rules, limits).safe_offsets({T0: end}) == wanted


@pytest.mark.parametrize("gap", [1, 2, 1000])
def test_offsets_without_a_record_make_nothing_expire(gap: int) -> None:
    """Like an aborted transaction, or compacted records: a split may begin among them."""
    two = Message(7, 2)
    log = Log([b"a", two.segment(0), *[None] * 30, two.segment(1), b"x"])
    end = len(log.values)
    rows, _ = whole(log, gap)
    assert [row["offset"] for row in rows] == [0, 32, 33]
    for cut in range(1, end):
        assert in_splits(log, gap, [0, cut, end]) == (rows, 0), f"cut at {cut}"


def test_no_more_is_read_for_a_header_than_the_capacity() -> None:
    log = Log([b"x" * 100] * 500 + [Message(7, 2).segment(0)] + [b"x" * 100] * 600)
    (row, *_), _ = in_splits(log, 1000, [510, 520], capacity=4_000)
    assert [header["key"] for header in row["headers"]] == ["_so"]
    assert 460 < min(log.fetched) < 490
    log.fetched.clear()
    (row, *_), _ = in_splits(log, 1000, [600, 610], capacity=4_000)
    assert row["headers"] is None
    assert 550 < min(log.fetched) < 580
