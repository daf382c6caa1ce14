"""Record batches become Arrow batches: the one decoder, for segment files and fetch responses alike."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Buffer, as_array
from pyspark_kafkalog.codec.format import MAX_HEADERS, NO_PRODUCER_ID
from pyspark_kafkalog.codec.indexing import Damage, DamageError, DecodeLimits, Indexed, Indexer, damage_at
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.codec.rows import MAX_TIMESTAMP, RowColumns
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, find_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import OffsetRange, OnCorrupt, Origin, TopicPartition

__all__ = ["DecodeLimits", "Decoded", "decode", "first_record_at"]

_DEFAULT_LIMITS = DecodeLimits()
_NO_ORIGIN = Origin()
_MAX_ARROW_BYTES = (1 << 31) - 1
"""What the 32-bit offsets of an Arrow binary column can reach."""


class Decoded(NamedTuple):
    """Some rows, maybe none, and the offset from which to read on after them."""

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
    """The records of ``buffer`` within ``offsets``, in order of their offsets.

    The buffer holds consecutive batches of any format, also below and above ``offsets``. One
    that is not all there at the end is left unread. Progress comes from the batches' headers, as
    compaction, markers and aborted transactions leave no rows: whenever a batch was
    consumed, the last ``next_offset`` is after it, but at most ``offsets.end``.

    :param visible: what a read_committed reader may see; None for read_uncommitted.
    :param schema: the columns to build, any of :data:`.rows.ROW_TYPES` in any order.
    :param on_corrupt: told of each stretch of bytes left out; reading goes on at the next valid batch.
    :raises CorruptRecordError: at the first invalid batch, after the rows before it, unless
        ``on_corrupt`` is given. In any case at a record whose timestamp has no place in a
        timestamp column that is asked for, as Spark's Kafka source does.
    """
    reading = _Reading(buffer, topic_partition, offsets, visible, schema, limits, origin, on_corrupt)
    position: int | None = 0
    while position is not None:
        position = yield from reading.rows(position)
    if reading.next_offset > reading.told_offset:
        yield Decoded(reading.columns.empty(), reading.next_offset)


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
    timestamp is too low are not looked into.

    :raises CorruptRecordError: if a batch that had to be looked into, or the framing, is invalid.
    """
    data = as_array(buffer)
    batches = walk(data)
    wanted = (batches.max_timestamp >= timestamp) & (batches.last_offset >= min_offset)
    indexer = Indexer(data, batches, limits)
    offsets = OffsetRange(min_offset, kernels.MAX_INT64)
    try:
        for row in np.flatnonzero(wanted).tolist():
            for found in indexer.index(row, row + 1, wanted, offsets):
                hits = np.flatnonzero(found.table[kernels.TIMESTAMP] >= timestamp)
                if hits.size:
                    return tuple(found.table[[kernels.OFFSET, kernels.TIMESTAMP], hits[0]].tolist())
        if batches.status is WalkStatus.INVALID:
            raise DamageError(Damage("Not a record batch", batches.end))
    except DamageError as e:
        raise _error(e.damage, topic_partition, min_offset, origin) from None
    return None


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
        self.columns = RowColumns(schema, topic_partition, limits.max_rows)
        self.next_offset = offsets.start
        self.told_offset = offsets.start
        """The next offset that the caller knows of."""

    def rows(self, position: int) -> Generator[Decoded, None, int | None]:
        """The wanted rows of the batches from ``position`` on; returns where to walk on, None if nowhere."""
        batches = walk(self._data, position)
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
            if found is None:
                return None
            row = int(np.searchsorted(batches.position, found))
            if row >= stop or batches.position[row] != found:
                return found

    def _leave_out(self, damage: Damage, batches: Batches) -> int | None:
        """Tell of the damage, and return where the next valid batch begins; None if there is none."""
        if self._on_corrupt is None:
            raise self._error(damage) from None
        found = self._next_valid(damage, batches)
        size = (self._data.size if found is None else found) - damage.position
        self._on_corrupt(self._error(damage._replace(message=f"Left out {size} bytes: {damage.message}")))
        return found

    def _next_valid(self, damage: Damage, batches: Batches) -> int | None:
        """Sought behind the damaged batch first, and only then inside.

        There a record's value may hold bytes of batches that never were in this log.
        """
        if damage.after is not None:
            if damage.after == batches.end and batches.status is not WalkStatus.INVALID:
                return damage.after
            stop = damage.after + 1
            if find_batch(self._data, damage.after, min_offset=self.next_offset, stop=stop) is not None:
                return damage.after
        return find_batch(self._data, damage.position + 1, min_offset=self.next_offset)

    def _error(self, damage: Damage) -> CorruptRecordError:
        return _error(damage, self._topic_partition, self.next_offset, self._origin)

    def _stop(self, batches: Batches, first: int) -> tuple[int, Damage | None]:
        """The end of the batches from ``first`` on that may be read, and what is wrong there.

        Where offsets fall, either batch may be at fault, as the CRC does not cover its base offset:
        the earlier one if it leapt and the later would fit without it.
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
            return stop, Damage("Not a record batch", batches.end)
        return stop, None

    def _wanted(self, batches: Batches, first: int, stop: int) -> np.ndarray:
        """For each batch whether its records are rows: not markers, nor what the isolation level hides."""
        is_control = batches.is_control
        wanted = ~is_control
        if self._visible is not None:
            of_producer = batches.is_transactional & (batches.producer_id != NO_PRODUCER_ID)
            for row in (first + np.flatnonzero(of_producer[first:stop])).tolist():
                producer_id, last_offset = int(batches.producer_id[row]), int(batches.last_offset[row])
                if is_control[row]:
                    self._visible.end_transaction(producer_id, last_offset)
                elif self._visible.hides(producer_id, int(batches.base_offset[row]), last_offset):
                    wanted[row] = False
        return wanted

    def _decoded(self, indexed: Indexed, batches: Batches) -> Iterator[Decoded]:
        """Arrow batches of some records of ``batches``, cut as the limits say."""
        index = indexed.table
        rows = self._good_timestamps(index)
        first = 0
        for end in self._cuts(indexed, rows):
            last = end == index.shape[1]
            next_offset = indexed.next_offset if last else int(index[kernels.OFFSET, end - 1]) + 1
            self.next_offset = self.told_offset = min(next_offset, self._end)
            arrow_batch = self.columns.build(indexed.source, index[:, first:end], indexed.timestamp_type)
            yield Decoded(arrow_batch, self.told_offset)
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
        """How many rows precede the first whose timestamp has no place in a column that is asked for."""
        timestamps: np.ndarray = index[kernels.TIMESTAMP]
        if not self.columns.has_timestamps or not timestamps.size:
            return timestamps.size
        if timestamps.min() >= -MAX_TIMESTAMP and timestamps.max() <= MAX_TIMESTAMP:
            return timestamps.size
        return int(np.argmax((timestamps < -MAX_TIMESTAMP) | (timestamps > MAX_TIMESTAMP)))

    def _cuts(self, indexed: Indexed, rows: int) -> Iterator[int]:
        """Ends of the Arrow batches into which ``rows`` go; the index is within max_rows already."""
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
        headers = np.cumsum(index[kernels.HEADERS])
        first, bytes_before, headers_before = 0, 0, 0
        while first < rows:
            fitting = int(np.searchsorted(ends, bytes_before + max_bytes, side="right"))
            if may_have_many_headers:
                most = headers_before + MAX_HEADERS
                fitting = min(fitting, int(np.searchsorted(headers, most, side="right")))
            first = max(first + 1, fitting)
            bytes_before, headers_before = int(ends[first - 1]), int(headers[first - 1])
            yield first


def _error(
    damage: Damage, topic_partition: TopicPartition, offset: int, origin: Origin
) -> CorruptRecordError:
    return CorruptRecordError(
        damage.message,
        topic_partition=topic_partition,
        offset=offset,
        file=origin.file,
        position=origin.position + damage.position,
    )
