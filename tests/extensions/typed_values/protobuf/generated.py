"""Schemas of any shape, and bodies of their messages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from google.protobuf import any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

from pyspark_kafkalog.extensions.typed_values.protobuf.types import WRAPPED
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import fields_of
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.schemas import KINDS

ROOT = "made.M0"
_KEYS = [kind for kind in KINDS if kind not in ("double", "float", "bytes")]
_IMPORTED = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
_WELL_KNOWN = ["Timestamp", "Duration", "Any", "Empty", *(name.rpartition(".")[2] for name in WRAPPED)]
_HEADS = {
    "proto2": 'syntax = "proto2";',
    "proto3": 'syntax = "proto3";',
    "2023": 'edition = "2023";',
}
_FEATURES = (
    "field_presence = IMPLICIT",
    "enum_type = CLOSED",
    "repeated_field_encoding = EXPANDED",
    "message_encoding = DELIMITED",
    "utf8_validation = NONE",
)
_URL = "type.googleapis.com/"


class _Schema:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._syntax = rng.choice([*_HEADS])
        self._messages = [f"M{number}" for number in range(rng.randrange(1, 5))]
        self._has_own_time = rng.random() < 0.2

    def text(self) -> str:
        rng = self._rng
        lines = [_HEADS[self._syntax], "package made;"]
        lines += [f'import "google/protobuf/{name}.proto";' for name in _IMPORTED]
        if self._syntax == "2023":
            # A field without presence can't have a closed enum.
            left_out = rng.choice(_FEATURES[:2])
            chosen = [each for each in _FEATURES if each != left_out and rng.random() < 0.25]
            lines += [f"option features.{each};" for each in chosen]
        lines += [line for name in self._messages for line in self._message(name)]
        return "\n".join(lines)

    def _message(self, name: str) -> list[str]:
        rng = self._rng
        lines = [f"message {name} {{", *self._enum()]
        if self._has_own_time and name == "M0":
            lines.append(
                f"message Timestamp {{ {self._label()}int64 seconds = 2; {self._label()}int32 nanos = 1; }}"
            )
        count = rng.choice([1, 2, 4, 7, 10])
        if name != "M0" and rng.random() < 0.1:
            count = 0
        numbers = rng.sample([*range(1, 30), 1000, 536870911], count + 6)
        if rng.random() < 0.5:
            numbers.sort()
        lines += [self._field(f"f{n}", number) for n, number in enumerate(numbers[:count])]
        if rng.random() < 0.4 and count:
            members = [
                f"{self._single()} o{n} = {number};" for n, number in enumerate(numbers[count : count + 3])
            ]
            lines += ["oneof choice {", *members, "}"]
        if self._syntax == "proto2" and rng.random() < 0.3:
            label = rng.choice(["optional", "repeated"])
            lines.append(
                f"{label} group Grouped = {numbers[count + 4]} {{ optional {self._single()} a = 1; }}"
            )
        return [*lines, "}"]

    def _enum(self) -> list[str]:
        first = self._rng.choice([0, 3]) if self._syntax == "proto2" else 0
        return [f"enum Colour {{ FIRST = {first}; ONE = 1; MINUS = -2; LARGE = 2147483647; }}"]

    def _label(self) -> str:
        if self._syntax == "2023":
            return ""
        return "optional " if self._syntax == "proto2" or self._rng.random() < 0.3 else ""

    def _single(self) -> str:
        rng, chance = self._rng, self._rng.random()
        if chance < 0.55:
            return rng.choice(KINDS)
        if chance < 0.65:
            return "Colour"
        if chance < 0.8:
            return f".made.{rng.choice(self._messages)}"
        if chance < 0.83 and self._has_own_time:
            return ".made.M0.Timestamp"
        return f"google.protobuf.{rng.choice(_WELL_KNOWN)}"

    def _field(self, name: str, number: int) -> str:
        rng, chance = self._rng, self._rng.random()
        kind = self._single()
        if chance < 0.15:
            return f"map<{rng.choice(_KEYS)}, {self._valued()}> {name} = {number};"
        if chance < 0.4:
            packable = kind == "Colour" or (kind in KINDS and kind not in ("string", "bytes"))
            option = ""
            if packable and self._syntax != "2023" and rng.random() < 0.5:
                option = f" [packed = {rng.choice(['true', 'false'])}]"
            return f"repeated {kind} {name} = {number}{option};"
        if self._syntax == "proto2" and chance < 0.5:
            return (
                f"required {kind} {name} = {number};"
                if kind in KINDS
                else f"optional {kind} {name} = {number};"
            )
        return f"{self._label()}{kind} {name} = {number}{self._default(kind)};"

    def _valued(self) -> str:
        """A type of a map's values: a closed enum has to begin with 0 there."""
        found = self._single()
        return "int32" if found == "Colour" and self._syntax == "proto2" else found

    def _default(self, kind: str) -> str:
        rng = self._rng
        if self._syntax != "proto2" or rng.random() < 0.6:
            return ""
        if kind == "Colour":
            return f" [default = {rng.choice(['FIRST', 'MINUS'])}]"
        if kind not in KINDS:
            return ""
        found = {"string": '"a \\"b\\" ä"', "bytes": '"\\001\\377"', "bool": "true"}
        found |= {"double": rng.choice(["1.5", "-inf", "-0.0"]), "float": rng.choice(["0.1", "inf"])}
        return f" [default = {found.get(kind, rng.choice(['0', '7', '0x7fffffff']))}]"


