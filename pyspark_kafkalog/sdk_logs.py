"""The loggers of clouds' SDKs: at DEBUG they log requests and answers, with the secrets in them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_thread = threading.local()


@contextmanager
def silent(*packages: str) -> Iterator[None]:
    """Within it this thread uses an SDK, of which ``packages`` log nothing.

    Loggers that the SDK makes within it are silent from the next time on.
    """
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in packages:
            logger.addFilter(_is_shown)
    _thread.is_asking = True
    try:
        yield
    finally:
        _thread.is_asking = False


def _is_shown(record: logging.LogRecord) -> bool:
    """Whether it is of another use of an SDK than ours."""
    return not getattr(_thread, "is_asking", False)
