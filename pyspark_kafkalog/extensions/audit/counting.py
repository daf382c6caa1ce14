"""Sums of messages by audit key and bucket of time, a batch of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import binary_column

Sum: TypeAlias = tuple[str | None, int | None, int, int]
"""An audit key, the start of a bucket in ms, the messages in it, and their bytes."""

_MAX_EMPTY = 1000
"""The most empty sums that are computed, too, which is cheaper than sorting the messages."""


def counted(
    keys: pa.Array | None, sizes: np.ndarray, timestamps: np.ndarray | None, bucket_ms: int
) -> Iterator[Sum]:
    """The sums by key and bucket: the timestamp divided by ``bucket_ms``, rounded towards zero as in Java.

    :param keys: strings, may be null; None where no message has one.
    :param sizes: the bytes of each message, int64.
    :param timestamps: in ms, int64; None where they are not known.
    """
    if not sizes.size:
        return
    names: list[str | None] = [None]
    codes: np.ndarray | None = None
    if keys is not None:
        found = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        names = [*found.dictionary.to_pylist(), None]
        codes = found.indices.cast(pa.int64()).fill_null(len(names) - 1).to_numpy()
    first, width = 0, 1
    if timestamps is not None:
        first, last = _bucket(np.array([timestamps.min(), timestamps.max()]), bucket_ms).tolist()
        width = last - first + 1
    if len(names) == 1 and width == 1:
        start = None if timestamps is None else first * bucket_ms
        yield None, start, sizes.size, int(sizes.sum())
        return
    if len(names) * width > _MAX_EMPTY + 2 * sizes.size:
        places, starts, labels = _sparse(codes, names, timestamps, bucket_ms)
    else:
        places = np.zeros(sizes.size, np.int64) if codes is None else codes * width
        if timestamps is not None:
            places = places + (_bucket(timestamps, bucket_ms) - first)
        starts = (first + np.arange(width)).tolist() * len(names)
        labels = [name for name in names for _ in range(width)]
    messages = np.bincount(places)
    totals = np.bincount(places, weights=sizes)  # exact: an arrow batch has less than 2**53 bytes
    for place in np.flatnonzero(messages).tolist():
        bucket_start = None if timestamps is None else int(starts[place]) * bucket_ms
        yield labels[place], bucket_start, int(messages[place]), int(totals[place])


def _sparse(
    codes: np.ndarray | None, names: list[str | None], timestamps: np.ndarray | None, bucket_ms: int
) -> tuple[np.ndarray, list[int], list[str | None]]:
    """The place of each message among the pairs of key and bucket that there are, and these pairs."""
    if timestamps is None:
        buckets, where = np.zeros(1, np.int64), np.zeros(0 if codes is None else codes.size, np.int64)
    else:
        buckets, where = np.unique(_bucket(timestamps, bucket_ms), return_inverse=True)
    pairs = where if codes is None else codes * buckets.size + where
    found, places = np.unique(pairs, return_inverse=True)
    starts = buckets[found % buckets.size].tolist()
    return places, starts, [names[code] for code in (found // buckets.size).tolist()]


def _bucket(timestamps: np.ndarray, bucket_ms: int) -> np.ndarray:
    """Divides, rounding towards zero."""
    if timestamps.min() >= 0:
        return timestamps // bucket_ms
    return np.where(timestamps < 0, -(-timestamps // bucket_ms), timestamps // bucket_ms)


def message_sizes(rows: pa.RecordBatch) -> np.ndarray:
    """The bytes of key and value in each row, as far as the columns exist; null counts 0."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for name in "key", "value":
        if name not in rows.schema.names:
            continue
        column = rows.column(name)
        if column.null_count == 0:
            sizes += np.diff(binary_column(column)[0])
        elif column.null_count < rows.num_rows:
            sizes += pc.binary_length(column).fill_null(0).to_numpy()
    return sizes
