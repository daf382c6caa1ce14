"""Keys of schemas before values and in headers, with the indexes of Protobuf's messages."""

from __future__ import annotations

import random
import uuid
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.buffers import value_bounds
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.extensions.typed_values.column_decoder import ColumnValues, TooLargeBatchError
from pyspark_kafkalog.extensions.typed_values.framing import (
    ConfluentFraming,
    Framing,
    GlueFraming,
    WriterKey,
    framing_of,
    read_message,
    write_message,
)
from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId
from pyspark_kafkalog.extensions.typed_values.registries.wire import glue_header
from pyspark_kafkalog.model import TopicPartition

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6).map(tuple)


def find(
    values: list[bytes | None],
    headers: list[Any] | None = None,
    framing: Callable[[Any], Framing] = ConfluentFraming,
    **format_: str,
) -> list[tuple[WriterKey | None, bytes | None]]:
    """The key and the body of each value."""
    column: Any = SimpleNamespace(name="value", format=SimpleNamespace(**{"encoding": "protobuf", **format_}))
    array = pa.array(values, pa.binary())
    batch = pa.record_batch(
        {"value": array, "headers": pa.array(headers or [None] * len(values), ROW_TYPES["headers"])}
    )
    data, starts, sizes = value_bounds(array)
    given = ColumnValues(batch, data, starts.copy(), sizes.copy(), TopicPartition("t", 0), {})
    given, found = framing(column).find(given)
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


GUID, OTHER = uuid.UUID("89791762-2336-4186-9674-299b90a802e2"), uuid.UUID(int=3)


def test_the_header_of_glue() -> None:
    small, large = b"body", bytes(100_000)
    values = [
        glue_header(GUID) + small,
        b"\3\5" + OTHER.bytes + zlib.compress(large),
        None,
        glue_header(OTHER),
        b"\3\5" + GUID.bytes + zlib.compress(b""),
        *(b"\3\1" + GUID.bytes + small, b"\2\0" + GUID.bytes + small, b"\3\0" + GUID.bytes[:15]),
        *(b"\3\5" + GUID.bytes + small, b"\3\5" + GUID.bytes, b""),
    ]
    assert find(values, framing=framing_of, registry="glue", encoding="avro") == [
        (WriterKey(GUID), small),
        (WriterKey(OTHER), large),
        (None, None),
        (WriterKey(OTHER), b""),
        (WriterKey(GUID), b""),
        *((None, value) for value in values[5:]),
    ]
    assert find([None], framing=framing_of, registry="glue", encoding="avro") == [(None, None)]


def test_zlib_of_a_batch_has_a_bound() -> None:
    """A larger value is left as it is; several that are larger together need another batch."""

    def framing(column: Any) -> GlueFraming:
        return GlueFraming(column, largest=1000)

    half, more = (b"\3\5" + GUID.bytes + zlib.compress(bytes(size)) for size in (500, 1001))
    assert find([half, half], framing=framing, encoding="avro") == [(WriterKey(GUID), bytes(500))] * 2
    assert find([more, half], framing=framing, encoding="avro") == [
        (None, more),
        (WriterKey(GUID), bytes(500)),
    ]
    with pytest.raises(TooLargeBatchError):
        find([half, half, half], framing=framing, encoding="avro")


def test_the_ids_of_apicurio() -> None:
    """Of 4 and of 8 bytes, and in headers, of which the content id counts."""
    of_header = {name: f"apicurio.value.{name}Id" for name in ("global", "content")}
    by_global = {"key": of_header["global"], "value": bytes(7) + b"\7"}
    by_content = {"key": of_header["content"], "value": bytes(7) + b"\x08"}
    rows: list[tuple[bytes | None, Any, Any, bytes | None]] = [
        (b"\0\0\0\1\0x", None, 256, b"x"),
        (b"\0" + bytes(6) + b"\1\0x", None, 256, b"x"),
        (b"\0\0\0\1\0", None, 256, b""),
        (bytes(9), None, None, bytes(9)),
        (bytes(8), None, None, bytes(8)),
        (b"\1\0\0\0\1", None, None, b"\1\0\0\0\1"),
        (b"\0\0\0\1\0x", [by_global], ApicurioId("globalId", 7), b"\0\0\0\1\0x"),
        (b"x", [by_content, by_global], ApicurioId("contentId", 8), b"x"),
        (None, [by_content], None, None),
    ]
    found = find(
        [row[0] for row in rows], [row[1] for row in rows], framing_of, registry="apicurio", encoding="avro"
    )
    assert found == [(None if key is None else WriterKey(key), body) for _, _, key, body in rows]


