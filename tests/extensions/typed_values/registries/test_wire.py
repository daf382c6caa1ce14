"""The keys of schemas before values and in headers, and bytes that only look like them."""

from __future__ import annotations

import uuid
import zlib
from random import Random

import numpy as np
import pytest

from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId, Key
from pyspark_kafkalog.extensions.typed_values.registries.wire import (
    Framed,
    by_glue,
    by_number,
    glue_header,
    header_keys,
)

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")


def packed(values: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values in one block, with other bytes before and behind it."""
    data = np.frombuffer(b"\3" + b"".join(value or b"" for value in values) + b"\0" * 3, np.uint8)
    sizes = np.array([-1 if value is None else len(value) for value in values], np.int64)
    return data, 1 + np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0), sizes


def unpacked(framed: Framed) -> list[tuple[Key | None, bytes | None]]:
    """The key and the bytes of each row."""
    return [
        (
            None if number < 0 else framed.keys[number],
            None if size < 0 else framed.data[start : start + size].tobytes(),
        )
        for number, start, size in zip(framed.numbers, framed.starts, framed.sizes, strict=True)
    ]


@pytest.mark.parametrize("width", [4, 8])
def test_numbers(width: int) -> None:
    most = (1 << 8 * width) - 1
    values = [b"\0" + number.to_bytes(width, "big") + b"body" for number in (7, most, 7, 0)]
    odd = [None, b"", b"\0", b"\0" * width, b"\1" + bytes(width) + b"x"]
    bare = b"\0" + bytes(width)
    found = unpacked(by_number(*packed([*values, *odd, bare]), width))
    assert found == [
        *((number, b"body") for number in (7, most, 7, 0)),
        *((None, value) for value in odd),
        (0, b""),
    ]


def test_glue() -> None:
    other = uuid.UUID(int=3)
    small, large = b"body", bytes(100_000)
    values = [
        glue_header(GUID) + small,
        b"\3\5" + other.bytes + zlib.compress(large),
        None,
        glue_header(other),
        b"\3\1" + GUID.bytes + small,
        b"\2\0" + GUID.bytes + small,
        b"\3\0" + GUID.bytes[:15],
        b"\3\5" + GUID.bytes + zlib.compress(b""),
    ]
    framed = by_glue(*packed(values))
    assert unpacked(framed) == [
        (GUID, small),
        (other, large),
        (None, None),
        (other, b""),
        *((None, value) for value in values[4:7]),
        (GUID, b""),
    ]
    assert not framed.corrupt
    empty = by_glue(*packed([None]))
    assert unpacked(empty) == [(None, None)]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"body", "it has other bytes"),
        (zlib.compress(b"body" * 50)[:-3], "it is cut off"),
        (b"", "it is cut off"),
        (zlib.compress(b"body") + b"x", "bytes follow it"),
        (zlib.compress(bytes(1001)), "it has more than 1000 bytes"),
    ],
)
def test_glue_that_is_not_zlib(value: bytes, why: str) -> None:
    whole = b"\3\5" + GUID.bytes + value
    framed = by_glue(*packed([whole, glue_header(GUID) + b"x"]), largest=1000)
    assert framed.corrupt == {0: f"expected a value that zlib compressed: {why}"}
    assert unpacked(framed) == [(None, whole), (GUID, b"x")]


def test_zlib_of_the_most_bytes() -> None:
    framed = by_glue(*packed([b"\3\5" + GUID.bytes + zlib.compress(bytes(1000))]), largest=1000)
    assert unpacked(framed) == [(GUID, bytes(1000))]


def test_headers() -> None:
    value, key = header_keys("value"), header_keys("key")
    assert value["__value_schema_id"](b"\0\0\0\1\0") == 256
    assert value["__value_schema_id"](b"\1" + GUID.bytes) == GUID
    assert value["apicurio.value.globalId"](bytes(7) + b"\7") == ApicurioId("globalId", 7)
    assert value["apicurio.value.contentId"](b"\0" * 6 + b"\1\0") == ("contentId", 256)
    assert value["content-type"](b"avro/binary+" + GUID.hex.encode()) == GUID
    assert value["content-type"](b"avro/binary+" + str(GUID).upper().encode()) == GUID
    assert {*key} == {"__key_schema_id", "apicurio.key.globalId", "apicurio.key.contentId"}
    for name, odd in [
        ("__value_schema_id", b"\2" + GUID.bytes),
        ("__value_schema_id", b"\0\0\0\1"),
        ("apicurio.value.globalId", b"\xff" * 8),
        ("apicurio.value.globalId", b"7"),
        ("content-type", b"application/json"),
        ("content-type", b"avro/binary+" + GUID.hex.encode() + b"0"),
        ("content-type", b""),
    ]:
        assert value[name](odd) is None


def test_any_bytes() -> None:
    """No value is read beyond its end, and those without a key stay as they are."""
    random = Random(7)
    for _ in range(300):
        values = [
            None if random.random() < 0.1 else bytes(random.choices((0, 3, 5, 255), k=random.randrange(40)))
            for _ in range(20)
        ]
        for framed in by_glue(*packed(values)), by_number(*packed(values), 4), by_number(*packed(values), 8):
            for value, (key, text) in zip(values, unpacked(framed), strict=True):
                assert (text is None) == (value is None)
                assert key is not None or text == value
                assert text is None or len(text) >= 0
