"""Large values become the message segments that LinkedIn's producer writes, byte for byte."""

from __future__ import annotations

import json
import mmap
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import RecordTooLargeError
from pyspark_kafkalog.extensions.large_messages.message_ids import random_ids
from pyspark_kafkalog.extensions.large_messages.settings import SplitterSettings
from pyspark_kafkalog.extensions.large_messages.splitter import Splitter
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.large_messages.logs import stored
from tests.extensions.large_messages.records import Headers, Record, Segment, messages, segment
from tests.fixtures_dir import FIXTURES

COLLECTION = FIXTURES / "large-messages"
ID = bytes.fromhex("00112233445566778899aabbccddeeff")
AT = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_KINDS = {"key": pa.binary(), "value": pa.binary(), "headers": _HEADERS, "timestamp": pa.int64()}


def arrow(records: Iterable[Record]) -> pa.RecordBatch:
    """Records for the encoder; empty headers are null in every other row."""
    columns: dict[str, list[Any]] = {name: [] for name in _KINDS}
    for number, record in enumerate(records):
        headers = [{"key": name, "value": value} for name, value in record.headers]
        columns["headers"].append(headers or (None if number % 2 else []))
        for name in ("key", "value", "timestamp"):
            columns[name].append(getattr(record, name))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[name], kind) for name, kind in _KINDS.items()], names=list(_KINDS)
    )


def plain(part: pa.RecordBatch, wanted: np.ndarray | None) -> Iterator[Record]:
    """The records that the encoder would write."""
    part.validate(full=True)
    for row in (part if wanted is None else part.take(pa.array(wanted))).to_pylist():
        headers: Headers = [(header["key"], header["value"]) for header in row["headers"] or []]
        yield Record(row["key"], row["value"], headers, row["timestamp"])


def split(
    given: Iterable[Record],
    settings: SplitterSettings,
    *,
    ids: bytes | None = None,
    chosen: list[int] | None = None,
    **how: int,
) -> list[Record]:
    def make(count: int) -> bytes:
        made = ids or b"".join(bytes([*ID[:15], number % 256]) for number in range(count))
        assert len(made) == 16 * count
        return made

    found = Splitter(settings, make, **how).split(arrow(given))
    wanted = None if chosen is None else np.array(chosen, np.int64)
    return [record for part, which in found.of(wanted, PARTITION) for record in plain(part, which)]


def test_the_example_of_the_format() -> None:
    first, second, third = split(
        [Record(None, b"abcdefghij", [("a", b"1"), ("_lm", b"theirs")], AT)], SplitterSettings(4), ids=ID
    )
    assert first.key == ID
    assert first.value == bytes.fromhex(
        "00 11335576 0011223344556677 8899aabbccddeeff 00000000 00000003 0000000a 61626364"
    )
    assert first.headers == [
        ("a", b"1"),
        ("_t", AT.to_bytes(8, "big")),
        ("_lm", bytes.fromhex("01 8899aabbccddeeff 0011223344556677 00000000 00000003 0000000a")),
    ]
    assert second.value is not None
    assert third.value is not None
    assert (second.value[33:], third.value[33:]) == (b"efgh", b"ij")
    assert {first.timestamp, second.timestamp, third.timestamp} == {AT}


@pytest.mark.parametrize(("size", "count"), [(4, 1), (5, 2), (8, 2), (9, 3)])
def test_only_values_above_the_limit_are_split_and_only_the_last_slice_is_shorter(
    size: int, count: int
) -> None:
    found = split([Record(b"k", bytes(range(size)), [], AT)], SplitterSettings(4, header_only=True))
    assert [len(record.value or b"") for record in found] == [4] * (count - 1) + [size - 4 * (count - 1)]
    assert ("_lm" in dict(found[0].headers)) == (count > 1)


def test_small_null_and_empty_values_get_a_timestamp_unless_they_have_one() -> None:
    given = [
        Record(None, b"small", [("_lm", b"theirs")], AT),
        Record(b"k", None, [("_t", None)], AT),
        Record(b"", b"", [], -1),
    ]
    time = ("_t", AT.to_bytes(8, "big"))
    assert split(given, SplitterSettings()) == [
        given[0]._replace(headers=[("_lm", b"theirs"), time]),
        given[1],
        given[2]._replace(headers=[("_t", b"\xff" * 8)]),
    ]
    assert split(given, SplitterSettings(timestamp_header=False)) == given


