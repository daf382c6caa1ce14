"""Messages and message segments that are not delivered, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark_kafkalog.model import TopicPartition


class DropReason(str, Enum):
    """Why a message was dropped; the values name the counters."""

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
    """All message segments are there, and they are shorter than the message."""
    NOT_READ_AGAIN = "not_read_again"
    """Message segments that had been seen were gone when they were read again."""


INCOMPLETE = frozenset({DropReason.EXPIRED_BY_OFFSET, DropReason.EXPIRED_BY_TIME, DropReason.EVICTED})
"""Reasons that end an open message; any other rejects the message segment at hand."""


@dataclass(frozen=True, slots=True)
class DroppedSegment:
    """A record of a dropped message. ``slice`` is None where it was not kept."""

    offset: int
    number: int
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
