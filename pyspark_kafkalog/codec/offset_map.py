"""The last offset of each key, in bounded memory (Kafka's SkimpyOffsetMap)."""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.codec import key_kernels as kernels
from pyspark_kafkalog.codec.buffers import allocate
from pyspark_kafkalog.codec.indexing import Indexed
from pyspark_kafkalog.codec.read_kernels import KEY_AT, KEY_SIZE, OFFSET

SLOT_BYTES = 8 * kernels.SLOT_FIELDS
LOAD_FACTOR = 0.9
"""Kafka's default of log.cleaner.io.buffer.load.factor: the share of the slots that keys may take."""


class OffsetMap:
    """Maps the digests of keys to the offsets of their last records. Nothing is ever taken out.

    A digest has 128 bits, and depends on a secret that should be new for each map. Two of n keys have the
    same digest with a probability of n²/2¹²⁹: 10⁻²¹ for a billion. One of them would be lost. Only someone
    who knows the secret can choose such keys; with MD5, which Kafka uses, anyone can.

    :param memory: bytes that it may take, 24 for each slot.
    :param keys: the most keys that there can be: no more memory than they need is taken.
    :param secret: 128 random bits.
    """

    def __init__(self, memory: int, keys: int, secret: int) -> None:
        slots = max(min(memory // SLOT_BYTES, int(keys / LOAD_FACTOR) + 2), 2)
        self._slots = np.zeros((slots, kernels.SLOT_FIELDS), np.int64)
        self._most = min(max(int(slots * LOAD_FACTOR), 1), slots - 1)
        self._secret = _signed(secret & 2**64 - 1), _signed(secret >> 64 & 2**64 - 1)
        self.keys = 0
        """The number of keys in the map."""
        self.end = 0
        """The offset below which the map has the keys of all records that were to be put."""

    def put(self, indexed: Indexed) -> bool:
        """Put the last offsets of keys; records come in the order of offsets.

        :return: whether all were put. Else it is full, and :attr:`end` is the first offset that is missing.
        """
        offsets, sizes = indexed.table[OFFSET], indexed.table[KEY_SIZE]
        digests = self._digests(indexed)
        rows, self.keys = kernels.put_last(offsets, sizes, digests, self.keys, self._most, self._slots)
        if rows < offsets.size:
            self.end = int(offsets[rows])
            return False
        return True

    def find(self, indexed: Indexed) -> np.ndarray:
        """The state of each record: OUTDATED, LAST or BEYOND of :mod:`.key_kernels`.

        A record without a key is outdated; one whose key is not in the map is the last.
        """
        offsets, sizes = indexed.table[OFFSET], indexed.table[KEY_SIZE]
        found = np.empty(offsets.size, np.uint8)
        kernels.find_last(offsets, sizes, self._digests(indexed), self.end, self._slots, found)
        return found

    def _digests(self, indexed: Indexed) -> np.ndarray:
        positions, sizes = indexed.table[KEY_AT], indexed.table[KEY_SIZE]
        digests = allocate(2 * sizes.size, np.int64).reshape(2, -1)
        kernels.digest_keys(indexed.source, positions, sizes, *self._secret, digests)
        return digests


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
