"""The wire format of message segments, and of the metadata that LinkedIn's consumer commits beside offsets.

Source: DefaultSegmentSerializer, LargeMessageHeaderValue and LiKafkaClientsUtils of li-apache-kafka-clients.
A message segment carries its fields either in a prefix of its value (scheme P)
or, from type 2 of the record header ``_lm``, in that header alone (scheme H).
All integers are big-endian and signed.

A committed offset is the safe one, from which message segments are read again. The metadata beside it holds
the *consumer high watermark*: the next offset that the application wants. Messages below it were
delivered before and are skipped.
"""

from __future__ import annotations

import re

import numpy as np

LM_HEADER = "_lm"
"""Marks a message segment."""
TIMESTAMP_HEADER = "_t"
"""The time at which the message was sent, 8 bytes of ms."""
SAFE_OFFSET_HEADER = "_so"
"""8 bytes, added to a delivered record after which a reader must not restart at the next offset."""

PREFIX_SIZE = 33
LM_SIZE = 29
LM_SIZE_TYPE_0 = 25
"""The bytes of the header without the length: a reader needs at least these."""
HEADER_ONLY_TYPE = 2
"""The lowest type of ``_lm`` that makes the whole value a slice."""
ID_SIZE = 16
WHOLE_NUMBER = -1
"""The number in ``_lm`` of a message that a reader has put together; the id there is 0."""
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

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
"""The prefix of a value of scheme P; the slice follows."""
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

_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})\Z")
_UNKNOWN = -1


def commit_metadata(high_watermark: int, text: str = "") -> str:
    """The metadata to commit beside a safe offset: the consumer high watermark and the user's text."""
    return f"{high_watermark},{text}"


def parse_metadata(metadata: str | None) -> tuple[int | None, str]:
    """The consumer high watermark and the user's text; None and all the text of a plain consumer's commit."""
    number, comma, text = (metadata or "").partition(",")
    digits = _INTEGER.match(number)
    if comma and digits and (watermark := int("".join(digits.groups()))) in _INT64:
        return watermark, text
    return None, metadata or ""


def consumer_high_watermark(metadata: str | None) -> int | None:
    """The first offset whose messages are wanted; None if the metadata has none."""
    number, _ = parse_metadata(metadata)
    return None if number == _UNKNOWN else number
