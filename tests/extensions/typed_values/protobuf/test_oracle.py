"""Rows of protobuf, decoded, are what google.protobuf reads."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import parse, parse_descriptor_set
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import fields_of
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.schemas import SCHEMAS

ROWS = 300
OPTIONS = [
    ProtobufOptions(max_depth=3),
    ProtobufOptions(3, unwraps=True),
    ProtobufOptions(3, enums_as_ints=True, emits_defaults=True, upcasts_unsigned=True, unwraps=True),
]


def shuffled(body: bytes, rng: random.Random) -> bytes:
    parts = [whole for _, _, whole, _ in fields_of(body)]
    rng.shuffle(parts)
    return b"".join(parts)


def bodies(kind: type[Any], rng: random.Random) -> list[bytes]:
    """Messages, some of several that come together, in any order of their fields."""
    made = []
    for number in range(ROWS):
        body = b"".join(
            oracle.fill(kind(), rng).SerializePartialToString() for _ in range(rng.choice([1, 1, 1, 2, 3]))
        )
        made.append(shuffled(body, rng) if number % 4 == 0 else body)
    return made


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_rows_are_googles(name: str, options: ProtobufOptions) -> None:
    text, rng = SCHEMAS[name], random.Random(7)
    descriptors = oracle.compiled({"all.proto": text})
    kind = oracle.class_of(descriptors, name)
    given = bodies(kind, rng)
    message = parse(text).message(name)
    decoder = MessageDecoder(message, options=options)
    decoded = decode_column(decoder, pa.array(given, pa.binary()), decoder.add(message))
    decoded.array.validate(full=True)
    found = oracle.rows(decoded.array)
    for row, body in enumerate(given):
        try:
            read = kind.FromString(body)
        except DecodeError:
            assert decoded.causes[row], body
            continue
        assert not decoded.causes[row], decoded.reason(row)
        assert found[row] == oracle.expected(read, decoder.type, options)
    by_descriptor = parse_descriptor_set(descriptors).message(name)
    again = MessageDecoder(by_descriptor, options=options)
    assert again.type == decoder.type
    assert decode_column(again, pa.array(given, pa.binary()), again.add(by_descriptor)).array == decoded.array
