"""Puts message segments of one partition together, and gives up those that wait too long.

Exactly as li-apache-kafka-clients' MessageAssemblerImpl and LargeMessageBufferPool, errors
included, but for one partition: capacity is not shared between the partitions of a reader.
Memory is bounded where theirs is not: a message whose slices can never add up to
its length keeps no bytes, and an id of which nothing was accepted expires like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pyspark_kafkalog.errors import LargeMessageDroppedError
from pyspark_kafkalog.largemessage.dropped import Dropped, DroppedSegment, DropReason
from pyspark_kafkalog.model import AssemblerSettings, TopicPartition


@dataclass(slots=True)
class Piece:
    """An accepted message segment; ``slice`` is None if it is not kept."""

    offset: int
    number: int
    size: int
    slice: np.ndarray | None


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
    """That of the first message segment that was accepted: a restart must begin there."""
    pieces: dict[int, Piece] = field(default_factory=dict)
    size: int = 0
    held: int = 0
    """Bytes of the slices that are kept."""

    def put(self, piece: Piece) -> None:
        """Accept a message segment."""
        self.pieces[piece.number] = piece
        self.size += piece.size
        self.held += 0 if piece.slice is None else piece.size

    def forget_slices(self) -> None:
        """Keep only numbers and offsets."""
        for piece in self.pieces.values():
            piece.slice = None
        self.held = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message segment with the offset of its record; ``slice`` None to keep none."""

    offset: int
    message_id: bytes
    number: int
    count: int
    length: int
    size: int
    slice: np.ndarray | None


