"""Hostile protobuf messages: each gives a value or a corrupt row, and nothing else.

``python -m tests.extensions.typed_values.protobuf.fuzz --count 1000000 --seed 7`` tells what came of them.

Messages of schemas in all syntaxes are mutated, and read whole and in part, in batches of mixed writers.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import google.protobuf
import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import CORRUPT, MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageType, parse
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import fields_of, is_known, varint, wire_type
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values import fuzzing
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.schemas import SCHEMAS

BATCH = 2000
NEWER = """
syntax = "proto3"; package other;
import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
message All {
  int64 a_double = 16; repeated int64 colours = 17; bytes y = 20; Leaf z = 21; Leaf leaf = 26;
  google.protobuf.Timestamp at = 30; repeated google.protobuf.Timestamp ats = 31; Nested nested = 28;
  google.protobuf.Struct json = 39; map<string, int32> v_int32 = 505;
  message Leaf { string text = 1; int64 number = 2; }
  message Nested { repeated Leaf leaves = 2; map<string, Leaf> by_name = 3; oneof inner { Leaf one = 4; } }
}
"""
"""A reader of the messages of proto3."""
OPTIONS = (
    ProtobufOptions(3),
    ProtobufOptions(2, enums_as_ints=True, emits_defaults=True, upcasts_unsigned=True, unwraps=True),
)
EXPLAINED = {kernels.TIME, kernels.LONG, kernels.TAG, kernels.DEPTH, kernels.JSON}
"""Causes of rows that google.protobuf reads."""


class Reader(NamedTuple):
    """A decoder, with the entry of the writer, and what Google's class is compared by."""

    writer: str
    decoder: MessageDecoder
    entry: int
    options: ProtobufOptions
    is_compared: bool


@cache
def classes() -> dict[str, Any]:
    return {
        name: oracle.class_of(oracle.compiled({"all.proto": text}), name) for name, text in SCHEMAS.items()
    }


@cache
def readers() -> list[Reader]:
    made = []
    for name, text in SCHEMAS.items():
        message = parse(text).message(name)
        for options in OPTIONS:
            decoder = MessageDecoder(message, options=options)
            made.append(Reader(name, decoder, decoder.add(message), options, True))
        some = pa.struct([field for number, field in enumerate(decoder.type) if number % 7 == 0])
        decoder = MessageDecoder(message, some, OPTIONS[1])
        made.append(Reader(name, decoder, decoder.add(message), OPTIONS[1], False))
    name = "test.three.All"
    decoder = MessageDecoder(parse(NEWER).at([0]))
    made.append(Reader(name, decoder, decoder.add(parse(SCHEMAS[name]).message(name)), OPTIONS[0], False))
    return made


@cache
def bodies() -> dict[str, list[bytes]]:
    rng = random.Random(1)
    found = {}
    for name, kind in classes().items():
        made = [oracle.fill(kind(), rng).SerializeToString() for _ in range(300)]
        found[name] = sorted(made, key=len)[:200] + [_small(kind, rng) for _ in range(200)]
    return found


def _small(kind: type[Any], rng: random.Random) -> bytes:
    """A message with few of its fields."""
    message = oracle.fill(kind(), rng)
    names = [field.name for field, _ in message.ListFields()]
    for name in rng.sample(names, max(len(names) - rng.randrange(1, 6), 0)):
        message.ClearField(name)
    return bytes(message.SerializeToString())


def mutated(body: bytes, name: str, rng: random.Random) -> bytes:
    out = bytearray(body)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(10):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at % len(out)] = rng.choice((0, 1, 2, 3, 127, 128, 255))
            case 2:
                out[at:at] = rng.choice(
                    (b"\xff" * rng.randrange(1, 12), b"\x80" * 9 + b"\x01", b"\x00", b"\x01")
                )
            case 3:
                del out[at : at + rng.randrange(1, 5)]
            case 4:
                del out[at:]
            case 5:
                out += rng.randbytes(rng.randrange(1, 4))
            case 6:
                other = rng.choice(bodies()[name])
                out[at:] = other[rng.randrange(len(other) + 1) :]
            case 7:
                out += rng.choice(bodies()[name])  # which merges them
            case 8:
                number = rng.choice((1, 20, 30, 41, 42, 45, 1000, rng.randrange(1, 600), 1 << 28))
                out[at:at] = varint(number << 3 | rng.randrange(8)) * rng.choice((1, 1, 1, 120))
            case _:
                out[at : at + 2] = rng.randbytes(2)
    return bytes(out)