@pytest.mark.parametrize("header_only", [False, True])
def test_small_values_may_be_wrapped_but_not_null_and_empty_ones(header_only: bool) -> None:
    """These keep their headers, which LinkedIn's producer loses."""
    given = [
        Record(None, b"v", [("a", b"1")], AT),
        Record(b"k", None, [("a", b"1")], AT),
        Record(b"", b"", [], AT),
    ]
    wrapped, *others = split(given, SplitterSettings(4, header_only=header_only, wrap=True), ids=ID)
    time = ("_t", AT.to_bytes(8, "big"))
    assert others == [record._replace(headers=[*record.headers, time]) for record in given[1:]]
    assert segment(wrapped) == Segment(ID, 0, 1, 1, b"v", 2 if header_only else 1, header_only)
    assert wrapped.key is None
    assert [name for name, _ in wrapped.headers] == ["a", "_t", "_lm"]


def test_what_is_not_large_is_not_copied() -> None:
    given = arrow(Record(b"k", b"v" * i, [], AT) for i in range(10))
    for timestamp_header in False, True:
        found = Splitter(SplitterSettings(10, timestamp_header=timestamp_header), bytes).split(given)
        ((part, wanted),) = found.of(None, PARTITION)
        assert wanted is None
        for name in "key", "value", "timestamp":
            assert part.column(name).buffers()[-1].address == given.column(name).buffers()[-1].address
        assert timestamp_header or part is given


MESSAGES = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=3),
        st.none() | st.binary(max_size=40),
        st.lists(st.tuples(st.sampled_from(["_t", "_lm", "a"]), st.none() | st.just(b"x")), max_size=3),
        st.integers(0, 2**40),
        partition=st.just(0),
    ),
    min_size=1,
    max_size=12,
)


@given(
    messages_=MESSAGES,
    settings=st.builds(SplitterSettings, st.integers(1, 50), st.booleans(), st.booleans(), st.booleans()),
    max_bytes=st.integers(1, 1500),
    data=st.data(),
)
def test_the_chosen_messages_come_back_in_order_whatever_the_sizes(
    messages_: list[Record], settings: SplitterSettings, max_bytes: int, data: st.DataObject
) -> None:
    chosen = data.draw(
        st.none() | st.lists(st.integers(0, len(messages_) - 1), min_size=1, unique=True).map(sorted)
    )
    found = split(messages_, settings, chosen=chosen, max_bytes=max_bytes)
    expected = []
    for i in range(len(messages_)) if chosen is None else chosen:
        message = messages_[i]
        length = len(message.value or b"")
        headers = message.headers
        if length > (0 if settings.wrap else settings.segment_bytes):
            headers = [header for header in headers if header[0] != "_lm"]
        if settings.timestamp_header and "_t" not in dict(headers):
            headers = [*headers, ("_t", message.timestamp.to_bytes(8, "big"))]
        expected.append(message._replace(headers=headers))
    # A user's header that belongs to no message segment stays, and would mislead a reader.
    theirs = [("_lm", b"x"), ("_lm", None)]
    readable = [r._replace(headers=[h for h in r.headers if h not in theirs]) for r in found]
    expected = [r._replace(headers=[h for h in r.headers if h not in theirs]) for r in expected]
    assert messages(readable) == expected
    found_segments = [piece for piece in map(segment, readable) if piece is not None]
    assert all(0 < len(piece.slice) <= settings.segment_bytes for piece in found_segments)


def test_a_slice_of_longer_columns_is_split_like_any() -> None:
    given = [Record(b"%d" % i if i % 3 else None, b"x" * i, [("a", b"%d" % i)], AT + i) for i in range(20)]
    ids = bytes(range(16)) * 4
    settings = SplitterSettings(12)
    found = Splitter(settings, lambda count: ids).split(arrow(given).slice(9, 8))
    sliced = [record for part, which in found.of(None, PARTITION) for record in plain(part, which)]
    assert sliced == split(given[9:17], settings, ids=ids)


