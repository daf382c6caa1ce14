"""Compiled: digests of keys, and the table that has the last offset of each key.

The digest is SipHash-2-4 with 128 bits, over the bytes of a key and under a secret of 128 bits.
Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", and their reference code.

The table has a row of three int64 for each slot, :data:`SLOT_FIELDS`. Collisions go to the next slot.
Digests are computed for many records before the table is touched, so that the processor waits for several
slots at once.
"""

from __future__ import annotations

import numpy as np
from numpy import int64, uint64

from pyspark_kafkalog.codec.kernel import Integer, Integers, inlined, kernel
from pyspark_kafkalog.codec.signature import BYTES, INT64, INT64S, OUT_BYTES, OUT_TABLE, TABLE

LOW, HIGH, AFTER = range(3)
SLOT_FIELDS = 3
"""The halves of the digest, and the offset after the last record with the key: 0 in an empty slot."""

OUTDATED, LAST, BEYOND = range(3)
"""The states that :func:`find_last` gives a record: a later one has its key, or it has none; it is the last
one with its key; it is behind the records that the table knows."""


@inlined
def _rotated(word: Integer, bits: Integer) -> Integer:
    return (word << uint64(bits)) | (word >> uint64(64 - bits))


@inlined
def _round(a: Integer, b: Integer, c: Integer, d: Integer) -> Integers:
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    return a, b, c, d


@inlined
def _word(data: np.ndarray, at: Integer) -> Integer:
    """The 8 bytes from ``at``, an unsigned index, as a little-endian integer."""
    word = uint64(0)
    for i in range(8):
        word |= uint64(data[at + uint64(i)]) << uint64(8 * i)
    return word


@inlined
def _digest(
    data: np.ndarray, at: Integer, size: Integer, secret_low: Integer, secret_high: Integer
) -> Integers:
    """Both halves of the digest of ``size`` bytes; the caller has checked that they are there."""
    a = secret_low ^ uint64(0x736F6D6570736575)
    b = secret_high ^ uint64(0x646F72616E646F6D) ^ uint64(0xEE)
    c = secret_low ^ uint64(0x6C7967656E657261)
    d = secret_high ^ uint64(0x7465646279746573)
    place = uint64(at)
    for _ in range(size >> 3):
        word = _word(data, place)
        place += uint64(8)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    word = uint64(size) << uint64(56)
    for i in range(size & 7):
        word |= uint64(data[place + uint64(i)]) << uint64(8 * i)
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= uint64(0xEE)
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= uint64(0xDD)
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return low, a ^ b ^ c ^ d


@inlined
def _first_slot(low: Integer, slots: np.ndarray) -> Integer:
    """The slot at which the search for a digest begins: its upper 32 bits, scaled to the number of slots."""
    return ((uint64(low) >> uint64(32)) * uint64(slots.shape[0])) >> uint64(32)


@kernel(BYTES, INT64S, INT64S, INT64, INT64, OUT_TABLE)
def digest_keys(
    data: np.ndarray,
    positions: np.ndarray,
    sizes: np.ndarray,
    secret_low: Integer,
    secret_high: Integer,
    digests: np.ndarray,
) -> None:
    """Fill ``digests`` (low, high; one column a record) for the records that have a key: ``sizes`` >= 0."""
    for row in range(sizes.size):
        if sizes[row] >= 0:
            low, high = _digest(data, positions[row], sizes[row], uint64(secret_low), uint64(secret_high))
            digests[LOW, row] = int64(low)
            digests[HIGH, row] = int64(high)


@inlined
def _slot_of(low: Integer, high: Integer, slots: np.ndarray) -> Integer:
    """The slot that has a digest, or the empty one where it belongs; at least one slot is empty."""
    slot = _first_slot(low, slots)
    while slots[slot, AFTER] != 0 and (slots[slot, LOW] != low or slots[slot, HIGH] != high):
        slot += uint64(1)
        if slot == uint64(slots.shape[0]):
            slot = uint64(0)
    return slot


@kernel(INT64S, INT64S, TABLE, INT64, INT64, OUT_TABLE, results=2)
def put_last(
    offsets: np.ndarray,
    sizes: np.ndarray,
    digests: np.ndarray,
    entries: Integer,
    most: Integer,
    slots: np.ndarray,
) -> Integers:
    """Put the records that have a key, of ``sizes`` >= 0, into ``slots``, of which ``entries`` are taken.

    Stops before a record with a key once ``most`` slots, fewer than there are, are taken.

    :return: the number of rows put, and of slots taken.
    """
    for row in range(offsets.size):
        if sizes[row] < 0:
            continue
        if entries >= most:
            return int64(row), entries
        low, high = digests[LOW, row], digests[HIGH, row]
        slot = _slot_of(low, high, slots)
        if slots[slot, AFTER] == 0:
            entries += 1
            slots[slot, LOW] = low
            slots[slot, HIGH] = high
        slots[slot, AFTER] = offsets[row] + 1
    return int64(offsets.size), entries


@kernel(INT64S, INT64S, TABLE, INT64, TABLE, OUT_BYTES)
def find_last(
    offsets: np.ndarray,
    sizes: np.ndarray,
    digests: np.ndarray,
    end: Integer,
    slots: np.ndarray,
    found: np.ndarray,
) -> None:
    """Say of each record whether it is the last of its key: OUTDATED, LAST or BEYOND.

    :param end: the offset before which ``slots`` know all records; at least one slot is empty.
    """
    for row in range(offsets.size):
        if offsets[row] >= end:
            found[row] = BEYOND
        elif sizes[row] < 0:
            found[row] = OUTDATED
        else:
            low, high = digests[LOW, row], digests[HIGH, row]
            slot = _slot_of(low, high, slots)
            found[row] = LAST if offsets[row] + 1 >= slots[slot, AFTER] else OUTDATED
