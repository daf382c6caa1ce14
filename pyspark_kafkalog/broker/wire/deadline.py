"""Deadlines, which bound all waits for brokers.

A caller makes a deadline once and passes it down; each step takes what is left of it.
Where a parameter ``deadline`` is None, each step has the timeout of its own option instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

SHORTEST_WAIT = 0.001
"""Seconds that a wait on a socket takes at least: what has already arrived is read even after a deadline."""


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A moment ``at`` of the monotonic clock. The earlier of two is the lesser."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that is so many seconds away."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def after_ms(cls, milliseconds: float) -> Deadline:
        """The deadline that is so many milliseconds away, as Kafka's options give them."""
        return cls.after(milliseconds / 1000)

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(self.at - time.monotonic(), 0.0)

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.at

    def share(self, count: int, *, least: float = 0.0) -> Deadline:
        """The deadline of the next of ``count`` attempts that share the time left.

        :param least: seconds that an attempt gets even if its share is less, as far as there are any.
        """
        return Deadline.after(max(self.left / count, least)).bounded_by(self)

    def bounded_by(self, other: Deadline | None) -> Deadline:
        """The earlier of two deadlines; this one if there is no other."""
        return self if other is None else min(self, other)
