"""Keys of schemas before values and in headers, with the indexes of Protobuf's messages."""

from __future__ import annotations

import random
import uuid
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.buffers import value_bounds
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.extensions.typed_values.column_decoder import ColumnValues
from pyspark_kafkalog.extensions.typed_values.framing import (
    ConfluentFraming,
    WriterKey,
    read_message,
    write_message,
)
from pyspark_kafkalog.model import TopicPartition

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6).map(tuple)


def find(
    values: list[bytes | None], headers: list[Any] | None = None, encoding: str = "protobuf"
) -> list[tuple[WriterKey | None, bytes | None]]:
    """The key and the body of each value."""
    column: Any = SimpleNamespace(name="value", format=SimpleNamespace(encoding=encoding))
    array = pa.array(values, pa.binary())
    batch = pa.record_batch(
        {"value": array, "headers": pa.array(headers or [None] * len(values), ROW_TYPES["headers"])}
    )
    data, starts, sizes = value_bounds(array)
    given = ColumnValues(batch, data, starts.copy(), sizes.copy(), TopicPartition("t", 0))
    given, found = ConfluentFraming(column).find(given)
    return [
        (
            None if number < 0 else found.keys[number],
            None if size < 0 else given.data[start : start + size].tobytes(),
        )
        for number, start, size in zip(found.numbers, given.starts, given.sizes, strict=True)
    ]


@given(INDEXES)
def test_indexes_of_a_message(indexes: tuple[int, ...]) -> None:
    text = write_message(indexes)
    assert read_message(text) == indexes
    assert read_message(text + b"\0") is None
    assert find([b"\0\0\0\0\7" + text + b"body"]) == [(WriterKey(7, indexes), b"body")]


@pytest.mark.parametrize(
    ("indexes", "text"), [((1,), b"\2\2"), ((1, 0), b"\4\2\0"), ((2, 300), b"\4\4\xd8\4")]
)
def test_indexes_are_confluents(indexes: tuple[int, ...], text: bytes) -> None:
    assert write_message(indexes) == text


def test_the_first_message_has_a_short_form() -> None:
    """MessageIndexes writes a zero, and reads the long form, too."""
    assert write_message((0,)) == b"\0"
    short, long = b"\0\0\0\0\7\0x", b"\0\0\0\0\7\2\0x"
    assert find([short, long]) == [(WriterKey(7, (0,)), b"x")] * 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**32 - 1), INDEXES, st.binary(max_size=5))))
def test_many_keys(rows: list[tuple[int, int, tuple[int, ...], bytes]]) -> None:
    values: list[bytes | None] = []
    headers: list[Any] = []
    expected: list[tuple[WriterKey | None, bytes | None]] = []
    for kind, number, indexes, body in rows:
        key, guid = b"\0" + number.to_bytes(4, "big"), uuid.UUID(int=number)
        in_header = {1: b"\1" + guid.bytes, 2: key}.get(kind)
        has_prefix = kind == 0
        values.append(None if kind == 3 else (key + write_message(indexes) if has_prefix else b"") + body)
        headers.append(
            in_header and [{"key": "__value_schema_id", "value": in_header + write_message(indexes)}]
        )
        schema = guid if kind == 1 else number
        expected.append((None, None) if kind == 3 else (WriterKey(schema, indexes), body))
    assert find(values, headers) == expected


@pytest.mark.parametrize(
    "prefix",
    [
        *(b"", b"\0", b"\0\0\0\0\7", b"\1\0\0\0\7\0", b"\0\0\0\0\7\2", b"\0\0\0\0\7\2\x80"),
        *(b"\0\0\0\0\7\1\0", b"\0\0\0\0\7\2\1", b"\0\0\0\0\7\x84\2" + b"\0" * 200),
        b"\0\0\0\0\7\x80\x80\x80\x80\x80\x80\0",
    ],
    ids=repr,
)
def test_a_value_without_a_key(prefix: bytes) -> None:
    assert find([prefix]) == [(None, prefix)]


def test_hostile_bytes_are_read_within_their_value() -> None:
    chosen = random.Random(5)
    values = [
        b"\0\0\0\0\7"[: chosen.randrange(6)]
        + bytes(chosen.choices((0, 1, 2, 4, 128, 255), k=chosen.randrange(9)))
        for _ in range(20_000)
    ]
    for value, (key, body) in zip(values, find([*values]), strict=True):
        head = value[: len(value) - len(body or b"")]
        if key is None:
            assert body == value
            assert (
                all(read_message(value[5:end]) is None for end in range(6, len(value) + 1))
                or value[:1] != b"\0"
            )
        else:
            assert read_message(head[5:]) == key.message
