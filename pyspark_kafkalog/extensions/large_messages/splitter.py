"""Splits large values into message segments, as LinkedIn's producer writes them.

Source: li-apache-kafka-clients 1.0.66, ``LiKafkaProducerImpl`` and
``MessageSplitterImpl``. What is large is decided for all messages of an Arrow
batch at once. Only partitions that get large ones have their records expanded,
a bounded number of bytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import allocate, binary_column, int64_column
from pyspark_kafkalog.errors import InvalidRecordError, RecordTooLargeError
from pyspark_kafkalog.extensions.large_messages.format import (
    HEADER_ONLY_TYPE,
    LM,
    LM_HEADER,
    PREFIX,
    PREFIX_SIZE,
    TIMESTAMP_HEADER,
)
from pyspark_kafkalog.extensions.large_messages.header_lists import HeaderLists
from pyspark_kafkalog.extensions.large_messages.kernels import copy_slices
from pyspark_kafkalog.extensions.large_messages.serializers import SEGMENTS, SegmentSerializer

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.large_messages.settings import SplitterSettings
    from pyspark_kafkalog.model import TopicPartition

_WITH_PREFIX = 1
"""The type of a header ``_lm`` that only repeats the prefix."""
_MAX_BYTES = 32 << 20
_RECORD_BYTES = 128
"""About the memory of a message segment besides its slice, key and headers."""

MessageIds = Callable[[int], bytes]
"""Gives this many message ids, of 16 bytes each."""


class Splitter:
    """Splits the values of records by the rules of one write.

    :param ids: where message ids come from.
    :param max_bytes: about how many bytes of message segments are made at a time.
    :raises OptionError: if the serializer of the settings can't be imported.
    """

    def __init__(self, settings: SplitterSettings, ids: MessageIds, *, max_bytes: int = _MAX_BYTES) -> None:
        self._settings = settings
        self._ids = ids
        self._max_bytes = max_bytes
        path = settings.serializer
        self._serializer = None if path is None else SegmentSerializer(path)

    def split(self, records: pa.RecordBatch) -> SplitRecords:
        """Choose the messages to split, and give each of them an id.

        :param records: columns key, value, headers and timestamp, as the encoder takes them.
        :raises RecordTooLargeError: for a value of more message segments than readers wait for.
        """
        settings = self._settings
        value = records.column("value")
        lengths = np.diff(binary_column(value)[0]).astype(np.int64)
        if value.null_count:
            lengths = np.where(value.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
        is_split = lengths > settings.segment_bytes
        expanded = lengths > 0 if settings.wrap else is_split
        if not (settings.timestamp_header or expanded.any()):
            return SplitRecords(records)
        headers = HeaderLists.of(records.column("headers")).without(LM_HEADER, expanded)
        if settings.timestamp_header:
            stamped = ~headers.rows_with(TIMESTAMP_HEADER)
            times = int64_column(records.column("timestamp"))[stamped].astype(">i8")
            headers = headers.with_last(TIMESTAMP_HEADER, times.view(np.uint8).reshape(-1, 8), stamped)
        columns = dict(zip(records.schema.names, records.columns, strict=True))
        if not expanded.any():
            return SplitRecords(_changed(records, columns, headers=headers.column()))
        id_bytes = self._ids(int(expanded.sum()))
        ids = np.zeros((lengths.size, 2), np.uint64)
        ids[expanded] = np.frombuffer(id_bytes, ">u8").reshape(-1, 2)
        columns["key"] = _with_generated_keys(columns["key"], is_split, ids)
        size = settings.segment_bytes
        counts = np.where(is_split, -(-lengths // size), 1)
        # The last segment completes the message before its offset can make it expire.
        most = settings.expiration_offset_gap + 2
        if counts.max() > most:
            largest = int(lengths.max())
            raise RecordTooLargeError(
                f"A value of {largest} bytes makes {counts.max()} message segments of {size} bytes, and"
                f" readers drop messages of more than {most}",
                hint=f"Raise max.message.segment.bytes to {-(-largest // most)} or more. Or raise"
                " message.assembler.expiration.offset.gap, also of all readers.",
            )
        record_bytes = _RECORD_BYTES + np.minimum(lengths, size) + headers.bytes
        record_bytes += np.diff(binary_column(columns["key"])[0])
        large = _Large(lengths, counts, record_bytes, expanded, ids, headers)
        routed = _changed(records, columns, headers=headers.column())
        return SplitRecords(routed, large, settings, self._max_bytes, self._serializer)


@dataclass(frozen=True)
class _Large:
    """The large messages, an element each: length, number of records and about the bytes of each of them,
    whether they are message segments, the halves of the id, headers.
    """

    lengths: np.ndarray
    counts: np.ndarray
    record_bytes: np.ndarray
    expanded: np.ndarray
    ids: np.ndarray
    headers: HeaderLists


class SplitRecords:
    """Messages before they are split: one row each, some of them large.

    ``whole`` has these rows with the keys and headers that their records get. They decide the partition
    of a message, unless a partitioner has to see the key that the user gave.
    """

    def __init__(
        self,
        whole: pa.RecordBatch,
        large: _Large | None = None,
        settings: SplitterSettings | None = None,
        max_bytes: int = _MAX_BYTES,
        serializer: SegmentSerializer | None = None,
    ) -> None:
        self.whole = whole
        self._large = large
        self._settings = settings
        self._max_bytes = max_bytes
        self._serializer = serializer

    def check_uncut(self, rows: np.ndarray | None, partition: TopicPartition) -> None:
        """Refuse messages of several segments in a compacted topic. They share a key, so one would be left.

        :raises InvalidRecordError: if there is one.
        """
        if self._large is not None:
            lengths, counts = self._large.lengths, self._large.counts
            cut = np.flatnonzero(counts > 1) if rows is None else rows[counts[rows] > 1]
            if cut.size:
                raise InvalidRecordError(
                    f"A value of {lengths[cut[0]]} bytes makes {counts[cut[0]]} message segments, of which"
                    " compaction would keep only the last: cleanup.policy is compact",
                    topic_partition=partition,
                    hint="Take compact out of the topic's cleanup.policy, or the option's, or write such"
                    " values whole: raise max.message.segment.bytes and the topic's max.message.bytes.",
                )

    def of(
        self, rows: np.ndarray | None, partition: TopicPartition
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray | None]]:
        """The records of these messages, in order, as the encoder takes them: Arrow batches and their rows.

        The message segments of a message stay together.

        :param rows: numbers of messages; None for all.
        :param partition: where they go, for the serializer and its errors.
        :raises KafkaLogError: by the serializer.
        """
        large = self._large
        if large is None or not (large.expanded if rows is None else large.expanded[rows]).any():
            yield self.whole, rows
            return
        if rows is None:
            rows = np.arange(large.lengths.size)
        counts = large.counts[rows]
        last = np.cumsum(counts)
        for start, stop in _stretches(counts, large.record_bytes[rows], self._max_bytes):
            wanted = np.arange(start, stop)
            places = np.searchsorted(last, wanted, side="right")
            numbers = wanted - (last - counts)[places]
            yield self._expanded(rows[places], numbers, counts[places], partition), None

    def _expanded(
        self, rows: np.ndarray, numbers: np.ndarray, counts: np.ndarray, partition: TopicPartition
    ) -> pa.RecordBatch:
        """A record for each row: the segment of this number of that message."""
        large, settings = self._large, self._settings
        assert large is not None
        assert settings is not None
        expanded, of_messages = large.expanded[rows], rows[large.expanded[rows]]
        fields = {
            "id_hi": large.ids[of_messages, 0],
            "id_lo": large.ids[of_messages, 1],
            "number": numbers[expanded],
            "count": counts[expanded],
            "length": large.lengths[of_messages],
        }
        header_type = HEADER_ONLY_TYPE if settings.header_only else _WITH_PREFIX
        header = _structs(LM, {**fields, "type": header_type}, of_messages.size)
        headers = large.headers.take(rows).with_last(LM_HEADER, header, expanded)
        prefixes = np.empty((0, PREFIX_SIZE), np.uint8)
        if not settings.header_only and self._serializer is None:
            check = (fields["id_hi"] + fields["id_lo"]) & np.uint64(0xFFFFFFFF)
            prefixes = _structs(PREFIX, {**fields, "version": 0, "check": check}, of_messages.size)
        columns = dict(zip(self.whole.schema.names, self.whole.columns, strict=True))
        picked = pa.array(rows)
        values = _values(
            columns["value"],
            rows,
            numbers * settings.segment_bytes,
            np.minimum(large.lengths[rows] - numbers * settings.segment_bytes, settings.segment_bytes),
            prefixes,
            expanded,
        )
        if self._serializer is not None:
            is_segment = pa.array(expanded)
            serialized = self._serializer(partition, _segments(fields, values.filter(is_segment)))
            values = pc.replace_with_mask(values, is_segment, serialized)
        return _changed(
            self.whole,
            columns,
            key=columns["key"].take(picked),
            value=values,
            headers=headers.column(),
            timestamp=columns["timestamp"].take(picked),
        )


def _changed(records: pa.RecordBatch, columns: dict[str, pa.Array], **others: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list({**columns, **others}.values()), schema=records.schema)


def _with_generated_keys(keys: pa.Array, is_split: np.ndarray, ids: np.ndarray) -> pa.Array:
    """The keys, with the message id in place of a null key where the message is split."""
    lacking = is_split & keys.is_null().to_numpy(zero_copy_only=False)
    if not lacking.any():
        return keys
    generated = pa.array([row.tobytes() for row in ids[lacking].astype(">u8")], pa.binary())
    return pc.replace_with_mask(keys, pa.array(lacking), generated)


def _segments(fields: dict[str, np.ndarray], slices: pa.Array) -> pa.RecordBatch:
    """The input of a serializer: message segments with these fields and slices."""
    ids = np.stack([fields["id_hi"], fields["id_lo"]], axis=1).astype(">u8")
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.tobytes() for row in ids], pa.binary()),
            *(pa.array(fields[name], pa.int32()) for name in ("number", "count", "length")),
            slices,
        ],
        schema=SEGMENTS,
    )


def _structs(kind: np.dtype, fields: dict[str, np.ndarray | int], count: int) -> np.ndarray:
    """Packed structs, as the rows of a uint8 matrix."""
    structs = np.empty(count, kind)
    for name, values in fields.items():
        structs[name] = values
    return structs.view(np.uint8).reshape(count, kind.itemsize)


def _stretches(counts: np.ndarray, record_bytes: np.ndarray, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of records of up to about ``max_bytes``; message i has ``counts[i]`` of ``record_bytes[i]``."""
    records, ends = np.cumsum(counts), np.cumsum(counts * record_bytes)
    start, total = 0, int(records[-1])
    while start < total:
        first = int(np.searchsorted(records, start, side="right"))
        limit = int(ends[first] - (records[first] - start) * record_bytes[first]) + max_bytes
        behind = int(np.searchsorted(ends, limit, side="right"))
        stop = total
        if behind < counts.size:
            before = int(ends[behind] - counts[behind] * record_bytes[behind])
            stop = int(records[behind] - counts[behind]) + (limit - before) // int(record_bytes[behind])
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _values(
    column: pa.Array,
    rows: np.ndarray,
    skipped: np.ndarray,
    lengths: np.ndarray,
    prefixes: np.ndarray,
    with_prefix: np.ndarray,
) -> pa.Array:
    """A slice of the value of each row, after a prefix where ``with_prefix`` says so."""
    offsets, _, data = binary_column(column)
    starts = offsets[rows].astype(np.int64) + skipped
    prefixed = with_prefix if len(prefixes) else np.zeros(rows.size, bool)
    ends = np.concatenate(([0], np.cumsum(lengths + PREFIX_SIZE * prefixed)))
    if ends[-1] > np.iinfo(np.int32).max:
        raise RecordTooLargeError("A record is larger than 2 GiB")
    out = allocate(int(ends[-1]))
    number_of_prefix = np.where(prefixed, np.cumsum(prefixed) - 1, -1)
    done = copy_slices(
        data, starts, np.ascontiguousarray(lengths), prefixes.reshape(-1), number_of_prefix, out
    )
    assert done == rows.size, f"Row {rows[done]} lies outside of its column"
    validity = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)[rows]
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), rows.size, buffers)
