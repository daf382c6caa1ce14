"""Dropped messages as rows: the column ``dropped`` beside those of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.largemessage.dropped import Dropped
from pyspark_kafkalog.largemessage.segments import find
from pyspark_kafkalog.model import DROPPED_FIELD
from pyspark_kafkalog.reading.looking_back import Source

_COLUMN = DROPPED_FIELD[0]
_MAX_BYTES = 64 << 20
"""Of slices in one arrow batch, unless a single message has more."""


class DeadLetters:
    """Puts the column into the rows of one range.

    :param schema: that of the rows; without the column nothing is told of dropped messages.
    """

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        self._source = source
        self._schema = schema

    def beside(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of records, in which the column is null."""
        return pa.RecordBatch.from_arrays(
            [
                pa.nulls(rows.num_rows, field.type) if field.name == _COLUMN else rows.column(field.name)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def rows(self, dropped: Sequence[Dropped], rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A row for each of ``dropped``, of the record at which it happened, without its contents.

        :param rows: those at which it happened.
        """
        if _COLUMN not in self._schema.names:
            return
        offsets = rows.column("offset").to_numpy()
        for some in self._in_pieces(dropped):
            at = np.minimum(np.searchsorted(offsets, [one.offset for one in some]), len(offsets) - 1)
            records = rows.take(pa.array(at))
            letters = pa.array([self._letter(one) for one in some], self._schema.field(_COLUMN).type)
            yield pa.RecordBatch.from_arrays(
                [self._column(field, records, letters) for field in self._schema], schema=self._schema
            )

    @staticmethod
    def _column(field: pa.Field, records: pa.RecordBatch, letters: pa.Array) -> pa.Array:
        if field.name == _COLUMN:
            return letters
        if field.name in ("key", "value", "headers"):
            return pa.nulls(records.num_rows, field.type)
        return records.column(field.name)

    def _letter(self, dropped: Dropped) -> dict[str, object]:
        return dropped.letter(self._slices([one.offset for one in dropped.segments if one.slice is None]))

    def _slices(self, offsets: list[int]) -> dict[int, bytes]:
        """What is still there of slices that were not kept."""
        if not offsets:
            return {}
        rows = self._source.read_again(offsets)
        found = find(rows)
        starts = (
            {} if found is None else dict(zip(found.row.tolist(), found.slice_start.tolist(), strict=True))
        )
        return {
            offset: value[starts.get(row, 0) :]
            for row, (offset, value) in enumerate(
                zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
            )
            if value is not None
        }

    @staticmethod
    def _in_pieces(dropped: Sequence[Dropped]) -> Iterator[list[Dropped]]:
        """``dropped`` by as many as an arrow batch may hold."""
        some: list[Dropped] = []
        size = 0
        for one in dropped:
            its = sum(len(segment.slice or b"") for segment in one.segments)
            if some and size + its > _MAX_BYTES:
                yield some
                some, size = [], 0
            some.append(one)
            size += its
        if some:
            yield some
