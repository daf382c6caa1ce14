"""Finds message segments among rows: a compiled scan of the values and of any headers.

The rules are those of ConsumerRecordsProcessor and DefaultSegmentDeserializer of li-apache-kafka-clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import binary_column, list_column
from pyspark_kafkalog.largemessage.assembler import DropReason
from pyspark_kafkalog.largemessage.format import (
    HEADER_ONLY_TYPE,
    ID_SIZE,
    LM,
    LM_SIZE,
    LM_SIZE_TYPE_0,
    PREFIX,
    PREFIX_SIZE,
)
from pyspark_kafkalog.largemessage.kernels import find_lm, find_prefixes

ERRORS = (
    None,
    DropReason.BAD_HEADER,
    DropReason.BAD_LENGTH,
    DropReason.SLICE_TOO_LONG,
    DropReason.BAD_COUNT,
    DropReason.BAD_NUMBER,
)
"""What the codes in :attr:`Segments.error` stand for."""
_BAD_HEADER, _BAD_LENGTH, _SLICE_TOO_LONG, _BAD_COUNT, _BAD_NUMBER = range(1, 6)


@dataclass(frozen=True, slots=True)
class Marks:
    """The rows with a header ``_lm``, in order, with the fields of the last one of each."""

    row: np.ndarray
    fields: np.ndarray
    """Of :data:`.format.LM`; ``length`` is -1 where the header has none."""
    readable: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> Marks:
        return Marks(self.row[chosen], self.fields[chosen], self.readable[chosen])


@dataclass(frozen=True, slots=True)
class Segments:
    """The message segments of some rows and the rows in error, in order: each array has an element for each.

    ``slice_start`` is where the slice begins in the value. Where ``error`` (see :data:`ERRORS`) is
    not 0 the other fields are what the record claims, 0 if that cannot be read.
    """

    marks: Marks
    """Rows with ``_lm``, message segments or not: delivery rewrites that header."""
    row: np.ndarray
    id_hi: np.ndarray
    id_lo: np.ndarray
    number: np.ndarray
    count: np.ndarray
    length: np.ndarray
    slice_start: np.ndarray
    error: np.ndarray

    def message_ids(self) -> list[bytes]:
        """The 16 bytes of each id; empty where it cannot be read."""
        halves = np.stack([self.id_hi, self.id_lo], axis=1).astype(">i8").tobytes()
        return [
            b"" if error == _BAD_HEADER else halves[at * ID_SIZE : (at + 1) * ID_SIZE]
            for at, error in enumerate(self.error.tolist())
        ]


def find(rows: pa.RecordBatch) -> Segments | None:
    """The message segments of ``rows``; None if there are none, and no header ``_lm`` either.

    Needs the binary column ``value``, and looks into ``headers`` if it is there.
    """
    offsets, validity, data = binary_column(rows.column("value"))
    found = np.empty(rows.num_rows, np.int64)
    prefixed = found[: find_prefixes(data, offsets, found)]
    marks = _marks(rows.column("headers")) if "headers" in rows.schema.names else None
    if marks is None:
        if not prefixed.size:
            return None
        marks = Marks(np.empty(0, np.int64), np.empty(0, LM), np.empty(0, bool))
    prefixed = prefixed[_is_valid(validity, prefixed)]
    broken = marks.row[~marks.readable]
    has_value = _is_valid(validity, marks.row)
    whole = marks[marks.readable & has_value & (marks.fields["type"] >= HEADER_ONLY_TYPE)]
    by_prefix = _by_prefix(data, offsets, prefixed[~np.isin(prefixed, np.concatenate([broken, whole.row]))])
    by_header = _by_header(offsets, whole)
    in_error = np.zeros((_FIELDS, broken.size), np.int64)
    in_error[_ROW], in_error[_ERROR] = broken, _BAD_HEADER
    table = np.concatenate([by_prefix, by_header, in_error], axis=1)
    if not table.shape[1] and not marks.row.size:
        return None
    return Segments(marks[marks.readable], *table[:, np.argsort(table[_ROW])])


_ROW, _ID_HI, _ID_LO, _NUMBER, _COUNT, _LENGTH, _SLICE_START, _ERROR = range(8)
_FIELDS = 8


def _by_prefix(data: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Table of the message segments of scheme P among ``rows``, whose check value is right."""
    at = offsets[rows].astype(np.int64)
    fields = (
        data[at[:, None] + np.arange(PREFIX_SIZE)].view(PREFIX)[:, 0] if rows.size else np.empty(0, PREFIX)
    )
    table = _table(rows, fields, slice_start=PREFIX_SIZE)
    slices = offsets[rows + 1] - at - PREFIX_SIZE
    number, count = table[_NUMBER], table[_COUNT]
    return table[:, (number >= 0) & (number < count) & (table[_LENGTH] >= slices)]


def _by_header(offsets: np.ndarray, marks: Marks) -> np.ndarray:
    """Table of message segments of scheme H. Here a wrong field is an error, not an ordinary value."""
    table = _table(marks.row, marks.fields, slice_start=0)
    number, count, length = table[_NUMBER], table[_COUNT], table[_LENGTH]
    slices = offsets[marks.row + 1].astype(np.int64) - offsets[marks.row]
    wrong = [length < 0, slices > length, count <= 0, (number < 0) | (number >= count)]
    table[_ERROR] = np.select(wrong, [_BAD_LENGTH, _SLICE_TOO_LONG, _BAD_COUNT, _BAD_NUMBER], 0)
    return table


def _table(rows: np.ndarray, fields: np.ndarray, slice_start: int) -> np.ndarray:
    table = np.zeros((_FIELDS, rows.size), np.int64)
    table[_ROW], table[_SLICE_START] = rows, slice_start
    for row, name in (
        (_ID_HI, "id_hi"),
        (_ID_LO, "id_lo"),
        (_NUMBER, "number"),
        (_COUNT, "count"),
        (_LENGTH, "length"),
    ):
        table[row] = fields[name]
    return table


def _marks(headers: pa.ListArray) -> Marks | None:
    """The rows with ``_lm``; None if there are none."""
    offsets, validity = list_column(headers)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return None
    pairs = headers.values
    keys, _, names = binary_column(pairs.field("key"))
    found = np.empty(last - first, np.int64)
    at = found[: find_lm(names, keys[first : last + 1], found)] + first
    if not at.size:
        return None
    rows = np.searchsorted(offsets, at, side="right") - 1
    kept = _is_valid(validity, rows)
    rows, at = rows[kept], at[kept]
    if not rows.size:
        return None
    last_of_row = np.append(rows[1:] != rows[:-1], True)
    rows, at = rows[last_of_row], at[last_of_row]
    offsets, validity, data = binary_column(pairs.field("value"))
    start = offsets[at].astype(np.int64)
    size = offsets[at + 1] - start
    readable = (size >= LM_SIZE_TYPE_0) & _is_valid(validity, at)
    raw = np.zeros((rows.size, LM_SIZE), np.uint8)
    for bytes_there in (LM_SIZE_TYPE_0, LM_SIZE):
        fits = readable & (size >= bytes_there)
        raw[fits, :bytes_there] = data[start[fits][:, None] + np.arange(bytes_there)]
    fields = raw.view(LM)[:, 0]
    fields["length"][size != LM_SIZE] = -1
    return Marks(rows, fields, readable)


def _is_valid(validity: np.ndarray, at: np.ndarray) -> np.ndarray:
    return validity[at >> 3] >> (at & 7) & 1 == 1 if validity.size else np.ones(at.size, bool)
