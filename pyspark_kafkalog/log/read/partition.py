"""One partition's folder: its live segments, the end of its log, and the batches of a range of offsets."""

from __future__ import annotations

import errno
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError, LogDirectoryError
from pyspark_kafkalog.filesystem.folder import Folder, InputFile, wait
from pyspark_kafkalog.filesystem.locate import no_such_directory
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    parse_leader_epoch_checkpoint,
    readable_topic_id,
    segment_file,
)
from pyspark_kafkalog.log.read.listings import Listings, was_at_rest
from pyspark_kafkalog.log.read.neighbours import Neighbours
from pyspark_kafkalog.log.segment.loading import LogEnd, find_end, live_segments
from pyspark_kafkalog.log.segment.missing import (
    GIVE_UP,
    Gap,
    GapSearch,
    bases_without_log,
    behind_gaps,
    elsewhere,
    missing_in_backup,
)
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.log.segment.segment import GONE, FramingError, OpenSegment, Segment
from pyspark_kafkalog.model import (
    GO_ON,
    TO_NEXT_BATCH,
    Fetch,
    OffsetRange,
    OnCorrupt,
    Origin,
    Slice,
    StoredBatch,
    StoredSize,
    TopicPartition,
    lost,
    not_here,
)

if TYPE_CHECKING:
    from concurrent.futures import Future


class _Listing(NamedTuple):
    """The live segments of a folder that was at rest."""

    segments: list[Segment]
    changed: tuple[int, ...]
    at: float
    """Seconds of the monotonic clock."""


class FolderGoneError(FileNotFoundError):
    """A partition's folder is no longer in its log root, with what was ``left`` to read in it."""

    def __init__(self, folder: Folder, left: OffsetRange, cause: FileNotFoundError) -> None:
        super().__init__(errno.ENOENT, f"the folder is gone: {cause}", folder.label())
        self.left = left


