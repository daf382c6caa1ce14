"""Reads the records of a restore from its source, and sends them to the cluster.

:mod:`.restore` says why none is written twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from pyspark_kafkalog.backups.rate import RateLimit
from pyspark_kafkalog.backups.restore_batches import RestorableBatches, restorable
from pyspark_kafkalog.backups.restore_state import PlannedPartition, RestorePlan, RestoreState
from pyspark_kafkalog.codec.isolation import TransactionScan, Visibility
from pyspark_kafkalog.codec.stamp import SEQUENCE_MASK, stamp
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import BrokerError, KafkaLogError
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, Place, TaskSink
from pyspark_kafkalog.options.settings import WriteOptions
from pyspark_kafkalog.places import open_producer

Progress = Callable[..., None]
"""Takes how many bytes of record batches were read since the last call, and of how many if it is known."""

_AT_ONCE = 8
"""Partitions that are read and written in turn; each takes the memory of a slice."""
_SAVE_SECONDS = 5.0
_PAUSE = 0.005
"""Seconds to wait at a time for the rate, so that requests and answers go on meanwhile."""


class SourceRecords:
    """What of a place is restored.

    :param has_coordinator: whether someone can still commit an open transaction, which brokers can.
    :param read_committed: whether aborted and open transactions are left out.
    """

    def __init__(self, place: Place, *, has_coordinator: bool, read_committed: bool) -> None:
        self._place = place
        self._has_coordinator = has_coordinator
        self._read_committed = read_committed

    def stored_bytes(self, partitions: Sequence[PlannedPartition]) -> int | None:
        """About how much is to be read; None if the place does not say."""
        sizes = self._place.stored_sizes([planned.source for planned in partitions])
        return sum(size.stored_bytes for size in sizes.values()) or None

    def batches(
        self, planned: PlannedPartition, start: int, *, end: int | None = None
    ) -> Iterator[RestorableBatches]:
        """The record batches of a partition from an offset on, to its planned end or an earlier one."""
        offsets = OffsetRange(start, planned.end if end is None else end)
        if offsets.start >= offsets.end:
            return
        visible = Visibility(self._open(planned)) if self._read_committed else None
        for piece in self._place.fetch(planned.source, offsets, read_committed=self._read_committed):
            if visible is not None:
                visible.expect(piece.aborted)
            yield from restorable(piece, planned.source, offsets, visible)

    def _open(self, planned: PlannedPartition) -> list[AbortedTransaction]:
        """The transactions that are open at the end of a directory: nobody commits them any more."""
        if self._has_coordinator:
            return []
        bounds = self._place.watermarks([planned.source], read_committed=True)[planned.source]
        undecided = OffsetRange(bounds.last_stable_offset, bounds.high_watermark)
        if undecided.start >= undecided.end:
            return []
        scan = TransactionScan()
        for piece in self._place.fetch(planned.source, undecided, read_committed=False):
            scan.add(piece.buffer)
        return [AbortedTransaction(producer, first) for producer, first in scan.open.items()]


class TargetRecords:
    """The partitions that a restore writes to.

    :param rate: bytes a second at most; None for no limit.
    """

    def __init__(self, place: Place, options: WriteOptions, state: RestoreState, rate: float | None) -> None:
        self._place = place
        self._options = options
        self._state = state
        self._plan: RestorePlan = state.plan
        self._rate = rate

    def write(self, source: SourceRecords, progress: Progress) -> None:
        """Send what the target does not have yet, and see that it is where it should be.

        :raises BrokerError: if someone else has written to a partition.
        """
        plan, state = self._plan, self._state
        begun = self._written()
        limit, saved = RateLimit(self._rate), time.monotonic()
        producer_id = plan.producer_id, plan.producer_epoch, plan.cluster_id
        with open_producer(self._options, producer_id) as sink:
            writers = [
                self._write(source, planned, sink, begun[planned], progress) for planned in plan.partitions
            ]
            for sent in _in_turn(writers):
                sink.advance()
                goes_on_at = time.monotonic() + limit.pause(sent)
                while (left := goes_on_at - time.monotonic()) > 0:
                    time.sleep(min(left, _PAUSE))
                    sink.advance(flush=True)
                if time.monotonic() - saved > _SAVE_SECONDS:
                    state.save()
                    saved = time.monotonic()
            sink.finish()
        state.save()
        for planned, written in self._written().items():
            count = state.maps[planned.source].count
            if written != count:
                raise _foreign(planned, f"expected {count} records of this restore, got {written}")

    def _written(self) -> dict[PlannedPartition, int]:
        """How many records each partition has; all of them are ours, as its last batch shows."""
        planned = {partition.destination: partition for partition in self._plan.partitions}
        bounds = self._place.watermarks(planned, read_committed=False)
        found = {}
        for destination, partition in planned.items():
            if destination not in bounds:
                raise _foreign(partition, "it does not exist any more")
            start, end = bounds[destination].log_start_offset, bounds[destination].high_watermark
            if end < partition.base:
                raise _foreign(partition, f"the log ended at offset {partition.base}, and now ends at {end}")
            if partition.base < end and start < end:
                self._check_last(partition, end)
            found[partition] = end - partition.base
        return found

    def _check_last(self, planned: PlannedPartition, end: int) -> None:
        """See that a log's last batch is ours, with nobody else's before it."""
        last = OffsetRange(end - 1, end)
        for piece in self._place.fetch(planned.destination, last, read_committed=False):
            batches = batches_of(piece)
            producer = int(batches.producer_id[-1]), int(batches.producer_epoch[-1])
            number = (int(batches.base_offset[-1]) - planned.base) & SEQUENCE_MASK
            is_ours = producer == (self._plan.producer_id, self._plan.producer_epoch)
            if not is_ours or int(batches.base_sequence[-1]) != number:
                raise _foreign(planned, "its last record batch is not one of this restore")

    def _write(
        self,
        source: SourceRecords,
        planned: PlannedPartition,
        sink: TaskSink,
        written: int,
        progress: Progress,
    ) -> Iterator[int]:
        """Send the records after the first ``written``; yields the bytes that were sent at each step."""
        offsets = self._state.maps[planned.source]
        number = min(written, offsets.count)
        for found in source.batches(planned, offsets.source_of(number)):
            offsets.add(found.spans)
            progress(found.data.size)
            following = number + found.records
            if number >= written:
                yield self._send(planned, sink, found, number)
            elif following > written:  # batches were cut otherwise in an earlier run
                first = found.offset_of(written - number)
                for rest in source.batches(planned, first, end=found.next_offset):
                    yield self._send(planned, sink, rest, written)
                    written += rest.records
            number = following
        offsets.pass_over(planned.end)
        if number < written:
            raise _foreign(planned, f"it has {written} records, and the source {number}")

    def _send(self, planned: PlannedPartition, sink: TaskSink, found: RestorableBatches, number: int) -> int:
        encoded = stamp(
            found.data,
            producer_id=self._plan.producer_id,
            producer_epoch=self._plan.producer_epoch,
            base_sequence=number & SEQUENCE_MASK,
            transactional=False,
        )
        sink.append(planned.destination, encoded)
        return int(found.data.size)


def _in_turn(writers: Sequence[Iterator[int]]) -> Iterator[int]:
    """What each gives, some of them in turn, so that requests carry batches of several partitions."""
    waiting = list(reversed(writers))
    active: list[Iterator[int]] = []
    while waiting or active:
        while waiting and len(active) < _AT_ONCE:
            active.append(waiting.pop())
        for writer in list(active):
            sent = next(writer, None)
            if sent is None:
                active.remove(writer)
            else:
                yield sent


def _foreign(planned: PlannedPartition, why: str) -> KafkaLogError:
    return BrokerError(
        f"Someone else has written to the partition, or it lost records: {why}",
        topic_partition=planned.destination,
        hint="Stop other producers, delete the topic and the state's file, and restore it again.",
    )
