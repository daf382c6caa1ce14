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

    def wait(self, size: int, stop: threading.Event | None = None) -> None:
        """Wait until ``size`` more bytes may go, or ``stop`` is set."""
        if self._rate is None:
            return
        with self._guard:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            pause = self._free_at - now
        if stop is None:
            time.sleep(pause)
        else:
            stop.wait(pause)
