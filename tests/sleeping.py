"""Replaces a pause of the code under test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def replace_sleep(monkeypatch: pytest.MonkeyPatch, replacement: Callable[[float], None]) -> None:
    """Replace ``time.sleep`` in this thread only, as threads of other libraries sleep, too."""
    slept, own = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        (replacement if threading.get_ident() == own else slept)(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
