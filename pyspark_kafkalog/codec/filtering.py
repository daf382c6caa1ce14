"""Leave out some records of record batches (Kafka's ``MemoryRecords.filterTo``).

The offsets of the others stay, and so does the range of offsets of a v2 batch, which gives the last sequence
number of its producer. A batch that keeps all its records is not touched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from pyspark_kafkalog.codec import read_kernels as read
from pyspark_kafkalog.codec import write_kernels as write
from pyspark_kafkalog.codec.buffers import Stage, allocate
from pyspark_kafkalog.codec.checksums import crc32
from pyspark_kafkalog.codec.compression import LargerError, compress, compress_pieces
from pyspark_kafkalog.codec.encode import put_checksums
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    BASE_TIMESTAMP_V2,
    COMPRESSION_MASK,
    COUNT_V2,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    LZ4,
    MAGIC,
    MAX_TIMESTAMP_V2,
    NO_TIMESTAMP,
    NONE,
    OFFSET,
    RECORDS_V2,
    SIZE,
)
from pyspark_kafkalog.codec.indexing import (
    MAX_RECORD_BYTES,
    DamageError,
    DecodeLimits,
    Indexed,
    Indexer,
    damage_at,
    oversized,
)
from pyspark_kafkalog.codec.legacy import stage_message
from pyspark_kafkalog.codec.lz4 import with_header_checksum_of_magic_0
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import ALL_OFFSETS

_LIMITS = DecodeLimits(check_crcs=False)
_SMALLEST_RECORD = 7
"""Bytes of a v2 record without key, value and headers."""

Keep = Callable[[Indexed, np.ndarray], np.ndarray]
"""Says which records are retained, a bool for each, given the number of each record's batch."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The ways in which batches may change: arrays with a bool for each batch."""

    whole: np.ndarray
    """The batch stays as it is."""
    discarded: np.ndarray
    """The batch loses all its records."""
    stays_empty: np.ndarray
    """The header of the batch stays, even if none of its records does (v2 only)."""
    starts_horizon: np.ndarray
    """The batch gets a delete horizon as if it had a tombstone: the marker of an empty transaction."""
    horizon: int | None = None
    """The delete horizon (ms) of v2 batches that have a tombstone, and no horizon yet; None to set none."""


@dataclass(slots=True)
class Filtered:
    """The batches that a filter retains, whether any changed, and how many records it read and retained."""

    data: np.ndarray
    changed: bool
    records: int
    retained: int


@dataclass(slots=True)
class _PieceCounts:
    """The records of a batch that comes in pieces: how many were read so far, and how many are retained."""

    records: int = 0
    retained: int = 0
    has_tombstone: bool = False
    """Whether the retained records have a tombstone; the timestamps are theirs, too."""
    first_timestamp: int = NO_TIMESTAMP
    latest_timestamp: int = NO_TIMESTAMP

    def add(self, table: np.ndarray, retained: np.ndarray) -> None:
        chosen = np.flatnonzero(retained)
        if chosen.size:
            timestamps = table[read.TIMESTAMP][chosen]
            self.first_timestamp = self.first_timestamp if self.retained else int(timestamps[0])
            self.latest_timestamp = max(self.latest_timestamp, int(timestamps.max()))
            self.has_tombstone = self.has_tombstone or bool((table[read.VALUE_SIZE][chosen] < 0).any())
        self.records += retained.size
        self.retained += chosen.size


