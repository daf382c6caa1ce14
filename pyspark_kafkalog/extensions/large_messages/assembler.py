"""Puts the message segments of one partition together, and drops those that wait too long.

Follows MessageAssemblerImpl and LargeMessageBufferPool of li-apache-kafka-clients, errors
included. But each works on one partition: those of a reader do not share one capacity.
Memory is bounded where theirs is not: a message whose slices can never add up to
its length keeps no bytes, and an id without accepted segments expires like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from pyspark_kafkalog.errors import LargeMessageDroppedError
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.slice_file import SliceFile
from pyspark_kafkalog.model import TopicPartition


class DropReason(str, Enum):
    """The reason why a message was dropped; the values name the counters."""

    EXPIRED_BY_OFFSET = "expired_by_offset"
    """Incomplete, and more than the expiration gap behind."""
    EXPIRED_BY_TIME = "expired_by_time"
    """Incomplete for too long."""
    EVICTED = "evicted"
    """Incomplete, and the buffer over its capacity."""
    BAD_HEADER = "bad_header"
    """``_lm`` is null or too short."""
    BAD_LENGTH = "bad_length"
    """A negative length of the message."""
    BAD_COUNT = "bad_count"
    """A count of message segments that is not positive."""
    BAD_NUMBER = "bad_number"
    """A number outside the message's segments."""
    SLICE_TOO_LONG = "slice_too_long"
    """A slice longer than its message."""
    SLICE_EMPTY = "slice_empty"
    SLICE_OVER_CAPACITY = "slice_over_capacity"
    """A single slice as large as the buffer."""
    OUT_OF_ORDER = "out_of_order"
    """An offset below the one at which its message began."""
    CONFLICTING_ID = "conflicting_id"
    """A count or length that differs from the message's other segments."""
    TOO_MANY_BYTES = "too_many_bytes"
    """The slices exceed the length of the message."""
    TOO_FEW_BYTES = "too_few_bytes"
    """The message segments are all there, and are shorter than the message."""
    NOT_READ_AGAIN = "not_read_again"
    """Message segments that had been seen were gone when they were read again."""


INCOMPLETE = frozenset({DropReason.EXPIRED_BY_OFFSET, DropReason.EXPIRED_BY_TIME, DropReason.EVICTED})
"""Reasons that end an open message; any other rejects the message segment at hand."""
_SAID: Mapping[DropReason, str] = {
    DropReason.BAD_HEADER: "the header _lm of this record is null or too short",
    DropReason.BAD_LENGTH: "this message segment says that the message has a negative length",
    DropReason.BAD_COUNT: "this message segment says that there is none, or fewer",
    DropReason.BAD_NUMBER: "the number of this message segment is outside its message",
    DropReason.SLICE_TOO_LONG: "this message segment is longer than its message",
    DropReason.SLICE_EMPTY: "this message segment is empty",
    DropReason.SLICE_OVER_CAPACITY: "this message segment alone fills message.assembler.buffer.capacity",
    DropReason.OUT_OF_ORDER: "this message segment is below the offset at which its message began",
    DropReason.CONFLICTING_ID: "this message segment has another count or length than those before it",
    DropReason.TOO_MANY_BYTES: "the message segments are longer than their message",
    DropReason.TOO_FEW_BYTES: "the message segments are all there, and are shorter than their message",
    DropReason.NOT_READ_AGAIN: "its message segments were deleted before they could be read again",
}


