"""Records of one partition with message segments in any order, some lost, some twice, some broken."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.codec.strategies import HEADERS
from tests.extensions.large_messages.model import Headers, Record

IDS = [bytes(range(n, n + 16)) for n in (0, 100, 240)]
"""Few, so that messages share an id; with high bytes, so that check values wrap."""

_INT32 = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 10, 2**31 - 1])


def prefixed(key: bytes, number: int, count: int, length: int, data: bytes) -> bytes:
    """A value of scheme P."""
    high, low = struct.unpack(">qq", key)
    return struct.pack(">bI16siii", 0, (high + low) % 2**32, key, number, count, length) + data


def lm(kind: int, key: bytes, number: int, count: int, length: int) -> bytes:
    """A header ``_lm``."""
    value = struct.pack(">b8s8siii", kind, key[8:], key[:8], number, count, length)
    return value[:25] if kind == 0 else value


@st.composite
def message(draw: st.DrawFn) -> list[tuple[bytes, Headers]]:
    """Value and headers of each message segment of one message."""
    key = draw(st.sampled_from(IDS))
    slices = draw(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4))
    scheme = draw(st.sampled_from([None, 0, 1, 2, 3]))
    before = draw(st.sampled_from([[], [("a", b"1")], [("_t", bytes(8)), ("n", None)]]))
    length = sum(map(len, slices))
    found = []
    for number, data in enumerate(slices):
        fields = key, number, len(slices), length
        headers = before if scheme is None else [*before, ("_lm", lm(scheme, *fields))]
        found.append((data if scheme and scheme >= 2 else prefixed(*fields, data), headers))
    return found


_LM0 = lm(0, IDS[0], 0, 1, 5)
ordinary = st.sampled_from(
    [
        (None, []),
        (b"", [("a", None)]),
        (b"v", []),
        (bytes(33), []),
        (b"x" * 40, [("_lm", _LM0), ("_so", b"kept")]),
        (None, [("_lm", lm(2, IDS[0], -1, 3, 5))]),
        (b"z" * 9, [("_lm", lm(2, bytes(16), -1, 3, 9)), ("_so", bytes(8))]),
        (prefixed(IDS[0], 0, 1, 1, b"z"), [("_lm", lm(3, bytes(16), -1, 0, -2))]),
        (b"y", [("_lm", lm(-1, IDS[0], 0, 1, 5)), ("b", b""), ("_lm", lm(1, IDS[1], 0, 2, 7))]),
    ]
)


@st.composite
def broken(draw: st.DrawFn, whole: tuple[bytes, Headers]) -> tuple[bytes | None, Headers]:
    """A message segment with something changed in its fields."""
    value, headers = whole
    key = draw(st.sampled_from(IDS))
    claims = draw(_INT32), draw(_INT32), draw(_INT32)
    kind = draw(st.integers(-2, 3))
    marked = lm(kind, key, *claims)
    how = draw(st.integers(0, 5))
    if how == 0:
        return prefixed(key, *claims, value[33:]), headers
    if how == 1:
        return value, [*headers, ("_lm", marked)]
    if how == 2:
        return value, [("_lm", marked[: draw(st.integers(0, 30))]), ("c", b"")]
    if how == 3:
        return draw(st.sampled_from([None, b"", value])), [
            *headers,
            ("_lm", draw(st.none() | st.just(marked))),
        ]
    at = draw(st.integers(0, max(0, min(len(value), 33) - 1)))
    if how == 4:
        return value[:at] + draw(st.binary(max_size=2)) + value[at + 1 :], headers
    return value[:at], headers


@st.composite
def partitions(draw: st.DrawFn, *, hostile: bool = False) -> list[Record]:
    """Records in the order of their offsets, with gaps."""
    messages = draw(st.lists(message(), min_size=1, max_size=5))
    pieces = [piece for message in messages for piece in message]
    sampled = st.sampled_from(pieces)
    if hostile:
        sampled = sampled | sampled.flatmap(broken)
    records: Any = draw(
        st.lists(sampled | sampled | ordinary, max_size=30)
        | st.permutations(pieces)
        | st.just(pieces + pieces)
    )
    offset, found = draw(st.sampled_from([0, 7, 2**40])), []
    for value, headers in records:
        found.append(Record(offset, value, list(headers)))
        offset += draw(st.sampled_from([1, 1, 1, 2, 5]))
    return found


def arrow_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """The records as columns offset, value, headers and one extra."""
    headers = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "headers": pa.array(headers, HEADERS),
            "value": pa.array([record.value for record in records], pa.binary()),
            "row": pa.array(range(len(records)), pa.int32()),
        }
    )
