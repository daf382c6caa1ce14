"""What was delivered from a partition, and so what may be committed and where a seek back must begin.

Theirs, of li-apache-kafka-clients: DeliveredMessageOffsetTracker, LiKafkaConsumerImpl and
LiKafkaClientsUtils. A *consumer high watermark* is the next offset that the application
wants: messages below it were given to it before, and are skipped when they are read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark_kafkalog.errors import OffsetNotTrackedError
from pyspark_kafkalog.model import TopicPartition

SafeOffset = Callable[[int], "int | None"]
"""What :meth:`.reassembly.Reassembler.safe_offset` answers for a current offset."""

_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})\Z")


@dataclass(frozen=True, slots=True)
class Delivered:
    """A delivered message: where a restart after it begins, and where its first message segment was."""

    safe_offset: int
    starting_offset: int


class DeliveredMessages:
    """The offsets of one partition that were read, from ``first_offset`` on.

    Only messages of several records, or delivered while another one was open, are remembered, the last
    ``max_tracked_messages`` of them; any other offset is its message's.
    """

    def __init__(self, partition: TopicPartition, first_offset: int, max_tracked_messages: int) -> None:
        self._partition = partition
        self._most = max_tracked_messages
        self._segments: set[int] = set()
        self._messages: dict[int, Delivered] = {}
        self.first_offset = first_offset
        self.safe_offset = first_offset
        """Where a restart after the last message that was complete begins."""
        self.last_offset: int | None = None
        """That of the last delivered message."""

    def read_segment(self, offset: int) -> None:
        """A message segment was read that completes no message."""
        self._segments.add(offset)

    def read_message(
        self, offset: int, starting_offset: int, oldest_open: int | None, *, skipped: bool = False
    ) -> None:
        """A message was completed by the record of ``offset``.

        :param oldest_open: the assembler's safe offset after it.
        :param skipped: whether it is not delivered, being below the consumer high watermark.
        """
        self.safe_offset = offset + 1 if oldest_open is None else min(offset + 1, oldest_open)
        if not skipped:
            self.last_offset = offset
        if starting_offset == offset and self.safe_offset == offset + 1:
            return
        self._messages[offset] = Delivered(self.safe_offset, starting_offset)
        if len(self._messages) > self._most:
            oldest = next(iter(self._messages))
            del self._messages[oldest]
            self.first_offset = oldest + 1
            self._segments = {one for one in self._segments if one >= oldest}

    def message(self, offset: int) -> Delivered:
        """The delivered message at ``offset``.

        :raises OffsetNotTrackedError: if there is none, or it is forgotten.
        """
        self._check(offset)
        if offset in self._segments:
            raise self._error(offset)
        return self._messages.get(offset, Delivered(offset + 1, offset))

    def closest(self, offset: int) -> int | None:
        """The offset of the last delivered message up to ``offset``; None if there is none.

        :raises OffsetNotTrackedError: if ``offset`` is not among what was read and is remembered.
        """
        if self.last_offset is None:
            return None
        self._check(offset)
        while offset in self._segments:
            offset -= 1
        return offset if offset >= self.first_offset else None

    def offset_to_commit(self, wanted: int, oldest_open: SafeOffset) -> int:
        """What to commit so that a restart goes on at message ``wanted`` and misses no message segment.

        :raises OffsetNotTrackedError: see :meth:`closest`.
        """
        if wanted <= self.first_offset:
            return wanted
        closest = self.closest(wanted - 1)
        if closest == self.last_offset or closest is None:
            safe = oldest_open(wanted if self.last_offset is None else self.last_offset)
        else:
            safe = self.message(closest).safe_offset
        return wanted if safe is None else min(safe, wanted)

    def seek_target(self, wanted: int) -> int:
        """Where to read from for message ``wanted`` and all that follow; earlier ones are to be skipped.

        :raises OffsetNotTrackedError: see :meth:`closest`.
        """
        if self.last_offset is None or wanted > self.last_offset:
            return wanted
        closest = self.closest(wanted)
        if closest is None:
            return self.first_offset
        message = self.message(closest)
        return message.safe_offset if closest < wanted else min(message.starting_offset, message.safe_offset)

    def _check(self, offset: int) -> None:
        if self.last_offset is None or not self.first_offset <= offset <= self.last_offset:
            raise self._error(offset)

    def _error(self, offset: int) -> OffsetNotTrackedError:
        read = "none" if self.last_offset is None else f"{self.first_offset} to {self.last_offset}"
        return OffsetNotTrackedError(
            f"No delivered message is known at that offset (known: {read})",
            topic_partition=self._partition,
            offset=offset,
            hint="Raise max.tracked.messages.per.partition, or start at a committed offset.",
        )


def commit_metadata(high_watermark: int, text: str = "") -> str:
    """The metadata to commit beside a safe offset: the consumer high watermark, and a text of the user's."""
    return f"{high_watermark},{text}"


def parse_metadata(metadata: str | None) -> tuple[int | None, str]:
    """The consumer high watermark and the user's text; None and all of it if a plain consumer committed."""
    number, comma, text = (metadata or "").partition(",")
    digits = _INTEGER.match(number)
    if comma and digits and (watermark := int("".join(digits.groups()))) in _INT64:
        return watermark, text
    return None, metadata or ""


def consumer_high_watermark(metadata: str | None) -> int | None:
    """The offset from which on messages are wanted; None if the metadata tells none."""
    number, _ = parse_metadata(metadata)
    return None if number == _UNKNOWN else number


_UNKNOWN = -1
