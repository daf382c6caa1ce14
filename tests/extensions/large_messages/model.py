"""LinkedIn's consumer for one partition, record by record, written only from the description of the format.

Two rules differ, as ours do: an id of which nothing was accepted is forgotten after the gap, and
the capacity also bounds what is really held, which theirs loses count of after a length that lied.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

Headers = list[tuple[str, "bytes | None"]]


@dataclass
class Record:
    offset: int
    value: bytes | None
    headers: Headers = field(default_factory=list)


@dataclass
class Message:
    """The result of a record: a delivered message, or something else."""

    offset: int
    value: bytes | None
    headers: Headers
    start: int
    count: int


class SegmentError(Exception):
    """The consumer raises at this record."""


@dataclass
class Entry:
    start: int
    count: int
    length: int
    slices: dict[int, bytes] = field(default_factory=dict)
    tracked: int | None = None

    @property
    def bytes(self) -> int:
        return sum(map(len, self.slices.values()))


class Model:
    def __init__(self, capacity: int, gap: int) -> None:
        self.capacity, self.gap, self.used = capacity, gap, 0
        self.buffer: dict[bytes, Entry] = {}
        self.lost: list[bytes] = []
        """Ids that expired or were evicted."""

    def safe(self, current: int) -> int | None:
        self.expire(current)
        return min((e.tracked for e in self.buffer.values() if e.tracked is not None), default=None)

    def expire(self, current: int) -> None:
        for key, entry in list(self.buffer.items()):
            began = entry.start if entry.tracked is None else entry.tracked
            if began < current - self.gap:
                self.lose(key)

    def lose(self, key: bytes) -> None:
        self.lost.append(key)
        self.used -= self.buffer.pop(key).bytes

    @property
    def held(self) -> int:
        return sum(message.bytes for message in self.buffer.values() if len(message.slices) < message.count)

    def record(self, record: Record) -> Message | None:
        """The delivered message; None for a message segment that completes nothing."""
        lm = [value for name, value in record.headers if name == "_lm"]
        value, start, count = record.value, record.offset, 1
        if record.value is not None:
            if lm and (lm[-1] is None or len(lm[-1]) < 25):
                raise SegmentError
            if lm and lm[-1][0] in range(2, 128):
                lo, hi, number, count = struct.unpack(">8s8sii", lm[-1][1:25])
                length = struct.unpack(">i", lm[-1][25:])[0] if len(lm[-1]) == 29 else -1
                if (hi + lo, number) == (bytes(16), -1):  # a copy of a message that was delivered
                    assembled, count = (record.offset, record.value), 1
                else:
                    assembled = self.segment(record.offset, hi + lo, number, count, length, record.value)
            elif (fields := self.prefix(record.value)) is not None:
                key, number, count, length = fields
                assembled = self.segment(record.offset, key, number, count, length, record.value[33:])
            else:
                assembled = record.offset, record.value
            if assembled is None:
                return None
            start, value = assembled
        safe = self.safe(record.offset)
        headers = [header for header in record.headers if header[0] != "_lm"]
        if lm:
            if lm[-1] is None or len(lm[-1]) < 25:
                raise SegmentError
            kind = lm[-1][0]
            new = lm[-1][:1] + bytes(16) + b"\xff\xff\xff\xff" + lm[-1][21:25]
            if kind >= 128:
                new += bytes(4)
            elif kind > 0:
                new += lm[-1][25:] if len(lm[-1]) == 29 else b"\xff\xff\xff\xff"
            headers.append(("_lm", new))
        if safe is not None and safe < record.offset + 1:
            headers.append(("_so", struct.pack(">q", safe)))
        return Message(record.offset, value, headers, start, count)

    def prefix(self, value: bytes) -> tuple[bytes, int, int, int] | None:
        if len(value) < 33 or 1 <= value[0] <= 127:
            return None
        check, hi, lo, number, count, length = struct.unpack(">Iqqiii", value[1:33])
        if (hi + lo) % 2**32 != check or not 0 <= number < count or length < len(value) - 33:
            return None
        return value[5:21], number, count, length

    def segment(
        self, offset: int, key: bytes, number: int, count: int, length: int, data: bytes
    ) -> tuple[int, bytes] | None:
        if length < 0 or len(data) > length or count <= 0 or not 0 <= number < count:
            raise SegmentError
        if count == 1:
            return offset, data
        entry = self.buffer.setdefault(key, Entry(offset, count, length))
        new = number not in entry.slices
        if len(data) >= self.capacity or not data or (count, length) != (entry.count, entry.length):
            raise SegmentError
        if new and entry.bytes + len(data) > length:
            raise SegmentError
        if new:
            entry.slices[number] = data
        if len(entry.slices) == count:
            if entry.bytes != length:
                raise SegmentError
            self.used -= sum(len(part) for n, part in entry.slices.items() if n != number)
            del self.buffer[key]
            self.expire(offset)
            return entry.start, b"".join(entry.slices[i] for i in range(count))
        self.used += len(data) if new else 0
        if entry.tracked is None:
            entry.tracked = offset
        while max(self.used, self.held) > self.capacity:
            self.lose(next(iter(self.buffer)))
        self.expire(offset)
        return None
