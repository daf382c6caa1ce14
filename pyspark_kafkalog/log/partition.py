"""One partition's folder: which segments are live, where the log ends, what a range of offsets holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from pyarrow import fs

from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, LogDirectoryError
from pyspark_kafkalog.log.filesystem import Folder
from pyspark_kafkalog.log.layout import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, parse_segment_file
from pyspark_kafkalog.log.segment import FramingError, OpenSegment, Segment
from pyspark_kafkalog.model import OffsetRange, OnCorrupt, Origin, Slice, TopicPartition

_RETRIES = 5
"""How often a listing is repeated because a file of it was gone, before reading gives up."""


class LogEnd(NamedTuple):
    """The end of the last segment, as far as batches can be framed."""

    segment: Segment
    log_end_offset: int
    last_batch: int
    """Position of the last batch."""
    torn_at: int | None
    """Position from which on no batch begins; None if the last batch ends with the file."""


class Partition:
    """A partition's folder, read as a broker would after loading it, with no file changed.

    :param checkpoint: tells the partition's entry of ``log-start-offset-checkpoint``, 0 if it has none.
    """

    def __init__(
        self, topic_partition: TopicPartition, folder: Folder, checkpoint: Callable[[TopicPartition], int]
    ) -> None:
        self.topic_partition = topic_partition
        self._folder = folder
        self._checkpoint = checkpoint
        self._end: LogEnd | None = None

    def segments(self) -> list[Segment]:
        """The live segments in order.

        :raises FileNotFoundError: if the partition is gone.
        """
        return _live_segments(self._folder)

    def log_start_offset(self, segments: list[Segment]) -> int:
        """The first offset that exists: DeleteRecords may have moved it into the first segment."""
        return max(segments[0].base_offset if segments else 0, self._checkpoint(self.topic_partition))

    def end(self, segments: list[Segment]) -> LogEnd:
        """The end of the log. Next to free while the last segment stays as it is, cheap while it grows."""
        last = segments[-1]
        if self._end is None or self._end.segment != last:
            with last.open() as opened:
                self._end = _find_end(opened, self._end)
        return self._end

    def read(self, offsets: OffsetRange, *, on_corrupt: OnCorrupt | None, largest: int) -> Iterator[Slice]:
        """The batches of ``offsets`` in slices of ``largest`` bytes at most, or of one larger batch.

        A segment that has vanished (deleted, rolled over by the cleaner) is looked for anew.

        :raises DataLossError: if the log begins after the start of ``offsets``, or ends before their end.
        :raises CorruptRecordError: see :meth:`pyspark_kafkalog.model.Place.fetch`.
        """
        position, retries = offsets.start, _RETRIES
        while position < offsets.end:
            begun_at = position
            try:
                segments = self.segments()
                log_start_offset = self.log_start_offset(segments)
                if position < log_start_offset:
                    raise self._lost(
                        OffsetRange(position, min(log_start_offset, offsets.end)),
                        f"the log now starts at offset {log_start_offset}",
                    )
                for segment, next_base in _from(segments, position):
                    with segment.open() as opened:
                        wanted = OffsetRange(position, offsets.end)
                        for piece, position in self._read_segment(
                            opened, wanted, next_base, on_corrupt, largest
                        ):
                            yield piece
                    if position >= offsets.end:
                        return
                    position = max(position, next_base or 0)
                raise self._lost(OffsetRange(position, offsets.end), f"the log ends at offset {position}")
            except FileNotFoundError as e:
                retries = _RETRIES if position > begun_at else retries - 1
                if not retries:
                    lost = OffsetRange(position, offsets.end)
                    raise self._lost(lost, f"no such file or folder: {e}") from None

    def _read_segment(
        self,
        opened: OpenSegment,
        offsets: OffsetRange,
        next_base: int | None,
        on_corrupt: OnCorrupt | None,
        largest: int,
    ) -> Iterator[tuple[Slice, int]]:
        """Slices with the offset after each; ``next_base`` is that of the next segment, None for the last."""
        start, end = offsets
        until = opened.position_after(end - 1)
        position: int | None = opened.position_before(start)
        while position is not None:
            try:
                for window in opened.windows(position, until=until, largest=largest):
                    batches = window.batches
                    first = int(np.searchsorted(batches.last_offset, start))
                    last = min(int(np.searchsorted(batches.last_offset, end - 1)), len(batches) - 1)
                    if first <= last:
                        begin = int(batches.position[first])
                        size = int(batches.position[last] + batches.size[last]) - begin
                        origin = Origin(opened.file, window.position + begin)
                        start = int(batches.last_offset[last]) + 1
                        yield Slice(window.buffer.slice(begin, size), origin), start
                    if start >= end:
                        return
                return
            except FramingError as e:
                position = opened.next_batch(e.position + 1, e.next_offset)
                if position is None and next_base is None:
                    return
                resumed_at = next_base if position is None else _first_offset(opened, position)
                if resumed_at is not None and resumed_at <= start:
                    continue
                error = CorruptRecordError(
                    f"No record batch can be read here: {e}",
                    topic_partition=self.topic_partition,
                    offset=max(start, e.next_offset),
                    file=opened.file,
                    position=e.position,
                    hint="With failOnDataLoss=false reading goes on at the next valid batch.",
                )
                if on_corrupt is None:
                    raise error from None
                on_corrupt(error)

    def _lost(self, offsets: OffsetRange, why: str) -> DataLossError:
        return DataLossError(
            f"Offsets {offsets.start} to {offsets.end - 1} are gone: {why}",
            topic_partition=self.topic_partition,
            offset=offsets.start,
            hint="With failOnDataLoss=false reading goes on without them.",
        )


def _live_segments(folder: Folder) -> list[Segment]:
    """Kafka's choice on loading (LogLoader), which finishes or undoes what the cleaner had begun.

    ``.deleted`` and ``.cleaned`` files don't count. A ``.swap`` file with a base
    offset from the least ``.cleaned`` one on is of an unfinished split, and
    doesn't count either. Other ``.swap`` files replace the segments whose base
    offset is in the range of offsets that they span.
    """
    plain: dict[int, Segment] = {}
    swaps: dict[int, Segment] = {}
    least_cleaned = 2**63
    for name, entry in folder.list().items():
        parsed = parse_segment_file(name)
        if parsed is None or entry.type == fs.FileType.NotFound:
            continue
        base_offset, suffix = parsed
        if suffix.endswith(CLEANED_SUFFIX):
            least_cleaned = min(least_cleaned, base_offset)
        elif suffix in (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX):
            if entry.type != fs.FileType.File:
                raise LogDirectoryError("Not a regular file", file=folder.label(name))
            found = Segment(folder, base_offset, suffix[len(LOG_SUFFIX) :], entry.size, entry.mtime_ns)
            (swaps if found.suffix else plain)[base_offset] = found
    swaps = {base_offset: swap for base_offset, swap in swaps.items() if base_offset < least_cleaned}
    if swaps:
        end = 0
        for swap in swaps.values():
            with swap.open() as opened:
                end = max(end, _find_end(opened, None).log_end_offset)
        plain = {base: segment for base, segment in plain.items() if not min(swaps) <= base < end} | swaps
    return [plain[base_offset] for base_offset in sorted(plain)]


def _from(segments: list[Segment], offset: int) -> Iterator[tuple[Segment, int | None]]:
    """The segments that may hold ``offset`` and later ones, each with the base offset of the next."""
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if next_base is None or next_base > offset:
            yield segment, next_base


def _find_end(opened: OpenSegment, known: LogEnd | None) -> LogEnd:
    """Walk to the end of a segment: on from what was ``known``, or from its last index entry."""
    segment = opened.segment
    if known is None or not _continues(opened, known):
        known = LogEnd(segment, segment.base_offset, opened.last_known_batch(), None)
    _, log_end_offset, last_batch, torn_at = known
    position = last_batch
    while True:
        try:
            for window in opened.windows(position):
                last_batch = window.position + int(window.batches.position[-1])
                log_end_offset = int(window.batches.last_offset[-1]) + 1
            return LogEnd(segment, log_end_offset, last_batch, None)
        except FramingError as e:
            # A preallocated file ends in zeros, which need to be searched but once.
            searched = torn_at is not None and torn_at <= e.position and known.segment.size == segment.size
            found = None if searched else opened.next_batch(e.position + 1, e.next_offset)
            if found is None:
                return LogEnd(segment, log_end_offset, last_batch, e.position)
            position = found


def _continues(opened: OpenSegment, known: LogEnd) -> bool:
    """Whether the file still has the last batch that was known, so that it only grew."""
    if (known.segment.base_offset, known.segment.suffix) != (
        opened.segment.base_offset,
        opened.segment.suffix,
    ):
        return False
    first = _first_window(opened, known.last_batch)
    return first is not None and int(first.last_offset[0]) + 1 == known.log_end_offset


def _first_offset(opened: OpenSegment, position: int) -> int | None:
    """The first offset of the batch at ``position``; the last one in a v0 or v1 message, which may be compressed."""
    first = _first_window(opened, position)
    if first is None:
        return None
    return int(first.base_offset[0] if first.magic[0] == 2 else first.last_offset[0])


def _first_window(opened: OpenSegment, position: int) -> Batches | None:
    try:
        return next(opened.windows(position)).batches
    except (FramingError, StopIteration):
        return None
