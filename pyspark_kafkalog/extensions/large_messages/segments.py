"""Finds message segments among rows: a compiled scan of the values and of any headers.

The rules are those of ConsumerRecordsProcessor and DefaultSegmentDeserializer of li-apache-kafka-clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import binary_column, list_column
from pyspark_kafkalog.extensions.large_messages.assembler import DropReason
from pyspark_kafkalog.extensions.large_messages.format import (
    HEADER_ONLY_TYPE,
    ID_SIZE,
    LM,
    LM_HEADER,
    LM_SIZE,
    LM_SIZE_TYPE_0,
    PREFIX,
    PREFIX_SIZE,
    SAFE_OFFSET_HEADER,
    WHOLE_NUMBER,
)
from pyspark_kafkalog.extensions.large_messages.header_lists import HeaderLists
from pyspark_kafkalog.extensions.large_messages.kernels import find_lm, find_prefixes
from pyspark_kafkalog.extensions.large_messages.serializers import Deserialized, SegmentDeserializer
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.model import TopicPartition

ERRORS = (
    None,
    DropReason.BAD_HEADER,
    DropReason.BAD_LENGTH,
    DropReason.SLICE_TOO_LONG,
    DropReason.BAD_COUNT,
    DropReason.BAD_NUMBER,
)
"""The meaning of the codes in :attr:`Segments.error`."""
_BAD_HEADER, _BAD_LENGTH, _SLICE_TOO_LONG, _BAD_COUNT, _BAD_NUMBER = range(1, 6)


@dataclass(frozen=True, slots=True)
class Marks:
    """The rows with a header ``_lm``, in order, with the fields of the last one of each."""

    row: np.ndarray
    fields: np.ndarray
    """The fields of :data:`.format.LM`; ``length`` is -1 where the header has none."""
    readable: np.ndarray

    def __getitem__(self, chosen: np.ndarray) -> Marks:
        return Marks(self.row[chosen], self.fields[chosen], self.readable[chosen])

    @property
    def of_whole(self) -> np.ndarray:
        """Whether each header is that of a whole message: no message segment has its number."""
        fields = self.fields
        has_no_id = (fields["id_hi"] == 0) & (fields["id_lo"] == 0)
        found: np.ndarray = self.readable & has_no_id & (fields["number"] == WHOLE_NUMBER)
        return found


@dataclass(frozen=True, slots=True)
class Segments:
    """The message segments of some rows and the rows in error, in order: each array has an element for each.

    ``slice_start`` is where the slice begins in the value, or -1 - i for element i of ``slices``, where a
    deserializer has put it. Where ``error`` (see :data:`ERRORS`) is not 0 the other fields are what the
    record claims, 0 if that cannot be read.
    """

    marks: Marks
    """Rows with ``_lm``, message segments or not: delivery rewrites that header."""
    slices: tuple[np.ndarray, np.ndarray] | None
    """The slices of a deserializer: where each begins in the bytes, and the bytes."""
    row: np.ndarray
    id_hi: np.ndarray
    id_lo: np.ndarray
    number: np.ndarray
    count: np.ndarray
    length: np.ndarray
    slice_start: np.ndarray
    error: np.ndarray

    def slice(self, at: int, value: np.ndarray) -> np.ndarray:
        """The slice of the message segment ``at`` in these arrays, whose record has this value."""
        start = int(self.slice_start[at])
        if start >= 0:
            return value[start:]
        assert self.slices is not None, "only a deserializer puts slices elsewhere"
        starts, data = self.slices
        slice_of_it: np.ndarray = data[int(starts[-1 - start]) : int(starts[-start])]
        return slice_of_it

    def message_ids(self) -> list[bytes]:
        """The 16 bytes of each id; empty where it cannot be read."""
        halves = np.stack([self.id_hi, self.id_lo], axis=1).astype(">i8").tobytes()
        return [
            b"" if error == _BAD_HEADER else halves[at * ID_SIZE : (at + 1) * ID_SIZE]
            for at, error in enumerate(self.error.tolist())
        ]


Find: TypeAlias = Callable[[pa.RecordBatch], "Segments | None"]
"""The function that finds the message segments of some rows."""


def finder(settings: AssemblerSettings, partition: TopicPartition) -> Find:
    """:func:`find`, with the deserializer of the settings.

    :raises OptionError: if it can't be imported.
    """
    if settings.deserializer is None:
        return find
    return partial(find, deserializer=partial(SegmentDeserializer(settings.deserializer), partition))


def find(
    rows: pa.RecordBatch,
    *,
    deserializer: Callable[[pa.RecordBatch, np.ndarray], Deserialized] | None = None,
) -> Segments | None:
    """The message segments of ``rows``; None if there are none, and no header ``_lm`` either.

    Needs the binary column ``value``, and looks into ``headers`` if it is there.

    :param deserializer: finds those in values; it gets the rows, and the numbers of those with such values.
        The column ``offset`` is needed then. By default values are looked at for the prefix of scheme P.
    :raises KafkaLogError: by the deserializer.
    """
    offsets, validity, data = binary_column(rows.column("value"))
    if deserializer is None:
        found = np.empty(rows.num_rows, np.int64)
        in_value = found[: find_prefixes(data, offsets, found)]
    else:
        in_value = np.arange(rows.num_rows)
    marks = _marks(rows.column("headers")) if "headers" in rows.schema.names else None
    if marks is None:
        if not in_value.size:
            return None
        marks = Marks(np.empty(0, np.int64), np.empty(0, LM), np.empty(0, bool))
    in_value = in_value[_is_valid(validity, in_value)]
    broken = marks.row[~marks.readable]
    has_value = _is_valid(validity, marks.row)
    by_mark = marks[marks.readable & has_value & (marks.fields["type"] >= HEADER_ONLY_TYPE)]
    in_value = in_value[~np.isin(in_value, np.concatenate([broken, by_mark.row]))]
    slices = None
    if deserializer is None:
        by_value = _by_prefix(data, offsets, in_value)
    else:
        deserialized = deserializer(rows, in_value)
        slices = deserialized.starts, deserialized.data
        count = deserialized.fields.shape[1]
        by_value = np.zeros((_FIELDS, count), np.int64)
        by_value[:_SLICE_START] = deserialized.fields
        by_value[_SLICE_START] = -1 - np.arange(count)
    by_header = _by_header(offsets, by_mark[~by_mark.of_whole])
    in_error = np.zeros((_FIELDS, broken.size), np.int64)
    in_error[_ROW], in_error[_ERROR] = broken, _BAD_HEADER
    table = np.concatenate([by_value, by_header, in_error], axis=1)
    if not table.shape[1] and not marks.row.size:
        return None
    return Segments(marks[marks.readable], slices, *table[:, np.argsort(table[_ROW])])


def without_reader_headers(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records, whose headers may be copies of those of whole messages, without what a reader put there.

    It rewrites ``_lm``, which says nothing true of a record that is written again; LinkedIn's consumer takes
    it for a message segment that can't be. A header ``_so`` is left out beside one, as alone it may be the
    user's.
    """
    column = records.column("headers")
    marks = _marks(column)
    if marks is None or not (copied := marks.of_whole).any():
        return records
    rows = np.zeros(records.num_rows, bool)
    rows[marks.row[copied]] = True
    headers = HeaderLists.of(column).without(LM_HEADER, rows).without(SAFE_OFFSET_HEADER, rows)
    number = records.schema.get_field_index("headers")
    return records.set_column(number, records.schema.field(number), headers.column())


def as_sent(headers: pa.ListArray) -> pa.ListArray:
    """The headers of rows of whole messages without what delivery added; null where none is left."""
    every = np.ones(len(headers), bool)
    sent = HeaderLists.of(headers).without(LM_HEADER, every).without(SAFE_OFFSET_HEADER, every).column()
    return pc.if_else(pc.greater(pc.list_value_length(sent), 0), sent.cast(headers.type), None)


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
    is_valid = _is_valid(validity, rows)
    rows, at = rows[is_valid], at[is_valid]
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
