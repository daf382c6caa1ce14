"""Whether a log and its source have one history: what is compared before anything is appended.

First the ends of leader epochs are compared, as followers do. They don't show that brokers without topic ids
have recreated a topic, or that a disk was set back. So the last record batch of the log is compared, too,
with the one that the source has there, or with what compaction has left near it. A restore, whose records
have other offsets, compares the last ones that it has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.batch_identity import header_of, is_same
from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.decode import decode_slice
from pyspark_kafkalog.codec.isolation import EndMarker, end_markers
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import Batches, batches_of
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError, OversizedRecordError
from pyspark_kafkalog.model import ALL_OFFSETS, Fetch, OffsetRange, Place, Slice, TopicPartition
from pyspark_kafkalog.tools.backup.plan import Source

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.log import BackupLog
    from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition, RestoredOffsets

_ANY = TopicPartition("", 0)
_COMPARED = 1000
"""Records that a restore compares."""
_TOO_LARGE = (
    "Nothing raises this limit here, where what was copied is compared with the source. Start over: begin a"
    " new backup in another directory, or a new restore into an empty topic."
)

_Records = Callable[[tuple[str, ...]], Iterator[pa.RecordBatch]]
"""Reads these columns of some records, the offset first, in bounded memory; no batch is empty."""


class DivergedError(Exception):
    """The source's log has other records at these offsets, or none (KIP-320).

    :param log: if ``is_whole``, cut to these offsets it would have nothing left.
    """

    def __init__(self, log: BackupLog, start: int) -> None:
        self.offsets = OffsetRange(start, log.next_offset)
        first = next(log.read(OffsetRange(log.first_offset, log.first_offset + 1)), None)
        self.is_whole = first is None or next(_batches(first)).last_offset >= start
        super().__init__(
            f"Offsets {start} to {log.next_offset - 1} are not those of the source: after they were copied,"
            " its log was truncated (perhaps a leader that was behind was elected), its disk was set back,"
            " or its topic was recreated. "
            + (
                "That is all that the copy has, which is never cut to nothing: begin a new backup in another"
                " directory, or move the partition's folder away"
                if self.is_whole
                else "Cut them off, as a follower would, with --truncate, which keeps them in"
                " .kafkalog-cut, or begin a new backup in another directory"
            )
        )


class UnprovenError(KafkaLogError):
    """The error where nothing tells the source's topic from another one of its name."""

    def __init__(self, partition: TopicPartition, why: str) -> None:
        super().__init__(
            f"Nothing tells whether this is still the topic that was backed up: it has no id, and {why}",
            topic_partition=partition,
            hint="Begin a new backup in another directory, or move the partition's folder away.",
        )


class _Batch(NamedTuple):
    """A record batch; ``header`` has no other."""

    piece: Slice
    header: Batches

    @property
    def last_offset(self) -> int:
        return int(self.header.last_offset[0])


def check_epochs(source: Source, log: BackupLog, high_watermark: int) -> None:
    """Compare the ends of leader epochs.

    :raises DivergedError: if the log has records that the source does not have, or no longer.
    """
    offset = diverged_at(source, log, high_watermark)
    if offset < log.next_offset:
        raise DivergedError(log, offset)


def diverged_at(source: Source, log: BackupLog, high_watermark: int) -> int:
    """The first offset from which on the source has other leader epochs than the log; the log's end if none.

    As a follower finds it (KIP-101, KIP-279): by the ends of leader epochs in the source. A broker has no
    answer for an epoch above its newest one. Then the next lower epoch of the log is asked for: nothing is
    shared only if the source has none of them.

    :param high_watermark: the source's, which decides where there are no leader epochs.
    """
    number = len(log.epochs) - 1
    while number >= 0:
        epoch = log.epochs[number][0]
        known = source.epoch_ends({log.partition: epoch}).get(log.partition)
        if known is None:
            break
        their_epoch, their_end = known
        if their_epoch < 0:  # no such epoch, as in a cluster that went back: perhaps it has one before
            number -= 1
            continue
        while number >= 0 and log.epochs[number][0] > their_epoch:
            number -= 1
        if number < 0:
            break
        own_end = log.epochs[number + 1][1] if number + 1 < len(log.epochs) else log.next_offset
        if log.epochs[number][0] == their_epoch:
            return min(their_end, own_end)
    if log.epochs and number < 0:
        return log.epochs[0][1]
    return log.next_offset if log.is_empty else min(high_watermark, log.next_offset)


