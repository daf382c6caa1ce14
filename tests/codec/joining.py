"""Frames of one compression, decompressed in one call."""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.codec.compression import Stage, decompress_joined

MOST = 1 << 30


def consecutive(frames: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The frames one after another, and where they start and end."""
    bounds = np.cumsum([0, *map(len, frames)])
    return np.frombuffer(b"".join(frames), np.uint8), bounds[:-1].copy(), bounds[1:].copy()


def joined(
    compression: int, frames: list[bytes], *, most: int = MOST, enough: int = MOST
) -> list[bytes] | None:
    """What each frame gives, or the first of them do; None if they can't be joined."""
    bounds = consecutive(frames)
    found = decompress_joined(compression, *bounds, max_bytes=most, enough=enough, scratch=Stage())
    if found is None:
        return None
    data, starts, ends = found
    return [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
