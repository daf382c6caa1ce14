"""Limits bytes a second, over all threads."""

from __future__ import annotations

import threading
import time


class RateLimit:
    """Lets ``bytes_per_second`` through, on average since the last pause; None for no limit."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._guard = threading.Lock()
        self._free_at = 0.0

    def pause(self, size: int) -> float:
        """Let ``size`` bytes through; returns the seconds to wait before more may go."""
        if self._rate is None:
            return 0.0
        with self._guard:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            return self._free_at - now

    def wait(self, size: int) -> None:
        """Let ``size`` bytes through, and sleep until more may go."""
        time.sleep(self.pause(size))
