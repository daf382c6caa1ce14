"""Inputs of the kinds that protobuf's conformance suite has in binary, for any message.

The suite is a program in C++ with messages of its own (conformance/binary_json_conformance_suite.cc). Each
kind of input is made here from the fields that a message has, and named as the suite names it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pyspark_kafkalog.extensions.typed_values.protobuf.kernels import END_GROUP, GROUP, SIZED, VARINT
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageField, MessageType
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import WIRE_TYPES, varint, wire_type

_INT32, _INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_INCOMPLETE = {0: b"\x80", 1: b"abcdefg", 2: b"\x80", 3: b"", 5: b"abc"}
NOT_UTF8 = b"\xa0\xb0\xc0\xd0"
UNKNOWN = 666_666
"""The number of a field that no message has."""


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def sized(number: int, body: bytes) -> bytes:
    return tag(number, SIZED) + varint(len(body)) + body


def group(number: int, body: bytes) -> bytes:
    return tag(number, GROUP) + body + tag(number, END_GROUP)


def _delimited(body: bytes) -> bytes:
    return varint(len(body)) + body


def _long(value: int, more: int) -> bytes:
    """A varint with more bytes than it needs."""
    found = bytearray(varint(value))
    found[-1] |= 0x80
    return bytes(found) + b"\x80" * (more - 1) + b"\0"


def _zigzag(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


def _numbers(kind: str, *values: float) -> list[bytes]:
    return [struct.pack(kind, value) for value in values]


VALUES = {
    "double": _numbers("<d", 0, 0.1, 1.7976931348623157e308, 2.2250738585072014e-308, -0.0),
    "float": _numbers("<f", 0, 0.1, 1.00000075e-36, 3.402823e38, 1.17549435e-38),
    "int64": [varint(value) for value in (0, 12345, *_INT64)],
    "uint64": [varint(value) for value in (0, 12345, (1 << 64) - 1)],
    "int32": [
        *(varint(value) for value in (0, 12345, *_INT32, 1 << 33, (1 << 33) - 1, _INT64[1], _INT64[0] + 1)),
        *(_long(12345, 2), _long(12345, 7)),
    ],
    "uint32": [
        *(varint(value) for value in (0, 12345, (1 << 32) - 1, 1 << 33, (1 << 33) + 1, (1 << 33) - 1)),
        *(varint(_INT64[1]), varint(_INT64[0] + 1), _long(12345, 2), _long(12345, 7)),
    ],
    "sint32": [*(_zigzag(value) for value in (0, 12345, *_INT32)), varint(2 * (_INT32[1] + 2))],
    "sint64": [_zigzag(value) for value in (0, 12345, *_INT64)],
    "fixed32": _numbers("<I", 0, 12345, (1 << 32) - 1),
    "fixed64": _numbers("<Q", 0, 12345, (1 << 64) - 1),
    "sfixed32": _numbers("<i", 0, 12345, *_INT32),
    "sfixed64": _numbers("<q", 0, 12345, *_INT64),
    "bool": [varint(value) for value in (0, 1, -1, 12345678, 1 << 33, *_INT64)],
    "string": [
        _delimited(text.encode())
        for text in ("", "Hello world!", "'\"?\\\a\b\f\n\r\t\v", "谷歌", "\U0001f601")
    ],
    "bytes": [_delimited(body) for body in (b"", b"Hello world!", b"\1\2", b"\xfb", NOT_UTF8)],
    "enum": [varint(value) for value in (0, 1, 2, -1, _INT64[1], _INT64[0] + 1)],
}
"""Bytes of each kind of value, without a tag."""


def _fields(message: MessageType, kind: str) -> list[MessageField]:
    """One field of each label that the message has of a kind."""
    found: dict[object, MessageField] = {}
    for field in message.fields:
        own = "group" if field.is_group else field.kind
        if own == kind and not field.is_map and not _is_special(field):
            found.setdefault((field.is_repeated, field.is_packed, field.oneof is None), field)
    return [*found.values()]


def _is_special(field: MessageField) -> bool:
    return field.message is not None and field.message.name.startswith("google.")


def premature_ends(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Values that end too early, before and within them."""
    for kind in (*WIRE_TYPES, "group"):
        wire = GROUP if kind == "group" else WIRE_TYPES[kind]
        for number, of in [(field.number, field.name) for field in _fields(message, kind)] + [(UNKNOWN, "")]:
            what = f"{of or 'UnknownValue'}.{kind.upper()}"
            yield f"PrematureEofBefore.{what}", tag(number, wire)
            yield f"PrematureEofInside.{what}", tag(number, wire) + _INCOMPLETE[wire]
            if wire == SIZED:
                yield f"PrematureEofInDelimitedData.{what}", tag(number, wire) + varint(1)
        for field in _fields(message, kind):
            if kind == "message":
                yield f"PrematureEofInSubmessageValue.{field.name}", sized(field.number, b"\x08\x80")
            elif wire not in (SIZED, GROUP) and field.is_repeated:
                yield f"PrematureEofInPackedFieldValue.{field.name}", sized(field.number, _INCOMPLETE[wire])
                yield f"PrematureEofInPackedField.{field.name}", tag(field.number, SIZED) + varint(1)


