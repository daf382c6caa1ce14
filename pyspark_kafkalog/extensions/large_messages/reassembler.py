"""Turns rows of one partition that hold message segments into rows that hold whole messages.

Does what ConsumerRecordsProcessor of li-apache-kafka-clients does record by record, but a batch
at a time: ordinary rows pass in runs, and each output batch is one gather.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import allocate, binary_column, int64_column
from pyspark_kafkalog.extensions.large_messages.assembler import (
    Arrival,
    Assembler,
    Dropped,
    DropReason,
    OpenMessage,
)
from pyspark_kafkalog.extensions.large_messages.format import INT64_MAX
from pyspark_kafkalog.extensions.large_messages.output import Message, Run, delivered
from pyspark_kafkalog.extensions.large_messages.segments import ERRORS, Find, Segments, finder
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.slice_file import SliceFile
from pyspark_kafkalog.extensions.large_messages.snapshot import dump, load
from pyspark_kafkalog.model import TopicPartition

ReadAgain = Callable[[Sequence[int]], pa.RecordBatch]
"""Reads the rows of some offsets, with columns offset, value and headers; leaves out those that are gone."""


@dataclass(frozen=True, slots=True)
class Reassembled:
    """The result of some rows: whole messages, and dropped ones."""

    rows: pa.RecordBatch
    dropped: list[Dropped]


@dataclass(frozen=True, slots=True)
class _Batch:
    """The rows of one call, with their value column as arrays."""

    rows: pa.RecordBatch
    offsets: np.ndarray
    value_offsets: np.ndarray
    data: np.ndarray

    @staticmethod
    def of(rows: pa.RecordBatch) -> _Batch:
        value_offsets, _, data = binary_column(rows.column("value"))
        return _Batch(rows, int64_column(rows.column("offset")), value_offsets, data)

    def value(self, row: int) -> np.ndarray:
        """The value of a row; shares memory."""
        return self.data[int(self.value_offsets[row]) : int(self.value_offsets[row + 1])]


class Reassembler:
    """Delivers the messages of one partition, whose rows are fed in the order of their offsets.

    :param evict: False if open messages can be read again. Then none is dropped because of the capacity:
        slices of the oldest go to the file ``aside``; what it does not take is forgotten, and read by
        ``read_again`` when the message completes.
    :param state: what :meth:`state` of an earlier one gave.
    :param extra_columns: whether rows get ``startingOffset`` and ``segmentCount``.
    """

    def __init__(
        self,
        partition: TopicPartition,
        settings: AssemblerSettings,
        *,
        evict: bool = True,
        read_again: ReadAgain | None = None,
        aside: SliceFile | None = None,
        state: bytes | None = None,
        extra_columns: bool = False,
    ) -> None:
        self._partition = partition
        self._aside = aside
        self._assembler = Assembler(partition, settings, evict=evict, aside=aside)
        self.find = finder(settings, partition)
        """Finds the message segments of rows."""
        self._read_again = read_again
        self._extra_columns = extra_columns
        self._last_offset = -1 if state is None else load(state, self._assembler)

    def feed(self, rows: pa.RecordBatch, *, now_ms: int = -1) -> Reassembled:
        """Take the next rows: ``offset`` (int64, rising), ``value``, maybe ``headers``, and any others.

        A delivered row is that of the record that completed its message, with the whole value.

        :param now_ms: the time, if open messages are to expire by it.
        :raises LargeMessageDroppedError: see :meth:`.assembler.Assembler.add`; the rows are lost then.
        """
        (reassembled,) = self.feed_in_parts(rows, self.find(rows), now_ms=now_ms, max_bytes=INT64_MAX)
        return reassembled

    def feed_in_parts(
        self, rows: pa.RecordBatch, found: Segments | None, *, now_ms: int = -1, max_bytes: int
    ) -> Iterator[Reassembled]:
        """Like :meth:`feed`, in parts, as without eviction few rows can complete many messages; exhaust it.

        :param found: what :attr:`find` gives for ``rows``.
        :param max_bytes: the most bytes of values in a part, unless ``rows`` have more, or a single message.
        """
        if found is None and not self._assembler.messages:
            if self._extra_columns:
                rows = delivered(rows, [Run(0, rows.num_rows)], None, extra_columns=True)
            yield Reassembled(rows, self._take_dropped())
            return
        marks = None if found is None else found.marks
        for runs in self._runs(_Batch.of(rows), found, now_ms, max_bytes):
            yield Reassembled(
                delivered(rows, runs, marks, extra_columns=self._extra_columns), self._take_dropped()
            )

    def adopt(self, messages: Sequence[OpenMessage]) -> None:
        """Add open messages, which may have begun before the first row that was fed."""
        opened = self._assembler.messages | {message.message_id: message for message in messages}
        self._assembler.restore(opened.values(), self._assembler.used)

    def expire(self, now_ms: int) -> list[Dropped]:
        """Drop the messages that have been open for too long."""
        self._assembler.expire_by_time(now_ms, self._last_offset)
        return self._take_dropped()

    def next_expiry_ms(self) -> int | None:
        """The least time at which :meth:`expire` drops something; None if it never does."""
        return self._assembler.next_expiry_ms

    def safe_offset(self, current: int) -> int | None:
        """The first offset of the oldest message that is open after ``current``; None if none is open."""
        return self._assembler.safe_offset(current)

    def open_messages(self) -> list[OpenMessage]:
        """The incomplete messages in the order in which they began; don't change them."""
        return list(self._assembler.messages.values())

    def state(self) -> bytes | None:
        """The state for a later :class:`Reassembler`; None if no message is open."""
        return dump(self._assembler, self._last_offset)

    def _take_dropped(self) -> list[Dropped]:
        dropped = self._assembler.dropped
        self._assembler.dropped = []
        return dropped

    def _runs(
        self, batch: _Batch, found: Segments | None, now_ms: int, max_bytes: int
    ) -> Iterator[list[Run]]:
        """Go through the rows and yield the runs to deliver, at least one list."""
        runs: list[Run] = []
        touched: set[bytes] = set()
        position = size = 0
        if found is not None:
            for row, arrival, error in _arrivals(batch, found):
                self._ordinary(batch, position, row, runs)
                size += int(batch.value_offsets[row] - batch.value_offsets[position])
                position = row + 1
                touched.add(arrival.message_id)
                run = self._segment(batch, row, arrival, error, now_ms)
                if run is not None:
                    added = sum(part.size for part in run.message.slices) if run.message else 0
                    if runs and size + added > max_bytes:
                        yield runs
                        runs, size = [], 0
                    runs.append(run)
                    size += added
        self._ordinary(batch, position, batch.rows.num_rows, runs)
        if batch.rows.num_rows:
            self._last_offset = int(batch.offsets[-1])
        self._copy_out(touched, batch)
        if now_ms >= 0:
            self._assembler.expire_by_time(now_ms, self._last_offset)
        yield runs

    def _ordinary(self, batch: _Batch, start: int, stop: int, runs: list[Run]) -> None:
        """Add rows without message segments, and drop what is too old before each of them."""
        while start < stop:
            end = stop
            if self._assembler.messages:
                self._assembler.expire(int(batch.offsets[start]))
                expiry = self._assembler.next_expiry
                if expiry is not None:
                    end = start + int(np.searchsorted(batch.offsets[start:stop], expiry))
            runs.append(Run(start, end, self._assembler.oldest_tracked))
            start = end

    def _segment(
        self, batch: _Batch, row: int, arrival: Arrival, error: DropReason | None, now_ms: int
    ) -> Run | None:
        """Take a message segment or a row in error; returns what to deliver for it."""
        if error is not None:
            if not batch.rows.column("value")[row].is_valid:
                self._assembler.expire(arrival.offset)  # such a record counts as delivered, and is lost
            self._assembler.reject(arrival, error)
            return None
        if arrival.count == 1:
            safe_offset = self._assembler.safe_offset(arrival.offset)
            assert arrival.slice is not None
            return Run(row, row + 1, safe_offset, Message([arrival.slice], arrival.offset, 1))
        complete = self._assembler.add(arrival, now_ms)
        if complete is None:
            return None
        slices = self._slices(complete)
        if slices is None:
            self._assembler.drop(complete, DropReason.NOT_READ_AGAIN, arrival.offset)
            return None
        safe_offset = self._assembler.safe_offset(arrival.offset)
        return Run(row, row + 1, safe_offset, Message(slices, complete.starting_offset, complete.count))

    def _slices(self, complete: OpenMessage) -> list[np.ndarray] | None:
        """The slices of a message in order; None if some are gone."""
        pieces = [complete.pieces[number] for number in range(complete.count)]
        for kept in pieces:
            if kept.aside is not None and self._aside is not None:
                kept.slice, kept.aside = self._aside.take(kept.aside, kept.size), None
        forgotten = {piece.offset: piece for piece in pieces if piece.slice is None}
        if forgotten and self._read_again is not None:
            for again, error in arrivals_in(self._read_again(sorted(forgotten)), self.find):
                piece = forgotten.get(again.offset)
                claims = (again.message_id, again.number, again.size)
                if error is None and piece and claims == (complete.message_id, piece.number, piece.size):
                    piece.slice = again.slice
        slices = [piece.slice for piece in pieces if piece.slice is not None]
        return slices if len(slices) == len(pieces) else None

    def _copy_out(self, touched: set[bytes], batch: _Batch) -> None:
        """Copy the slices of open messages in ``touched``, so that they don't keep the batch alive."""
        for message_id in touched & self._assembler.messages.keys():
            for piece in self._assembler.messages[message_id].pieces.values():
                if piece.slice is not None and piece.offset >= batch.offsets[0]:
                    piece.slice, shared = allocate(piece.size), piece.slice
                    piece.slice[:] = shared


def arrivals_in(rows: pa.RecordBatch, find: Find) -> Iterator[tuple[Arrival, DropReason | None]]:
    """The message segments of ``rows``, whose memory their slices share, and the rows in error."""
    found = find(rows)
    if found is not None:
        for _, arrival, error in _arrivals(_Batch.of(rows), found):
            yield arrival, error


def _arrivals(batch: _Batch, found: Segments) -> Iterator[tuple[int, Arrival, DropReason | None]]:
    """The message segments of a batch, and the rows in error."""
    columns = (found.row, found.number, found.count, found.length, found.error)
    for at, (message_id, row, number, count, length, error) in enumerate(
        zip(found.message_ids(), *(column.tolist() for column in columns), strict=True)
    ):
        shared = found.slice(at, batch.value(row))
        offset = int(batch.offsets[row])
        yield row, Arrival(offset, message_id, number, count, length, shared.size, shared), ERRORS[error]
