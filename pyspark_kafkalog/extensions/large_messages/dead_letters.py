"""Dropped messages as rows: the column ``dropped`` beside those of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.large_messages.assembler import Dropped
from pyspark_kafkalog.extensions.large_messages.looking_back import PartitionRecords
from pyspark_kafkalog.extensions.large_messages.reassembler import arrivals_in
from pyspark_kafkalog.extensions.large_messages.segments import Find
from pyspark_kafkalog.model import DROPPED_FIELD

_COLUMN = DROPPED_FIELD[0]
_MAX_BYTES = 16 << 20
"""The most bytes of slices in an arrow batch, unless a single message has more."""


class DeadLetters:
    """Adds the column to the rows of one range.

    :param schema: the schema of the rows; without the column dropped messages are not shown.
    :param find: finds message segments.
    """

    def __init__(self, records: PartitionRecords, schema: pa.Schema, find: Find) -> None:
        self._records = records
        self._find = find
        self._schema = schema

    def with_null_column(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with nulls in the column."""
        return pa.RecordBatch.from_arrays(
            [
                pa.nulls(rows.num_rows, field.type) if field.name == _COLUMN else rows.column(field.name)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def rows(self, dropped: Sequence[Dropped], rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A row for each dropped message, at the offset of the record that caused the drop.

        :param rows: the rows that include these records.
        """
        if _COLUMN not in self._schema.names:
            return
        offsets = rows.column("offset").to_numpy()
        for piece in self._in_pieces(dropped):
            positions = np.minimum(
                np.searchsorted(offsets, [message.offset for message in piece]), len(offsets) - 1
            )
            records = rows.take(pa.array(positions))
            letters = pa.array([self._letter(message) for message in piece], self._schema.field(_COLUMN).type)
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
        return dropped.letter(
            self._slices([segment.offset for segment in dropped.segments if segment.slice is None])
        )

    def _slices(self, offsets: list[int]) -> dict[int, bytes]:
        """The slices that were not kept in memory, as far as they still exist."""
        if not offsets:
            return {}
        rows = self._records.read_again(offsets)
        values = dict(zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True))
        for arrival, _ in arrivals_in(rows, self._find):
            if values[arrival.offset] is not None and arrival.slice is not None:
                values[arrival.offset] = arrival.slice.tobytes()
        return {offset: value for offset, value in values.items() if value is not None}

    @staticmethod
    def _in_pieces(dropped: Sequence[Dropped]) -> Iterator[list[Dropped]]:
        """``dropped``, divided so that each part fits one arrow batch."""
        piece: list[Dropped] = []
        size = 0
        for message in dropped:
            slice_bytes = sum(segment.size for segment in message.segments)
            if piece and size + slice_bytes > _MAX_BYTES:
                yield piece
                piece, size = [], 0
            piece.append(message)
            size += slice_bytes
        if piece:
            yield piece
