"""Record batches become Arrow batches: the one decoder, for segment files and fetch responses alike."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Buffer, as_array
from pyspark_kafkalog.codec.format import MAX_HEADERS, NO_TIMESTAMP
from pyspark_kafkalog.codec.indexing import BadBytes, DamageError, DecodeLimits, Indexed, Indexer, damage_at
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.codec.rows import MAX_TIMESTAMP, RowColumns
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, batches_of, find_batch, first_bad_checksum, walk
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.model import OffsetRange, OnCorrupt, Origin, Slice, TopicPartition

__all__ = ["DecodeLimits", "Decoded", "decode", "first_record_at", "newest_record"]

_DEFAULT_LIMITS = DecodeLimits()
_NO_ORIGIN = Origin()
_NOT_A_BATCH = "Expected a record batch, got other bytes"
_MAX_ARROW_BYTES = (1 << 31) - 1
"""The most bytes that the 32-bit offsets of an Arrow binary column can reach."""


class Decoded(NamedTuple):
    """Decoded rows, maybe none, and the offset at which to read on."""

    arrow_batch: pa.RecordBatch
    next_offset: int


def decode(
    buffer: Buffer,
    *,
    topic_partition: TopicPartition,
    offsets: OffsetRange,
    visible: Visibility | None,
    schema: pa.Schema,
    limits: DecodeLimits = _DEFAULT_LIMITS,
    origin: Origin = _NO_ORIGIN,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Decoded]:
    """The records of ``buffer`` within ``offsets``, in the order of their offsets, as Arrow batches.

    ``buffer`` holds bytes of a segment file, beginning with a record batch, or of a fetch response:
    consecutive record batches and message sets (magic 0 to 2). They may reach below and above
    ``offsets``. A record batch that is cut off at the end is left unread. Rows are copies of the bytes.

    Yields ``(arrow_batch, next_offset)``. An Arrow batch has the columns of ``schema`` and one row for each
    record; it may have no rows. ``next_offset`` is the offset to continue from. It comes from the headers
    of record batches, since compaction, markers and aborted transactions leave offsets without rows. Once
    a record batch was consumed, the last ``next_offset`` is after it, but at most ``offsets.end``. ::

        from pathlib import Path

        import pyarrow as pa
        from pyspark_kafkalog import OffsetRange, TopicPartition, decode

        segment = Path("/data/kafka-logs/orders-0/00000000000000000000.log")
        for arrow_batch, next_offset in decode(
            segment.read_bytes(),
            topic_partition=TopicPartition("orders", 0),
            offsets=OffsetRange(0, 1_000_000),
            visible=None,
            schema=pa.schema({"offset": pa.int64(), "value": pa.binary()}),
        ):
            print(arrow_batch.num_rows, next_offset)

    :param buffer: bytes, or anything with Python's buffer protocol whose memory is contiguous.
    :param topic_partition: the value of the columns ``topic`` and ``partition``, and the place in errors.
    :param offsets: ``start`` is included, ``end`` is not.
    :param visible: the aborted transactions that a read_committed reader must not see. Use one object for
        all consecutive buffers of a partition, and end ``offsets`` at the last stable offset. None for
        read_uncommitted. Control records are never rows.
    :param schema: any of these columns in any order: ``key`` and ``value`` (binary), ``topic`` (string),
        ``partition`` and ``timestampType`` (int32), ``offset`` (int64), ``timestamp`` (timestamp in
        microseconds, UTC) and ``headers`` (list of ``element``: struct of ``key``, string, and ``value``,
        binary). Only these are decoded.
    :param limits: the largest Arrow batch and compressed record, and whether checksums are verified.
    :param origin: the file that ``buffer`` was read from, and its position there, for errors.
    :param on_corrupt: called with an error for each stretch of bytes that is skipped; decoding continues
        at the next valid record batch.
    :raises CorruptRecordError: at the first invalid record batch, after the rows before it, unless
        ``on_corrupt`` is given; always at a record whose timestamp does not fit the column
        ``timestamp``, if that is in ``schema``, as in Spark's Kafka source.
    :raises OversizedRecordError: always, at a record that is larger than ``limits`` allow, before the rows of
        its record batch.
    :raises OptionError: if ``schema`` has another column or type.
    """
    reading = _Reading(buffer, topic_partition, offsets, visible, schema, limits, origin, on_corrupt)
    yield from reading.all_rows(walk(buffer))


def decode_slice(
    piece: Slice,
    *,
    topic_partition: TopicPartition,
    offsets: OffsetRange,
    visible: Visibility | None,
    schema: pa.Schema,
    limits: DecodeLimits = _DEFAULT_LIMITS,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Decoded]:
    """Decode a slice, whose headers are parsed already, as :func:`decode` does its bytes."""
    reading = _Reading(
        piece.buffer, topic_partition, offsets, visible, schema, limits, piece.origin, on_corrupt
    )
    yield from reading.all_rows(batches_of(piece))


def first_record_at(
    buffer: Buffer,
    *,
    timestamp: int,
    min_offset: int,
    topic_partition: TopicPartition,
    limits: DecodeLimits = _DEFAULT_LIMITS,
    origin: Origin = _NO_ORIGIN,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record at or after ``timestamp`` (ms) and ``min_offset``, or None.

    Markers count, too, as in Kafka's FileRecords.searchForTimestamp. Batches whose greatest
    timestamp is too low are skipped, unless their first record's is greater still.

    :raises CorruptRecordError: if a batch that had to be read, or the framing, is invalid.
    :raises OversizedRecordError: if it has a record that is larger than ``limits`` allow.
    """
    data = as_array(buffer)
    batches = walk(data)
    late = (batches.max_timestamp >= timestamp) | batches.is_misdated
    wanted = late & (batches.last_offset >= min_offset)
    indexer = Indexer(data, batches, limits)
    offsets = OffsetRange(min_offset, kernels.MAX_INT64)
    try:
        for row in np.flatnonzero(wanted).tolist():
            for found in indexer.index(row, row + 1, wanted, offsets):
                hits = np.flatnonzero(found.table[kernels.TIMESTAMP] >= timestamp)
                if hits.size:
                    return tuple(found.table[[kernels.OFFSET, kernels.TIMESTAMP], hits[0]].tolist())
        if batches.status is WalkStatus.INVALID:
            raise DamageError(BadBytes(_NOT_A_BATCH, batches.end))
    except DamageError as e:
        raise _error(e.damage, topic_partition, min_offset, origin) from None
    except OversizedRecordError as e:
        raise e.within(topic_partition, origin.file, origin.position) from None
    return None