class SharedEnd:
    """Compares the end of a log with what the source has there.

    What a cleaner may have left of a record batch is taken for the same batch: its offsets and producer stay,
    and what both have of its records, or of its marker, is equal. If nothing is left of the last batch, the
    nearest before it that is left is compared.

    :param start: the source's log start offset.
    """

    def __init__(self, source: Source, log: BackupLog, start: int, topic_id: str) -> None:
        self._source, self._log, self._topic_id = source, log, topic_id
        self._end = log.next_offset
        self._start = self._end if log.is_empty else max(start, log.first_offset)

    @property
    def first(self) -> int:
        """The offset to begin a fetch with, so that its first batch is the one to compare."""
        return max(self._end - 1, min(self._start, self._end))

    def check(self, piece: Slice | None) -> None:
        """Compare what a fetch from :attr:`first` gave: its first slice, or nothing.

        :raises DivergedError: if the source has other records.
        :raises UnprovenError: if nothing is left to compare, and the topic has no id.
        """
        if self.first == self._end:  # the source has nothing of the log any more, or the log has nothing
            return
        theirs = None if piece is None else next(_batches(piece))
        is_same = None
        if theirs is not None and _first_offset(theirs) < self._end:
            is_same = self._has(theirs)
        if is_same is None:
            is_same = self._has_nearest()
        if is_same is None and not self._topic_id:
            raise UnprovenError(self._log.partition, "none of the records that were copied is left in it")
        if is_same is False:
            raise DivergedError(self._log, self._first_difference())

    def _has_nearest(self) -> bool | None:
        """The answer of :meth:`_has` about the last batch for which it has one."""
        reach, end = 2, self._end
        while end > self._start:
            start, last = max(self._end - reach, self._start), None
            for batch in self._theirs(OffsetRange(start, end)):
                last = batch if batch.last_offset < end else last
            if last is not None and (found := self._has(last)) is not None:
                return found
            reach, end = 2 * reach, start
        return None

    def _first_difference(self) -> int:
        """The end of the last batch that both have, before one that differs."""
        reach, start = 2, self._start
        while self._end - reach > start:
            at = self._end - reach
            batch = next(self._theirs(OffsetRange(at, self._end)), None)
            if batch is not None and self._has(batch):
                start = at
                break
            reach *= 2
        shared = self._log.first_offset
        for batch in self._theirs(OffsetRange(start, self._end)):
            if self._has(batch) is False:
                break
            shared = batch.last_offset + 1
        return shared

    def _theirs(self, offsets: OffsetRange) -> Iterator[_Batch]:
        """The source's batches of these offsets that begin before the log's end."""
        for piece in self._source.fetch(Fetch(self._log.partition, offsets, topic_id=self._topic_id)):
            for batch in _batches(piece):
                if _first_offset(batch) >= self._end:
                    return
                yield batch

    def _has(self, theirs: _Batch) -> bool | None:
        """Whether the log has a batch of the source, or had before a cleaner came; None if unknown."""
        last = theirs.last_offset
        if last >= self._end:  # it begins before that
            return False
        piece = next(self._log.read(OffsetRange(last, last + 1)), None)
        ours = None if piece is None else next(_batches(piece))
        if ours is None or _first_offset(ours) > last:
            return None
        found = is_same(header_of(ours.header), header_of(theirs.header))
        if found is not None:
            return found
        if ours.header.is_control[0] != theirs.header.is_control[0]:
            return False
        if ours.header.is_control[0]:
            own, other = _markers(ours), _markers(theirs)
            both = own.keys() & other.keys()
            has_both, is_equal = bool(both), all(own[offset] == other[offset] for offset in both)
        else:
            has_both, difference = _compare(_records(ours), _records(theirs))
            is_equal = difference is None
        if not is_equal:
            return False
        return True if has_both or theirs.header.producer_id[0] >= 0 else None


def _batches(piece: Slice) -> Iterator[_Batch]:
    batches = batches_of(piece)
    for row in range(len(batches)):
        begin, size = int(batches.position[row]), int(batches.size[row])
        headers = batches.headers_of(row, row)
        part = Slice(piece.buffer.slice(begin, size), headers, piece.origin)
        yield _Batch(part, batches_of(part))