def schema(rng: random.Random) -> str:
    """The text of a schema, whose message is :data:`ROOT`."""
    return _Schema(rng).text()


def anys(descriptors: bytes, rng: random.Random) -> list[bytes]:
    """Values for fields of google.protobuf.Any, most of which have a message that the descriptors know."""
    kind = oracle.class_of(descriptors, ROOT)
    found: list[Any] = [oracle.fill(kind(), rng, 3) for _ in range(3)]
    found += [
        timestamp_pb2.Timestamp(
            seconds=rng.randrange(-(10**10), 10**10), nanos=rng.choice([0, 1000, 120000000])
        ),
        duration_pb2.Duration(seconds=-3, nanos=-5_000_000),
        field_mask_pb2.FieldMask(paths=["a_b", "c.d_e"]),
        oracle.fill(struct_pb2.Struct(), rng),
        oracle.fill(struct_pb2.Value(), rng),
        oracle.fill(struct_pb2.ListValue(), rng),
        wrappers_pb2.DoubleValue(value=rng.choice([1e300, 0.1, 5.0, -0.0, float("nan")])),
        wrappers_pb2.FloatValue(value=rng.choice([0.1, 1e10, 3.0])),
        wrappers_pb2.StringValue(value=rng.choice(["<a href='b'>=&", 'ä\u2028\x01\x7f\\"', ""])),
        wrappers_pb2.UInt64Value(value=(1 << 64) - 1),
        struct_pb2.Value(number_value=float(rng.choice(["nan", "inf", "1e20", "-3"]))),
    ]
    packed = [
        any_pb2.Any(
            type_url=_URL + each.DESCRIPTOR.full_name, value=each.SerializePartialToString(deterministic=True)
        )
        for each in found
    ]
    inner = any_pb2.Any(type_url=_URL + "google.protobuf.Any", value=packed[-4].SerializeToString())
    unknown = [any_pb2.Any(type_url=_URL + "made.None"), any_pb2.Any(type_url=ROOT), any_pb2.Any(value=b"a")]
    found = [*packed, inner, any_pb2.Any(), *([rng.choice(unknown)] if rng.random() < 0.3 else [])]
    return [each.SerializeToString() for each in found]


def bodies(
    kind: type[Any], rng: random.Random, count: int, values: Sequence[bytes], *, damaged: float = 0.1
) -> list[bytes]:
    """Messages, some of several that come together, in any order of their fields.

    :param values: those of fields of google.protobuf.Any.
    :param damaged: the share of those whose bytes are changed.
    """
    made = []
    for _ in range(count):
        body = b"".join(
            oracle.fill(kind(), rng, anys=values).SerializePartialToString(deterministic=True)
            for _ in range(rng.choice([1, 1, 1, 1, 2, 3]))
        )
        if rng.random() < 0.2:
            parts = [whole for _, _, whole, _ in fields_of(body)]
            rng.shuffle(parts)
            body = b"".join(parts)
        if body and rng.random() < damaged:
            changed = bytearray(body)
            for _ in range(rng.choice([1, 1, 3])):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            body = bytes(changed[: rng.choice([len(changed), rng.randrange(len(changed) + 1)])])
        made.append(body)
    return made
