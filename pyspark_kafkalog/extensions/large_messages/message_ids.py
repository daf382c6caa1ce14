"""Ids of large messages."""

from __future__ import annotations

import os

import numpy as np


def random_ids(count: int) -> bytes:
    """Random UUIDs (version 4), ``count`` of them, 16 bytes each."""
    ids = np.frombuffer(bytearray(os.urandom(16 * count)), np.uint8).reshape(-1, 16)
    ids[:, 6] = ids[:, 6] & 0x0F | 0x40
    ids[:, 8] = ids[:, 8] & 0x3F | 0x80
    return ids.tobytes()
