"""The wire format of message segments.

Source: DefaultSegmentSerializer and LargeMessageHeaderValue of li-apache-kafka-clients.
A message segment carries its fields either in a prefix of its value (scheme P)
or, from type 2 of the record header ``_lm``, in that header alone (scheme H).
All integers are big-endian and signed.
"""

from __future__ import annotations

import numpy as np

LM_HEADER = "_lm"
"""Marks a message segment."""
TIMESTAMP_HEADER = "_t"
"""When the message was sent, 8 bytes of ms."""
SAFE_OFFSET_HEADER = "_so"
"""8 bytes, added to a delivered record after which a reader must not restart at the next offset."""

PREFIX_SIZE = 33
LM_SIZE = 29
LM_SIZE_TYPE_0 = 25
"""Without the length; a reader needs at least these bytes."""
HEADER_ONLY_TYPE = 2
"""The lowest type of ``_lm`` that makes the whole value a slice."""
ID_SIZE = 16
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
