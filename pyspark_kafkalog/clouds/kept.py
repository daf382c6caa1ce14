"""What a process keeps of logins: tokens and credentials, from when they are given until they end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from pyspark_kafkalog.errors import KafkaLogError

_Value = TypeVar("_Value")
_PAUSE = 60.0
"""Seconds for which a source that failed is left alone, while what it gave before is valid."""


class Kept(Generic[_Value]):
    """Values by their sources: of threads that need the same one asks, and the others wait for its answer."""

    def __init__(self) -> None:
        self.values: dict[Hashable, tuple[_Value, float, float]] = {}
        """Each with the times until which it is used and is valid, in seconds since the epoch."""
        self._asked: dict[tuple[int, Hashable], Future[_Value]] = {}

    def get(self, source: Hashable, ask: Callable[[], tuple[_Value, float, float]]) -> _Value:
        """The value of a source. One that can't be renewed is used until it ends.

        :param ask: gives a value, and its two times.
        :raises KafkaLogError: what ``ask`` raises.
        """
        kept = self.values.get(source)
        if kept is not None and time.time() < kept[1]:
            return kept[0]
        # By process: a fork has the futures of its parent, but not the threads that fill them.
        asked = os.getpid(), source
        mine: Future[_Value] = Future()
        first = self._asked.setdefault(asked, mine)
        if first is not mine:
            return first.result()
        try:
            try:
                kept = ask()
            except KafkaLogError:
                if kept is None or time.time() >= kept[2]:
                    raise
                kept = kept[0], min(time.time() + _PAUSE, kept[2]), kept[2]
            self.values[source] = kept
            mine.set_result(kept[0])
        except BaseException as e:
            mine.set_exception(e)
            raise
        finally:
            del self._asked[asked]
        return kept[0]
