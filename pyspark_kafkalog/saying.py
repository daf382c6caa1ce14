"""Says on stderr what is being done, if it takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0
"""The time after which work that goes on is named."""


@contextmanager
def said(doing: str) -> Iterator[None]:
    """Say on stderr what is being done, if it takes longer than :data:`QUIET_SECONDS`."""

    def say() -> None:
        print(f"kafkalog: {doing} …", file=sys.stderr, flush=True)

    timer = threading.Timer(QUIET_SECONDS, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