class Partition:
    """A partition's folder, read as a broker would after loading it, without changing a file.

    :param start: gives the log start offset, for the base offset of the first segment.
    :param listings: those of its directory; None if it is read alone.
    :param checkpointed: gives the log start offset of the root's checkpoint, None without an entry.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        folder: Folder,
        start: Callable[[TopicPartition, int], int],
        listings: Listings | None = None,
        checkpointed: Callable[[TopicPartition], int | None] = lambda _: None,
    ) -> None:
        self.topic_partition = topic_partition
        self.folder = folder
        self._start = start
        self._checkpointed = checkpointed
        self._end: LogEnd | None = None
        self._listing: _Listing | None = None
        self._listings = listings or Listings()
        self.largest_timestamps: dict[tuple[Segment, object], int] = {}
        """Largest timestamps of closed segments (ms), by who tells them; kept by :mod:`.times`."""

    def segments(self, *, fresh: bool = False) -> list[Segment]:
        """The live segments in order.

        While the folder seems unchanged, they may come from an earlier listing. So before a missing
        segment is believed to be gone, list them ``fresh``.

        :raises FileNotFoundError: if the partition is gone, or a file has just gone.
        :raises LogDirectoryError: if the folder keeps changing.
        """
        changed = self.folder.changed()
        known = None if fresh else self._listing
        if known is not None and known.changed == changed and self._listings.is_believed(known.at):
            segments = known.segments
            active = segments[-1].now()
            return segments if active is segments[-1] else [*segments[:-1], active]
        self._listing = None
        started, started_ns = time.monotonic(), time.time_ns()
        segments = live_segments(self.folder)
        now = time.monotonic()
        self._listings.made(self.topic_partition, now - started)
        if len(self.largest_timestamps) > 4 * len(segments):
            self.largest_timestamps.clear()
        at_rest = was_at_rest(changed, started_ns)
        if segments and changed is not None and at_rest and min(s.size for s in segments) > GONE:
            self._listing = _Listing(segments, changed, now)
        return segments

    def topic_id(self) -> str:
        """The id of the partition's topic; empty if it cannot be read, or before Kafka 2.8.

        :raises FileNotFoundError: if the folder is gone.
        """
        data = self.folder.read(PARTITION_METADATA_FILE)
        if data is None and not self.folder.exists():
            raise FileNotFoundError(errno.ENOENT, "The folder is gone", self.folder.label())
        return readable_topic_id(data)

    def epoch_end(self, epoch: int) -> tuple[int, int] | None:
        """The largest leader epoch up to ``epoch``, and the offset after its last record: see
        Kafka's LeaderEpochFileCache.endOffsetFor. None if the log has no epochs.
        """
        data = self.folder.read(LEADER_EPOCH_CHECKPOINT)
        epochs = parse_leader_epoch_checkpoint(data or b"", self.folder.label(LEADER_EPOCH_CHECKPOINT))
        if not epochs:
            return None
        known = [entry for entry in epochs if entry[0] <= epoch]
        later = epochs[len(known) :]
        end = later[0][1] if later else self.log_end_offset(self.segments())
        return known[-1][0] if known else epoch, end

    def stored_size(self) -> StoredSize:
        """Bytes and base offsets of the live segments."""
        segments = self.segments()
        return StoredSize(sum(self.sizes(segments)), tuple(segment.base_offset for segment in segments))

    def mean_record_bytes(self) -> float | None:
        """Bytes of the segments per offset that they span; None if they are empty."""
        segments = self.segments()
        offsets = self.log_end_offset(segments) - segments[0].base_offset if segments else 0
        return sum(self.sizes(segments)) / offsets if offsets > 0 else None

    def sizes(self, segments: list[Segment]) -> list[int]:
        """Bytes of each segment, as Kafka's ``LogSegment.size``: of the last one up to where the log ends.

        What follows there is the room of a preallocated file, or torn: a broker trims it. Where damage hides
        the end, the whole file counts.

        :raises FileNotFoundError: if a segment was already gone.
        """
        for segment in segments:
            if segment.size == GONE:
                raise FileNotFoundError(errno.ENOENT, "The segment is gone", segment.file)
        sizes = [segment.size for segment in segments]
        with suppress(CorruptRecordError):
            end = self._found_end(segments)
            if end is not None and end.torn_at is not None:
                sizes[-1] = end.torn_at
        return sizes

    def log_start_offset(self, segments: list[Segment]) -> int:
        """The first offset that exists: DeleteRecords may have moved it into the first segment.

        That of a backup may be missing.
        """
        return self._start(self.topic_partition, segments[0].base_offset if segments else 0)

    def elsewhere(self, segments: list[Segment]) -> OffsetRange | None:
        """The offsets before the first segment that are in tiered storage; see :func:`.missing.elsewhere`."""
        start = self._checkpointed(self.topic_partition)
        return None if start is None else elsewhere(self.folder, start, self.log_start_offset(segments))

    def log_end_offset(self, segments: list[Segment]) -> int:
        """The offset after the last record batch; cheap to ask again while the log only grows."""
        end = self._found_end(segments)
        return 0 if end is None else end.log_end_offset

    def _found_end(self, segments: list[Segment]) -> LogEnd | None:
        if not segments:
            return None
        if self._end is None or self._end.segment != segments[-1]:
            with segments[-1].open() as opened:
                self._end = find_end(opened, self._end)
        return self._end

    def end(self) -> int:
        """The log end offset; a log without segments ends where it began."""
        segments = self.segments()
        return max(self.log_end_offset(segments), self.log_start_offset(segments))

    @property
    def torn_tail(self) -> tuple[str, int] | None:
        """File and position where the log ended before the file did, at the last look.

        None if only the room of a preallocated file follows.
        """
        end = self._end
        return None if end is None or end.torn_at is None or end.is_room else (end.segment.file, end.torn_at)

    def file_faults(
        self, is_compacted: Callable[[], bool], known_gaps: Callable[[], Sequence[OffsetRange]]
    ) -> list[KafkaLogError]:
        """Faults of what lies beside the batches, bytes after the last one, segments that seem to be missing.

        :param is_compacted: whether the topic may be compacted, as far as the directory knows.
        :param known_gaps: what a backup could not copy, in order: that isn't a fault.
        :raises FileNotFoundError: if segments were replaced meanwhile.
        """
        from pyspark_kafkalog.log.segment.beside import (
            WRITING,
            Beside,
        )  # what only a check of all files needs

        segments = self.segments()
        self.log_end_offset(segments)
        torn = self.torn_tail
        without_log = bases_without_log(self.folder.names())
        if torn is not None or without_log:
            time.sleep(WRITING)
        without_log &= bases_without_log(self.folder.names())
        faults: list[KafkaLogError] = []
        search = GapSearch()
        beside = Beside(self.folder, self.topic_partition)
        for segment in segments:
            beside.begin(segment)
            with segment.open() as opened:
                for window in opened.sound_windows(0):
                    beside.add(window)
                    search.add(segment, window)
                search.end(segment, opened.size)
            faults += beside.segment_faults()
        faults += beside.file_faults(self._bounds)
        faults += self._deleted_at_start()
        if not search.may_be_compacted and search.gaps and not is_compacted():
            start = self.log_start_offset(segments)
            known = known_gaps()  # asked after the segments, as a running backup notes a gap first
            faults += [
                self._gap(gap)
                for gap in search.gaps
                if gap.last >= start and behind_gaps(known, gap.first) <= gap.last
                if not gap.holds(without_log)
            ]
        last = segments[-1].base_offset if segments else -1
        faults += [self._missing_end(base) for base in sorted(without_log) if base > last]
        now = self.segments(fresh=bool(faults))
        if faults and now[: len(segments) - 1] != segments[:-1]:
            raise FileNotFoundError(self.folder.label())
        log_end_offset = self.log_end_offset(now)
        if torn is not None and self.torn_tail == torn:
            file, position = torn
            faults.append(
                CorruptRecordError(
                    "Expected a whole record batch, got other bytes; the log ends here",
                    topic_partition=self.topic_partition,
                    offset=log_end_offset,
                    file=file,
                    position=position,
                )
            )
        return faults

    def _deleted_at_start(self) -> Iterator[KafkaLogError]:
        """The fault of a log that a broker would take for empty."""
        segments = self.segments()
        start, end = self.log_start_offset(segments), self.log_end_offset(self.segments())
        if end < start and any(self.sizes(segments)):
            yield CorruptRecordError(
                f"The log ends before its log start offset {start}: a broker would delete all of it",
                topic_partition=self.topic_partition,
                offset=end,
                file=self.folder.label(),
                hint="Mend log-start-offset-checkpoint.",
            )

    def _bounds(self) -> tuple[int, int]:
        """Log start offset, and the end at a later moment."""
        segments = self.segments()
        return self.log_start_offset(segments), self.end()

    def scan(self, wanted: Fetch, near: StoredBatch | None = None) -> Iterator[Slice]:
        """Slices like those of :meth:`read`, but of large batches they have the headers alone.

        :param near: a batch at or before the offsets, to begin with if it is still where it was.
        """
        return self._slices(wanted, None, near)

    def read(self, wanted: Fetch, *, max_bytes: int) -> Iterator[Slice]:
        """The batches that are ``wanted``, in slices of at most ``max_bytes``, or of one larger batch.

        Where a segment has vanished (deleted, merged or divided by the cleaner), reading goes on with
        a new listing.

        :param wanted: its topic id is what :meth:`topic_id` said before: a folder that has another by then is
            not read on. Its ``on_corrupt`` is also called where a segment is missing.
        :raises DataLossError: if the log begins after the start of the offsets, or ends before their end; if
            a segment is missing in between.
        :raises CorruptRecordError: see :meth:`pyspark_kafkalog.model.Place.fetch`.
        :raises LogDirectoryError: if the folder keeps changing, or the log root is gone.
        :raises FolderGoneError: if the folder is gone; it may be in another root by now.
        """
        return self._slices(wanted, max_bytes, None)

    def _slices(self, wanted: Fetch, max_bytes: int | None, near: StoredBatch | None) -> Iterator[Slice]:
        """The record batches of :meth:`read` or, without ``max_bytes``, of :meth:`scan`."""
        (position, end), on_corrupt, topic_id = wanted.offsets, wanted.on_corrupt, wanted.topic_id
        attempt = 0
        while position < end:
            first = position
            neighbours = Neighbours(self.folder, partial(self.segments, fresh=True))
            try:
                segments = self.segments(fresh=attempt > 0)
                if not segments or position < self.log_start_offset(segments):
                    segments = self.segments(fresh=True)
                    if position < self.log_start_offset(segments):
                        raise self._before_start(OffsetRange(position, end), segments)
                if segments and position < segments[0].base_offset:
                    missing = OffsetRange(position, min(segments[0].base_offset, end))
                    if on_corrupt is None:
                        raise self._missing_start(missing)
                    on_corrupt(self._missing_start(missing))
                    position = missing.end
                    continue
                pairs = segments_from(segments, position)
                for opened, segment, following in _opened(pairs, end):
                    left = OffsetRange(position, end)
                    for piece, next_offset in self._read_segment(
                        opened, left, following, neighbours, on_corrupt, max_bytes, near
                    ):
                        yield piece
                        position = next_offset
                    if position >= end:
                        return
                    if following is None or position < following.base_offset:
                        # Compaction leaves gaps, and so does a listing that misses a segment.
                        neighbours.check(segment, following)
                    if following is not None and position < following.base_offset:
                        left = OffsetRange(position, min(following.base_offset, end))
                        self._check_gap(segment, following, left, neighbours, on_corrupt)
                        position = following.base_offset
                        if position >= end:
                            return
                raise lost(
                    self.topic_partition, OffsetRange(position, end), f"the log ends at offset {position}"
                )
            except FileNotFoundError as e:
                if not self.folder.exists():
                    if not (root := self.folder.parent()).exists():
                        raise no_such_directory(root) from None
                    raise FolderGoneError(self.folder, OffsetRange(position, end), e) from None
                if topic_id and self.topic_id() not in ("", topic_id):
                    gone = OffsetRange(position, end)
                    raise lost(self.topic_partition, gone, "the topic was deleted and recreated") from None
                attempt = 1 if position > first else attempt + 1
                wait(attempt, self.folder.label(), e)

    def offset_after_bytes(self, offsets: OffsetRange, max_bytes: int) -> int:
        """See :meth:`pyspark_kafkalog.model.Place.offsets_after_bytes`."""
        left, is_first = max_bytes, True
        for segment, following in segments_from(self.segments(), offsets.start):
            is_last = following is None or following.base_offset >= offsets.end
            if not is_last and segment.base_offset >= offsets.start and 0 < segment.size <= left:
                is_first = False
                left -= segment.size
                continue
            with segment.open() as opened:
                start = opened.seek(offsets.start)
                if is_last or opened.size - start > left:
                    found = opened.offset_at(start, start + left, at_least_one=is_first)
                    # Maybe no batch of this segment fits, or none is valid.
                    found = segment.base_offset if found is None else found
                    if found > offsets.start:
                        return min(offsets.end, found)
                is_first = is_first and start == opened.size
                left -= opened.size - start
        return offsets.end

    def _read_segment(
        self,
        opened: OpenSegment,
        offsets: OffsetRange,
        following: Segment | None,
        neighbours: Neighbours,
        on_corrupt: OnCorrupt | None,
        max_bytes: int | None,
        near: StoredBatch | None,
    ) -> Iterator[tuple[Slice, int]]:
        """Slices, each with the offset after it; ``following`` is the next segment, None after the last."""
        start, end = offsets
        below = MAX_OFFSET if following is None else following.base_offset
        until = opened.size if below <= end else opened.position_after(end - 1)
        position = _position_of(near, opened)
        if position is None:
            position = opened.position_before(start)
        next_offset, is_checked = 0, False
        while position is not None:
            walked = {"until": until, "next_offset": next_offset, "below": below}
            if max_bytes is None:
                windows = opened.heads(position, stop=end - 1, **walked)
            else:
                windows = opened.windows(position, max_bytes=max_bytes, **walked)
            try:
                for window in windows:
                    batches = window.batches
                    first = int(np.searchsorted(batches.last_offset, start))
                    last = min(int(np.searchsorted(batches.last_offset, end - 1)), len(batches) - 1)
                    if first <= last:
                        begin = int(batches.position[first])
                        stop = min(int(batches.position[last] + batches.size[last]), window.buffer.size)
                        origin = Origin(opened.file, window.position + int(batches.size[:first].sum()))
                        start = int(batches.last_offset[last]) + 1
                        piece = window.buffer.slice(begin, stop - begin)
                        yield Slice(piece, batches.headers_of(first, last), origin), start
                    if start >= end:
                        return
                return
            except FramingError as e:
                # It may have been replaced by one that holds its successor, too.
                neighbours.check(opened.segment, following, fresh=not is_checked)
                is_checked = True
                try:
                    position, next_offset = opened.next_batch(e.position + 1, e.next_offset), e.next_offset
                except CorruptRecordError as given_up:
                    if on_corrupt is None:
                        raise
                    on_corrupt(given_up)
                    return
                if position is None and following is None:
                    return
                resumed_at = below if position is None else _first_offset(opened, position, below)
                if e.next_offset < offsets.start and resumed_at <= offsets.start:
                    continue
                error = CorruptRecordError(
                    f"No record batch can be read here: {e}",
                    topic_partition=self.topic_partition,
                    offset=max(start, e.next_offset),
                    file=opened.file,
                    position=e.position,
                    hint=TO_NEXT_BATCH if on_corrupt is None else None,
                )
                if on_corrupt is None:
                    raise error from None
                on_corrupt(error)

    def _check_gap(
        self,
        segment: Segment,
        following: Segment,
        offsets: OffsetRange,
        neighbours: Neighbours,
        on_corrupt: OnCorrupt | None,
    ) -> None:
        """:raises DataLossError: if some of ``offsets``, which neither segment has, were in a missing one."""
        base_offset = neighbours.missing(segment, following)
        if base_offset is None or base_offset >= offsets.end:
            return
        name = segment_file(base_offset, LOG_SUFFIX)
        error = lost(
            self.topic_partition,
            OffsetRange(max(offsets.start, base_offset), offsets.end),
            f"the segment {name} is missing",
            next_offset=following.base_offset,
            file=self.folder.label(name),
        )
        if on_corrupt is None:
            raise error
        on_corrupt(error)

    def _before_start(self, offsets: OffsetRange, segments: list[Segment]) -> DataLossError:
        """The error for offsets that begin before the log start offset."""
        tiered = self.elsewhere(segments)
        if tiered is None or offsets.start < tiered.start:
            start = self.log_start_offset(segments) if tiered is None else tiered.start
            gone = OffsetRange(offsets.start, min(start, offsets.end))
            why = f"the log now starts at offset {start}"
            return lost(self.topic_partition, gone, why, next_offset=start)
        return DataLossError(
            not_here(offsets.within(tiered)),
            topic_partition=self.topic_partition,
            offset=offsets.start,
            file=self.folder.label(),
            next_offset=tiered.end,
            hint=f"Read them from the cluster's brokers, if it runs. {GO_ON}",
        )

    def _missing_start(self, offsets: OffsetRange) -> DataLossError:
        return DataLossError(
            missing_in_backup(offsets),
            topic_partition=self.topic_partition,
            offset=offsets.start,
            file=self.folder.label(),
            next_offset=offsets.end,
            hint=GIVE_UP,
        )

    def _gap(self, gap: Gap) -> DataLossError:
        return DataLossError(
            f"Offsets {gap.first} to {gap.last} are in no segment: one is missing between {gap.before.name} "
            f"and {gap.after.name}, unless the topic is compacted",
            topic_partition=self.topic_partition,
            offset=gap.first,
            next_offset=gap.last + 1,
        )

    def _missing_end(self, base_offset: int) -> DataLossError:
        name = segment_file(base_offset, LOG_SUFFIX)
        return DataLossError(
            f"The segment {name} is missing, with all from offset {base_offset} on",
            topic_partition=self.topic_partition,
            offset=base_offset,
            file=self.folder.label(name),
        )


def segments_from(segments: list[Segment], offset: int) -> Iterator[tuple[Segment, Segment | None]]:
    """The segments that may hold ``offset`` or later ones, each with the next segment."""
    first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    for at in range(max(first, 0), len(segments)):
        yield segments[at], segments[at + 1] if at + 1 < len(segments) else None


def _opened(
    pairs: Iterator[tuple[Segment, Segment | None]], end: int
) -> Iterator[tuple[OpenSegment, Segment, Segment | None]]:
    """Each segment opened, with the segment and the next; in a store the next is opened meanwhile.

    :param end: the offset at which reading ends.
    """
    ahead: Future[InputFile] | None = None
    try:
        for segment, following in pairs:
            with segment.open(ahead) as opened:
                ahead = None
                if following is not None and following.base_offset < end and segment.folder.is_store:
                    from pyspark_kafkalog.filesystem.ahead import in_background

                    ahead = in_background(partial(_opened_ahead, following))
                yield opened, segment, following
    finally:
        if ahead is not None:
            with suppress(OSError, LogDirectoryError), ahead.result():
                pass


def _opened_ahead(segment: Segment) -> InputFile:
    log = segment.folder.open(segment.name)
    log.begin(log.size)
    return log


def _position_of(near: StoredBatch | None, opened: OpenSegment) -> int | None:
    """The position of the batch, if it is in this segment, where it was."""
    if near is None or near.origin.file != opened.file:
        return None
    return near.origin.position if opened.header_at(near.origin.position) == near.header else None


def _first_offset(opened: OpenSegment, position: int, default: int) -> int:
    """The first offset of the batch at ``position``; the last of a v0 or v1 message, maybe compressed."""
    window = opened.window_at(position)
    if window is None:
        return default
    batches = window.batches
    return int(batches.base_offset[0] if batches.magic[0] == 2 else batches.last_offset[0])
