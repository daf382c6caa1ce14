"""Records of one topic, selected and read as Arrow batches, without Spark."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from numbers import Integral
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog import extensions
from pyspark_kafkalog.client.partitions import with_way_out
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.isolation import AbortedRecords
from pyspark_kafkalog.codec.rows import MAX_TIMESTAMP, ROW_TYPES
from pyspark_kafkalog.errors import (
    BrokerError,
    OptionError,
    no_such_partition,
)
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import OffsetRange, Place, Seen, TopicPartition, Watermarks
from pyspark_kafkalog.options.arguments import check_kind
from pyspark_kafkalog.options.settings import ReadOptions, Selection
from pyspark_kafkalog.options.user_options import partitions_like
from pyspark_kafkalog.read.filters import Bounds, offsets_within
from pyspark_kafkalog.read.partitions import look_up_partitions, with_topic_ids
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader, SplitReader
from pyspark_kafkalog.read.reader import (
    decoded_parts,
    decoded_schema,
    record_columns,
)
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.read.values import values_of

_Check: TypeAlias = Callable[[Collection[TopicPartition]], None]

COLUMNS = tuple(ROW_TYPES)
"""The columns of a record, with the names and types of a DataFrame's."""

_PAUSE = 0.2
"""Seconds between two looks for new records."""
_LOOK_FOR_PARTITIONS = 10
"""Seconds between two looks for new partitions."""
_LISTED = 5
"""Partitions whose bounds a note names."""
_LEAST_WINDOW = 1000
"""Offsets that are read first in the search for a partition's last records."""


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """The records of a topic to read; by default all. A record has to meet every condition.

    ``offset`` is the first offset of each partition, or if negative, how far before its end to begin.
    ``since`` (included) and ``until`` (excluded) are timestamps in ms, ``grep`` is a regular expression (RE2)
    to find in the value, ``headers`` are keys that a record must have, with a value or any. ``tail`` keeps so
    many of the last of these records, by timestamp, and ``limit`` so many of the first, in the order in which
    they come.
    """

    partitions: tuple[int, ...] = ()
    offset: int | None = None
    since: int | None = None
    until: int | None = None
    key: bytes | None = None
    grep: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    tail: int | None = None
    limit: int | None = None
    read_committed: bool = False
    large_messages: bool = False

    def __post_init__(self) -> None:
        for moment in self.since, self.until:
            if moment is not None:
                check_kind(moment, Integral, "milliseconds since 1970: since=int(when.timestamp() * 1000)")
        if self.grep is not None:
            try:
                pc.match_substring_regex(pa.array([b""], pa.binary()), self.grep)
            except pa.ArrowInvalid as e:
                why = str(e).removeprefix("Invalid regular expression: ")
                raise OptionError(
                    f"Not a regular expression: {self.grep!r} ({why})",
                    hint="Write a backslash before a sign that stands for itself, such as \\( or \\[.",
                ) from None

    @property
    def conditions(self) -> set[str]:
        """The columns that decide whether a record is wanted."""
        used = {"timestamp": (self.since, self.until), "key": (self.key,), "value": (self.grep,)}
        found = {column for column, wanted in used.items() if any(value is not None for value in wanted)}
        return found | ({"headers"} if self.headers else set())


ALL_RECORDS = RecordSelection()
_LIMITS = DecodeLimits()


def read_records(
    place: Place,
    topic: str,
    selection: RecordSelection = ALL_RECORDS,
    *,
    settings: AssemblerSettings,
    limits: DecodeLimits = _LIMITS,
    formats: ReadOptions | None = None,
    columns: Collection[str] = COLUMNS,
    follow: bool = False,
    skip_damaged: bool = False,
    progress: Callable[[int, int], None] | None = None,
    check: _Check,
    on_note: Callable[[str], None],
) -> pa.RecordBatchReader:
    """The selected records of ``topic`` with these ``columns``; no batch is empty.

    See :meth:`.kafka.Records.select`.

    :param settings: how large messages are put together.
    :param limits: how large records may be.
    :param formats: how keys and values are decoded; None if they are not.
    :param check: raises an error if it finds some of these partitions unusable, before they are asked.
    :param on_note: called with a sentence, each once, about what was read, or is not there.
    """
    names = [name for name in COLUMNS if name in columns]
    reading = _Reading(
        place,
        topic,
        selection,
        names,
        settings,
        limits,
        formats,
        skip_damaged=skip_damaged,
        progress=progress,
        check=check,
        on_note=on_note,
    )
    found = reading.run(follow=follow)
    if selection.limit is not None:
        found = _first(found, selection.limit)
    return pa.RecordBatchReader.from_batches(reading.schema, found)