@dataclass(frozen=True, slots=True)
class DroppedSegment:
    """A record of a dropped message. ``slice``, of ``size`` bytes, is None where it was not kept."""

    offset: int
    number: int
    size: int
    slice: bytes | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message that was dropped, or a message segment that was rejected, at the record of ``offset``.

    ``message_id`` is empty where it could not be read.
    """

    partition: TopicPartition
    reason: DropReason
    message_id: bytes
    starting_offset: int
    offset: int
    segment_count: int
    segments: tuple[DroppedSegment, ...]

    def letter(self, slices: Mapping[int, bytes]) -> dict[str, Any]:
        """The value of the column ``dropped`` (:data:`.model.DROPPED_FIELD`).

        :param slices: by offset, the slices that were not kept.
        """
        return {
            "reason": self.reason.value,
            "messageId": self.message_id,
            "startingOffset": self.starting_offset,
            "segmentCount": self.segment_count,
            "segments": [
                {
                    "offset": segment.offset,
                    "number": segment.number,
                    "value": slices.get(segment.offset) if segment.slice is None else segment.slice,
                }
                for segment in self.segments
            ],
        }


def check_none_dropped(dropped: Iterable[Dropped], settings: AssemblerSettings) -> None:
    """Fail for a message that was dropped for another reason than that it was incomplete for too long.

    LinkedIn's consumer raises in these cases, whatever its settings are.

    :raises LargeMessageDroppedError: if the settings ask for it.
    """
    if not settings.exception_on_message_dropped:
        return
    for each in dropped:
        if (why := _SAID.get(each.reason)) is not None:
            name = f" {each.message_id.hex()}" if each.message_id else ""
            raise LargeMessageDroppedError(
                f"Large message{name}, which began at offset {each.starting_offset}, was dropped: {why}",
                topic_partition=each.partition,
                offset=each.offset,
                hint="Set exception.on.message.dropped=false to go on without it, and"
                " large.message.dead.letters=true to get its message segments as a row.",
            )


@dataclass(slots=True)
class SegmentSlice:
    """An accepted message segment; ``slice`` is None if it is not in memory.

    ``aside`` is its position in the file of slices, None if it is not there.
    """

    offset: int
    number: int
    size: int
    slice: np.ndarray | None
    aside: int | None = None


@dataclass(slots=True)
class OpenMessage:
    """A message that is not complete, or whose slices do not add up to its length.

    Its claims, up to 2**31 - 1 each, cost nothing: what was accepted is kept by number.
    """

    message_id: bytes
    starting_offset: int
    count: int
    length: int
    first_seen_ms: int
    tracked_offset: int | None = None
    """Offset of the first accepted message segment: a restart must begin there."""
    pieces: dict[int, SegmentSlice] = field(default_factory=dict)
    size: int = 0
    buffered_bytes: int = 0
    """Bytes of the slices that are in memory."""

    def put(self, piece: SegmentSlice) -> None:
        """Accept a message segment."""
        self.pieces[piece.number] = piece
        self.size += piece.size
        self.buffered_bytes += 0 if piece.slice is None else piece.size

    def put_aside(self, file: SliceFile | None) -> None:
        """Keep in memory only numbers and offsets, and the slices in the file, as far as it has room."""
        for piece in self.pieces.values():
            if piece.slice is not None and file is not None:
                piece.aside = file.put(piece.slice)
            piece.slice = None
        self.buffered_bytes = 0

    def forget_slices(self, file: SliceFile | None) -> None:
        """Keep only numbers and offsets."""
        for piece in self.pieces.values():
            if piece.aside is not None and file is not None:
                file.discard(piece.aside, piece.size)
            piece.slice = piece.aside = None
        self.buffered_bytes = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message segment with the offset of its record; ``slice`` is None if it need not be stored."""

    offset: int
    message_id: bytes
    number: int
    count: int
    length: int
    size: int
    slice: np.ndarray | None


