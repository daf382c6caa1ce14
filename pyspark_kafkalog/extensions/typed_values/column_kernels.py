"""Compiled parts of filling columns, which the decoders of several formats have."""

from __future__ import annotations

import numpy as np
from numpy import int64

from pyspark_kafkalog.codec.kernel import Integer, kernel
from pyspark_kafkalog.codec.signature import BYTES, INT32S, INT64


@kernel(INT32S, INT32S, BYTES, INT64, results=1)
def repeats(ends: np.ndarray, key_ends: np.ndarray, keys: np.ndarray, most: Integer) -> Integer:
    """Whether a map of up to ``most`` entries has a key twice, or any has more; by Arrow's offsets."""
    for row in range(ends.size - 1):
        first = int64(ends[row])
        last = int64(ends[row + 1])
        if last - first > most:
            return int64(1)
        for entry in range(first + 1, last):
            at = int64(key_ends[entry])
            size = int64(key_ends[entry + 1]) - at
            for other in range(first, entry):
                other_at = int64(key_ends[other])
                if int64(key_ends[other + 1]) - other_at != size:
                    continue
                same = int64(0)
                while same < size and keys[at + same] == keys[other_at + same]:
                    same += 1
                if same == size:
                    return int64(1)
    return int64(0)
