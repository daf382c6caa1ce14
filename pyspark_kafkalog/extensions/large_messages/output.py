"""Builds the delivered rows: each value is copied once, into the output batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import allocate, binary_column, int64_column
from pyspark_kafkalog.errors import RecordTooLargeError
from pyspark_kafkalog.extensions.large_messages.format import (
    INT32_MAX,
    INT64_MAX,
    LM,
    LM_HEADER,
    LM_SIZE,
    LM_SIZE_TYPE_0,
    SAFE_OFFSET_HEADER,
    WHOLE_NUMBER,
)
from pyspark_kafkalog.extensions.large_messages.header_lists import HeaderLists
from pyspark_kafkalog.extensions.large_messages.segments import Marks

STARTING_OFFSET = pa.field("startingOffset", pa.int64())
SEGMENT_COUNT = pa.field("segmentCount", pa.int32())


@dataclass(frozen=True, slots=True)
class Message:
    """A value made of slices, and the offset of its first record."""

    slices: list[np.ndarray]
    starting_offset: int
    segment_count: int


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows to deliver as they are, or the one row that completed ``message``.

    ``safe_offset`` is where the oldest open message began when they were read, None if none was open.
    """

    start: int
    stop: int
    safe_offset: int | None = None
    message: Message | None = None


def delivered(
    rows: pa.RecordBatch, runs: list[Run], marks: Marks | None, *, extra_columns: bool
) -> pa.RecordBatch:
    """The rows of ``runs``, with whole values and the headers that a reader of large messages gives them."""
    counts = np.array([run.stop - run.start for run in runs], np.int64)
    chosen = _ranges(np.array([run.start for run in runs], np.int64), counts)
    messages = [run.message for run in runs]
    indices = None if chosen.size == rows.num_rows else pa.array(chosen)
    columns: dict[str, pa.Array] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name == "value" and any(messages):
            columns[name] = _values(column, runs, counts, chosen)
        else:
            columns[name] = column if indices is None else column.take(indices)
    offsets = int64_column(columns["offset"])
    if "headers" in columns:
        safe = np.repeat([INT64_MAX if run.safe_offset is None else run.safe_offset for run in runs], counts)
        columns["headers"] = _headers(columns["headers"], chosen, offsets, safe, marks)
    out = pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)
    return _with_extra_columns(out, offsets, messages, counts) if extra_columns else out


def _with_extra_columns(
    rows: pa.RecordBatch, offsets: np.ndarray, messages: list[Message | None], counts: np.ndarray
) -> pa.RecordBatch:
    starts = offsets.copy()
    segment_counts = np.ones(starts.size, np.int32)
    for at, message in zip((np.cumsum(counts) - counts).tolist(), messages, strict=True):
        if message is not None:
            starts[at], segment_counts[at] = message.starting_offset, message.segment_count
    schema = rows.schema.append(STARTING_OFFSET).append(SEGMENT_COUNT)
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.array(starts), pa.array(segment_counts)], schema=schema
    )


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers of all ranges, one after another."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def _values(column: pa.Array, runs: list[Run], counts: np.ndarray, chosen: np.ndarray) -> pa.Array:
    value_offsets, validity, data = binary_column(column)
    sizes = np.diff(value_offsets).astype(np.int64)[chosen]
    at_row = 0
    pieces: list[np.ndarray] = []
    for run, count in zip(runs, counts.tolist(), strict=True):
        if run.message is None:
            pieces.append(data[value_offsets[run.start] : value_offsets[run.stop]])
        else:
            sizes[at_row] = sum(piece.size for piece in run.message.slices)
            pieces += run.message.slices
        at_row += count
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    if total > INT32_MAX:
        raise RecordTooLargeError(
            f"Whole messages of {total} bytes do not fit into one Arrow batch",
            hint="Read in smaller batches.",
        )
    out = allocate(total)
    at = 0
    for piece in pieces:
        out[at : at + piece.size] = piece
        at += piece.size
    new_offsets = np.zeros(chosen.size + 1, np.int32)
    new_offsets[1:] = ends
    nulls = None
    if validity.size:
        valid = np.unpackbits(validity, count=len(column), bitorder="little")[chosen]
        nulls = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [nulls, pa.py_buffer(new_offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(column.type, chosen.size, buffers)


def _headers(
    column: pa.Array, chosen: np.ndarray, offsets: np.ndarray, safe: np.ndarray, marks: Marks | None
) -> pa.Array:
    """The headers with ``_lm`` rewritten without an id, and ``_so`` where a restart must begin earlier."""
    unsafe = safe < offsets + 1
    marked = np.zeros(chosen.size, bool)
    if marks is not None and chosen.size:
        is_chosen = np.isin(marks.row, chosen)
        fields = marks.fields[is_chosen]
        marked[np.searchsorted(chosen, marks.row[is_chosen])] = True
    if not marked.any() and not unsafe.any():
        return column
    lists = HeaderLists.of(column)
    if marked.any():
        lists = lists.without(LM_HEADER, marked)
        raw = _rewritten(fields)
        for size, of_size in ((LM_SIZE_TYPE_0, fields["type"] == 0), (LM_SIZE, fields["type"] != 0)):
            if of_size.any():
                which = marked.copy()
                which[marked] = of_size
                lists = lists.with_last(LM_HEADER, raw[of_size, :size], which)
    if unsafe.any():
        safe_offsets = safe[unsafe].astype(">i8").view(np.uint8).reshape(-1, 8)
        lists = lists.with_last(SAFE_OFFSET_HEADER, safe_offsets, unsafe)
    changed = lists.column()
    nulls = None
    if column.null_count:
        nulls = pa.array(~(column.is_valid().to_numpy(zero_copy_only=False) | unsafe))
    values = pa.StructArray.from_arrays(
        [changed.values.field(0), changed.values.field(1)], fields=list(column.type.value_type)
    )
    return pa.ListArray.from_arrays(changed.offsets, values, type=column.type, mask=nulls)


def _rewritten(fields: np.ndarray) -> np.ndarray:
    """The bytes of ``_lm`` on delivered records; type 0 has the first 25."""
    out = np.zeros(fields.size, LM)
    out["type"], out["count"], out["number"] = fields["type"], fields["count"], WHOLE_NUMBER
    out["length"] = np.where(fields["type"] < 0, 0, fields["length"])
    return out.view(np.uint8).reshape(-1, LM_SIZE)