def test_the_number_of_a_message_of_glue() -> None:
    """It begins the body, which may be compressed; a value without one stays as it is."""
    plain, packed = glue_header(GUID), b"\3\5" + GUID.bytes
    values = [
        plain + b"\0body",
        packed + zlib.compress(b"\x81\x01body"),
        plain + b"\1",
        None,
        *(plain, plain + b"\xff" * 5 + b"\1", packed + zlib.compress(b"\x80")),
    ]
    keys = [WriterKey(GUID, number) for number in (0, 129, 1)]
    assert find(values, framing=framing_of, registry="glue") == [
        *zip(keys, (b"body", b"body", b""), strict=True),
        *((None, value) for value in values[3:]),
    ]


def test_the_name_of_a_message_of_apicurio() -> None:
    """It begins the body, also with headers; of Apicurio 2 it is in a header only."""
    by_id = {"key": "apicurio.value.contentId", "value": bytes(7) + b"\x08"}
    by_name = {"key": "apicurio.protobuf.type", "value": b"Order"}
    long = "x" * 200
    ref, other = b"\x07\x0a\x05Order", b"\x04\x0a\x02Me"
    in_header = ApicurioId("contentId", 8)
    rows: list[tuple[bytes, Any, Any, bytes]] = [
        (b"\0\0\0\0\7" + ref + b"body", None, WriterKey(7, "Order"), b"body"),
        (b"\0" + bytes(7) + b"\7" + other, None, WriterKey(7, "Me"), b""),
        (ref + b"body", [by_name, by_id], WriterKey(in_header, "Order"), b"body"),
        (ref + b"body", [by_id], WriterKey(in_header, "Order"), b"body"),
        (b"body", [by_id, by_name], WriterKey(in_header, "Order"), b"body"),
        (other + b"body", [by_id, by_name], WriterKey(in_header, "Order"), other + b"body"),
        (b"", [by_id, by_name], WriterKey(in_header, "Order"), b""),
        (b"\xcb\1\x0a\xc8\1" + long.encode() + b"y", [by_id], WriterKey(in_header, long), b"y"),
        *(
            (text, [by_id], None, text)
            for text in (b"body", b"", ref[:-1], b"\x06\x0a\x05Order", b"\2\x0a\0")
        ),
        (b"\0\0\0\0\7body", None, None, b"\0\0\0\0\7body"),
    ]
    found = find([row[0] for row in rows], [row[1] for row in rows], framing_of, registry="apicurio")
    assert found == [row[2:] for row in rows]


def test_the_header_of_azure() -> None:
    def of(text: bytes) -> list[dict[str, Any]]:
        return [{"key": "content-type", "value": text}]

    headers = [of(b"avro/binary+" + GUID.hex.encode()), of(b"application/json"), None]
    found = find([b"\0\0\0\0\7x"] * 3, headers, framing_of, registry="azure")
    assert found == [(WriterKey(GUID), b"\0\0\0\0\7x"), *[(None, b"\0\0\0\0\7x")] * 2]


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
@pytest.mark.parametrize("registry", ["glue", "apicurio", "azure"])
def test_hostile_bytes_of_other_registries(registry: str, encoding: str) -> None:
    """No value is read beyond its end, and those without a key stay as they are."""
    chosen = random.Random(7)
    values = [
        None
        if chosen.random() < 0.1
        else bytes(chosen.choices((0, 3, 5, 10, 65, 255), k=chosen.randrange(40)))
        for _ in range(20_000)
    ]
    found = find(values, None, framing_of, registry=registry, encoding=encoding)
    for value, (key, body) in zip(values, found, strict=True):
        assert (body is None) == (value is None)
        assert key is not None or body == value
