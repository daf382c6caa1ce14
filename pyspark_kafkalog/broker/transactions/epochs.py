"""Which epochs of a producer were committed: what decides about rows whose markers a coordinator left out.

Each run of a batch has an epoch of its own, and each that is committed has a marker. So a marker that adds
its epoch to those of the marker before tells of all: those that are missing were not committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_MOST_RANGES = 64
"""A query that fails now and then adds a range each time, and brokers limit the metadata of an offset."""


class CommittedEpochs(NamedTuple):
    """Ranges of epochs that were committed, both ends in them. Of those from ``since`` on no other was."""

    since: int
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def alone(cls, epoch: int, *, since: int) -> CommittedEpochs:
        """One epoch."""
        return cls(since, ((epoch, epoch),))

    @classmethod
    def parse(cls, numbers: Sequence[int]) -> CommittedEpochs:
        """See :meth:`numbers`.

        :raises ValueError: if they are not such numbers.
        """
        since, *ends = numbers
        ranges = tuple(zip(ends[::2], ends[1::2], strict=True))
        if not ranges or ends != sorted(ends):
            raise ValueError("not ranges of epochs")
        return cls(since, ranges)

    def numbers(self) -> list[int]:
        """``since``, then first and last of each range, as a marker has them."""
        return [self.since, *(number for ends in self.ranges for number in ends)]

    def has(self, epoch: int) -> bool | None:
        """Whether an epoch was committed; None if that is not known."""
        if any(first <= epoch <= last for first, last in self.ranges):
            return True
        return None if epoch < self.since else False

    def then(self, epoch: int) -> CommittedEpochs:
        """With a later epoch, which is committed; the oldest range is forgotten if there are too many."""
        *older, (first, last) = self.ranges
        newest = [(first, epoch)] if epoch == last + 1 else [(first, last), (epoch, epoch)]
        ranges = (*older, *newest)
        if len(ranges) <= _MOST_RANGES:
            return CommittedEpochs(self.since, ranges)
        return CommittedEpochs(max(self.since, ranges[1][0]), ranges[1:])