def illegal_tags(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Numbers of fields that there are not, tags that are too long, and wire types that there are not."""
    for case, text in enumerate((b"\1DEADBEEF", b"\2\1\1", b"\3\4", b"\5DEAD")):
        yield f"IllegalZeroFieldNum_Case_{case}", text
    first, value = b"\x88", varint(1234)
    yield "BadTag_FieldNumberTooHigh", first + b"\x80" * 5 + b"\x0f" + value
    yield "BadTag_FieldNumberSlightlyTooHigh", first + b"\x80" * 3 + b"\x40" + value
    yield "BadTag_OverlongVarint", first + b"\x80" * 7 + b"\0" + value
    yield "BadTag_VarintMoreThanTenBytes", first + b"\x80" * 11 + b"\0" + value
    yield "OverlongTagOfFiveBytes", first + b"\x80" * 3 + b"\0" + value
    yield "LargestFieldNumber", tag((1 << 29) - 1, VARINT) + value
    for wire in 6, 7:
        for number in range(4):
            for version in range(4):
                yield (
                    f"UnknownWireType{wire}_Field{number}_Version{version}",
                    bytes([number << 3 | wire, version]),
                )


def unmatched_groups(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Ends of groups that did not begin, and groups that do not end, known and unknown."""
    known = [field.number for field in _fields(message, "group") if field.oneof is None]
    inner = next((field.number for field in _fields(message, "message")), None)
    text = sized(2, b"\0hello")
    for number in (*known, UNKNOWN, 1):
        for wire, what in ((END_GROUP, "End"), (GROUP, "Start")):
            yield f"Unmatched{what}Group_{number}", tag(number, wire)
            yield f"Unmatched{what}GroupNested_{number}", group(number, tag(number + 1, wire))
            yield f"Unmatched{what}GroupWithData_{number}", tag(number, wire) + text
            if inner is not None:
                yield f"Unmatched{what}GroupNestedLen_{number}", sized(inner, tag(number, wire))
        yield f"MismatchedGroupTags_{number}", tag(number, GROUP) + tag(number + 1, END_GROUP)
        nested = tag(number + 1, GROUP) + tag(number + 2, END_GROUP)
        yield f"MismatchedNestedGroupTags_{number}", group(number, nested)
        yield f"Group_{number}", group(number, b"\x08\7" + group(77, b"\x08\1"))


def invalid_utf8(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Bytes that are not UTF-8 where there is text, also in maps."""
    for field in _fields(message, "string"):
        yield f"RejectInvalidUtf8.{field.name}", sized(field.number, NOT_UTF8)
    for field in message.fields:
        if field.is_map and field.message is not None:
            key, value = field.message.fields
            if key.kind == "string":
                yield f"RejectInvalidUtf8.{field.name}.MapKey", sized(field.number, sized(1, NOT_UTF8))
            if value.kind == "string":
                entry = sized(1, b"foo") if key.kind == "string" else b""
                yield (
                    f"RejectInvalidUtf8.{field.name}.MapValue",
                    sized(field.number, entry + sized(2, NOT_UTF8)),
                )


def valid_data(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Values of each kind: one, several of which the last counts, and lists packed and not."""
    for kind, values in VALUES.items():
        wire = WIRE_TYPES[kind]
        for field in _fields(message, kind):
            tagged = [tag(field.number, wire) + value for value in values]
            if not field.is_repeated:
                for number, text in enumerate(tagged):
                    yield f"ValidDataScalar.{field.name}[{number}]", text
                yield f"RepeatedScalarSelectsLast.{field.name}", b"".join(tagged)
                continue
            yield f"ValidDataRepeated.{field.name}.UnpackedInput", b"".join(tagged)
            if wire != SIZED:
                packed = sized(field.number, b"".join(values))
                yield f"ValidDataRepeated.{field.name}.PackedInput", packed
                yield f"ValidDataRepeated.{field.name}.MixedInput", tagged[0] + packed + tagged[-1]
                yield f"ValidDataRepeated.{field.name}.EmptyPackedInput", sized(field.number, b"")
    for field in (*_fields(message, "message"), *_fields(message, "group")):
        assert field.message is not None, "it is one"
        for number, body in enumerate(_bodies(field.message)):
            yield f"ValidDataMessage.{field.name}[{number}]", _written(field, body)
        both = b"".join(_written(field, body) for body in _bodies(field.message))
        yield f"RepeatedScalarMessageMerge.{field.name}", both


def _bodies(message: MessageType) -> list[bytes]:
    """Some bodies of a message."""
    found = [b"", sized(UNKNOWN, b"abc")]
    for field in message.fields:
        if field.message is None:
            found.append(
                b"".join(tag(field.number, wire_type(field)) + value for value in VALUES[field.kind][-2:])
            )
    return found


def _written(field: MessageField, body: bytes) -> bytes:
    return group(field.number, body) if field.is_group else sized(field.number, body)


def maps(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Entries in any order, without a key or a value, or with several, and with what no entry has."""
    for field in message.fields:
        if not field.is_map or field.message is None:
            continue
        key, value = field.message.fields
        if value.message is not None and _is_special(value):
            continue
        bodies = [] if value.message is None else [_delimited(body) for body in _bodies(value.message)]
        of_key, of_value = VALUES[key.kind], bodies or VALUES[value.kind]
        keys = [tag(1, wire_type(key)) + each for each in (of_key[0], of_key[1])]
        values = [tag(2, wire_type(value)) + each for each in (of_value[0], of_value[1], of_value[-1])]
        for name, entries in {
            "Default": [keys[0] + values[0]],
            "NonDefault": [keys[1] + values[1]],
            "MissingDefault": [b""],
            "MissingKey": [values[1]],
            "MissingValue": [keys[1]],
            "Unordered": [values[1] + keys[1]],
            "DuplicateKey": [keys[1] + values[0], keys[1] + values[1]],
            "DuplicateKeyInMapEntry": [keys[0] + keys[1] + values[1]],
            "DuplicateValueInMapEntry": [keys[1] + values[2] + values[1]],
            "MergeValue": [keys[1] + b"".join(values)],
            "UnknownInMapEntry": [keys[1] + values[1] + sized(UNKNOWN, b"abc")],
            "OtherWireTypes": [sized(1, b"") if key.kind != "string" else b"\x08\1", keys[1] + b"\x15abcd"],
            "Cut": [keys[1] + values[1][:-1]],
            **({} if value.enum is None else {"UnknownEnum": [keys[1] + b"\x10\x4d"]}),
        }.items():
            text = b"".join(sized(field.number, entry) for entry in entries)
            yield f"ValidDataMap.{field.name}.{name}", text


def oneofs(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Zeros and other values, several of a field, and those of several fields."""
    members = [field for field in message.fields if field.oneof is not None]
    for field in members:
        bodies = _bodies(field.message) if field.message is not None else []
        if _is_special(field):
            continue
        written = [_written(field, body) for body in bodies] or [
            tag(field.number, wire_type(field)) + value for value in VALUES[field.kind]
        ]
        yield f"ValidDataOneof.{field.name}.DefaultValue", written[0]
        yield f"ValidDataOneof.{field.name}.NonDefaultValue", written[1]
        yield f"ValidDataOneof.{field.name}.MultipleValuesForSameField", written[0] + written[1] + written[-1]
        for other in members:
            if other is field or other.message is not None:
                continue
            more = tag(other.number, wire_type(other)) + VALUES[other.kind][1]
            yield (
                f"ValidDataOneof.{field.name}.MultipleValuesForDifferentField.{other.name}",
                more + written[1],
            )
            yield f"ValidDataOneof.{field.name}.ComesAgainAfter.{other.name}", written[1] + more + written[-1]


def unknown_fields(message: MessageType) -> Iterator[tuple[str, bytes]]:
    """Fields that no message has, of all wire types."""
    yield "UnknownVarint", b"\xa8\x8f\x87\1\1"
    parts = [sized(UNKNOWN, b"abc"), tag(UNKNOWN, VARINT) + b"\x7b", sized(UNKNOWN, b"def")]
    yield "UnknownOrdering", b"".join(parts)
    yield "UnknownVarintOfTenBytes", tag(UNKNOWN, VARINT) + b"\xff" * 9 + b"\1"
    yield "UnknownVarintOfElevenBytes", tag(UNKNOWN, VARINT) + b"\xff" * 10 + b"\1"
    yield "UnknownVarintBeyond64Bits", tag(UNKNOWN, VARINT) + b"\xff" * 9 + b"\x7f"
    for field in _fields(message, "int32") + _fields(message, "string"):
        for wire, text in (
            (0, b"\1"),
            (1, bytes(8)),
            (2, b"\1a"),
            (3, tag(field.number, END_GROUP)),
            (5, bytes(4)),
        ):
            yield f"OtherWireType{wire}.{field.name}", tag(field.number, wire) + text


def inputs(message: MessageType) -> dict[str, bytes]:
    """All inputs for a message by their names; each is a body that can be parsed, or can't."""
    found: dict[str, bytes] = {}
    for make in (
        *(premature_ends, illegal_tags, unmatched_groups, invalid_utf8),
        *(valid_data, maps, oneofs, unknown_fields),
    ):
        for name, text in make(message):
            assert found.setdefault(name, text) == text, name
    return found
