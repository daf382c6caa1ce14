"""Reads several splits at once: bounds and first fetches of all of them take one request to each leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from pyspark_kafkalog.model import Place
from pyspark_kafkalog.read.ranges import Existing, ReadRules, existing, first_fetch
from pyspark_kafkalog.read.splits import Split

FoundSplits: TypeAlias = "list[tuple[Split, Existing]]"
"""Splits of different partitions, and the existing part of each."""

_JOINED_ROWS = 10_000
"""Spark takes a few ms for each arrow batch, so small ones are joined up to this many rows."""


def prefetch(place: Place, splits: Sequence[Split], rules: ReadRules, *, max_bytes: int) -> FoundSplits:
    """The existing part of ``splits``, fetched as far as ``max_bytes`` go.

    :raises DataLossError: see :func:`.ranges.existing`.
    """
    found = list(zip(splits, existing(place, splits, rules), strict=True))
    fetches = [
        first_fetch(split, wanted, rules)
        for split, (wanted, _) in found
        if wanted is not None and wanted.start < wanted.end
    ]
    place.prefetch(fetches, max_bytes=max_bytes)
    return found


def rows_together(
    found: FoundSplits, read: Callable[[Split, Existing], Iterator[pa.RecordBatch]], *, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of all splits, one after another, in fewer arrow batches.

    :param max_bytes: the most bytes of an arrow batch that is joined; one that is larger by itself stays so.
    """
    return _joined((rows for split, existing in found for rows in read(split, existing)), max_bytes)


def _joined(arrow_batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for arrow_batch in arrow_batches:
        arrow_bytes = arrow_batch.get_total_buffer_size()  # a tenth of the time that nbytes takes
        rows += arrow_batch.num_rows
        size += arrow_bytes
        if waiting and (rows > _JOINED_ROWS or size > max_bytes):
            yield _one(waiting)
            waiting, rows, size = [], arrow_batch.num_rows, arrow_bytes
        waiting.append(arrow_batch)
    if waiting:
        yield _one(waiting)


def _one(arrow_batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return arrow_batches[0] if len(arrow_batches) == 1 else pa.concat_batches(arrow_batches)
