"""The wire format of message segments.

Theirs, of li-apache-kafka-clients: DefaultSegmentSerializer and LargeMessageHeaderValue.
A message segment carries its fields either in a prefix of its value (scheme P)
or, from type 2 of the record header ``_lm``, in that header alone (scheme H).
All integers are big-endian and signed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LM_HEADER = "_lm"
"""Tells of a message segment."""
TIMESTAMP_HEADER = "_t"
"""When the message was sent, 8 bytes of ms."""
SAFE_OFFSET_HEADER = "_so"
"""Added to a delivered record after which a reader may not restart at the next offset: 8 bytes."""

PREFIX_SIZE = 33
LM_SIZE = 29
LM_SIZE_TYPE_0 = 25
"""Without the length; also what a reader needs at least."""
HEADER_ONLY_TYPE = 2
"""The lowest type of ``_lm`` that makes the whole value a slice."""
ID_SIZE = 16
INT32_MAX = (1 << 31) - 1

PREFIX = np.dtype(
    [
        ("version", "i1"),
        ("check", ">u4"),
        ("id_hi", ">i8"),
        ("id_lo", ">i8"),
        ("number", ">i4"),
        ("count", ">i4"),
        ("length", ">i4"),
    ]
)
"""What a value of scheme P begins with; the slice follows."""
LM = np.dtype(
    [
        ("type", "i1"),
        ("id_lo", ">i8"),
        ("id_hi", ">i8"),
        ("number", ">i4"),
        ("count", ">i4"),
        ("length", ">i4"),
    ]
)
"""The value of ``_lm``: here the id's low half comes first."""


@dataclass(frozen=True, slots=True)
class SegmentFields:
    """What a message segment says of itself; ``length`` is that of the whole message, -1 if not told."""

    message_id: bytes
    number: int
    count: int
    length: int

    @property
    def id_hi(self) -> int:
        """The half of the id that is printed first."""
        return int.from_bytes(self.message_id[:8], "big", signed=True)

    @property
    def id_lo(self) -> int:
        """The other half of the id."""
        return int.from_bytes(self.message_id[8:], "big", signed=True)


def check_value(id_hi: int, id_lo: int) -> int:
    """What stands in place of a magic number: the sum of the id's halves, modulo 2**32."""
    return (id_hi + id_lo) & 0xFFFFFFFF


def encode_prefix(fields: SegmentFields) -> bytes:
    """The 33 bytes before the slice."""
    check = check_value(fields.id_hi, fields.id_lo).to_bytes(4, "big")
    return b"\0" + check + fields.message_id + _numbers(fields.number, fields.count, fields.length)


def decode_prefix(value: bytes | None) -> SegmentFields | None:
    """The fields of a value that is a message segment of scheme P; None for an ordinary value."""
    if value is None or len(value) < PREFIX_SIZE:
        return None
    version, check, hi, lo, number, count, length = np.frombuffer(value, PREFIX, 1)[0].item()
    sound = 0 <= number < count and length >= len(value) - PREFIX_SIZE
    if version > 0 or check != check_value(hi, lo) or not sound:
        return None
    return SegmentFields(bytes(value[5:21]), number, count, length)


def encode_lm(kind: int, fields: SegmentFields) -> bytes:
    """The value of ``_lm`` of type ``kind``."""
    halves = fields.message_id[8:] + fields.message_id[:8]
    head = kind.to_bytes(1, "big", signed=True) + halves
    if kind == 0:
        return head + _numbers(fields.number, fields.count)
    return head + _numbers(fields.number, fields.count, fields.length if kind > 0 else 0)


def decode_lm(value: bytes | None) -> tuple[int, SegmentFields] | None:
    """Type and fields of an ``_lm``; None where it cannot be read, which fails the record."""
    if value is None or len(value) < LM_SIZE_TYPE_0:
        return None
    kind, _, _, number, count, _ = np.frombuffer(value[:LM_SIZE_TYPE_0] + bytes(4), LM)[0].item()
    length = int.from_bytes(value[25:29], "big", signed=True) if len(value) == LM_SIZE else -1
    return kind, SegmentFields(bytes(value[9:17] + value[1:9]), number, count, length)


def _numbers(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big", signed=True) for number in numbers)
