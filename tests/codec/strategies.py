"""Hypothesis strategies: rows of every shape, as the encoder takes them, and bytes to compress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Row(NamedTuple):
    """A record as its writer sees it; ``timestamp`` in ms, ``headers`` None or (key, value) pairs."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp: int


_blobs = st.binary(max_size=20) | st.binary(min_size=120, max_size=140) | st.just(b"x" * 20_000)
_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=4)
_timestamps = st.just(-1) | st.integers(0, 2**40) | st.integers(1_600_000_000_000, 1_600_000_000_100)
rows = st.builds(Row, st.none() | _blobs, st.none() | _blobs, st.none() | _headers, _timestamps)


runs = st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 300)), max_size=20)
"""Pieces of bytes to compress, and how often each is repeated."""


def plain(runs: list[tuple[bytes, int]]) -> np.ndarray:
    """The bytes that the runs stand for."""
    return np.frombuffer(b"".join(piece * times for piece, times in runs), np.uint8)


def arrow_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """The rows as columns key, value, headers, timestamp."""
    headers = [r.headers and [{"key": k, "value": v} for k, v in r.headers] for r in rows]
    columns: dict[str, Any] = {
        "key": pa.array([r.key for r in rows], pa.binary()),
        "value": pa.array([r.value for r in rows], pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array([r.timestamp for r in rows], pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def as_stored(row: Row) -> Row:
    """``row`` as it is read back: no headers are the same as none."""
    return row._replace(headers=row.headers or None)
