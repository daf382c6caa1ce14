"""Index the records of walked batches: checksum, decompress and parse them, in bounded steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Stage, allocate
from pyspark_kafkalog.codec.compression import Content, LargerError, decompress_each, readable
from pyspark_kafkalog.codec.format import LOG_APPEND_TIME, RECORDS_V2
from pyspark_kafkalog.codec.legacy import outer_messages, stage_message, staged_pieces
from pyspark_kafkalog.codec.pieces import invalid_record, record_pieces
from pyspark_kafkalog.codec.walk import Batches, first_bad_checksum
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.model import ALL_OFFSETS, OffsetRange

_Staged = TypeVar("_Staged")

MAX_RECORD_BYTES = 256 << 20
"""The default of ``maxRecordBytes``."""
_ROOM_BEYOND = 1 << 20
"""Bytes beyond :attr:`DecodeLimits.max_bytes` that the last batch may take before memory has to grow."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """The memory that decoding may take at a time, and whether checksums are verified.

    An Arrow batch has at most ``max_rows`` rows, at most :data:`.format.MAX_HEADERS` headers, and at most
    ``max_bytes`` of keys, values and headers unless it is a single row. A record batch that decompresses to
    more is read in pieces of that size. No record of such a batch may have more than ``max_record_bytes``,
    but those of up to ``max_bytes`` are always read.
    """

    max_rows: int = 50_000
    max_bytes: int = 16 << 20
    max_record_bytes: int = MAX_RECORD_BYTES
    check_crcs: bool = True


class BadBytes(NamedTuple):
    """Bytes of the buffer that are not a valid batch."""

    message: str
    position: int
    after: int | None = None
    """The position after the batch, if it is known."""


class DamageError(Exception):
    """Carries damage to the caller. No frame that raises it keeps a name for it: that would make a cycle."""

    def __init__(self, damage: BadBytes) -> None:
        super().__init__(damage)
        self.damage = damage


class Indexed(NamedTuple):
    """An index of consecutive records, maybe none. Use it up before the next, which takes the same memory."""

    source: np.ndarray
    """The bytes in which keys, values and headers lie."""
    table: np.ndarray
    """``table[column, row]``, see :mod:`.read_kernels`; offsets rise strictly."""
    size: int
    """A bound on the bytes of all their keys, values and headers."""
    timestamp_type: int
    next_offset: int
    piece_of: int | None = None
    """The row of the batch, if it is too large to be staged whole: then these are some of its records."""


class _Body(NamedTuple):
    """Uncompressed records of consecutive batches of one format."""

    source: np.ndarray
    table: np.ndarray
    """Regions or messages, see :mod:`.read_kernels`."""
    owners: np.ndarray
    """The row of its batch in the walk, for each region or message."""
    batches: int
    """The number of batches."""
    damage: BadBytes | None = None
    """The reason why the batch after them cannot be read."""
    first_record: int = 0
    """The number of the first record of a piece of a batch."""


class Indexer:
    """Indexes the records of batches in one buffer."""

    def __init__(self, data: np.ndarray, batches: Batches, limits: DecodeLimits) -> None:
        self._data = data
        self._batches = batches
        self._limits = limits
        columns = kernels.INDEX_COLUMNS
        self._index = allocate(columns * limits.max_rows, np.int64).reshape(columns, -1)
        self._stage = Stage(limits.max_bytes + _ROOM_BEYOND)
        self._largest = max(limits.max_record_bytes, limits.max_bytes)
        kinds = batches.timestamp_type * 2 + (batches.magic == 2)
        self._kind_ends = np.append(np.flatnonzero(np.diff(kinds)) + 1, len(batches))
        self._size_ends = np.cumsum(batches.size)

    def index(self, first: int, stop: int, wanted: np.ndarray, offsets: OffsetRange) -> Iterator[Indexed]:
        """The records within ``offsets`` of the batches ``first`` to ``stop``, in order.

        :param wanted: a bool for each batch of the walk; of the others only the checksum is verified.
        :raises DamageError: at the first batch that is invalid, after the records before it.
        """
        intact = row = first
        while row < stop:
            end = self._group_end(row, stop)
            if intact <= row:
                check = self._limits.check_crcs
                intact = first_bad_checksum(self._data, self._batches, row, end) if check else end
            if intact == row:
                raise DamageError(damage_at(self._batches, row, "CRC mismatch"))
            row = yield from self._index_group(row, min(end, intact), wanted, offsets)

    def _group_end(self, row: int, stop: int) -> int:
        """End of the batches from ``row`` that have one format and timestamp type, not too large together."""
        of_a_kind = int(self._kind_ends[np.searchsorted(self._kind_ends, row, side="right")])
        limit = self._size_ends[row] - self._batches.size[row] + self._limits.max_bytes
        small = int(np.searchsorted(self._size_ends, limit, side="right"))
        return min(of_a_kind, max(small, row + 1), stop)

    def _index_group(
        self, row: int, end: int, wanted: np.ndarray, offsets: OffsetRange
    ) -> Generator[Indexed, None, int]:
        """Index the batches ``row`` to ``end``, or fewer if their content is large; returns the end."""
        batches = self._batches
        rows = row + np.flatnonzero(wanted[row:end])
        self._stage.clear()
        if batches.magic[row] == 2:
            body, steps = self._without_invalid_large(self._regions(rows)), self._index_regions
        else:
            body, steps = self._messages(rows, offsets), self._index_messages
        if body.batches < rows.size:
            end = int(rows[body.batches])
            if not body.batches and body.damage is None:
                end += 1
                yield from self._index_large(end - 1, offsets)
        size = int(batches.size[row:end].sum() if body.source is self._data else body.source.size)
        timestamp_type = int(batches.timestamp_type[row])
        for index, next_offset in steps(body, offsets):
            yield Indexed(body.source, index, size, timestamp_type, next_offset)
        if body.damage is not None:
            raise DamageError(body.damage)
        yield Indexed(
            body.source, self._index[:, :0], 0, timestamp_type, int(batches.last_offset[end - 1]) + 1
        )
        return end

    def _regions(self, rows: np.ndarray) -> _Body:
        batches = self._batches
        starts, ends = batches.position[rows] + RECORDS_V2, batches.position[rows] + batches.size[rows]
        source, damage = self._data, None
        if batches.compression[rows].any():
            source, starts, ends, damage = self._decompressed(rows, starts, ends)
            rows = rows[: starts.size]
        return _Body(source, self._region_table(rows, starts, ends), rows, rows.size, damage)

    def _region_table(self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        batches = self._batches
        appended = batches.timestamp_type[rows] == LOG_APPEND_TIME
        table = np.empty((kernels.REGION_COLUMNS, rows.size), np.int64)
        table[kernels.BODY] = starts
        table[kernels.BODY_END] = ends
        table[kernels.RECORDS] = batches.count[rows]
        table[kernels.REGION_OFFSET] = batches.base_offset[rows]
        table[kernels.LAST_OFFSET_DELTA] = batches.last_offset[rows] - batches.base_offset[rows]
        table[kernels.REGION_TIMESTAMP] = np.where(
            appended, batches.max_timestamp[rows], batches.base_timestamp[rows]
        )
        table[kernels.DELTA_FACTOR] = ~appended
        return table

    def _decompressed(
        self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, BadBytes | None]:
        """The records ``data[start:end]`` of the batches ``rows``, or of as many as memory allows.

        Returns the bytes that hold them, where those of each batch start and end, and what is wrong
        with the next batch.
        """
        staged_sizes = decompress_each(
            self._batches.compression[rows],
            self._data,
            starts,
            ends,
            max_bytes=self._limits.max_bytes,
            stage=self._stage,
        )
        staged, damage = self._staged(rows, staged_sizes)
        bounds = np.array([0, *staged], np.int64)
        return self._stage.data, bounds[:-1], bounds[1:], damage

    def _messages(self, rows: np.ndarray, offsets: OffsetRange) -> _Body:
        table, owners = outer_messages(self._batches, rows), rows
        source, damage = self._data, None
        if self._batches.compression[rows].any():
            tables, damage = self._staged(rows, map(self._stage_message, rows.tolist()))
            rows = rows[: len(tables)]
            table = np.concatenate([table[:, :0], *tables], axis=1)
            owners = np.repeat(rows, [part.shape[1] for part in tables])
            source = self._stage.data
        return _within(offsets, _Body(source, table, owners, rows.size, damage))

    def _stage_message(self, row: int) -> np.ndarray:
        return stage_message(
            self._data,
            self._batches,
            row,
            self._stage,
            max_bytes=self._limits.max_bytes,
            check_crcs=self._limits.check_crcs,
        )

    def _staged(self, rows: np.ndarray, parts: Iterator[_Staged]) -> tuple[list[_Staged], BadBytes | None]:
        """``parts`` of as many of the batches ``rows`` as memory allows, and what is wrong with the next.

        There are none if the first is too large to be staged whole.
        """
        staged: list[_Staged] = []
        try:
            for part in parts:
                staged.append(part)
                if self._stage.size >= self._limits.max_bytes:
                    break
        except LargerError:
            pass
        except CorruptRecordError as e:
            return staged, damage_at(self._batches, int(rows[len(staged)]), e.message)
        return staged, None

    def _index_large(self, row: int, offsets: OffsetRange) -> Iterator[Indexed]:
        """The records of a batch that is too large to be staged whole.

        It is read twice, as no record may come out before the whole batch is known to be valid.
        """
        batches = self._batches
        timestamp_type = int(batches.timestamp_type[row])
        next_offset = int(batches.base_offset[row])
        is_v2 = batches.magic[row] == 2
        try:
            if is_v2:
                for _, index in self._large_regions(row, ALL_OFFSETS):
                    if index[kernels.OFFSET, 0] < next_offset:
                        raise CorruptRecordError("The offsets of a batch's records do not rise")
                    next_offset = int(index[kernels.OFFSET, -1]) + 1
            for size, index in (self._large_regions if is_v2 else self._large_messages)(row, offsets):
                next_offset = int(index[kernels.OFFSET, -1]) + 1
                yield Indexed(self._stage.data, index, size, timestamp_type, next_offset, row)
                if next_offset >= offsets.end:
                    return
        except OversizedRecordError as e:
            raise oversized(batches, row, e.message, next_offset) from None
        except CorruptRecordError as e:
            raise DamageError(damage_at(batches, row, e.message)) from None

    def _large_regions(self, row: int, offsets: OffsetRange) -> Iterator[tuple[int, np.ndarray]]:
        """Indexes of the batch's records, some at a time, and a bound on their bytes."""
        batches, rows = self._batches, np.array([row])
        begin, size = int(batches.position[row]), int(batches.size[row])
        compression = int(batches.compression[row])
        stored = readable(compression, self._data[begin + RECORDS_V2 : begin + size], 2)
        with Content(compression, stored, max_block=self._largest) as content:
            count, window = int(batches.count[row]), self._limits.max_bytes
            for piece in record_pieces(content, self._stage, count, window=window, largest=self._largest):
                table = self._region_table(rows, np.array([0]), np.array([piece.end]))
                table[kernels.RECORDS] = piece.records
                body = _Body(self._stage.data, table, rows, 1, first_record=piece.first)
                for index, _ in self._index_regions(body, offsets):
                    yield piece.end, index

    def _large_messages(self, row: int, offsets: OffsetRange) -> Iterator[tuple[int, np.ndarray]]:
        limits = self._limits
        for table in staged_pieces(
            self._data,
            self._batches,
            row,
            self._stage,
            window=limits.max_bytes,
            largest=self._largest,
            check_crcs=limits.check_crcs,
        ):
            body = _within(offsets, _Body(self._stage.data, table, np.full(table.shape[1], row), 1))
            for index, _ in self._index_messages(body, offsets):
                yield self._stage.size, index

    def _without_invalid_large(self, body: _Body) -> _Body:
        """``body`` up to the first invalid batch that is too large to be indexed in one step.

        Such a batch takes several, and no record may come out before the whole batch is known to be valid.
        """
        for region in np.flatnonzero(body.table[kernels.RECORDS] > self._limits.max_rows).tolist():
            alone = np.ascontiguousarray(body.table[:, region : region + 1])
            _, record, _, _, status = kernels.index_records(body.source, alone, 0, 0, 0, 0, 0, self._index)
            if status == kernels.INVALID:
                damage = self._invalid_record(body, region, record)
                return body._replace(
                    table=np.ascontiguousarray(body.table[:, :region]),
                    owners=body.owners[:region],
                    damage=damage,
                )
        return body

    def _index_regions(self, body: _Body, offsets: OffsetRange) -> Iterator[tuple[np.ndarray, int]]:
        """Index v2 records, a full index at a time, of whole batches where they fit."""
        region = record = at = 0
        status = kernels.FULL
        while status == kernels.FULL:
            region, record, at, rows, status = kernels.index_records(
                body.source, body.table, region, record, at, *offsets, self._index
            )
            if rows:
                inside = status == kernels.FULL and record > 0
                last_offset = (
                    self._index[kernels.OFFSET, rows - 1]
                    if inside
                    else self._batches.last_offset[body.owners[region - 1]]
                )
                yield self._index[:, :rows], int(last_offset) + 1
        if status == kernels.INVALID:
            raise DamageError(self._invalid_record(body, region, record))

    def _index_messages(self, body: _Body, offsets: OffsetRange) -> Iterator[tuple[np.ndarray, int]]:
        """Index v0 and v1 messages, a full index at a time."""
        message, messages = 0, body.table.shape[1]
        while message < messages:
            step = min(self._limits.max_rows, messages - message)
            rows = kernels.index_messages(body.source, body.table, message, self._index)
            message += rows
            if rows:
                yield self._index[:, :rows], int(self._index[kernels.OFFSET, rows - 1]) + 1
            if rows < step:
                raise DamageError(self._invalid_record(body, message, 0))

    def _invalid_record(self, body: _Body, part: int, record: int) -> BadBytes:
        message = invalid_record(body.first_record + record)
        return damage_at(self._batches, int(body.owners[part]), message)


def _within(offsets: OffsetRange, messages: _Body) -> _Body:
    """The ``messages`` within ``offsets``."""
    start, stop = offsets
    found = messages.table[kernels.MESSAGE_OFFSET]
    within = (found >= start) & (found < stop)
    return messages._replace(
        table=np.ascontiguousarray(messages.table[:, within]), owners=messages.owners[within]
    )


def oversized(batches: Batches, row: int, message: str, offset: int) -> OversizedRecordError:
    """An error of a batch of the walk, at the position that this has in the buffer."""
    next_offset = int(batches.last_offset[row]) + 1
    return OversizedRecordError(
        message,
        offset=offset,
        position=int(batches.position[row]),
        hint="Raise maxRecordBytes, if there is memory for three times such a record;"
        f" or go on behind its batch, at offset {next_offset}.",
        next_offset=next_offset,
    )


def damage_at(batches: Batches, row: int, message: str) -> BadBytes:
    """The damage of a batch of the walk."""
    position = int(batches.position[row])
    return BadBytes(message, position, position + int(batches.size[row]))
