"""Record values of several producers at once, with message segments among them, and their messages."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple


class Written(NamedTuple):
    """The content of a partition from offset 0 on, and the offset and value of each message in it."""

    records: list[bytes]
    messages: list[tuple[int, bytes]]


def segment_values(message_id: int, value: bytes, size: int) -> list[bytes]:
    """The message segments of ``value``, each with ``size`` of its bytes: prefix and slice."""
    slices = [value[start : start + size] for start in range(0, len(value), size)]
    high, low = message_id, message_id * 7 + 1
    check = (high + low) % 2**32
    return [
        struct.pack(">bIQQiii", 0, check, high, low, number, len(slices), len(value)) + data
        for number, data in enumerate(slices)
    ]


def interleaved(name: str, count: int, *, producers: int = 3, size: int = 200, lost: float = 0.02) -> Written:
    """``count`` records at least; in between, messages that lack a message segment.

    Every third message is small. No other partition's ``name`` gives the same ids.
    """
    chance = random.Random(name)
    sources: list[list[bytes]] = [[] for _ in range(producers)]
    completed: dict[bytes, bytes] = {}
    records: list[bytes] = []
    messages: list[tuple[int, bytes]] = []
    number = 0
    while len(records) < count or any(sources):
        source = chance.choice(sources)
        if not source:
            if len(records) >= count:
                sources.remove(source)
                continue
            number += 1
            value = b"%s/%d/" % (name.encode(), number)
            if number % 3:
                value += chance.randbytes(chance.randint(size + 1, 8 * size))
                source += segment_values(chance.getrandbits(56), value, size)
                completed[source[-1]] = value
                if chance.random() < lost:
                    del completed[source[-1]]
                    del source[chance.randrange(len(source))]
            else:
                source.append(value)
                completed[value] = value
            continue
        record = source.pop(0)
        if record in completed:
            messages.append((len(records), completed[record]))
        records.append(record)
    return Written(records, messages)