def run(seed: int, count: int, *, compared: int = 0) -> Counter[str]:
    """Decode mutated messages; ``compared`` of each batch are held against google.protobuf.

    :raises AssertionError: if a row is not what it must be.
    """
    rng = random.Random(seed)
    outcome: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        rows = min(BATCH, count - first)
        name = rng.choice([*SCHEMAS])
        hostile = [mutated(rng.choice(bodies()[name]), name, rng) for _ in range(rows)]
        sizes = np.array([len(body) for body in hostile], np.int64)
        starts = np.cumsum(sizes) - sizes
        data = np.frombuffer(b"".join(hostile), np.uint8)
        nulls = np.array([rng.random() < 0.02 for _ in range(rows)])
        for reader in readers():
            if reader.writer != name:
                continue
            entries = np.full(rows, reader.entry, np.int64)
            entries[[rng.random() < 0.02 for _ in range(rows)]] = CORRUPT
            found = reader.decoder.decode(data, starts, np.where(nulls, -1, sizes), entries)
            found.array.validate(full=True)
            assert len(found.array) == rows
            assert (found.array.is_null().to_numpy(zero_copy_only=False) == nulls).all()
            assert not found.causes[nulls].any()
            assert kernels.AGAIN not in found.causes
            for field in found.array.flatten():
                assert field.take(pa.array(found.corrupt)).null_count == found.corrupt.size
            for row in found.corrupt:
                outcome[found.reason(row).rpartition(", at byte")[0].rpartition(": ")[2]] += 1
            outcome["values"] += rows - found.corrupt.size
            if reader.is_compared and compared:
                shown = oracle.rows(found.array.slice(0, compared))
                for row in range(min(compared, rows)):
                    if not nulls[row] and entries[row] != CORRUPT:
                        _compare(hostile[row], reader, int(found.causes[row]), shown[row])
                        outcome["compared"] += 1
    return outcome


@cache
def parsed() -> dict[str, MessageType]:
    return {name: parse(text).message(name) for name, text in SCHEMAS.items()}


def has_odd_entries(message: MessageType, body: bytes) -> bool:
    """Whether an entry of a map has an unknown field, or a number that its closed enum has not.

    Google's upb leaves it out then, unlike a DynamicMessage of Java's.
    """
    known = {field.number: field for field in message.fields}
    for number, wire, _, inner in fields_of(body):
        field = known.get(number)
        if field is None or wire_type(field) != wire or not is_known(field, inner):
            if message.is_map_entry:
                return True
        elif field.message is not None and has_odd_entries(field.message, inner):
            return True
    return False


def _compare(body: bytes, reader: Reader, cause: int, ours: Any) -> None:
    kind = classes()[reader.writer]
    try:
        message = kind.FromString(body)
        expected = oracle.expected(message, reader.decoder.type, reader.options)
    except (DecodeError, UnicodeDecodeError, ValueError):
        # Ours does not look into what is skipped, or cut off by the depth of recursion.
        return
    if cause == kernels.FINE and not has_odd_entries(parsed()[reader.writer], body):
        differs = {name: (ours[name], value) for name, value in expected.items() if ours[name] != value}
        assert not differs, (differs, reader.writer, body)
    elif cause != kernels.FINE:
        # Java checks the text of maps in proto2, too.
        of_map = cause == kernels.TEXT and reader.writer == "test.two.All"
        assert of_map or cause in EXPLAINED, (reader.writer, cause, body)


if __name__ == "__main__":
    fuzzing.main(run, f"protobuf {google.protobuf.__version__}")
