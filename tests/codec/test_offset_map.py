"""The map of keys: its digests are SipHash's, and it has the last offset of each key until it is full."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pyspark_kafkalog.codec import key_kernels as kernels
from pyspark_kafkalog.codec import read_kernels as read
from pyspark_kafkalog.codec.indexing import Indexed
from pyspark_kafkalog.codec.offset_map import LOAD_FACTOR, SLOT_BYTES, OffsetMap

MASK = 2**64 - 1
SECRET = int.from_bytes(bytes(range(16)), "little")
VECTORS = {  # of the reference code, for 0, 1, 2 ... as input
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}


def siphash(data: bytes, secret: int) -> bytes:
    """SipHash-2-4 with 128 bits as its authors' reference code has it, in Python."""
    low, high = secret & MASK, secret >> 64
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D ^ 0xEE,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    whole = len(data) // 8 * 8
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return b"".join(word.to_bytes(8, "little") for word in (first, v[0] ^ v[1] ^ v[2] ^ v[3]))


def indexed(keys: list[bytes | None], first_offset: int = 0) -> Indexed:
    """Records with these keys."""
    source = np.frombuffer(b"".join(key or b"" for key in keys) + b"\0", np.uint8)
    table = np.zeros((read.INDEX_COLUMNS, len(keys)), np.int64)
    sizes = np.array([-1 if key is None else len(key) for key in keys], np.int64)
    table[read.KEY_SIZE] = sizes
    table[read.KEY_AT] = np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0)
    table[read.OFFSET] = first_offset + np.arange(len(keys))
    return Indexed(source, table, source.size, 0, first_offset + len(keys))


def test_digests_are_those_of_siphash(chance: random.Random) -> None:
    for size, wanted in VECTORS.items():
        assert siphash(bytes(range(size)), SECRET).hex() == wanted
    keys: list[bytes | None] = [bytes(range(size)) for size in range(64)]
    for secret in (SECRET, chance.getrandbits(128), 2**128 - 1):
        digests = OffsetMap(1000, 5, secret)._digests(indexed(keys))
        for column, key in enumerate(keys):
            assert digests[:, column].tobytes() == siphash(key or b"", secret)


@pytest.mark.parametrize("room", [2, 30, 10_000])
def test_it_has_the_last_offset_of_each_key(room: int, chance: random.Random) -> None:
    offset_map = OffsetMap(room * SLOT_BYTES, 10_000, chance.getrandbits(128))
    last: dict[bytes, int] = {}
    keys: list[bytes | None] = []
    full = False
    while len(keys) < 2000 and not full:
        more = [None if chance.random() < 0.1 else b"%d" % chance.randrange(300) for _ in range(100)]
        full = not offset_map.put(indexed(more, len(keys)))
        keys += more
    most = max(int(room * LOAD_FACTOR), 1)
    end = offset_map.end if full else len(keys)
    offset_map.end = end
    for offset, key in enumerate(keys[:end]):
        if key is not None:
            last[key] = offset
    assert offset_map.keys == len(last)
    assert full == (room < 300)
    if full:
        assert len(last) == min(most, room - 1)
        assert keys[end] is not None
    wanted = [
        kernels.BEYOND
        if offset >= end
        else kernels.LAST
        if key is not None and last[key] == offset
        else kernels.OUTDATED
        for offset, key in enumerate(keys)
    ]
    assert offset_map.find(indexed(keys)).tolist() == wanted
    assert offset_map.find(indexed([b"unknown"], end - 1)).tolist() == [kernels.LAST]


def test_no_more_memory_than_keys_need() -> None:
    assert OffsetMap(1 << 40, 9, 1)._slots.shape[0] == 12