class Assembler:
    """The open messages of one partition.

    :param evict: whether what exceeds the capacity is dropped, oldest message first; otherwise only
        its slices are forgotten, and the rules about the capacity do not apply.
    """

    def __init__(self, partition: TopicPartition, settings: AssemblerSettings, *, evict: bool) -> None:
        self._partition = partition
        self._settings = settings
        self._evicts = evict
        self.messages: dict[bytes, OpenMessage] = {}
        """By id, in the order in which they began."""
        self.used = 0
        """What the capacity is compared with; as theirs, too low after a message that does not add up."""
        self._held = 0
        self._holding: dict[bytes, OpenMessage] = {}
        """Those with slices that are kept."""
        self._tracked: dict[bytes, int] = {}
        self._untracked: dict[bytes, int] = {}
        self.dropped: list[Dropped] = []
        """What was given up since it was last cleared."""

    def restore(self, messages: Iterable[OpenMessage], used: int) -> None:
        """Take over what another assembler held."""
        self.messages = {one.message_id: one for one in sorted(messages, key=lambda one: one.starting_offset)}
        self.used = used
        self._holding = {message_id: one for message_id, one in self.messages.items() if one.held}
        self._held = sum(one.held for one in self._holding.values())
        self._tracked, self._untracked = {}, {}
        for message_id, one in self.messages.items():
            if one.tracked_offset is None:
                self._untracked[message_id] = one.starting_offset
            else:
                self._tracked[message_id] = one.tracked_offset
        self._tracked = dict(sorted(self._tracked.items(), key=lambda item: item[1]))

    @property
    def oldest_tracked(self) -> int | None:
        """The least offset of an open message's accepted segments."""
        return next(iter(self._tracked.values()), None)

    @property
    def next_expiry(self) -> int | None:
        """The least current offset at which something is given up."""
        began = [next(iter(one.values())) for one in (self._tracked, self._untracked) if one]
        return min(began) + self._settings.expiration_offset_gap + 1 if began else None

    @property
    def next_expiry_ms(self) -> int | None:
        """The least time at which something has waited too long."""
        allowed = self._settings.expiration_ms
        seen = [one.first_seen_ms for one in self.messages.values() if one.first_seen_ms >= 0]
        return min(seen) + allowed + 1 if seen and allowed is not None else None

    def safe_offset(self, current: int) -> int | None:
        """Where a restart after the record of offset ``current`` must begin; None: wherever that one ends."""
        self.expire(current)
        return self.oldest_tracked

    def expire(self, current: int) -> None:
        """Give up what began more than the gap before ``current``."""
        least = current - self._settings.expiration_offset_gap
        for began in (self._tracked, self._untracked):
            while began:
                message_id, offset = next(iter(began.items()))
                if offset >= least:
                    break
                self._give_up(self.messages[message_id], DropReason.EXPIRED_BY_OFFSET, current)

    def expire_by_time(self, now_ms: int, current: int) -> None:
        """Give up what has waited longer than the settings allow."""
        allowed = self._settings.expiration_ms
        if allowed is None:
            return
        for one in list(self.messages.values()):
            if 0 <= one.first_seen_ms < now_ms - allowed:
                self._give_up(one, DropReason.EXPIRED_BY_TIME, current)

    def add(self, arrival: Arrival, now_ms: int = -1) -> OpenMessage | None:
        """Accept a message segment, or reject it; returns its message if that is complete now.

        :raises LargeMessageDroppedError: if the settings ask for it and a message had to be evicted.
        """
        offset, message_id = arrival.offset, arrival.message_id
        one = self.messages.get(message_id)
        if one is None:
            one = OpenMessage(message_id, offset, arrival.count, arrival.length, now_ms)
            self.messages[message_id] = one
            self._untracked[message_id] = offset
        new = arrival.number not in one.pieces
        error = self._error(one, arrival, new)
        if error is not None:
            self.reject(arrival, error, one.starting_offset)
            return None
        if new:
            one.put(Piece(offset, arrival.number, arrival.size, arrival.slice))
            if arrival.slice is not None:
                self._held += arrival.size
                self._holding[message_id] = one
        complete = len(one.pieces) == one.count
        if complete and one.size != one.length:
            if new:
                self.drop(one, DropReason.TOO_FEW_BYTES, offset)
                self._let_go(one)
                one.forget_slices()
            else:
                self.reject(arrival, DropReason.TOO_FEW_BYTES, one.starting_offset)
            return None
        self.used += arrival.size if new else 0
        if complete:
            self._remove(one)
        elif one.tracked_offset is None:
            one.tracked_offset = offset
            self._tracked[message_id] = offset
            del self._untracked[message_id]
        self._keep_to_capacity(offset)
        self.expire(offset)
        return one if complete else None

    def reject(self, arrival: Arrival, reason: DropReason, starting_offset: int | None = None) -> None:
        """Count a message segment that is not accepted."""
        kept = None if arrival.slice is None else arrival.slice.tobytes()
        segment = DroppedSegment(arrival.offset, arrival.number, kept)
        start = arrival.offset if starting_offset is None else starting_offset
        self.dropped.append(
            Dropped(
                self._partition, reason, arrival.message_id, start, arrival.offset, arrival.count, (segment,)
            )
        )

    def drop(self, one: OpenMessage, reason: DropReason, offset: int) -> None:
        """Count a message that will not be delivered."""
        segments = tuple(
            DroppedSegment(p.offset, p.number, None if p.slice is None else p.slice.tobytes())
            for p in sorted(one.pieces.values(), key=lambda p: p.offset)
        )
        start = one.starting_offset
        self.dropped.append(
            Dropped(self._partition, reason, one.message_id, start, offset, one.count, segments)
        )

    def _error(self, one: OpenMessage, arrival: Arrival, new: bool) -> DropReason | None:
        if one.starting_offset > arrival.offset:
            return DropReason.OUT_OF_ORDER
        if self._evicts and arrival.size >= self._settings.buffer_capacity:
            return DropReason.SLICE_OVER_CAPACITY
        if arrival.size == 0:
            return DropReason.SLICE_EMPTY
        if (arrival.count, arrival.length) != (one.count, one.length):
            return DropReason.CONFLICTING_ID
        if new and one.size + arrival.size > one.length:
            return DropReason.TOO_MANY_BYTES
        return None

    def _keep_to_capacity(self, offset: int) -> None:
        capacity = self._settings.buffer_capacity
        if not self._evicts:
            while self._held > capacity:
                oldest = next(iter(self._holding.values()))
                self._let_go(oldest)
                oldest.forget_slices()
            return
        while self.messages and max(self.used, self._held) > capacity:
            oldest = next(iter(self.messages.values()))
            self._give_up(oldest, DropReason.EVICTED, offset)
            if self._settings.exception_on_message_dropped:
                raise LargeMessageDroppedError(
                    f"Incomplete large message {oldest.message_id.hex()}, which began at offset"
                    f" {oldest.starting_offset}, was dropped: the buffer of {capacity} bytes is full",
                    topic_partition=self._partition,
                    offset=offset,
                    hint="Raise message.assembler.buffer.capacity or set exception.on.message.dropped=false.",
                )

    def _give_up(self, one: OpenMessage, reason: DropReason, offset: int) -> None:
        self.drop(one, reason, offset)
        self._remove(one)

    def _remove(self, one: OpenMessage) -> None:
        del self.messages[one.message_id]
        self._tracked.pop(one.message_id, None)
        self._untracked.pop(one.message_id, None)
        self.used -= one.size
        self._let_go(one)

    def _let_go(self, one: OpenMessage) -> None:
        if self._holding.pop(one.message_id, None) is not None:
            self._held -= one.held