def test_a_message_above_the_bytes_made_at_a_time_is_made_in_parts() -> None:
    found = Splitter(SplitterSettings(1000), lambda _: ID, max_bytes=10_000).split(
        arrow([Record(b"k", bytes(100_500), [], AT)])
    )
    parts = list(found.of(None, PARTITION))
    assert len(parts) > 10
    assert max(part.nbytes for part, _ in parts) < 15_000
    assert [r.value for r in messages(r for part in parts for r in plain(*part))] == [bytes(100_500)]


def test_what_no_column_can_hold_is_refused() -> None:
    size = 2**31 - 10
    data = pa.py_buffer(mmap.mmap(-1, size))  # takes no memory until it is read
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    huge = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    given = arrow([Record(b"k", b"v", [], AT)]).set_column(1, "value", huge)
    found = Splitter(SplitterSettings(2**31 - 1, wrap=True), lambda _: ID).split(given)
    with pytest.raises(RecordTooLargeError, match="2 GiB"):
        list(found.of(None, PARTITION))


@cache
def cases() -> list[dict[str, Any]]:
    manifest = COLLECTION / "manifest.json"
    if not manifest.is_file():
        pytest.skip("needs the fixture collection, see KAFKALOG_FIXTURES")
    return json.loads(manifest.read_text())["cases"]


def given_headers(record: Record) -> Headers:
    """The application's headers, without those that a producer appends."""
    headers = [header for header in record.headers if segment(record) is None or header[0] != "_lm"]
    time = ("_t", record.timestamp.to_bytes(8, "big"))
    return headers[:-1] if headers[-1:] == [time] else headers


def split_anew(records: list[Record]) -> list[Record]:
    """All records of a message as we write it, given some of them. Missing slices are zeros."""
    found = [piece for piece in map(segment, records) if piece is not None]
    _, _, count, length, _, _, header_only = found[0]
    inner = [len(piece.slice) for piece in found if piece.number < count - 1]
    size = inner[0] if inner else (length - len(found[0].slice)) // max(count - 1, 1) or length
    value = bytearray(length)
    for piece in found:
        value[piece.number * size : piece.number * size + len(piece.slice)] = piece.slice
    last = records[-1]
    key = None if last.key == found[0].id else last.key
    given = Record(key, bytes(value), given_headers(last), last.timestamp)
    settings = SplitterSettings(
        size,
        timestamp_header=("_t", last.timestamp.to_bytes(8, "big")) in last.headers,
        header_only=header_only,
        wrap=count == 1,
    )
    return split([given], settings, ids=found[0].id)


def without_mark(record: Record) -> Record:
    return record._replace(headers=[header for header in record.headers if header[0] != "_lm"])


def test_records_equal_those_that_linkedins_producer_wrote() -> None:
    """Those of releases that write another ``_lm``, or none, are compared without it."""
    same: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for case in cases():
        if not any(writer["library_version"] for writer in case["writers"]):
            continue
        for partition in case["topic_partitions"]:
            by_message: defaultdict[bytes, list[Record]] = defaultdict(list)
            for record in stored(COLLECTION / partition["dir"]):
                found = segment(record)
                if found is not None:
                    by_message[found.id].append(record)
                    continue
                given = given_headers(record)
                settings = SplitterSettings(1 << 20, timestamp_header=given != record.headers)
                assert split([record._replace(headers=given)], settings) == [record]
                same["small"] += 1
            for records in by_message.values():
                ours = split_anew(records)
                for record in records:
                    found = segment(record)
                    assert found is not None
                    mine = ours[found.number] if found.number < len(ours) else None
                    if record == mine:
                        same["message segments"] += 1
                    elif mine and found.kind in (None, 0) and without_mark(mine) == without_mark(record):
                        same["message segments of old releases"] += 1
                    else:
                        others[case["case"]] += 1
    assert same == {"message segments": 295, "small": 113, "message segments of old releases": 60}
    assert others == {"li_s12_order": 3}, "a message that was altered before it was sent"


def test_message_ids_are_random_uuids() -> None:
    ids = random_ids(1000)
    found = {uuid.UUID(bytes=ids[start : start + 16]) for start in range(0, len(ids), 16)}
    assert len(found) == 1000
    assert {(message_id.version, message_id.variant) for message_id in found} == {(4, uuid.RFC_4122)}
