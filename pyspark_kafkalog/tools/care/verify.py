"""Checks that everything stored can be read: the checksum, framing, offsets and content of each record batch.

It reads as a reader with ``failOnDataLoss=false`` does, so it reports exactly the
damage that such a reader would skip, and records that are too large for it. In a directory
it also checks what lies beside the batches, as a repair does, and whatever follows the last batch of a log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_kafkalog.client.partitions import bounds_of
from pyspark_kafkalog.codec.decode import DecodeLimits, decode_slice
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import (
    BrokerError,
    DataLossError,
    KafkaLogError,
    LogDirectoryError,
    OversizedRecordError,
    UnknownTopicOrPartitionError,
    why,
)
from pyspark_kafkalog.model import (
    Fetch,
    Files,
    OffsetRange,
    Place,
    Slice,
    TopicPartition,
    not_copied,
    not_here,
)
from pyspark_kafkalog.model.rows import BIGINT, COUNT, INT, NOTE, SIZE, STRING, column

_LIMITS = DecodeLimits()
_OFFSETS = pa.schema([("offset", ROW_TYPES["offset"])])


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged place; ``offset`` is the first that a reader would miss."""

    topic: str
    partition: int
    message: str
    offset: int | None
    file: str | None
    position: int | None


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """The result for one partition: what was read, and the damage found in it.

    ``notes`` say what is missing without being damage: the beginning of a log that its broker keeps
    elsewhere, and what a backup could not copy. ``problem`` says why brokers did not give it, or not all of
    it.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    batches: int = field(metadata=column(BIGINT, "BATCHES"))
    records: int = field(metadata=column(BIGINT, "RECORDS"))
    stored_bytes: int = field(metadata=column(SIZE, "SIZE"))
    damages: tuple[Damage, ...] = field(metadata=column(COUNT, "DAMAGES"))
    notes: tuple[str, ...] = ()
    problem: str = field(default="", metadata=column(NOTE, "PROBLEM", if_any=True))


def verify(
    place: Place,
    partitions: Collection[TopicPartition],
    *,
    limits: DecodeLimits = _LIMITS,
    progress: Callable[[int], None] | None = None,
) -> Iterator[VerifiedPartition]:
    """Read each partition from start to end; those deleted meanwhile are left out.

    See :meth:`.kafka.Records.verify`.
    """
    # All at once: so the waits for partitions without a leader coincide.
    silent = {} if isinstance(place, Files) or not partitions else place.try_watermarks(partitions)[1]
    for partition in partitions:
        verification = _Verification(place, partition, limits, progress)
        try:
            if partition in silent:
                raise silent[partition]
            verification.run()
        except BrokerError as e:
            verification.problem = why(e)
        except UnknownTopicOrPartitionError:
            continue
        yield verification.result()


class _Verification:
    """The verification of one partition."""

    def __init__(
        self,
        place: Place,
        partition: TopicPartition,
        limits: DecodeLimits,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._place = place
        self._partition = partition
        self._limits = limits
        self._progress = progress
        self._batches = self._records = self._size = 0
        self._damages: list[KafkaLogError] = []
        self._notes: tuple[str, ...] = ()
        self.problem = ""

    def run(self) -> None:
        try:
            self._read_all()
            if isinstance(self._place, Files):
                self._damages += self._place.file_faults(self._partition)
        except LogDirectoryError as e:  # such as an unreadable checkpoint
            self._damages.append(e)

    def _read_all(self) -> None:
        position, lost = -1, None
        while True:
            bounds = self._bounds()
            if lost is not None and position >= bounds.start:  # retention did not delete what is missing
                self._damages.append(lost)
                break
            position = bounds.start
            try:
                for position in self._read(bounds):  # noqa: B007 - survives the error
                    pass
                break
            except DataLossError as e:
                lost = e

    def result(self) -> VerifiedPartition:
        topic, number = self._partition
        damages = tuple(
            Damage(topic, number, damage.message, damage.offset, damage.file, damage.position)
            for damage in self._damages
        )
        return VerifiedPartition(
            topic, number, self._batches, self._records, self._size, damages, self._notes, self.problem
        )

    def _bounds(self) -> OffsetRange:
        bounds = bounds_of(self._place, [self._partition])[self._partition]
        self._notes = () if bounds.elsewhere is None else (not_here(bounds.elsewhere),)
        if isinstance(self._place, Files):
            self._notes += tuple(map(not_copied, self._place.gaps(self._partition)))
        return OffsetRange(bounds.log_start_offset, bounds.high_watermark)

    def _read(self, offsets: OffsetRange) -> Iterator[int]:
        position = offsets.start
        if position >= offsets.end:
            return
        add_damage = self._damages.append
        for piece in self._place.fetch(Fetch(self._partition, offsets, on_corrupt=add_damage)):
            batches = batches_of(piece)
            self._batches += len(batches)
            self._size += piece.buffer.size
            for next_offset in self._decoded(piece, OffsetRange(position, offsets.end)):
                position = next_offset
                yield position
            if self._progress is not None:
                self._progress(piece.buffer.size)

    def _decoded(self, piece: Slice, offsets: OffsetRange) -> Iterator[int]:
        """Count its records; the offsets up to which that was done."""
        position, end = offsets
        while position < end:
            try:
                for decoded in decode_slice(
                    piece,
                    topic_partition=self._partition,
                    offsets=OffsetRange(position, end),
                    visible=None,
                    schema=_OFFSETS,
                    limits=self._limits,
                    on_corrupt=self._damages.append,
                ):
                    position = decoded.next_offset
                    self._records += decoded.arrow_batch.num_rows
                    yield position
                return
            except OversizedRecordError as e:
                self._damages.append(e)
                position = end if e.next_offset is None else e.next_offset
                yield position