def check_shared(
    source: Place, target: Place, planned: PlannedPartition, known: RestoredOffsets, written: int
) -> None:
    """Compare the target's last record batch with what the source has at the same offsets.

    What the source has deleted or compacted since is not there to be compared.

    :param written: how many records of the map the target has, at least one.
    :raises DataLossError: if the source has other records there, or ends before.
    """
    end = planned.base + written
    last = list(target.fetch(Fetch(planned.destination, OffsetRange(end - 1, end))))
    newest = OffsetRange(max(end - _COMPARED, planned.base), end)

    def sent(columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        for rows in _decoded(last, planned.destination, newest, columns):
            offsets = [known.source_of(offset - planned.base) for offset in rows.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(offsets), *rows.columns[1:]], schema=rows.schema)

    wanted = [offset for rows in sent(("offset",)) for offset in rows.column(0).to_pylist()]
    if not wanted:  # the target has deleted what it had
        return
    bounds = source.watermarks([planned.source], read_committed=False).get(planned.source)
    if bounds is None:
        raise _other_source(planned, "it does not exist any more")
    if bounds.high_watermark <= wanted[-1]:
        raise _other_source(
            planned, f"it ends at offset {bounds.high_watermark}, before the record at {wanted[-1]}"
        )
    offsets = OffsetRange(max(wanted[0], bounds.log_start_offset), wanted[-1] + 1)
    if offsets.start >= offsets.end:
        return

    def left(columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        pieces = source.fetch(Fetch(planned.source, offsets, topic_id=planned.source_id))
        return _decoded(pieces, planned.source, offsets, columns)

    _, difference = _compare(sent, left)
    if difference is not None:
        raise _other_source(planned, f"it has another record at offset {difference}")


def _compare(ours: _Records, theirs: _Records) -> tuple[bool, int | None]:
    """Whether both have a record at the same offset, and the first such offset where they differ.

    They are compared without timestamps if one can't be shown.
    """
    try:
        return _first_difference(ours, theirs, ("offset", "key", "value", "timestamp"))
    except CorruptRecordError:
        return _first_difference(ours, theirs, ("offset", "key", "value"))


def _first_difference(ours: _Records, theirs: _Records, columns: tuple[str, ...]) -> tuple[bool, int | None]:
    has_both = False
    for own, other in _both(ours(columns), theirs(columns)):
        has_both = True
        if not own.equals(other):
            rows = range(own.num_rows)
            differing = next(row for row in rows if not own.slice(row, 1).equals(other.slice(row, 1)))
            return True, int(own.column(0)[differing].as_py())
    return has_both, None


def _both(
    ours: Iterator[pa.RecordBatch], theirs: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """The rows of both at the offsets that both have, some at a time."""
    own, other = next(ours, None), next(theirs, None)
    while own is not None and other is not None:
        own_offsets, other_offsets = own.column(0).to_numpy(), other.column(0).to_numpy()
        _, *rows = np.intersect1d(own_offsets, other_offsets, assume_unique=True, return_indices=True)
        if rows[0].size:
            yield own.take(pa.array(rows[0])), other.take(pa.array(rows[1]))
        own_last, other_last = own_offsets[-1], other_offsets[-1]
        own = next(ours, None) if own_last <= other_last else own
        other = next(theirs, None) if other_last <= own_last else other


def _markers(batch: _Batch) -> dict[int, EndMarker]:
    """The markers in a control batch, by offset."""
    return end_markers(as_array(batch.piece.buffer), batch.header, np.zeros(1, np.int64))


def _records(batch: _Batch) -> _Records:
    return lambda columns: _decoded([batch.piece], _ANY, ALL_OFFSETS, columns)


def _decoded(
    pieces: Iterable[Slice], partition: TopicPartition, offsets: OffsetRange, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The ``columns`` of the records, some at a time."""
    schema = pa.schema([(name, ROW_TYPES[name]) for name in columns])
    try:
        for piece in pieces:
            for rows, _ in decode_slice(
                piece, topic_partition=partition, offsets=offsets, visible=None, schema=schema
            ):
                if rows.num_rows:
                    yield rows
    except OversizedRecordError as e:
        raise e.with_hint(_TOO_LARGE) from None


def _other_source(planned: PlannedPartition, why: str) -> KafkaLogError:
    return DataLossError(
        f"The source is not the one of which this restore has sent the first records: {why}",
        topic_partition=planned.source,
        hint="It went back to an older copy. Bring back the newer one, or start over: delete what this"
        " restore has made, and its file of --state.",
    )


def _first_offset(batch: _Batch) -> int:
    """The base offset, which a compressed message set has inside."""
    header = batch.header
    if header.magic[0] == 2:
        return int(header.base_offset[0])
    return int(next(_records(batch)(("offset",))).column(0)[0].as_py())
