"""The messages delivered from a partition; so what may be committed and where a seek back must begin.

Written from the format page: DeliveredMessageOffsetTracker and LiKafkaConsumerImpl of
li-apache-kafka-clients. A query does not need this, since its checkpoint knows where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SafeOffset = Callable[[int], "int | None"]
"""The result of ``Reassembler.safe_offset`` for a current offset."""


class OffsetNotTrackedError(Exception):
    """Their OffsetNotTrackedException."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A delivered message: where a restart after it begins, and where its first message segment was."""

    safe_offset: int
    starting_offset: int


class DeliveredMessages:
    """The offsets read from one partition, from ``first_offset`` on.

    Only messages of several records, or delivered while another one was open, are remembered, the last
    ``max_tracked_messages`` of them; any other offset is its message's.
    """

    def __init__(self, first_offset: int, max_tracked_messages: int) -> None:
        self._most = max_tracked_messages
        self._segments: set[int] = set()
        self._messages: dict[int, Delivered] = {}
        self.first_offset = first_offset
        self.safe_offset = first_offset
        """Where a restart after the last complete message begins."""
        self.last_offset: int | None = None
        """Offset of the last delivered message."""

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
            self._segments = {offset for offset in self._segments if offset >= oldest}

    def message(self, offset: int) -> Delivered:
        """The delivered message at ``offset``.

        :raises OffsetNotTrackedError: if there is none, or it is forgotten.
        """
        self._check(offset)
        if offset in self._segments:
            raise OffsetNotTrackedError(offset)
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
        """The commit after which a restart goes on at message ``wanted`` and misses no message segment.

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
        """Where to read from for message ``wanted`` and later ones; skip those before it.

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
            raise OffsetNotTrackedError(offset)
