"""Reads several splits at once: bounds and first fetches of all of them take one request to each leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from pyspark_kafkalog.model import Place
from pyspark_kafkalog.reading.ranges import Existing, ReadRules, existing, first_fetch
from pyspark_kafkalog.reading.splits import Split

Found: TypeAlias = "list[tuple[Split, Existing]]"
"""Splits of different partitions, and what exists of each."""

_JOINED_ROWS = 10_000
"""Spark takes a few ms for each arrow batch, so small ones are joined up to about this many rows."""


def prefetch(
    place: Place, splits: Sequence[Split], rules: ReadRules, *, max_bytes: int
) -> tuple[Found, bool]:
    """What exists of ``splits``, fetched as far as ``max_bytes`` go; and whether it is all there.

    :raises DataLossError: see :func:`.ranges.existing`.
    """
    found = list(zip(splits, existing(place, splits, rules), strict=True))
    fetches = [
        first_fetch(split, wanted, rules)
        for split, (wanted, _) in found
        if wanted is not None and wanted.start < wanted.end
    ]
    whole = place.prefetch(fetches, max_bytes=max_bytes)
    return found, whole >= {fetch.partition for fetch in fetches}


def rows_together(
    found: Found, read: Callable[[Split, Existing], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """The rows of all splits, one after another, in fewer arrow batches."""
    return _joined(rows for split, existing in found for rows in read(split, existing))


def _joined(arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for arrow_batch in arrow_batches:
        if waiting and rows + arrow_batch.num_rows > _JOINED_ROWS:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows = [], 0
        waiting.append(arrow_batch)
        rows += arrow_batch.num_rows
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
