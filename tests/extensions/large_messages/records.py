"""Message segments read back by a plain implementation of their format that shares no code with ours."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record of a log; ``partition`` tells those of several partitions apart."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    partition: object = 0


class Segment(NamedTuple):
    """The fields of a record that holds a slice of a message. ``kind`` is the type of its last ``_lm``."""

    id: bytes
    number: int
    count: int
    length: int
    slice: bytes
    kind: int | None
    header_only: bool


def segment(record: Record) -> Segment | None:
    """The message segment that a record is, if it is one."""
    if record.value is None:
        return None
    marks = [value for name, value in record.headers if name == "_lm"]
    kind = None
    if marks:
        assert marks[-1] is not None
        kind, low, high, number, count = struct.unpack(">b8s8sii", marks[-1][:25])
        if kind >= 2:
            (length,) = struct.unpack(">i", marks[-1][25:])
            return Segment(high + low, number, count, length, record.value, kind, True)
    if len(record.value) < 33:
        return None
    version, check, high, low, number, count, length = struct.unpack(">bIQQiii", record.value[:33])
    found = record.value[33:]
    if version > 0 or check != (high + low) % 2**32 or not 0 <= number < count or length < len(found):
        return None
    return Segment(struct.pack(">QQ", high, low), number, count, length, found, kind, False)


def messages(records: Iterable[Record]) -> list[Record]:
    """The messages that are complete, each with the key, headers and timestamp of its last record.

    Of split ones the headers are without ``_lm``, and a key that is the message's id is None.
    """
    open_: dict[tuple[object, bytes], dict[int, bytes]] = {}
    whole = []
    for record in records:
        found = segment(record)
        if found is None:
            whole.append(record)
            continue
        slices = open_.setdefault((record.partition, found.id), {})
        slices.setdefault(found.number, found.slice)
        if len(slices) < found.count:
            continue
        value = b"".join(slices[number] for number in range(found.count))
        assert len(value) == found.length
        del open_[record.partition, found.id]
        headers = [header for header in record.headers if header[0] != "_lm"]
        whole.append(
            record._replace(key=None if record.key == found.id else record.key, value=value, headers=headers)
        )
    return whole
