"""Finds the message segments before a range of offsets that belong to large messages ending in it.

Reads backwards, in strides that double, and no further than needed. Of each message segment only the
offset, id and numbers are kept, so memory does not grow with the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import int64_column
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError
from pyspark_kafkalog.extensions.large_messages.assembler import Arrival, Assembler, OpenMessage
from pyspark_kafkalog.extensions.large_messages.format import INT64_MAX
from pyspark_kafkalog.extensions.large_messages.reassembler import arrivals_in
from pyspark_kafkalog.extensions.large_messages.segments import Find, finder
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.model import ALL_OFFSETS, Fetch, OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.read.ranges import ReadRules, is_another_log, rows_despite_losses

_FIRST_STRIDE = 8
_MOST_WINDOWS = 8
"""The most expiration gaps to look back, if each of them has a message segment of the same id."""
_MOST_OFFSETS = 1000
"""The least number of offsets to look back."""
_NEIGHBOURS = 8
"""Offsets at most this far apart are fetched together."""

WANTED = pa.schema([(name, ROW_TYPES[name]) for name in ("offset", "value", "headers")])
"""The columns that identify message segments."""


@dataclass(slots=True)
class PartitionRecords:
    """The records of one partition from the log start offset on, read as often as needed."""

    place: Place
    partition: TopicPartition
    rules: ReadRules
    known_log_start: int | None
    """The log start offset; None until it is needed."""

    @property
    def log_start(self) -> int:
        """The log start offset, looked up when it is needed first; behind all if the partition is gone."""
        if self.known_log_start is None:
            bounds = self.place.watermarks([self.partition], read_committed=False).get(self.partition)
            self.known_log_start = ALL_OFFSETS.end if bounds is None else bounds.log_start_offset
        return self.known_log_start

    def begins_at(self, offset: int) -> bool:
        """Whether nothing is there before ``offset``, as far as that is known."""
        return offset <= (self.known_log_start or 0)

    def rows(self, offsets: OffsetRange, schema: pa.Schema = WANTED) -> Iterator[pa.RecordBatch]:
        """The visible rows of ``offsets``; missing ones are skipped without a warning.

        The reader of the split that has these offsets reports what is missing or corrupt.

        :raises CorruptRecordError: for corrupt bytes, if data loss is an error.
        """
        rules = replace(self.rules, schema=schema)
        on_corrupt = None if rules.fail_on_data_loss else _ignore
        existing = offsets._replace(start=max(offsets.start, self.log_start))
        wanted = Fetch(self.partition, existing, rules.read_committed, on_corrupt=on_corrupt)
        yield from rows_despite_losses(self.place, wanted, rules, self._existing_after)

    def _existing_after(self, error: KafkaLogError, rest: OffsetRange) -> OffsetRange | None:
        """The offsets of ``rest`` that are left, if the log starts later by now, or a segment is missing.

        :raises DataLossError: if the log is no longer the one that was planned.
        """
        if self.rules.fail_on_data_loss and is_another_log(error, rest):
            raise error
        bounds = self.place.watermarks([self.partition], read_committed=False).get(self.partition)
        if bounds is None:
            return None
        if bounds.log_start_offset <= rest.start:
            following = error.next_offset if isinstance(error, DataLossError) else None
            return None if following is None or following >= rest.end else rest._replace(start=following)
        self.known_log_start = bounds.log_start_offset
        return rest._replace(start=bounds.log_start_offset)

    def read_again(self, offsets: Sequence[int], schema: pa.Schema = WANTED) -> pa.RecordBatch:
        """The rows at ``offsets``, in order, as far as they still exist."""
        wanted = np.unique(np.asarray(offsets, np.int64))
        cuts = np.flatnonzero(np.diff(wanted) > _NEIGHBOURS) + 1
        found = []
        for near in np.split(wanted, cuts) if wanted.size else ():
            for rows in self.rows(OffsetRange(int(near[0]), int(near[-1]) + 1), schema):
                matches = np.flatnonzero(np.isin(int64_column(rows.column("offset")), near))
                if matches.size:
                    found.append(rows if matches.size == rows.num_rows else rows.take(pa.array(matches)))
        if len(found) == 1:
            return found[0]
        return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], schema)


@dataclass(slots=True)
class SegmentHistory:
    """The message segments before offset ``start``, as far back as :attr:`first`."""

    records: PartitionRecords
    settings: AssemblerSettings
    start: int
    first: int = field(init=False)
    _value_bytes: int = field(init=False, default=0)
    _arrivals: dict[bytes, list[Arrival]] = field(init=False, default_factory=dict)
    _visible: np.ndarray = field(init=False)
    _find: Find = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.start
        self._find = finder(self.settings, self.records.partition)
        self._visible = np.empty(0, np.int64)

    @property
    def last_visible(self) -> int:
        """The offset of the record before ``start``, if known; else -1."""
        return self._before(self.start)

    @property
    def _oldest(self) -> int:
        """The least offset at which a message that is open at ``start`` can have begun.

        It follows from the record before ``start``, as only records make messages expire.
        """
        before = self.last_visible
        log_start = self.records.log_start
        return log_start if before < 0 else max(before - self.settings.expiration_offset_gap, log_start)

    @property
    def _window(self) -> int:
        """The number of offsets for which a message stays open, if every offset has a record."""
        return self.settings.expiration_offset_gap + 1

    @property
    def _furthest(self) -> int:
        """The offset at which to stop looking for the beginning of the known messages."""
        return max(self.first - max(_MOST_WINDOWS * self._window, _MOST_OFFSETS), self.records.log_start)

    def open_at(self, ids: Mapping[bytes, tuple[int, int | None]]) -> list[OpenMessage]:
        """The messages among ``ids`` that are open at ``start``, without slices.

        :param ids: for each message the number of its first segment in the range (segments with lower
            numbers are sought), and the offset of the record before that segment, if it is in the
            range, too.
        """
        stride = max(_FIRST_STRIDE, 2 * max(number for number, _ in ids.values()))
        while self.first > self._oldest and not all(
            self._is_whole(message_id, number) for message_id, (number, _) in ids.items()
        ):
            self._extend(max(self.first - stride, self._oldest))
            stride *= 2
        self._read_until_unambiguous(
            [
                message_id
                for message_id, (number, _) in ids.items()
                if not self._is_in_order(message_id, number)
            ]
        )
        found = (self._simulated(message_id, before) for message_id, (_, before) in ids.items())
        return [message for message in found if message is not None]

    def all_open(self) -> list[OpenMessage]:
        """The messages that are open at ``start``, without slices, even if segments were written twice."""
        self._reach_oldest()
        found = list(self._arrivals)
        self._read_until_unambiguous(found)
        opened = (self._simulated(message_id, None) for message_id in found)
        return [message for message in opened if message is not None]

    def open_in_order(self, most_bytes: int = INT64_MAX) -> tuple[list[OpenMessage], bool]:
        """The messages open at ``start`` whose segments were written once and in order, without slices.

        Also returns whether it looked back far enough for every message.

        :param most_bytes: reads at most about this many bytes of values, and leaves out messages that
            began before them.
        """
        self._reach_oldest(most_bytes)
        complete = self.first <= self._oldest
        found = list(self._arrivals)
        furthest = self._furthest
        stride = _FIRST_STRIDE
        while unsure := {
            message_id
            for message_id in found
            if not (self._is_in_order(message_id) or self._is_unambiguous(message_id))
        }:
            if self.first <= furthest or self._value_bytes >= most_bytes:
                break
            self._extend(max(self.first - min(stride, self._affordable(most_bytes)), furthest))
            stride *= 2
        opened = (self._simulated(message_id, None) for message_id in found if message_id not in unsure)
        return [message for message in opened if message is not None], complete and not unsure

    def open_with(
        self, message_id: bytes, count: int, numbers: Collection[int], oldest: int
    ) -> OpenMessage | None:
        """The message open at ``start`` with this id, if it has all ``count`` segments except ``numbers``.

        Segments are sought no further back than ``oldest``, nor than a producer's buffer reaches.
        """
        oldest = max(oldest, self.records.log_start)
        most_bytes = self.settings.buffer_capacity
        stride = _FIRST_STRIDE
        lacking = count - len({*numbers, *self._numbers(message_id)})
        while lacking and self.first > oldest and self._value_bytes < most_bytes:
            self._extend(max(self.first - min(stride, self._affordable(most_bytes)), oldest))
            lacking = count - len({*numbers, *self._numbers(message_id)})
            stride *= 2
        if lacking:
            return None
        self._read_until_unambiguous([message_id])
        return self._simulated(message_id, None)

    def _reach_oldest(self, most_bytes: int = INT64_MAX) -> None:
        """Read back to the oldest offset at which an open message can have begun."""
        stride = _FIRST_STRIDE
        while self.first > self._oldest and self._value_bytes < most_bytes:
            self._extend(max(self.first - min(stride, self._affordable(most_bytes)), self._oldest))
            stride = max(2 * stride, self._window)

    def _affordable(self, most_bytes: int) -> int:
        """The number of further offsets that fit into ``most_bytes``, by the mean size of earlier ones."""
        mean = self._value_bytes // max(self.start - self.first, 1)
        return (most_bytes - self._value_bytes) // (mean + 1) + 1

    def _read_until_unambiguous(self, ids: Collection[bytes]) -> None:
        """Read back until it is clear, for each id, which message segments belong together."""
        known = [message_id for message_id in ids if message_id in self._arrivals]
        furthest = self._furthest
        while self.first > furthest and not all(map(self._is_unambiguous, known)):
            self._extend(max(self.first - self._window, furthest))

    def _is_unambiguous(self, message_id: bytes) -> bool:
        """Whether any message open before :attr:`first` had expired before the first known segment."""
        if self.first <= self.records.log_start:
            return True
        before = self._before(self._arrivals[message_id][0].offset)
        return before - self.settings.expiration_offset_gap >= self.first

    def _numbers(self, message_id: bytes) -> list[int]:
        return [arrival.number for arrival in self._arrivals.get(message_id, ())]

    def _is_whole(self, message_id: bytes, number: int) -> bool:
        """Whether all message segments below ``number`` are known."""
        return len({known for known in self._numbers(message_id) if known < number}) == number

    def _is_in_order(self, message_id: bytes, *then: int) -> bool:
        """Whether the known segments, followed by ``then``, begin with the first and were sent once."""
        numbers = [*self._numbers(message_id), *then]
        return numbers[0] == 0 and all(low < high for low, high in pairwise(numbers))

    def _simulated(self, message_id: bytes, before: int | None) -> OpenMessage | None:
        assembler = self._assembler()
        for arrival in self._arrivals.get(message_id, ()):
            assembler.expire(self._before(arrival.offset))
            assembler.add(arrival)
        assembler.expire(self.last_visible if before is None else before)
        return assembler.messages.get(message_id)

    def _assembler(self) -> Assembler:
        return Assembler(self.records.partition, self.settings, evict=False)

    def _before(self, offset: int) -> int:
        """The offset of the visible record before ``offset``; -1 if unknown."""
        index = int(np.searchsorted(self._visible, offset))
        return int(self._visible[index - 1]) if index else -1

    def _extend(self, first: int) -> None:
        """Read the offsets from ``first`` on, too."""
        if first >= self.first:
            return
        earlier: dict[bytes, list[Arrival]] = {}
        visible = []
        for rows in self.records.rows(OffsetRange(first, self.first)):
            visible.append(int64_column(rows.column("offset")))
            self._value_bytes += rows.column("value").nbytes
            for arrival in arrivals(rows, self._find):
                earlier.setdefault(arrival.message_id, []).append(arrival)
        self.first = first
        self._visible = np.concatenate([*visible, self._visible])
        for message_id, found in earlier.items():
            self._arrivals[message_id] = found + self._arrivals.get(message_id, [])


def arrivals(rows: pa.RecordBatch, find: Find) -> Iterator[Arrival]:
    """The message segments among ``rows`` that an assembler takes, without slices."""
    for arrival, error in arrivals_in(rows, find):
        if error is None and arrival.count > 1:
            yield replace(arrival, slice=None)


def _ignore(error: CorruptRecordError | DataLossError) -> None:
    """Do nothing: the reader of the split that has these offsets reports the damage."""


@dataclass(slots=True)
class _Known:
    """The messages of one partition that are open at ``position``, without slices."""

    position: int
    assembler: Assembler
    last_visible: int


class OpenMessages:
    """The open messages of partitions, at offsets that rise from one call to the next.

    Before a requested offset, at most ``message.assembler.expiration.offset.gap`` + 1 offsets are read,
    because messages that began earlier have expired (more if message segments were lost), and
    none that the previous call has read. Capacity does not matter: nothing is evicted, since the
    log can be read again.

    :param open_place: called once, in the first thread that needs the place.
    :param rules: the rules of the query; the schema does not matter.
    """

    def __init__(
        self, open_place: Callable[[], Place], rules: ReadRules, settings: AssemblerSettings
    ) -> None:
        self._open_place = open_place
        self._rules = rules
        self._settings = settings
        self._known: dict[TopicPartition, _Known] = {}

    @cached_property
    def _place(self) -> Place:
        return self._open_place()

    def safe_offsets(self, ends: Offsets) -> Offsets:
        """The least offset, by partition, of a message that is open at its end, or the end itself.

        It is never below the log start offset, as no consumer can begin there.

        :raises KafkaLogError: if the records can't be read.
        """
        bounds = self._place.watermarks(ends, read_committed=False)
        found = {}
        for partition, end in ends.items():
            watermarks = bounds.get(partition)
            log_start = end if watermarks is None else watermarks.log_start_offset
            records = PartitionRecords(self._place, partition, self._rules, log_start)
            self._known[partition] = known = self._at(records, end)
            oldest = known.assembler.safe_offset(known.last_visible)
            found[partition] = end if oldest is None else min(max(oldest, records.log_start), end)
        return found

    def _at(self, records: PartitionRecords, end: int) -> _Known:
        """The open messages at ``end``, continued from the last known ones if these are not too old."""
        gap = self._settings.expiration_offset_gap
        known = self._known.pop(records.partition, None)  # A failed read must not leave it half updated.
        if known is not None and end - 1 - gap <= known.position <= end:
            self._read(records, known, end)
            return known
        history = SegmentHistory(records, self._settings, end)
        opened, are_all = history.open_in_order()
        if not are_all:
            opened = history.all_open()
        assembler = Assembler(records.partition, self._settings, evict=False)
        assembler.restore(opened, 0)
        return _Known(end, assembler, history.last_visible)

    def _read(self, records: PartitionRecords, known: _Known, end: int) -> None:
        find = finder(self._settings, records.partition)
        for rows in records.rows(OffsetRange(known.position, end)):
            offsets = rows.column("offset").to_numpy()
            for arrival in arrivals(rows, find):
                row = int(np.searchsorted(offsets, arrival.offset))
                known.assembler.expire(int(offsets[row - 1]) if row else known.last_visible)
                known.assembler.add(arrival)
                known.assembler.dropped.clear()
            known.last_visible = int(offsets[-1])
        known.position = max(known.position, end)