def newest_record(buffer: Buffer) -> int:
    """The largest timestamp (ms) of a whole batch's records; the largest possible if they can't be read."""
    data = as_array(buffer)
    batches, newest = walk(data), NO_TIMESTAMP
    try:
        indexer = Indexer(data, batches, _DEFAULT_LIMITS)
        for found in indexer.index(0, 1, np.ones(1, bool), OffsetRange(0, kernels.MAX_INT64)):
            newest = max(newest, int(found.table[kernels.TIMESTAMP].max(initial=NO_TIMESTAMP)))
    except (DamageError, OversizedRecordError):
        return kernels.MAX_INT64
    return newest


class _Reading:
    """The state of one call of :func:`decode`."""

    def __init__(
        self,
        buffer: Buffer,
        topic_partition: TopicPartition,
        offsets: OffsetRange,
        visible: Visibility | None,
        schema: pa.Schema,
        limits: DecodeLimits,
        origin: Origin,
        on_corrupt: OnCorrupt | None,
    ) -> None:
        self._data = as_array(buffer)
        self._topic_partition = topic_partition
        self._end = offsets.end
        self._visible = visible
        self._limits = limits
        self._origin = origin
        self._on_corrupt = on_corrupt
        self.columns = RowColumns(schema, topic_partition)
        self.next_offset = offsets.start
        self.reported_offset = offsets.start
        """The next offset that the caller knows of."""

    def all_rows(self, batches: Batches) -> Iterator[Decoded]:
        """The wanted rows of a buffer that begins with ``batches``."""
        position = yield from self._rows(batches)
        while position is not None:
            position = yield from self._rows(walk(self._data, position))
        if self.next_offset > self.reported_offset:
            yield Decoded(self.columns.empty(), self.next_offset)

    def _rows(self, batches: Batches) -> Generator[Decoded, None, int | None]:
        """The wanted rows of ``batches``; returns where to walk on, None at the end."""
        row = int(np.searchsorted(np.maximum.accumulate(batches.last_offset), self.next_offset))
        stop, damage = self._stop(batches, row)
        wanted = self._wanted(batches, row, stop)
        offsets = OffsetRange(self.next_offset, self._end)
        indexer = Indexer(self._data, batches, self._limits)
        while True:
            try:
                for indexed in indexer.index(row, stop, wanted, offsets):
                    yield from self._decoded(indexed, batches)
                    # A wrapper of offset 0 may hold offsets above its own.
                    self.next_offset = max(self.next_offset, min(indexed.next_offset, self._end))
                if damage is None:
                    return None
                raise DamageError(damage)
            except DamageError as e:
                found = self._leave_out(e.damage, batches)
            except OversizedRecordError as e:
                raise e.within(self._topic_partition, self._origin.file, self._origin.position) from None
            if found is None:
                return None
            row = int(np.searchsorted(batches.position, found))
            if row >= stop or batches.position[row] != found:
                return found

    def _leave_out(self, damage: BadBytes, batches: Batches) -> int | None:
        """Report the damage, and return where the next valid batch begins; None if there is none."""
        if self._on_corrupt is None:
            raise self._error(damage) from None
        found = self._next_valid(damage, batches)
        size = (self._data.size if found is None else found) - damage.position
        self._on_corrupt(self._error(damage._replace(message=f"Skipped {size} bytes: {damage.message}")))
        return found

    def _next_valid(self, damage: BadBytes, batches: Batches) -> int | None:
        """The position of the next valid batch: after the damaged one and others like it, or else inside.

        Inside, a record's value may hold bytes of batches that never were in this log, and a compressed
        message set those of its own messages.
        """
        if damage.after is not None:
            for row in range(int(np.searchsorted(batches.position, damage.after)), len(batches)):
                is_right = first_bad_checksum(self._data, batches, row, row + 1) > row
                if is_right and batches.last_offset[row] >= self.next_offset:
                    return int(batches.position[row])
            is_valid_to_end = damage.after == batches.end and batches.status is not WalkStatus.INVALID
            if batches.status is WalkStatus.END or is_valid_to_end:
                return batches.end
            if batches.status is WalkStatus.INCOMPLETE:
                return find_batch(self._data, batches.end, min_offset=self.next_offset)
        return find_batch(self._data, damage.position + 1, min_offset=self.next_offset)

    def _error(self, damage: BadBytes) -> CorruptRecordError:
        return _error(damage, self._topic_partition, self.next_offset, self._origin)

    def _stop(self, batches: Batches, first: int) -> tuple[int, BadBytes | None]:
        """The end of the batches from ``first`` on that may be read, and what is wrong there.

        Where offsets fall, either batch may be at fault, as the CRC does not cover the base offset. It is
        the earlier one if that left a gap and the later would fit without it.
        """
        reaching = np.flatnonzero(batches.last_offset[first:] >= self._end - 1)
        stop = first + int(reaching[0]) if reaching.size else len(batches)
        complete = bool(reaching.size) and batches.base_offset[stop] < self._end
        if complete:
            stop += 1
        looked_at = slice(first, stop if complete else stop + 2)
        falls = batches.base_offset[looked_at][1:] <= batches.last_offset[looked_at][:-1]
        if falls.any():
            row = first + int(falls.argmax())
            before = batches.last_offset[row - 1] if row else self.next_offset - 1
            leaps = batches.base_offset[row] > before + 1
            row += 0 if leaps and (row == 0 or batches.base_offset[row + 1] > before) else 1
            if row <= stop:
                return row, damage_at(batches, row, "The offsets of batches do not rise")
        if not complete and stop == len(batches) and batches.status is WalkStatus.INVALID:
            return stop, BadBytes(_NOT_A_BATCH, batches.end)
        return stop, None

    def _wanted(self, batches: Batches, first: int, stop: int) -> np.ndarray:
        """Whether the records of each batch are rows: neither markers nor hidden by the isolation level."""
        is_row = ~batches.is_control
        return is_row if self._visible is None else is_row & ~self._visible.hidden(batches, first, stop)

    def _decoded(self, indexed: Indexed, batches: Batches) -> Iterator[Decoded]:
        """Arrow batches of some records of ``batches``, within the limits."""
        index = indexed.table
        rows = self._good_timestamps(index)
        first = 0
        for end in self._cuts(indexed, rows):
            last = end == index.shape[1]
            next_offset = indexed.next_offset if last else int(index[kernels.OFFSET, end - 1]) + 1
            self.next_offset = self.reported_offset = min(next_offset, self._end)
            arrow_batch = self.columns.build(indexed.source, index[:, first:end], indexed.timestamp_type)
            yield Decoded(arrow_batch, self.reported_offset)
            first = end
        if rows < index.shape[1]:
            offset, timestamp = index[[kernels.OFFSET, kernels.TIMESTAMP], rows].tolist()
            row = np.searchsorted(np.maximum.accumulate(batches.last_offset), offset)
            raise CorruptRecordError(
                f"[KAFKA_MALFORMED_RECORD_TIMESTAMP] Spark cannot hold a timestamp of {timestamp} ms",
                topic_partition=self._topic_partition,
                offset=offset,
                file=self._origin.file,
                position=self._origin.position + int(batches.position[row]),
                hint="Read with a schema that has no column timestamp.",
            )

    def _good_timestamps(self, index: np.ndarray) -> int:
        """The number of rows before the first one whose timestamp does not fit a requested column."""
        timestamps: np.ndarray = index[kernels.TIMESTAMP]
        if not self.columns.has_timestamps or not timestamps.size:
            return timestamps.size
        if timestamps.min() >= -MAX_TIMESTAMP and timestamps.max() <= MAX_TIMESTAMP:
            return timestamps.size
        return int(np.argmax((timestamps < -MAX_TIMESTAMP) | (timestamps > MAX_TIMESTAMP)))

    def _cuts(self, indexed: Indexed, rows: int) -> Iterator[int]:
        """Ends of the Arrow batches for the first ``rows``; the index is within max_rows already."""
        max_bytes = min(self._limits.max_bytes, _MAX_ARROW_BYTES)
        # A header takes two bytes at least.
        may_have_many_headers = self.columns.has_headers and indexed.size > 2 * MAX_HEADERS
        if indexed.size <= max_bytes and not may_have_many_headers:
            if rows:
                yield rows
            return
        index = indexed.table[:, :rows]
        sizes = np.maximum(index[kernels.KEY_SIZE], 0) + np.maximum(index[kernels.VALUE_SIZE], 0)
        ends = np.cumsum(sizes + index[kernels.HEADERS_END] - index[kernels.HEADERS_AT])
        headers = np.cumsum(index[kernels.HEADERS]) if may_have_many_headers else None
        first, bytes_before, headers_before = 0, 0, 0
        while first < rows:
            fitting = int(np.searchsorted(ends, bytes_before + max_bytes, side="right"))
            if headers is not None:
                allowed = headers_before + MAX_HEADERS
                fitting = min(fitting, int(np.searchsorted(headers, allowed, side="right")))
            first = max(first + 1, fitting)
            bytes_before = int(ends[first - 1])
            headers_before = 0 if headers is None else int(headers[first - 1])
            yield first


def _error(
    damage: BadBytes, topic_partition: TopicPartition, offset: int, origin: Origin
) -> CorruptRecordError:
    return CorruptRecordError(
        damage.message,
        topic_partition=topic_partition,
        offset=offset,
        file=origin.file,
        position=origin.position + damage.position,
    )