def filter_batches(
    data: np.ndarray,
    batches: Batches,
    rules: BatchRules,
    keep: Keep,
    *,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Filtered:
    """Leave out records of ``batches``, of which all are in ``data``, and their checksums right.

    :param keep: asked twice of the records of a batch that is too large to be decompressed at once.
    :raises CorruptRecordError: at an invalid batch, with its position in ``data``.
    :raises OversizedRecordError: at one with a record that decompresses to more than ``max_record_bytes``, or
        a compressed message set that does. Its position is the one in ``data``, too.
    """
    filtering = _Filtering(data, batches, rules, keep, max_record_bytes)
    try:
        return filtering.run()
    except DamageError as e:
        raise CorruptRecordError(e.damage.message, position=e.damage.position) from None


@dataclass(slots=True)
class _Filtering:
    data: np.ndarray
    batches: Batches
    rules: BatchRules
    keep: Keep
    max_record_bytes: int
    parts: dict[int, np.ndarray] = field(default_factory=dict)
    """The new bytes of batches that lose some of their records, or change otherwise, by number."""
    records: int = 0
    retained: int = 0

    def run(self) -> Filtered:
        batches, rules = self.batches, self.rules
        whole = rules.whole.copy()
        self.records += int(np.maximum(batches.count[whole | rules.discarded], 0).sum())
        self.retained += int(np.maximum(batches.count[whole], 0).sum())
        is_wrapper = (batches.magic < 2) & (batches.compression != NONE)
        undecided = ~(whole | rules.discarded)
        large: dict[int, _PieceCounts] = {}
        for indexed in self._indexed(undecided & ~is_wrapper):
            if indexed.piece_of is None:
                self._filter(indexed, whole)
            else:
                large.setdefault(indexed.piece_of, _PieceCounts()).add(indexed.table, self._retains(indexed))
        for row, seen in large.items():
            self._filter_large(row, seen, whole)
        stage = Stage()
        for row in np.flatnonzero(undecided & is_wrapper).tolist():
            self._filter_wrapper(row, stage, whole)
        self._add_empty(np.flatnonzero(rules.stays_empty & ~whole & (batches.magic == 2)))
        return Filtered(self._joined(whole), not whole.all(), self.records, self.retained)

    def _indexed(self, wanted: np.ndarray) -> Iterable[Indexed]:
        """The records of the wanted batches, of which none is divided that has not too many bytes."""
        batches = self.batches
        bytes_at_most = np.where(batches.compression == NONE, batches.size, _LIMITS.max_bytes)
        rows = np.minimum(batches.count, bytes_at_most // _SMALLEST_RECORD)
        limits = replace(
            _LIMITS,
            max_rows=max(_LIMITS.max_rows, int(rows[wanted].max(initial=0))),
            max_record_bytes=self.max_record_bytes,
        )
        return Indexer(self.data, batches, limits).index(0, len(batches), wanted, ALL_OFFSETS)

    def _retains(self, indexed: Indexed) -> np.ndarray:
        """Whether each record of a piece of a batch is retained."""
        return self.keep(indexed, np.full(indexed.table.shape[1], indexed.piece_of))

    def _filter(self, indexed: Indexed, whole: np.ndarray) -> None:
        table, batches = indexed.table, self.batches
        if not table.shape[1]:
            return
        owners = np.searchsorted(batches.last_offset, table[read.OFFSET])
        retained = self.keep(indexed, owners)
        starts = np.append(0, np.flatnonzero(np.diff(owners)) + 1)
        rows = owners[starts]
        counts = np.add.reduceat(retained, starts, dtype=np.int64)
        self.records += retained.size
        self.retained += int(counts.sum())
        horizons, new = self._horizons(
            rows, np.logical_or.reduceat(retained & (table[read.VALUE_SIZE] < 0), starts)
        )
        stays = (counts == batches.count[rows]) & ~new
        whole[rows[stays]] = True
        changes = (counts > 0) & ~stays
        if changes.any():
            chosen = np.flatnonzero(retained & np.repeat(changes, np.diff(np.append(starts, retained.size))))
            self._rebuild(indexed, rows[changes], counts[changes], horizons[changes], chosen)

    def _horizons(self, rows: np.ndarray, have_tombstones: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The delete horizons of the batches ``rows``, -1 without one, and which of them are new."""
        batches = self.batches
        horizons = np.where(
            batches.attributes[rows] & DELETE_HORIZON_BIT != 0, batches.base_timestamp[rows], NO_TIMESTAMP
        )
        horizons[batches.magic[rows] < 2] = NO_TIMESTAMP
        new = np.zeros(rows.size, bool)
        if self.rules.horizon is not None:
            starts = have_tombstones | self.rules.starts_horizon[rows]
            new = starts & (horizons < 0) & (batches.magic[rows] == 2)
            horizons[new] = self.rules.horizon
        return horizons, new

    def _rebuild(
        self, indexed: Indexed, rows: np.ndarray, counts: np.ndarray, horizons: np.ndarray, chosen: np.ndarray
    ) -> None:
        """Write the v2 batches ``rows`` again, each with so many of the ``chosen`` records of the index."""
        ends = np.cumsum(counts)
        first_timestamps = indexed.table[read.TIMESTAMP][chosen[ends - counts]]
        bases = np.where(horizons >= 0, horizons, first_timestamps)
        out, sizes = self._written(indexed, rows, ends, horizons, bases, chosen)
        ends = np.cumsum(sizes)
        put_checksums(out, ends - sizes, sizes)
        columns_of_batches = (rows, self.batches.compression[rows], ends, sizes)
        for row, compression, end, size in zip(*(c.tolist() for c in columns_of_batches), strict=True):
            part = out[end - size : end]
            if compression != NONE:
                part = _closed(part[:RECORDS_V2], compress(compression, part[RECORDS_V2:]))
            self.parts[row] = part

    def _written(
        self,
        indexed: Indexed,
        rows: np.ndarray,
        ends: np.ndarray,
        horizons: np.ndarray,
        bases: np.ndarray,
        chosen: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The batches ``rows`` with their chosen records, not compressed, and the size of each."""
        columns = [
            indexed.table[column][chosen]
            for column in (read.OFFSET, read.TIMESTAMP, read.KEY_AT, read.KEY_SIZE, read.HEADERS_END)
        ]
        room = int((columns[4] - columns[2]).sum()) + write.MAX_HEAD * chosen.size + RECORDS_V2 * rows.size
        out, sizes = allocate(room), np.empty(rows.size, np.int64)
        positions = self.batches.position[rows]
        write.rebuild(self.data, positions, ends, horizons, bases, indexed.source, *columns, out, sizes)
        return out, sizes

    def _filter_large(self, row: int, seen: _PieceCounts, whole: np.ndarray) -> None:
        """Leave out records of a batch that is read in pieces, of which all were ``seen``."""
        horizons, new = self._horizons(np.array([row]), np.array([seen.has_tombstone]))
        self.records += seen.records
        self.retained += seen.retained
        if seen.retained == self.batches.count[row] and not new:
            whole[row] = True
        elif seen.retained:
            self.parts[row] = self._rebuilt_large(row, seen, horizons)

    def _rebuilt_large(self, row: int, seen: _PieceCounts, horizons: np.ndarray) -> np.ndarray:
        rows, only = np.array([row]), np.arange(len(self.batches)) == row
        bases = np.where(horizons >= 0, horizons, seen.first_timestamp)
        header = np.empty(RECORDS_V2, np.uint8)

        def records() -> Iterator[np.ndarray]:
            for indexed in self._indexed(only):
                chosen = np.flatnonzero(self._retains(indexed)) if indexed.piece_of is not None else rows[:0]
                if chosen.size:
                    ends = np.array([chosen.size])
                    out, sizes = self._written(indexed, rows, ends, horizons, bases, chosen)
                    header[:] = out[:RECORDS_V2]
                    yield out[RECORDS_V2 : int(sizes[0])]

        content = b"".join(compress_pieces(int(self.batches.compression[row]), records()))
        write.put_ints(header, _at(COUNT_V2), _at(seen.retained), 4)
        if not self.batches.attributes[row] & LOG_APPEND_TIME_BIT:
            write.put_ints(header, _at(MAX_TIMESTAMP_V2), _at(seen.latest_timestamp), 8)
        return _closed(header, content)

    def _filter_wrapper(self, row: int, stage: Stage, whole: np.ndarray) -> None:
        """Leave out messages of a compressed message set."""
        stage.clear()
        try:
            messages = stage_message(
                self.data,
                self.batches,
                row,
                stage,
                max_bytes=self.max_record_bytes,
                check_crcs=False,
            )
        except LargerError:
            message = f"A compressed message set decompresses to more than {self.max_record_bytes} bytes"
            raise oversized(self.batches, row, message, int(self.batches.base_offset[row])) from None
        except CorruptRecordError as e:
            raise DamageError(damage_at(self.batches, row, e.message)) from None
        count = messages.shape[1]
        table = np.empty((read.INDEX_COLUMNS, count), np.int64)
        if read.index_messages(stage.data, messages, 0, table) < count:
            raise DamageError(
                damage_at(self.batches, row, "A message of a compressed message set is invalid")
            )
        timestamp_type = int(self.batches.timestamp_type[row])
        indexed = Indexed(
            stage.data, table, stage.size, timestamp_type, int(self.batches.last_offset[row]) + 1
        )
        retained = self.keep(indexed, np.full(count, row))
        self.records += count
        self.retained += int(retained.sum())
        if retained.all():
            whole[row] = True
        elif retained.any():
            self.parts[row] = _wrapper(stage.data, messages[:, retained], self.batches, row)

    def _add_empty(self, rows: np.ndarray) -> None:
        """Keep the headers of those of the v2 batches ``rows`` that keep no record."""
        for row in rows.tolist():
            if row not in self.parts:
                position = int(self.batches.position[row])
                header = self.data[position : position + RECORDS_V2].copy()
                attributes = int(self.batches.attributes[row]) & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
                write.put_ints(header, _at(SIZE), _at(RECORDS_V2 - LOG_OVERHEAD), 4)
                write.put_ints(header, _at(ATTRIBUTES_V2), _at(attributes), 2)
                write.put_ints(header, _at(BASE_TIMESTAMP_V2), _at(NO_TIMESTAMP), 8)
                write.put_ints(header, _at(COUNT_V2), _at(0), 4)
                put_checksums(header, _at(0), _at(RECORDS_V2))
                self.parts[row] = header

    def _joined(self, whole: np.ndarray) -> np.ndarray:
        if whole.all():
            return self.data[: self.batches.end]
        pieces = [self.data[:0]]
        remaining = whole.copy()
        remaining[list(self.parts)] = True
        positions, sizes = self.batches.position, self.batches.size
        for row in np.flatnonzero(remaining).tolist():
            part = self.parts.get(row)
            pieces.append(self.data[positions[row] : positions[row] + sizes[row]] if part is None else part)
        return np.concatenate(pieces)


def _closed(header: np.ndarray, records: bytes) -> np.ndarray:
    """A v2 batch of this header, except for size and checksum, and of records as the header says they are."""
    batch = np.concatenate([header, np.frombuffer(records, np.uint8)])
    write.put_ints(batch, _at(SIZE), _at(batch.size - LOG_OVERHEAD), 4)
    put_checksums(batch, _at(0), _at(batch.size))
    return batch


def _at(value: int) -> np.ndarray:
    """One value for a kernel that takes many."""
    return np.array([value], np.int64)


def _wrapper(source: np.ndarray, messages: np.ndarray, batches: Batches, row: int) -> np.ndarray:
    """A compressed message set of some of its messages, as Kafka's MemoryRecordsBuilder writes it.

    Messages stay as they are except for their offsets, which no checksum covers.
    """
    magic, attributes = int(batches.magic[row]), int(batches.attributes[row])
    offsets, sizes = messages[read.MESSAGE_OFFSET], messages[read.MESSAGE_SIZE]
    ends = np.append(0, np.cumsum(sizes))
    content = allocate(int(ends[-1]))
    read.gather(source, np.ascontiguousarray(messages[read.MESSAGE]), ends.astype(np.int32), content)
    inner = offsets - offsets[0] if magic == 1 else offsets
    write.put_ints(content, ends[:-1] + OFFSET, np.ascontiguousarray(inner), 8)
    compression = attributes & COMPRESSION_MASK
    value = compress(compression, content)
    if compression == LZ4 and magic == 0:
        value = with_header_checksum_of_magic_0(value)
    timestamp = b""
    if magic == 1:
        appended = attributes & LOG_APPEND_TIME_BIT
        latest = int(batches.max_timestamp[row]) if appended else int(messages[read.MESSAGE_TIMESTAMP].max())
        timestamp = struct.pack(">q", latest)
    summed = struct.pack(">bb", magic, attributes) + timestamp + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">qiI", int(offsets[-1]), 4 + len(summed), crc32(summed)) + summed
    assert len(message) - len(summed) == MAGIC
    return np.frombuffer(message, np.uint8)
