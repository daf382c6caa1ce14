"""Reads the records of a restore from its source, and sends them to the cluster.

:mod:`.restore` says why none is written twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.isolation import TransactionScan, Visibility, end_markers
from pyspark_kafkalog.codec.stamp import SEQUENCE_MASK, stamp
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import BrokerError, DataLossError, KafkaLogError, OptionError
from pyspark_kafkalog.model import (
    AbortedTransaction,
    Fetch,
    OffsetRange,
    Place,
    TopicPartition,
    Watermarks,
)
from pyspark_kafkalog.model.sinks import TaskSink
from pyspark_kafkalog.options.settings import WriteOptions
from pyspark_kafkalog.tools.backup.copying import RateLimit
from pyspark_kafkalog.tools.backup.history import check_shared
from pyspark_kafkalog.tools.backup.restore_batches import (
    ANY_SIZE,
    DEFAULT_LIMITS,
    RestorableBatches,
    restorable,
)
from pyspark_kafkalog.tools.backup.restore_producer import open_producer
from pyspark_kafkalog.tools.backup.restore_state import (
    PlannedPartition,
    RestoredOffsets,
    RestorePlan,
    RestoreState,
)

_log = logging.getLogger("pyspark_kafkalog")
Progress = Callable[..., None]
"""Takes how many bytes of record batches were read since the last call, and of how many if it is known."""

_AT_ONCE = 8
"""Partitions that are read and written in turn; each takes the memory of a slice."""
_AHEAD_BYTES = 4 << 20
"""The bytes that are read before the map is on disk and they are sent: few enough to fit into memory,
and enough that the disk does not."""
_PAUSE = 0.005
"""Seconds to wait at a time for the rate, so that requests and answers go on meanwhile."""


class SourceRecords:
    """The records of a place that are restored.

    :param read_committed: whether aborted and open transactions are left out.
    :param limits: of what has to be decoded.
    """

    def __init__(self, place: Place, *, read_committed: bool, limits: DecodeLimits = DEFAULT_LIMITS) -> None:
        self._place = place
        self._read_committed = read_committed
        self._limits = limits

    def stored_bytes(self, starts: Mapping[PlannedPartition, int]) -> int | None:
        """About how much is to be read from these offsets on; None if the place does not say.

        As if the records of a partition were of one size.
        """
        sources = [planned.source for planned in starts]
        sizes = self._place.stored_sizes(sources)
        bounds = self._place.watermarks(sources, read_committed=False)
        total = 0.0
        for planned, start in starts.items():
            if planned.source in sizes and planned.source in bounds:
                first, end = bounds[planned.source].log_start_offset, bounds[planned.source].high_watermark
                share = max(planned.end - start, 0) / max(end - first, 1)
                total += sizes[planned.source].stored_bytes * min(share, 1)
        return int(total) or None

    def check_topics(self, partitions: Sequence[PlannedPartition]) -> None:
        """See that these are partitions of the planned topics.

        :raises DataLossError: if not.
        """
        ids = self._place.topic_ids({planned.topic for planned in partitions})
        for planned in partitions:
            if ids.get(planned.topic, "") != planned.source_id:
                raise DataLossError(
                    "The source's topic is not the one from which this restore began",
                    topic_partition=planned.source,
                    hint="It was deleted, or is in another place: name that one. To restore this one, delete"
                    " what this restore has made, and its file of --state.",
                )

    def check_shared(
        self, target: Place, planned: PlannedPartition, known: RestoredOffsets, written: int
    ) -> None:
        """See :func:`.history.check_shared`."""
        self.check_topics([planned])
        check_shared(self._place, target, planned, known, written)

    def unread(
        self, planned: PlannedPartition, known: RestoredOffsets, largest: int = ANY_SIZE
    ) -> Iterator[RestorableBatches]:
        """The record batches of a partition behind those that the map knows, to the planned end.

        No run has sent any of them: those that the source has deleted since are left out, with a warning.

        :param largest: see :meth:`batches`.
        :raises DataLossError: as :meth:`batches`.
        """
        start = known.read_to
        bounds = self._place.watermarks([planned.source], read_committed=False).get(planned.source)
        left = start if bounds is None else min(max(start, bounds.log_start_offset), planned.end)
        if left > start:
            self.check_topics([planned])
            _log.warning(
                "%s: offsets %d to %d were deleted before they were restored", planned.source, start, left - 1
            )
        return self.batches(planned, left, largest)

    def batches(self, planned: PlannedPartition, start: int, largest: int) -> Iterator[RestorableBatches]:
        """The record batches of a partition from an offset on, to its planned end.

        :param largest: see :func:`.restore_batches.restorable`.
        :raises DataLossError: if the topic is another one by now, or has lost these offsets.
        """
        offsets = OffsetRange(start, planned.end)
        if offsets.start >= offsets.end:
            return
        self.check_topics([planned])
        visible = None
        if self._read_committed:
            visible = Visibility(AbortedTransaction(*found) for found in planned.open_transactions)
        try:
            for piece in self._place.fetch(
                Fetch(planned.source, offsets, self._read_committed, planned.source_id)
            ):
                if visible is not None:
                    visible.expect(piece.aborted)
                yield from restorable(piece, planned.source, offsets, visible, largest, self._limits)
        except DataLossError as e:
            raise e.with_hint(
                "Run the restore again. If it fails like this again, delete what it has made and its file of"
                " --state, and start over."
            ) from None

    def open_transactions(
        self, partition: TopicPartition, bounds: Watermarks, end: int
    ) -> tuple[tuple[int, int], ...]:
        """The transactions that are open at ``end``, unless only their commit marker is behind it.

        A part of one with records on both sides would be restored. Those that are open where the log ends
        began at the last stable offset or later. Others are found by reading the log from its start, unless
        ``end`` is the last stable offset and no marker follows it.

        :return: the producer id and first offset of each; nothing if none are left out.
        """
        undecided = OffsetRange(bounds.last_stable_offset, bounds.high_watermark)
        if not self._read_committed or end <= bounds.log_start_offset:
            return ()
        if end >= undecided.end:
            return tuple(self._scan(partition, undecided).open.items())
        if end == undecided.start and not self._has_marker(partition, undecided):
            return ()
        opened = self._scan(partition, OffsetRange(bounds.log_start_offset, end)).open
        whole = self._committed_next(partition, opened, OffsetRange(end, bounds.high_watermark))
        return tuple(found for found in opened.items() if found[0] not in whole)

    def _committed_next(
        self, partition: TopicPartition, producers: Iterable[int], offsets: OffsetRange
    ) -> set[int]:
        """The producers of which a commit marker comes first among these offsets, and no record before it."""
        left, committed = set(producers), set[int]()
        if not left:
            return committed
        for piece in self._place.fetch(Fetch(partition, offsets)):
            batches = batches_of(piece)
            found = batches.is_transactional & (batches.last_offset >= offsets.start)
            rows = np.flatnonzero(found & np.isin(batches.producer_id, list(left)))
            is_control = batches.is_control
            markers = end_markers(as_array(piece.buffer), batches, rows[is_control[rows]])
            for row in rows.tolist():
                producer_id, offset = int(batches.producer_id[row]), int(batches.base_offset[row])
                is_abort = offset in markers and markers[offset].is_abort
                if producer_id in left and is_control[row] and not is_abort:
                    committed.add(producer_id)
                left.discard(producer_id)
            if not left:
                break
        return committed

    def _has_marker(self, partition: TopicPartition, offsets: OffsetRange) -> bool:
        pieces = self._place.fetch(Fetch(partition, offsets))
        return any(batches_of(piece).is_control.any() for piece in pieces)

    def _scan(self, partition: TopicPartition, offsets: OffsetRange) -> TransactionScan:
        scan = TransactionScan()
        if offsets.start < offsets.end:
            for piece in self._place.fetch(Fetch(partition, offsets)):
                batches = batches_of(piece)
                beyond = np.flatnonzero(batches.base_offset >= offsets.end)
                stop = int(beyond[0]) if beyond.size else len(batches)
                scan.add(piece.buffer, batches.between(0, stop))
        return scan


class _Numbered(NamedTuple):
    """Batches to send, and the number of their first record in their partition."""

    planned: PlannedPartition
    number: int
    batches: RestorableBatches


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
        :raises DataLossError: if the source has lost records that an earlier run began to send, or is not the
            one whose records it has sent.
        """
        plan, state = self._plan, self._state
        restored = self._written()
        for planned, written in restored.items():
            if written > state.maps[planned.source].count:
                raise OptionError(
                    f"The partition has {written} records of this restore, and its file {state.path} knows of"
                    f" {state.maps[planned.source].count}",
                    topic_partition=planned.destination,
                    hint=f"Bring back the newest file. Or {begin_anew(state.path)}.",
                )
            if written and state.maps[planned.source].source_of(written) < planned.end:
                source.check_shared(self._place, planned, state.maps[planned.source], written)
        progress(0, source.stored_bytes({p: state.maps[p.source].source_of(n) for p, n in restored.items()}))
        largest = self._largest()
        limit, most = RateLimit(self._rate), min(_AHEAD_BYTES, self._rate or _AHEAD_BYTES)
        producer_id = plan.producer_id, plan.producer_epoch, plan.cluster_id
        with open_producer(self._options, producer_id) as sink:
            waiting: list[_Numbered] = []
            size = 0
            readers = [
                self._read(source, planned, restored[planned], largest[planned.target], progress)
                for planned in plan.partitions
            ]
            for found in _in_turn(readers):
                waiting.append(found)
                size += found.batches.data.size
                sink.advance()
                if size >= most:
                    self._send(waiting, sink, limit)
                    waiting, size = [], 0
            self._send(waiting, sink, limit)
            sink.finish()
        for planned, written in self._written().items():
            count = state.maps[planned.source].count
            if written != count:
                raise _foreign(
                    planned, self._state, f"expected {count} records of this restore, got {written}"
                )

    def _written(self) -> dict[PlannedPartition, int]:
        """The number of records of each partition; all of them are ours, as its last batch shows."""
        planned = {partition.destination: partition for partition in self._plan.partitions}
        bounds = self._place.watermarks(planned, read_committed=False)
        found = {}
        for destination, partition in planned.items():
            if destination not in bounds:
                raise _foreign(partition, self._state, "it does not exist any more")
            start, end = bounds[destination].log_start_offset, bounds[destination].high_watermark
            if end < partition.base:
                raise _foreign(
                    partition, self._state, f"the log ended at offset {partition.base}, and now ends at {end}"
                )
            if partition.base < end and start < end:
                self._check_last(partition, end)
            found[partition] = end - partition.base
        return found

    def _check_last(self, planned: PlannedPartition, end: int) -> None:
        """See that a log's last batch is ours, and no records of other producers are before it."""
        last = OffsetRange(end - 1, end)
        for piece in self._place.fetch(Fetch(planned.destination, last)):
            batches = batches_of(piece)
            producer = int(batches.producer_id[-1]), int(batches.producer_epoch[-1])
            number = (int(batches.base_offset[-1]) - planned.base) & SEQUENCE_MASK
            is_ours = producer == (self._plan.producer_id, self._plan.producer_epoch)
            if not is_ours or int(batches.base_sequence[-1]) != number:
                raise _foreign(planned, self._state, "its last record batch is not one of this restore")

    def _largest(self) -> dict[str, int]:
        """Bytes that a record batch may have in each topic: a segment has no more."""
        configs = {
            topic: self._place.topic_config(topic) for topic in {p.target for p in self._plan.partitions}
        }
        found = {topic: values.get("segment.bytes", "") for topic, values in configs.items()}
        return {topic: int(size) if size.isdecimal() else ANY_SIZE for topic, size in found.items()}

    def _read(
        self,
        source: SourceRecords,
        planned: PlannedPartition,
        written: int,
        largest: int,
        progress: Progress,
    ) -> Iterator[_Numbered]:
        """The records after the first ``written``, which are in the map, but not yet on disk there."""
        offsets, number = self._state.maps[planned.source], written
        unread = (
            source.unread(planned, offsets, largest)
            if written == offsets.count
            else source.batches(planned, offsets.source_of(written), largest)
        )
        for found in unread:
            try:
                offsets.add(number, found.spans)
            except ValueError as e:
                raise self._lost(planned, str(e)) from None
            progress(found.data.size)
            yield _Numbered(planned, number, found)
            number += found.records
        if number < offsets.count:
            raise self._lost(planned, f"expected {offsets.count} records, got {number}")

    def _send(self, waiting: Sequence[_Numbered], sink: TaskSink[object], limit: RateLimit) -> None:
        """Send batches, after the map is on disk that says where their records are from."""
        self._state.save()
        for planned, number, found in waiting:
            encoded = stamp(
                found.data,
                producer_id=self._plan.producer_id,
                producer_epoch=self._plan.producer_epoch,
                base_sequence=number & SEQUENCE_MASK,
                transactional=False,
            )
            sink.append(planned.destination, encoded)
            sink.advance()
            goes_on_at = time.monotonic() + limit.pause(found.data.size)
            while (left := goes_on_at - time.monotonic()) > 0:
                time.sleep(min(left, _PAUSE))
                sink.advance(flush=True)

    def _lost(self, planned: PlannedPartition, why: str) -> KafkaLogError:
        return DataLossError(
            f"The source has lost records that an earlier run began to send: {why}",
            topic_partition=planned.source,
            hint=f"Start over: {begin_anew(self._state.path)}.",
        )


def _in_turn(readers: Sequence[Iterator[_Numbered]]) -> Iterator[_Numbered]:
    """The records of the readers, some of each in turn, so that requests carry several partitions."""
    waiting = list(reversed(readers))
    active: list[Iterator[_Numbered]] = []
    while waiting or active:
        while waiting and len(active) < _AT_ONCE:
            active.append(waiting.pop())
        for reader in list(active):
            found = next(reader, None)
            if found is None:
                active.remove(reader)
            else:
                yield found


def begin_anew(path: str) -> str:
    """The hint to start a restore over whose file is ``path``: topics that have records are refused."""
    return f"delete the topics that this restore has made, and its file {path}, and run it again"


def _foreign(planned: PlannedPartition, state: RestoreState, why: str) -> KafkaLogError:
    return BrokerError(
        f"Someone else has written to the partition, or it lost records: {why}",
        topic_partition=planned.destination,
        hint=f"Stop other producers. Then {begin_anew(state.path)}.",
    )