def _first(found: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The first ``count`` rows."""
    while count > 0 and (rows := next(found, None)) is not None:
        yield rows.slice(0, count)
        count -= rows.num_rows


def _last(found: Iterator[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """The last ``count`` rows; memory holds few others."""
    last: deque[pa.RecordBatch] = deque()
    more = -count
    for rows in found:
        last.append(rows)
        more += rows.num_rows
        while more >= last[0].num_rows:
            more -= last.popleft().num_rows
    if more > 0:
        # A copy, so that the rest of its batch is freed.
        last[0] = last[0].take(pa.array(np.arange(more, last[0].num_rows)))
    return list(last)


class _Reading:
    """A call of :func:`read_records`.

    :ivar schema: that of the rows.
    """

    def __init__(
        self,
        place: Place,
        topic: str,
        selection: RecordSelection,
        columns: list[str],
        settings: AssemblerSettings,
        limits: DecodeLimits,
        formats: ReadOptions | None,
        *,
        skip_damaged: bool,
        progress: Callable[[int, int], None] | None,
        check: _Check,
        on_note: Callable[[str], None],
    ) -> None:
        self._place = place
        self._topic = topic
        self._wanted = selection
        self._columns = columns
        self._progress = progress
        self._check = check
        self._on_note = on_note
        self._noted: set[str] = set()
        self._aborted = AbortedRecords()
        values = None if formats is None else values_of(formats)
        decoded = () if formats is None or values is None else values.columns_of(formats)
        decoded = decoded_parts(decoded, decoded_schema(columns, decoded))
        self._decoding = None if values is None else values.decoding(decoded)
        read = {*record_columns(decoded, columns), *selection.conditions, "offset"} | (
            {"timestamp"} if selection.tail is not None else set()
        )
        if not selection.large_messages:
            read |= {"value", "headers"}  # which tell message segments, as a count counts them, too
        schema = pa.schema([(name, kind) for name, kind in ROW_TYPES.items() if name in read])
        self._schema = decoded_schema(schema.names, decoded)
        self.schema = decoded_schema(columns, decoded)
        self._rules = ReadRules(
            schema=schema,
            read_committed=selection.read_committed,
            fail_on_data_loss=not skip_damaged,
            limits=limits,
            aborted=self._aborted,
        )
        self._reader: SplitReader = extensions.of_records(
            RecordReader(place, self._rules), self._note_segments
        )
        if selection.large_messages:
            whole = LargeMessageOptions(enabled=True, settings=settings)
            self._reader = WholeMessageReader(place, self._rules, whole)
        self._seen: dict[TopicPartition, Seen] = {}
        self._total = 0

    def run(self, *, follow: bool) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._run(follow=follow)
        finally:
            self._say_aborted()

    def _say_aborted(self) -> None:
        if self._aborted.count:
            wanted = self._wanted
            is_narrowed = bool(wanted.conditions) or (wanted.tail, wanted.limit) != (None, None)
            among = self._aborted.among(is_narrowed=is_narrowed)
            self._note("aborted", f"{among}; read_committed=True leaves them out")

    def _note_segments(self, topic: str) -> None:
        self._note(
            "segments",
            f"Topic {topic} has message segments, parts of large messages, which are shown one by one;"
            " large_messages=True puts the messages together",
        )

    def _say_beyond(self, ranges: Mapping[TopicPartition, OffsetRange], *, follow: bool) -> None:
        """Say that every partition ends before the first offset that is wanted, if so."""
        first = self._wanted.offset or 0
        last_end = max((existing.end for existing in ranges.values()), default=sys.maxsize)
        if first > last_end or (first == last_end > 0 and not follow):
            chosen = "chosen " if self._wanted.partitions else ""
            bounds = [
                f"{partition} has {f'{start} to {end - 1}' if start < end else 'none'}"
                for partition, (start, end) in list(ranges.items())[:_LISTED]
            ]
            more = f", and {len(ranges) - _LISTED} more partitions" if len(ranges) > _LISTED else ""
            self._note(
                "beyond",
                f"No {chosen}partition of {self._topic} has offset {first}: {', '.join(bounds)}{more}",
            )

    def _note(self, kind: str, note: str) -> None:
        """Say it once; an interrupt may come while it is said."""
        if kind not in self._noted:
            self._noted.add(kind)
            self._on_note(note)

    def _run(self, *, follow: bool) -> Iterator[pa.RecordBatch]:
        ranges = self._ranges(self._partitions(), follow=follow)
        self._total = sum(end - start for start, end in ranges.values())
        if self._wanted.tail is None:
            for partition, offsets in ranges.items():
                yield from self._shown(self._rows(partition, offsets), partition)
        else:
            yield from self._tail(ranges, self._wanted.tail)
        if follow:
            yield from self._follow({partition: offsets.end for partition, offsets in ranges.items()})

    def _partitions(self) -> tuple[TopicPartition, ...]:
        found = look_up_partitions(self._place, Selection(topics=(self._topic,)))
        if not self._wanted.partitions:
            return found
        wanted = {TopicPartition(self._topic, number) for number in self._wanted.partitions}
        if missing := wanted.difference(found):
            raise no_such_partition(missing, hint=partitions_like(missing, found))
        return tuple(sorted(wanted))

    def _bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """The bounds of those that exist; a fetch relies on what is seen with them."""
        partitions, ids = with_topic_ids(self._place, partitions)
        try:
            if not self._seen:  # at the start: what follows outlasts an outage
                self._check(partitions)
            bounds = self._place.watermarks(partitions, read_committed=self._wanted.read_committed)
        except BrokerError as e:
            raise e if len(partitions) < 2 else with_way_out(e) from e
        epochs = self._place.leader_epochs(partitions)
        for partition, seen in bounds.items():
            epoch = epochs.get(partition, -1)
            self._seen[partition] = Seen(ids.get(partition.topic, ""), epoch, seen.high_watermark)
        return bounds

    def _ranges(
        self, partitions: Collection[TopicPartition], *, follow: bool
    ) -> dict[TopicPartition, OffsetRange]:
        """The offsets of each partition that may hold selected records, sorted."""
        bounds = self._bounds(partitions)
        within = offsets_within(self._place, Bounds(since=self._wanted.since), bounds)
        ranges, all_existing = {}, {}
        for partition, watermarks in sorted(bounds.items()):
            end = watermarks.end(read_committed=self._wanted.read_committed)
            first = self._wanted.offset or 0
            all_existing[partition] = existing = OffsetRange(watermarks.log_start_offset, end)
            asked = OffsetRange(end + first if first < 0 else first, end)
            ranges[partition] = asked.within(existing).within(within[partition])
        self._say_beyond(all_existing, follow=follow)
        return ranges

    def _rows(self, partition: TopicPartition, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The selected records of these offsets, before they are decoded."""
        if offsets.start >= offsets.end:
            return
        position = offsets.start
        for rows in self._reader.read(Split(partition, offsets, seen=self._seen[partition])):
            selected = self._selected(rows)
            if selected.num_rows:
                yield selected
            if self._progress is not None:
                last = rows.column("offset")[-1].as_py()
                self._progress(max(0, last + 1 - position), self._total)
                position = max(position, last + 1)
        if self._progress is not None:
            self._progress(offsets.end - position, self._total)

    def _selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        wanted, masks = self._wanted, []
        if wanted.since is not None or wanted.until is not None:
            times = rows.column("timestamp").cast(pa.int64())
            if wanted.since is not None:
                masks.append(pc.greater_equal(times, _micros(wanted.since)))
            if wanted.until is not None:
                masks.append(pc.less(times, _micros(wanted.until)))
        if wanted.key is not None:
            masks.append(pc.equal(rows.column("key"), pa.scalar(wanted.key, pa.binary())))
        if wanted.grep is not None:
            masks.append(pc.match_substring_regex(rows.column("value"), wanted.grep))
        masks += [_has_header(rows.column("headers"), *header) for header in wanted.headers]
        return rows.filter(reduce(pc.and_kleene, masks)) if masks else rows

    def _tail(self, ranges: Mapping[TopicPartition, OffsetRange], count: int) -> Iterator[pa.RecordBatch]:
        """The last ``count`` selected records, by timestamp."""
        last: list[tuple[TopicPartition, pa.RecordBatch]] = []
        for partition, offsets in ranges.items():
            last += [(partition, rows) for rows in self._last_of(partition, offsets, count)]
            if sum(rows.num_rows for _, rows in last) > 2 * count:
                last = self._latest(last, count)
        found: list[pa.RecordBatch] = []
        for partition, rows in self._latest(last, count):
            found += self._decoded([rows], partition)
        table = pa.Table.from_batches(found, self._schema)
        yield from table.take(_by_time(table)).combine_chunks().select(self._columns).to_batches()

    def _latest(
        self, last: list[tuple[TopicPartition, pa.RecordBatch]], count: int
    ) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """The ``count`` rows of these that have the latest timestamps."""
        order = _by_time(pa.Table.from_batches([rows for _, rows in last], self._rules.schema))
        wanted = np.zeros(len(order), bool)
        wanted[order[max(0, len(order) - count) :]] = True
        found = []
        for partition, rows in last:
            found.append((partition, rows.filter(pa.array(wanted[: rows.num_rows]))))
            wanted = wanted[rows.num_rows :]
        return [(partition, rows) for partition, rows in found if rows.num_rows]

    def _last_of(self, partition: TopicPartition, offsets: OffsetRange, count: int) -> list[pa.RecordBatch]:
        """The last ``count`` selected records of these offsets, found by reading ever larger windows."""
        found: list[pa.RecordBatch] = []
        left, size, end = count, max(count, _LEAST_WINDOW), offsets.end
        while left > 0 and end > offsets.start:
            start = max(offsets.start, end - size)
            part = _last(self._rows(partition, OffsetRange(start, end)), left)
            found = part + found
            left -= sum(rows.num_rows for rows in part)
            end, size = start, size * 4
        return found

    def _follow(self, positions: dict[TopicPartition, int]) -> Iterator[pa.RecordBatch]:
        """The selected records from ``positions`` on, as they arrive."""
        look_at = time.monotonic() + _LOOK_FOR_PARTITIONS
        while True:
            if not self._wanted.partitions and time.monotonic() > look_at:
                positions.update(dict.fromkeys(set(self._partitions()) - positions.keys(), 0))
                look_at = time.monotonic() + _LOOK_FOR_PARTITIONS
            ends = self._place.end_offsets(positions, read_committed=self._wanted.read_committed)
            grown = [partition for partition, end in ends.items() if end > positions[partition]]
            if grown:
                self._bounds(grown)
            for partition in grown:
                offsets = OffsetRange(positions[partition], ends[partition])
                yield from self._shown(self._rows(partition, offsets), partition)
                positions[partition] = offsets.end
            self._say_aborted()
            if not grown:
                time.sleep(_PAUSE)

    def _decoded(
        self, found: Iterable[pa.RecordBatch], partition: TopicPartition
    ) -> Iterable[pa.RecordBatch]:
        return found if self._decoding is None else self._decoding(found, partition)

    def _shown(self, found: Iterator[pa.RecordBatch], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        for rows in self._decoded(found, partition):
            yield rows.select(self._columns)


def _by_time(rows: pa.Table) -> np.ndarray:
    """The numbers of the rows by their timestamps; those of one keep their order."""
    return pc.sort_indices(rows, [("timestamp", "ascending")]).to_numpy()  # type: ignore[no-any-return]


def _micros(ms: int) -> int:
    return max(-MAX_TIMESTAMP, min(ms, MAX_TIMESTAMP)) * 1000


def _has_header(headers: pa.ListArray, key: str, value: bytes | None) -> pa.Array:
    """Whether each record has a header with this key, and value if one is given."""
    flat = headers.flatten()
    hits = pc.equal(flat.field("key"), key)
    if value is not None:
        hits = pc.and_(
            hits, pc.fill_null(pc.equal(flat.field("value"), pa.scalar(value, pa.binary())), False)
        )
    rows = pc.list_parent_indices(headers).filter(hits)
    found = np.zeros(len(headers), bool)
    found[rows.to_numpy()] = True
    return pa.array(found)
