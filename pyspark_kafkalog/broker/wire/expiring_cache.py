"""Tokens and credentials of logins: cached by a process until they expire."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pyspark_kafkalog.errors import KafkaLogError

_Value = TypeVar("_Value")
_PAUSE = 60.0
"""Seconds for which a source that failed is left alone, while what it gave before is valid."""


@dataclass(frozen=True, slots=True, repr=False)
class _Given(Generic[_Value]):
    """A value that is used ``until`` a time and valid to its ``end``, in seconds since the epoch.

    ``offset`` is how far the time was ahead of the monotonic clock when it was given.
    """

    value: _Value
    until: float
    end: float
    offset: float

    def now(self) -> float:
        """The time; where the clock was set back meanwhile, as if it had not been."""
        return max(time.time(), time.monotonic() + self.offset)


class ExpiringCache(Generic[_Value]):
    """Values by their sources: of threads that need the same one asks, and the others wait for its answer."""

    def __init__(self) -> None:
        self.values: dict[Hashable, _Given[_Value]] = {}
        self._asked: dict[tuple[int, Hashable], Future[_Value]] = {}

    def get(self, source: Hashable, ask: Callable[[], tuple[_Value, float, float]]) -> _Value:
        """The value of a source. One that can't be renewed is used until it ends.

        :param ask: gives a value, the time until which to use it and that until which it is valid, in seconds
            since the epoch.
        :raises KafkaLogError: what ``ask`` raises.
        """
        cached = self.values.get(source)
        if cached is not None and cached.now() < cached.until:
            return cached.value
        # By process: a fork has the futures of its parent, but not the threads that fill them.
        asked = os.getpid(), source
        mine: Future[_Value] = Future()
        first = self._asked.setdefault(asked, mine)
        if first is not mine:
            try:
                return first.result()
            except CancelledError:
                return self.get(source, ask)
        try:
            try:
                cached = _Given(*ask(), time.time() - time.monotonic())
            except KafkaLogError:
                if cached is None or cached.now() >= cached.end:
                    raise
                cached = replace(cached, until=min(cached.now() + _PAUSE, cached.end))
            self.values[source] = cached
            mine.set_result(cached.value)
        except Exception as e:
            mine.set_exception(e)
            raise
        finally:
            del self._asked[asked]
            mine.cancel()  # without effect unless this thread was interrupted: another one asks
        return cached.value

    def forget(self, source: Hashable) -> None:
        """Ask for the value of a source again the next time: it was refused before its end."""
        self.values.pop(source, None)
