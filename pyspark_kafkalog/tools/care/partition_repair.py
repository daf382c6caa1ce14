"""Repairs one partition's folder, or says what a repair would do.

As in a broker's start after a crash (``LogLoader``, ``LogSegment.recover``), but all segments are read, not
only those after the recovery point: the log ends before the first batch that is not valid. To salvage means
to go on after it with every batch that a reader with ``failOnDataLoss=false`` delivers.

An interruption at any step leaves the reason for all that is left to do: what is cut is put aside first,
later segments go before the end of the one that is damaged, and a salvaged segment takes the place of the
old one by one rename.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from pyspark_kafkalog.codec.abort_marker import MARKER_SIZE
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import cut, sync_file, sync_folder, write_new
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.checkpoints import write_epochs
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_leader_epoch_checkpoint,
    parse_partition_metadata,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment.aside import put_aside
from pyspark_kafkalog.log.segment.beside import BROKEN_SNAPSHOT, broken_snapshots, leaves_out
from pyspark_kafkalog.log.segment.epochs import EpochStart, epoch_fault, mended_epochs
from pyspark_kafkalog.log.segment.index import TXN_ENTRY
from pyspark_kafkalog.log.segment.index_check import IndexCheck, has_all
from pyspark_kafkalog.log.segment.leftovers import plan_leftovers
from pyspark_kafkalog.log.segment.loading import live_segments
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.recovery import TOO_FAR, Rebuilt, remove_segment, write_indexes
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET, Scan, ends_in_zeros
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.log.segment.steps import Action, RepairStep
from pyspark_kafkalog.log.segment.writer import spans_too_much
from pyspark_kafkalog.log.snapshot import parse_snapshot
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.model.rows import BIGINT, COUNT, INT, SIZE, STRING, column
from pyspark_kafkalog.tools.care.salvage import Salvaged, count_valid, put_in_place, salvage_segment


@dataclass(frozen=True, slots=True)
class RepairMode:
    """The rules of a repair.

    ``execute``: change files; else only look. ``salvage``: keep valid batches after damage. ``discard``: keep
    nothing of what is cut.
    """

    execute: bool = False
    salvage: bool = False
    discard: bool = False


@dataclass(frozen=True, slots=True)
class RepairedPartition:
    """A partition after its repair, or as it would be; ``steps`` are those that it takes.

    ``cut_bytes`` were taken out of its segments. The offsets ``dropped`` are lost with them, among them
    ``dropped_records`` of valid batches after the damage, which a salvage keeps. A salvage loses the offsets
    ``lost``, which are between batches that it keeps.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    log_start_offset: int = field(metadata=column(BIGINT, "START"))
    log_end_offset: int = field(metadata=column(BIGINT, "END"))
    stored_bytes: int = field(metadata=column(SIZE, "SIZE"))
    cut_bytes: int = field(metadata=column(SIZE, "CUT"))
    steps: tuple[RepairStep, ...] = field(metadata=column(COUNT, "STEPS"))
    dropped: OffsetRange | None = None
    dropped_records: int = 0
    lost: tuple[OffsetRange, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether a repair mends all damage."""
        return all(step.action != "leave" for step in self.steps)


class PartitionRepair:
    """The repair of one partition; the caller holds the directory's lock.

    :param log_start_offset: that in the root's checkpoint, 0 without one.
    :param progress: called with the number of bytes that were read.
    """

    def __init__(
        self,
        folder: Folder,
        partition: TopicPartition,
        log_start_offset: int,
        mode: RepairMode,
        index_interval_bytes: int,
        progress: Callable[[int], None],
    ) -> None:
        self._folder = folder
        self._partition = partition
        self._start = log_start_offset
        self._mode = mode
        self._interval = index_interval_bytes
        self._progress = progress
        self._steps: list[RepairStep] = []
        self._producers = ProducerState()
        self._end = 0
        """The offset after the last batch so far."""
        self._epochs: list[EpochStart] = []
        """The leader epochs of the batches so far."""
        self._is_whole = True
        """Whether all that was ever in the log is known so far."""
        self._stored_bytes = 0
        self._dropped: OffsetRange | None = None
        self._dropped_records = 0
        self._lost: list[OffsetRange] = []
        self._removed: set[Segment] = set()
        self._inserted: dict[tuple[str, int], int] = {}
        """The bytes of markers that stand in place of what is cut, by segment and position."""
        self._snapshots_end = MAX_OFFSET
        """Snapshots behind it are gone, or would be."""

    def run(self) -> RepairedPartition:
        """Look at all, and mend it if that is wanted.

        :raises LogDirectoryError: if something is in the way that a repair doesn't touch.
        :raises OSError: if a file can't be read or written.
        """
        folder = self._folder.path
        leftovers = plan_leftovers(self._folder)
        self._steps += leftovers.steps
        segments = leftovers.segments
        if self._mode.execute:
            leftovers.run(forget_missing=True)
            segments = live_segments(self._folder)
        self._check_metadata()
        known = self._known_epochs()
        first = segments[0].base_offset if segments else self._start
        self._end = first
        for at, (segment, following) in enumerate(zip_longest(segments, segments[1:])):
            if not self._repair_segment(segment, following, segments, at):
                break
        if segments and self._end < self._start:
            self._begin_anew(segments)
        if self._mode.execute and self._end == self._start and not live_segments(self._folder):
            # The log last, unlike elsewhere: if killed before, the next repair finds stray indexes only.
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
                write_new(self._path(segment_file(self._start, suffix)), b"")
        self._finish_snapshots()
        self._finish_epochs(known)
        if self._mode.execute:
            with os.scandir(folder) as entries:  # a broker will trust snapshots and checkpoints, too
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        sync_file(entry.path)
            sync_folder(folder)
        return RepairedPartition(
            *self._partition,
            log_start_offset=max(first, self._start),
            log_end_offset=max(self._end, self._start),
            stored_bytes=self._stored_bytes,
            cut_bytes=sum(step.size or 0 for step in self._steps if step.action == "cut"),
            steps=tuple(self._steps),
            dropped=self._dropped,
            dropped_records=self._dropped_records,
            lost=tuple(self._lost),
        )

    def _repair_segment(
        self, segment: Segment, following: Segment | None, segments: list[Segment], at: int
    ) -> bool:
        """Whether the log goes on after the segment."""
        base_offset = segment.base_offset
        if base_offset < self._end:  # never to salvage, which ends each segment where the next begins
            self._count_dropped(segments[at:], 0)
            self._end_before(segments[at:])
            return False
        has_snapshot = self._load_snapshot(base_offset)
        if at == 0:
            self._is_whole = has_snapshot or base_offset == 0
        before = self._producers.snapshot() if self._mode.salvage else b""
        # To salvage is to do as readers do, who believe the next segment where two overlap. Else the first
        # counts, as what is damaged must stay so when what follows has gone.
        below = following.base_offset if following is not None and self._mode.salvage else MAX_OFFSET
        scan = Scan(self._path(segment.name), max(base_offset, self._end), below)
        rebuilt = Rebuilt(base_offset, self._producers, self._interval)
        indexes, read_to = IndexCheck(segment), self._end
        for piece in rebuilt.read(scan):
            indexes.add(piece.position, piece.batches)
            self._is_whole = self._is_whole and not leaves_out(piece.batches, read_to)
            read_to = int(piece.batches.last_offset[-1]) + 1
            self._progress(int(piece.batches.size.sum()))
        fault = rebuilt.fault
        if fault == TOO_FAR and not self._mode.salvage:
            raise spans_too_much(scan.path, self._partition)
        end = rebuilt.segment.sizes()[LOG_SUFFIX]
        is_room = fault is not None and following is None and ends_in_zeros(scan.path, end)
        if fault is not None and self._mode.salvage and not is_room:
            producers = ProducerState(parse_snapshot(before) or ())
            salvaged = salvage_segment(
                self._partition, segment, segments, following, producers, self._interval
            )
            self._progress(scan.size - end)
            is_cut_only = salvaged.ranges == ([(0, end)] if end else []) and (end > 0 or following is None)
            if not is_cut_only or salvaged.markers:
                self._producers = producers
                self._replace(segment, salvaged, scan.size, fault, following)
                return True
        self._take(rebuilt)
        self._stored_bytes += end
        if fault is None:
            self._check_indexes(segment, rebuilt, indexes)
            return True
        if is_room:
            self._step("trim", segment.name, f"it is preallocated from byte {end} on", end, scan.size - end)
        else:
            if not self._mode.salvage:
                self._count_dropped(segments[at:], end)
            damaged = self._step("cut", segment.name, fault, end, scan.size - end, self._end)
            if self._mode.salvage:
                self._count_lost(self._end, following.base_offset if following else None)
            self._end_before([] if self._mode.salvage else segments[at + 1 :], damaged)
        if self._mode.execute:
            self._cut(segment, rebuilt, indexes, end)
        return self._mode.salvage

    def _take(self, rebuilt: Rebuilt) -> None:
        latest = self._epochs[-1].epoch if self._epochs else -1
        new = [entry for entry in rebuilt.epochs if entry.epoch > latest]
        if new and new[0].after == rebuilt.segment.base_offset:  # the batch before is in another segment
            new[0] = new[0]._replace(after=self._end)
        self._epochs += new
        self._end = max(self._end, rebuilt.segment.next_offset)

    # Indexes

    def _check_indexes(self, segment: Segment, rebuilt: Rebuilt, check: IndexCheck) -> None:
        """Rebuild the indexes of a whole segment that are missing or not as they should be."""
        contents = rebuilt.indexes()
        aborted = np.frombuffer(contents[TXN_INDEX_SUFFIX], TXN_ENTRY)
        found = check.faults(self._partition, aborted, is_closed=True, is_whole=self._is_whole)
        faults = {suffix: fault.message for suffix, fault in found}
        rebuild = set(faults)
        if {INDEX_SUFFIX, TIME_INDEX_SUFFIX} & rebuild:
            rebuild |= {INDEX_SUFFIX, TIME_INDEX_SUFFIX}
        for suffix in sorted(rebuild):
            why = faults.get(suffix, "The segment's other index is at fault")
            self._step("rebuild", segment_file(segment.base_offset, suffix + segment.suffix), why)
        if self._mode.execute and rebuild:
            chosen = {suffix: contents[suffix] for suffix in rebuild}
            write_indexes(self._folder.path, segment.base_offset, chosen)

    # Cuts

    def _cut(self, segment: Segment, rebuilt: Rebuilt, check: IndexCheck, end: int) -> None:
        """End the log at ``end`` of a segment."""
        contents = rebuilt.indexes()
        aborted = np.frombuffer(contents[TXN_INDEX_SUFFIX], TXN_ENTRY)
        if has_all(check.aborted, aborted, is_whole=self._is_whole):
            aborted = check.aborted  # which may know more than the segments that are left
            contents[TXN_INDEX_SUFFIX] = aborted[aborted["last_offset"] < self._end].tobytes()
        write_indexes(self._folder.path, segment.base_offset, contents)
        cut(self._path(segment.name), end)

    def _end_before(self, later: list[Segment], *cuts: RepairStep) -> None:
        """Remove the last segments of the log; with ``cuts``, which are made after that."""
        steps = []
        for segment in later:
            goes_back = segment.base_offset < self._end
            why = "it begins before the end of the log" if goes_back else "it follows the end of the log"
            steps.append(self._step("cut", segment.name, why, 0, segment.size, segment.base_offset))
        self._put_aside([*cuts, *steps])
        for segment in reversed(later):
            self._remove(segment)

    def _count_dropped(self, segments: list[Segment], position: int) -> None:
        """Note which records of valid batches go with ``segments``, from a position of the first on."""
        records, offsets = count_valid(self._partition, segments, position, self._progress)
        if records:
            self._dropped = offsets._replace(start=min(offsets.start, self._end))
            self._dropped_records = records

    def _count_lost(self, offset: int, next_offset: int | None) -> None:
        """Note the offsets before a kept batch that damage has taken; None: no batch follows."""
        if next_offset is not None and offset < next_offset:
            self._lost.append(OffsetRange(offset, next_offset))

    def _replace(
        self, segment: Segment, salvaged: Salvaged, size: int, why: str, following: Segment | None
    ) -> None:
        """Put what was salvaged of a segment in its place."""
        begin, offset, cuts = 0, segment.base_offset, []
        after = following.base_offset if following else None
        if salvaged.markers:
            self._forget_snapshots(segment.base_offset)
        for start, end, kept in [*salvaged.pieces(), (size, size, None)]:
            if start > begin:
                self._count_lost(offset, kept.start if kept else after)
                cuts.append(self._step("cut", segment.name, why, begin, start - begin, offset))
                if markers := salvaged.markers.get(start):
                    self._stored_bytes += len(markers)
                    self._inserted[segment.name, begin] = len(markers)
                    why = (
                        f"{len(markers) // MARKER_SIZE} transactions are open here, whose markers may be lost"
                    )
                    self._step("abort", segment.name, why)
                why = "no valid record batch begins here"
            self._stored_bytes += end - start
            begin, offset = end, kept.end if kept else offset
        self._take(salvaged.rebuilt)
        self._put_aside(cuts)
        if not salvaged.ranges and not salvaged.markers and following is not None:
            self._remove(segment)
        elif self._mode.execute:
            put_in_place(self._folder.path, segment, salvaged)

    def _put_aside(self, steps: list[RepairStep]) -> None:
        """Keep what the steps are about to cut, in the order that :mod:`.aside` wants."""
        if self._mode.discard or not self._mode.execute:
            return
        for step in reversed(steps):
            if step.size:
                assert step.position is not None
                assert step.offset is not None
                put_aside(
                    self._folder.path,
                    os.path.basename(step.file),
                    step.position,
                    step.size,
                    offset=step.offset,
                    why=step.why,
                    inserted=self._inserted.get((os.path.basename(step.file), step.position), 0),
                )

    def _remove(self, segment: Segment) -> None:
        self._removed.add(segment)
        if self._mode.execute:
            remove_segment(self._folder.path, segment.base_offset)
            sync_folder(self._folder.path)

    def _begin_anew(self, segments: list[Segment]) -> None:
        """Let the log begin, empty, with its log start offset: nothing that is left counts (LogLoader)."""
        left = [segment for segment in segments if segment not in self._removed]
        cuts = []
        for segment in left:
            done = sum(step.size or 0 for step in self._steps if step.file == self._path(segment.name))
            inserted = sum(size for (name, _), size in self._inserted.items() if name == segment.name)
            why = f"the log now ends before its log start offset {self._start}"
            size = segment.size - done + inserted
            cuts.append(self._step("cut", segment.name, why, 0, size, segment.base_offset))
        self._inserted.clear()  # what is put in goes, too
        self._end, self._stored_bytes = self._start, 0
        self._producers = ProducerState()
        self._put_aside(cuts)
        for segment in reversed(left):
            self._remove(segment)

    # What a broker keeps beside the segments

    def _forget_snapshots(self, offset: int) -> None:
        """Remove those behind an offset, which know nothing of the transactions that end there."""
        for name in sorted(self._folder.names()):
            found = parse_segment_file(name)
            if found is not None and found[1] == SNAPSHOT_SUFFIX and offset < found[0] <= self._snapshots_end:
                self._step("remove", name, "it does not know that transactions were aborted before")
                if self._mode.execute:
                    os.unlink(self._path(name))
        if self._mode.execute:
            sync_folder(self._folder.path)
        self._snapshots_end = min(self._snapshots_end, offset)

    def _load_snapshot(self, offset: int) -> bool:
        """Go on with the producers of the snapshot at an offset, if there is one; replace a broken one."""
        name = segment_file(offset, SNAPSHOT_SUFFIX)
        data = self._folder.read(name) if offset <= self._snapshots_end else None
        entries = None if data is None else parse_snapshot(data)
        if entries is not None:
            self._producers = ProducerState(entries)
        elif data is not None:
            if not any(step.file == self._path(name) for step in self._steps):  # a dry run comes twice
                self._step("rebuild", name, BROKEN_SNAPSHOT)
            if self._mode.execute:
                write_new(self._path(name), self._producers.snapshot())
        return entries is not None

    def _finish_snapshots(self) -> None:
        """Remove snapshots beyond the end of the log, and leave one at its end."""
        for name in sorted(self._folder.names()):
            found = parse_segment_file(name)
            if (
                found is None
                or found[1] != SNAPSHOT_SUFFIX
                or not self._end < found[0] <= self._snapshots_end
            ):
                continue
            self._step("remove", name, "it is beyond the end of the log")
            if self._mode.execute:
                os.unlink(self._path(name))
        if not self._load_snapshot(self._end) and self._mode.execute:
            write_new(self._path(segment_file(self._end, SNAPSHOT_SUFFIX)), self._producers.snapshot())
        for name in broken_snapshots(self._folder):  # where no segment begins
            if not any(step.file == self._path(name) for step in self._steps):
                self._step("remove", name, BROKEN_SNAPSHOT)
                if self._mode.execute:
                    os.unlink(self._path(name))

    def _known_epochs(self) -> list[tuple[int, int]]:
        """The entries of ``leader-epoch-checkpoint``; none if it is malformed."""
        data = self._folder.read(LEADER_EPOCH_CHECKPOINT)
        with suppress(LogDirectoryError):
            return parse_leader_epoch_checkpoint(data or b"", LEADER_EPOCH_CHECKPOINT)
        return [(-1, -1)]  # which differs from all that is right

    def _finish_epochs(self, known: list[tuple[int, int]]) -> None:
        """Leader epochs beyond the end go, and those of batches come (LeaderEpochFileCache)."""
        epochs = [entry for entry in known if 0 <= entry[1] <= self._end and entry[0] >= 0]
        latest = epochs[-1][0] if epochs else -1
        epochs += [(entry.epoch, entry.offset) for entry in self._epochs if entry.epoch > latest]
        fault = epoch_fault(epochs, self._epochs, self._start, self._end, self._end)
        if fault is not None:
            epochs = mended_epochs(self._epochs, self._start)
        if epochs == known:
            return
        self._step("rebuild", LEADER_EPOCH_CHECKPOINT, fault or "it does not fit the record batches")
        if self._mode.execute:
            write_epochs(self._folder.path, epochs)

    def _check_metadata(self) -> None:
        data = self._folder.read(PARTITION_METADATA_FILE)
        if data is not None:
            try:
                parse_partition_metadata(data, PARTITION_METADATA_FILE)
            except LogDirectoryError as e:
                self._step("leave", PARTITION_METADATA_FILE, f"the topic's id is not known: {e.message}")

    def _step(
        self,
        action: Action,
        name: str,
        why: str,
        position: int | None = None,
        size: int | None = None,
        offset: int | None = None,
    ) -> RepairStep:
        step = RepairStep(action, self._path(name), why, position, size, offset)
        self._steps.append(step)
        return step

    def _path(self, name: str) -> str:
        return self._folder.label(name)
