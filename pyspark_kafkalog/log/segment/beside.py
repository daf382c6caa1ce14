"""Judges what a broker keeps beside a partition's record batches: indexes, snapshots, epochs, the topic's id.

It is shown all batches, and only looks, on any file system, also while a broker works: a repair mends what
the same functions find. It leaves out what a broker's own start puts in order: an ``.index`` that is missing,
what the cleaner or a deletion has left, and snapshots behind the end of the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.errors import CorruptRecordError, KafkaLogError, LogDirectoryError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    parse_leader_epoch_checkpoint,
    parse_partition_metadata,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment.epochs import EpochStart, epoch_fault, epoch_starts
from pyspark_kafkalog.log.segment.index import MAX_RELATIVE, TXN_ENTRY
from pyspark_kafkalog.log.segment.index_check import IndexCheck
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.recovery import TOO_FAR
from pyspark_kafkalog.log.segment.segment import Segment, Window
from pyspark_kafkalog.log.snapshot import parse_snapshot
from pyspark_kafkalog.model import TopicPartition

WRITING = 0.1
"""Seconds in which a writer finishes what it has begun."""
BROKEN_SNAPSHOT = "its checksum is wrong"
_REPAIR = "Mend it by kafkalog repair, while the directory is not in use."


class Beside:
    """Takes in the segments of a partition, one after the other, and says what lies wrong beside them."""

    def __init__(self, folder: Folder, partition: TopicPartition) -> None:
        self._folder = folder
        self._partition = partition
        self._producers = ProducerState()
        self._seen = ProducerState()
        """The same, but by no snapshot: compaction may have taken all records of what a snapshot has open."""
        self._epochs: list[EpochStart] = []
        self._end = 0
        """The offset after the last batch so far."""
        self._is_whole = True
        """Whether all that was ever in the log is known so far."""
        self._can_judge = True
        """Whether transactions can be followed."""

    def begin(self, segment: Segment) -> None:
        """Begin the next segment, before its log is opened: indexes may not know more than the batches."""
        self._segment, self._indexes = segment, IndexCheck(segment)
        self._aborted = [np.empty(0, TXN_ENTRY)]
        self._seen_aborted: set[int] = set()
        self._first_faults: list[KafkaLogError] = []
        base_offset = segment.base_offset
        if base_offset < self._end:
            text = f"The segment begins before offset {self._end}, where the one before it ends"
            self._first_faults.append(self._fault(text, segment.name, base_offset))
        entries = parse_snapshot(self._folder.read(segment_file(base_offset, SNAPSHOT_SUFFIX)) or b"")
        if entries is not None:
            self._producers = ProducerState(entries)
        if not self._end:  # the first one
            self._is_whole, self._end = entries is not None or base_offset == 0, base_offset

    def add(self, window: Window) -> None:
        """Take in its next batches."""
        batches = window.batches
        self._indexes.add(window.position, batches)
        too_far = np.flatnonzero(batches.last_offset - self._segment.base_offset > MAX_RELATIVE)
        if too_far.size:
            self._first_faults.append(self._batch_fault(TOO_FAR, window, int(too_far[0])))
        self._is_whole = self._is_whole and not leaves_out(batches, self._end)
        self._epochs += epoch_starts(batches, self._epochs[-1].epoch if self._epochs else -1, self._end)
        self._end = max(self._end, int(batches.last_offset[-1]) + 1)
        rows = np.flatnonzero(batches.is_transactional)
        if self._can_judge and rows.size:
            try:
                data, transactional = as_array(window.buffer), batches.take(rows)
                self._aborted.append(self._producers.add(data, transactional))
                self._seen_aborted.update(self._seen.add(data, transactional)["last_offset"].tolist())
            except CorruptRecordError as e:
                row = int(np.searchsorted(batches.position, e.position or 0, side="right")) - 1
                self._first_faults.append(self._batch_fault(e.message, window, row))
                self._can_judge = False

    def segment_faults(self) -> list[KafkaLogError]:
        """The faults of the segment and its indexes, after its last batch."""

        def found() -> list[KafkaLogError]:
            # Without an .index, a broker makes all of them.
            is_made = self._indexes.is_missing
            aborted = np.concatenate(self._aborted[: 1 if is_made or not self._can_judge else None])
            if not self._is_whole:
                aborted = aborted[np.isin(aborted["last_offset"], list(self._seen_aborted))]
            is_closed = not (self._segment.is_active or is_made)
            faults = self._indexes.faults(
                self._partition, aborted, is_closed=is_closed, is_whole=self._is_whole
            )
            return [fault for _, fault in faults]

        return [*self._first_faults, *_lasting(found)]

    def file_faults(self, bounds: Callable[[], tuple[int, int]]) -> list[KafkaLogError]:
        """The faults of the small files, after the last segment.

        :param bounds: where the log starts and ends now.
        """
        return _lasting(
            lambda: [*self._snapshot_faults(), *self._epoch_faults(bounds), *self._metadata_faults()]
        )

    def _snapshot_faults(self) -> Iterator[KafkaLogError]:
        for name in broken_snapshots(self._folder):
            yield self._fault(f"The snapshot of producers can't be read: {BROKEN_SNAPSHOT}", name)

    def _epoch_faults(self, bounds: Callable[[], tuple[int, int]]) -> Iterator[KafkaLogError]:
        data = self._folder.read(LEADER_EPOCH_CHECKPOINT)
        if data is None:
            return
        try:
            known = parse_leader_epoch_checkpoint(data, self._folder.label(LEADER_EPOCH_CHECKPOINT))
        except LogDirectoryError as e:
            yield e
            return
        start, end = bounds()
        fault = epoch_fault(known, self._epochs, start, self._end, end)
        if fault is not None:
            yield self._fault(f"Leader epochs: {fault}. No checksum covers either", LEADER_EPOCH_CHECKPOINT)

    def _metadata_faults(self) -> Iterator[KafkaLogError]:
        data = self._folder.read(PARTITION_METADATA_FILE)
        try:
            if data is not None:
                parse_partition_metadata(data, self._folder.label(PARTITION_METADATA_FILE))
        except LogDirectoryError as e:
            yield e

    def _batch_fault(self, message: str, window: Window, row: int) -> KafkaLogError:
        position = window.position + int(window.batches.position[row])
        offset = int(window.batches.base_offset[row])
        return self._fault(f"A record batch is at fault: {message}", self._segment.name, offset, position)

    def _fault(
        self, message: str, name: str, offset: int | None = None, position: int | None = None
    ) -> KafkaLogError:
        return CorruptRecordError(
            message,
            topic_partition=self._partition,
            offset=offset,
            file=self._folder.label(name),
            position=position,
            hint=_REPAIR,
        )


def _lasting(look: Callable[[], list[KafkaLogError]]) -> list[KafkaLogError]:
    """The faults that are found, and still there when a writer would have finished."""
    if not look():
        return []
    time.sleep(WRITING)
    return look()


def broken_snapshots(folder: Folder) -> list[str]:
    """The names of the snapshots of producers in a folder that can't be read."""
    found = []
    for name in sorted(folder.names()):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] == SNAPSHOT_SUFFIX:
            data = folder.read(name)
            if data is not None and parse_snapshot(data) is None:
                found.append(name)
    return found


def leaves_out(batches: Batches, end: int) -> bool:
    """Whether records are missing in ``batches`` or between them, which follow those up to ``end``."""
    first = np.where(batches.magic == 2, batches.base_offset, batches.last_offset)
    before = np.append(end, batches.last_offset + 1)[:-1]
    is_thinned = (batches.magic == 2) & (batches.count <= batches.last_offset - batches.base_offset)
    return bool((first > before).any() or is_thinned.any())
