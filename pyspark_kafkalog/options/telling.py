"""What there is to say of options, once in a process: Spark makes readers and writers again and again."""

from __future__ import annotations

import logging

_log = logging.getLogger("pyspark_kafkalog")

_told: set[str] = set()


def tell_once(level: int, message: str, *values: object) -> None:
    """Log a message, unless this process has logged the same before."""
    text = message % values
    if text not in _told:
        _told.add(text)
        _log.log(level, message, *values)


def forget_told() -> None:
    """Tell all again, as a new process would."""
    _told.clear()