class Assembler:
    """The open messages of one partition.

    :param evict: whether messages over the capacity are dropped, oldest first; otherwise only their
        slices leave memory, and no other rule about the capacity applies.
    :param aside: takes these slices; without it, or without room in it, they are forgotten.
    """

    def __init__(
        self,
        partition: TopicPartition,
        settings: AssemblerSettings,
        *,
        evict: bool,
        aside: SliceFile | None = None,
    ) -> None:
        self._partition = partition
        self._aside = aside
        self._settings = settings
        self._evicts = evict
        self.messages: dict[bytes, OpenMessage] = {}
        """The open messages by id, in the order in which they began."""
        self.used = 0
        """Bytes to compare with the capacity; too low, like theirs, after a message that does not add up."""
        self._buffered_bytes = 0
        self._buffered: dict[bytes, OpenMessage] = {}
        """The open messages whose slices are in memory."""
        self._tracked: dict[bytes, int] = {}
        self._untracked: dict[bytes, int] = {}
        self.dropped: list[Dropped] = []
        """The messages that were dropped since this list was last cleared."""

    def restore(self, messages: Iterable[OpenMessage], used: int) -> None:
        """Take over the open messages of another assembler."""
        self.messages = {m.message_id: m for m in sorted(messages, key=lambda m: m.starting_offset)}
        self.used = used
        self._buffered = {message_id: m for message_id, m in self.messages.items() if m.buffered_bytes}
        self._buffered_bytes = sum(message.buffered_bytes for message in self._buffered.values())
        self._tracked, self._untracked = {}, {}
        for message_id, message in self.messages.items():
            if message.tracked_offset is None:
                self._untracked[message_id] = message.starting_offset
            else:
                self._tracked[message_id] = message.tracked_offset
        self._tracked = dict(sorted(self._tracked.items(), key=lambda item: item[1]))

    @property
    def oldest_tracked(self) -> int | None:
        """The least offset of an open message's accepted segments."""
        return next(iter(self._tracked.values()), None)

    @property
    def next_expiry(self) -> int | None:
        """The least current offset at which something is dropped."""
        began = [next(iter(offsets.values())) for offsets in (self._tracked, self._untracked) if offsets]
        return min(began) + self._settings.expiration_offset_gap + 1 if began else None

    @property
    def next_expiry_ms(self) -> int | None:
        """The least time at which something has waited too long."""
        allowed = self._settings.expiration_ms
        seen = [m.first_seen_ms for m in self.messages.values() if m.first_seen_ms >= 0]
        return min(seen) + allowed + 1 if seen and allowed is not None else None

    def safe_offset(self, current: int) -> int | None:
        """The offset at which a restart after the record ``current`` must begin; None if right after it."""
        self.expire(current)
        return self.oldest_tracked

    def expire(self, current: int) -> None:
        """Drop the messages that began more than the gap before ``current``."""
        least = current - self._settings.expiration_offset_gap
        for began in (self._tracked, self._untracked):
            while began:
                message_id, offset = next(iter(began.items()))
                if offset >= least:
                    break
                self._drop_open(self.messages[message_id], DropReason.EXPIRED_BY_OFFSET, current)

    def expire_by_time(self, now_ms: int, current: int) -> None:
        """Drop the messages that have waited longer than the settings allow."""
        allowed = self._settings.expiration_ms
        if allowed is None:
            return
        for message in list(self.messages.values()):
            if 0 <= message.first_seen_ms < now_ms - allowed:
                self._drop_open(message, DropReason.EXPIRED_BY_TIME, current)

    def add(self, arrival: Arrival, now_ms: int = -1) -> OpenMessage | None:
        """Accept a message segment, or reject it; returns its message if this completes it.

        :raises LargeMessageDroppedError: if the settings ask for it and a message had to be evicted.
        """
        offset, message_id = arrival.offset, arrival.message_id
        message = self.messages.get(message_id)
        if message is None:
            message = OpenMessage(message_id, offset, arrival.count, arrival.length, now_ms)
            self.messages[message_id] = message
            self._untracked[message_id] = offset
        new = arrival.number not in message.pieces
        error = self._error(message, arrival, new)
        if error is not None:
            self.reject(arrival, error, message.starting_offset)
            return None
        if new:
            message.put(SegmentSlice(offset, arrival.number, arrival.size, arrival.slice))
            if arrival.slice is not None:
                self._buffered_bytes += arrival.size
                self._buffered[message_id] = message
        complete = len(message.pieces) == message.count
        if complete and message.size != message.length:
            if new:
                self.drop(message, DropReason.TOO_FEW_BYTES, offset)
                self._release(message)
                message.forget_slices(self._aside)
            else:
                self.reject(arrival, DropReason.TOO_FEW_BYTES, message.starting_offset)
            return None
        self.used += arrival.size if new else 0
        if complete:
            self._remove(message)
        elif message.tracked_offset is None:
            message.tracked_offset = offset
            self._tracked[message_id] = offset
            del self._untracked[message_id]
        self._keep_to_capacity(offset)
        self.expire(offset)
        return message if complete else None

    def reject(self, arrival: Arrival, reason: DropReason, starting_offset: int | None = None) -> None:
        """Record that a message segment is not accepted."""
        data = None if arrival.slice is None else arrival.slice.tobytes()
        segment = DroppedSegment(arrival.offset, arrival.number, arrival.size, data)
        start = arrival.offset if starting_offset is None else starting_offset
        self.dropped.append(
            Dropped(
                self._partition, reason, arrival.message_id, start, arrival.offset, arrival.count, (segment,)
            )
        )

    def drop(self, message: OpenMessage, reason: DropReason, offset: int) -> None:
        """Record that a message will not be delivered."""
        segments = tuple(
            DroppedSegment(p.offset, p.number, p.size, None if p.slice is None else p.slice.tobytes())
            for p in sorted(message.pieces.values(), key=lambda p: p.offset)
        )
        start = message.starting_offset
        self.dropped.append(
            Dropped(self._partition, reason, message.message_id, start, offset, message.count, segments)
        )

    def _error(self, message: OpenMessage, arrival: Arrival, new: bool) -> DropReason | None:
        if message.starting_offset > arrival.offset:
            return DropReason.OUT_OF_ORDER
        if self._evicts and arrival.size >= self._settings.buffer_capacity:
            return DropReason.SLICE_OVER_CAPACITY
        if arrival.size == 0:
            return DropReason.SLICE_EMPTY
        if (arrival.count, arrival.length) != (message.count, message.length):
            return DropReason.CONFLICTING_ID
        if new and message.size + arrival.size > message.length:
            return DropReason.TOO_MANY_BYTES
        return None

    def _keep_to_capacity(self, offset: int) -> None:
        capacity = self._settings.buffer_capacity
        if not self._evicts:
            while self._buffered_bytes > capacity:
                oldest = next(iter(self._buffered.values()))
                self._release(oldest)
                oldest.put_aside(self._aside)
            return
        while self.messages and max(self.used, self._buffered_bytes) > capacity:
            oldest = next(iter(self.messages.values()))
            self._drop_open(oldest, DropReason.EVICTED, offset)
            if self._settings.exception_on_message_dropped:
                raise LargeMessageDroppedError(
                    f"Incomplete large message {oldest.message_id.hex()}, which began at offset"
                    f" {oldest.starting_offset}, was dropped: the buffer of {capacity} bytes is full",
                    topic_partition=self._partition,
                    offset=offset,
                    hint="Raise message.assembler.buffer.capacity or set exception.on.message.dropped=false.",
                )

    def _drop_open(self, message: OpenMessage, reason: DropReason, offset: int) -> None:
        self.drop(message, reason, offset)
        self._remove(message)
        message.forget_slices(self._aside)

    def _remove(self, message: OpenMessage) -> None:
        del self.messages[message.message_id]
        self._tracked.pop(message.message_id, None)
        self._untracked.pop(message.message_id, None)
        self.used -= message.size
        self._release(message)

    def _release(self, message: OpenMessage) -> None:
        if self._buffered.pop(message.message_id, None) is not None:
            self._buffered_bytes -= message.buffered_bytes
