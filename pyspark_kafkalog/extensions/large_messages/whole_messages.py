"""Turns ranges of offsets into rows with whole large messages, with no state except the log itself.

A message is a row of the range that holds its last message segment. If a segment is missing,
:mod:`.looking_back` looks for it before the range. So the rows of a range depend only on the log and
the range, not on where other ranges are cut. With headers a range always looks back, but no further
than the capacity, because the header ``_so`` also covers messages without a segment in the range.

Three things differ from a reader of the whole log. All concern message segments that were written
more than once or out of order:

- A stray copy before the range, of a message that is completely in the range, is not looked for.
  ``startingOffset`` and the header ``_so`` then cover the range alone.
- A message segment that lies before the range, although it follows segments in the range, is not
  looked for beyond ``message.assembler.buffer.capacity`` bytes.
- A row that such a segment completes comes after rows of higher offsets.

With dead letters the first two do not apply, because every range looks back as far as matters.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.extensions.large_messages.assembler import Dropped, DropReason, check_none_dropped
from pyspark_kafkalog.extensions.large_messages.dead_letters import DeadLetters
from pyspark_kafkalog.extensions.large_messages.looking_back import WANTED, PartitionRecords, SegmentHistory
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.reassembler import Reassembled, Reassembler
from pyspark_kafkalog.extensions.large_messages.segments import Segments
from pyspark_kafkalog.extensions.large_messages.settings import GAP
from pyspark_kafkalog.extensions.large_messages.slice_file import SliceFile
from pyspark_kafkalog.model import DROPPED_FIELD, GO_ON, OffsetRange, Place
from pyspark_kafkalog.read.ranges import Existing, ReadRules, existing, rows_of
from pyspark_kafkalog.read.splits import Split

_log = logging.getLogger("pyspark_kafkalog")

_MAX_BYTES = 16 << 20
"""The most bytes of values in an arrow batch, unless a single one has more."""
_ASIDE = 8
"""The most bytes of slices in a temporary file, in buffer capacities."""


@dataclass(frozen=True, slots=True)
class WholeMessageReader:
    """Makes rows of whole large messages, not of message segments; see :class:`.ranges.SplitReader`.

    Dropped messages are logged once for each split and passed to ``on_dropped``.
    """

    place: Place
    rules: ReadRules
    options: LargeMessageOptions
    on_dropped: Callable[[Sequence[Dropped]], None] | None = None

    def read(self, split: Split, found: Existing | None = None) -> Iterator[pa.RecordBatch]:
        """See :meth:`.ranges.SplitReader.read`."""
        wanted, log_start = found or existing(self.place, [split], self.rules)[0]
        if wanted is None:
            return
        schema = self.rules.schema
        names = [name for name in schema.names if name != DROPPED_FIELD[0]]
        fields = [schema.field(name) for name in names]
        inner = pa.schema([*fields, *(field for field in WANTED if field.name not in names)])
        rules = replace(self.rules, schema=inner)
        source = PartitionRecords(self.place, split.partition, rules, log_start)
        with SliceFile(_ASIDE * self.options.settings.buffer_capacity) as aside:
            reassembling = _Reassembling(source, wanted, self.options, schema, aside, self.on_dropped)
            for rows in rows_of(self.place, split, wanted, rules):
                yield from reassembling.feed(rows)
            yield from reassembling.end()


class _Reassembling:
    """The state of one call of :meth:`WholeMessageReader.read`."""

    def __init__(
        self,
        source: PartitionRecords,
        wanted: OffsetRange,
        options: LargeMessageOptions,
        schema: pa.Schema,
        aside: SliceFile,
        on_dropped: Callable[[Sequence[Dropped]], None] | None,
    ) -> None:
        self._source = source
        self._start = wanted.start
        self._gap = options.settings.expiration_offset_gap
        self._reassembler = partial(
            Reassembler,
            source.partition,
            options.settings,
            evict=False,
            read_again=source.read_again,
            aside=aside,
        )
        self._open = self._reassembler()
        self._history = SegmentHistory(source, options.settings, wanted.start)
        self._dead_letters = DeadLetters(source, schema, self._open.find) if options.dead_letters else None
        self._columns = [name for name in schema.names if name != DROPPED_FIELD[0]]
        self._schema = schema
        self._known = _KnownIds()
        self._completed: set[bytes] = set()
        self._before: int | None = None
        self._counts: Counter[DropReason] = Counter()
        self._on_dropped = on_dropped
        self._settings = options.settings
        self._tells_safe_offsets = "headers" in self._columns
        self._most_bytes = options.settings.buffer_capacity
        self._has_started = False
        self._looked_everywhere = source.begins_at(wanted.start)

    def feed(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that result from the next rows of the range."""
        if not self._has_started:
            self._has_started = True
            self._begin()
        found = self._open.find(rows)
        if found is None and not self._open.open_messages():
            self._before = int(rows.column("offset")[-1].as_py())
            yield self._projected(rows)
            return
        if found is not None and not self._looked_everywhere:
            self._look_back(rows, found)
        for part in self._open.feed_in_parts(rows, found, max_bytes=_MAX_BYTES):
            yield from self._output(part, rows)
        self._before = int(rows.column("offset")[-1].as_py())
        if not self._looked_everywhere and self._before > self._start + self._gap:
            yield from self._completed_by_earlier()

    def _begin(self) -> None:
        """Adopt messages open at the range's start, if those without segments in it count, too."""
        if self._looked_everywhere:
            return
        if self._dead_letters is not None:
            self._looked_everywhere = True
            self._open.adopt(self._history.all_open())
        elif self._tells_safe_offsets:
            opened, self._looked_everywhere = self._history.open_in_order(self._most_bytes)
            self._open.adopt(opened)

    def end(self) -> Iterator[pa.RecordBatch]:
        """The rows that result from messages open at the end of the range."""
        if not self._looked_everywhere:
            yield from self._completed_by_earlier()
        if self._counts:
            counts = ", ".join(f"{count} {reason.value}" for reason, count in sorted(self._counts.items()))
            has_expired = DropReason.EXPIRED_BY_OFFSET in self._counts
            _log.warning(
                "%s: dropped large messages from offset %d on: %s%s",
                self._source.partition,
                self._start,
                counts,
                f". Not all segments came within {self._gap} offsets: if others wrote in between, raise {GAP}"
                if has_expired
                else "",
            )

    def _look_back(self, rows: pa.RecordBatch, found: Segments) -> None:
        """Adopt messages begun before the range whose first segment in the range is in ``rows``."""
        offsets = rows.column("offset").to_numpy()
        ids, first = _first_of_each(found)
        is_open = self._known.add(ids, offsets[found.row[first]])
        unknown = first[~is_open & (found.number[first] > 0) & (found.error[first] == 0)]
        if not unknown.size:
            return
        message_ids = found.message_ids()
        wanted = {}
        for at in sorted(unknown.tolist()):
            row = int(found.row[at])
            before = int(offsets[row - 1]) if row else self._before
            if (self._start if before is None else before) - self._gap < self._start:
                wanted[message_ids[at]] = int(found.number[at]), before
        if wanted:
            self._open.adopt(self._history.open_at(wanted))

    def _completed_by_earlier(self) -> Iterator[pa.RecordBatch]:
        """Rows of open messages whose missing segments, with higher numbers, came before the range.

        Called once: after this, no message that began before the range is open.
        """
        for message in self._open.open_messages():
            offsets = {number: piece.offset for number, piece in message.pieces.items()}
            yield from self._completed_before(
                message.message_id, message.starting_offset, message.count, offsets
            )
        self._looked_everywhere = True

    def _completed_before(
        self, message_id: bytes, starting_offset: int, count: int, offsets: dict[int, int]
    ) -> Iterator[pa.RecordBatch]:
        last = max(offsets.values(), default=-1)
        oldest = last - 1 - self._gap
        if not self._start <= last or oldest >= self._start or not len(offsets) < count <= self._gap + 2:
            return
        if starting_offset > self._known.first_offset(message_id):
            return  # It is a copy of one that ended in the range.
        earlier = self._history.open_with(message_id, count, offsets.keys(), oldest)
        if earlier is None or earlier.starting_offset < oldest:
            return
        again = self._reassembler()
        again.adopt([earlier])
        here = [offset for offset in offsets.values() if offset >= self._start]
        rows = again.feed(self._source.read_again(here, self._source.rules.schema)).rows
        if rows.num_rows:
            self._completed.add(message_id)
            yield self._projected(rows)

    def _output(self, reassembled: Reassembled, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if reassembled.rows.num_rows:
            yield self._projected(reassembled.rows)
        reported: list[Dropped] = []
        for dropped in reassembled.dropped:
            if not self._looked_everywhere and dropped.reason is DropReason.EXPIRED_BY_OFFSET:
                offsets = {segment.number: segment.offset for segment in dropped.segments}
                yield from self._completed_before(
                    dropped.message_id, dropped.starting_offset, dropped.segment_count, offsets
                )
            if dropped.reason is DropReason.NOT_READ_AGAIN and self._source.rules.fail_on_data_loss:
                raise DataLossError(
                    "Segments of a large message were deleted before they could be read again",
                    topic_partition=self._source.partition,
                    offset=dropped.starting_offset,
                    hint=GO_ON,
                )
            if dropped.message_id not in self._completed:
                self._counts[dropped.reason] += 1
                reported.append(dropped)
        check_none_dropped(reported, self._settings)
        if reported and self._on_dropped is not None:
            self._on_dropped(reported)
        if reported and self._dead_letters is not None:
            yield from self._dead_letters.rows(reported, rows)

    def _projected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._dead_letters is not None:
            return self._dead_letters.with_null_column(rows)
        if rows.schema.names == self._columns:
            return rows
        return pa.RecordBatch.from_arrays([rows.column(name) for name in self._columns], schema=self._schema)


class _KnownIds:
    """The ids of message segments seen in the range, and the first offset of each."""

    def __init__(self) -> None:
        self._ids = np.empty(0, _ID)
        self._first = np.empty(0, np.int64)

    def add(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Whether each of ``ids``, now at ``offsets``, was seen before."""
        known = np.isin(ids, self._ids)
        self._ids = np.concatenate([self._ids, ids[~known]])
        self._first = np.concatenate([self._first, offsets[~known]])
        return known

    def first_offset(self, message_id: bytes) -> int:
        """The first offset of ``message_id``, which was added before, in the range."""
        return int(self._first[self._ids == np.frombuffer(message_id, ">i8").astype(np.int64).view(_ID)][0])


_ID = np.dtype([("hi", np.int64), ("lo", np.int64)])


def _first_of_each(found: Segments) -> tuple[np.ndarray, np.ndarray]:
    """The ids, and the index of the first segment of each."""
    ids = np.empty(found.row.size, _ID)
    ids["hi"], ids["lo"] = found.id_hi, found.id_lo
    return np.unique(ids, return_index=True)
