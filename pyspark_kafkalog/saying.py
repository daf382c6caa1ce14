"""Says on stderr what is being done, if it takes long, and prints warnings as Spark prints its lines.

Python would print bare warnings, of which no one can tell when they came, and of which query.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("pyspark_kafkalog")
_FORMAT, _TIME = "%(asctime)s %(levelname)s kafkalog: %(work)s%(message)s", "%y/%m/%d %H:%M:%S"

QUIET_SECONDS = 2.0
"""The time after which work that goes on is named."""

_work = ""


def name_work(name: str) -> None:
    """Name what this process works for, such as a query, in the lines that follow.

    A process of Spark's works for one at a time.
    """
    global _work
    _work = f"{name}: " if name else ""
    show_warnings()


def named_work() -> str:
    """The work that lines begin with; empty where none is named."""
    return _work


def show_warnings() -> None:
    """Print warnings from now on, unless the process has another handler for them."""
    if _LINES not in _LOGGER.handlers:
        _LOGGER.addHandler(_LINES)


class LogLines(logging.Handler):
    """Prints warnings on stderr, unless the process has another handler for them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(_FORMAT, _TIME))

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        if any(handler is not self for handler in (*_LOGGER.handlers, *logging.getLogger().handlers)):
            return
        record.work = _work
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


_LINES = LogLines()


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
