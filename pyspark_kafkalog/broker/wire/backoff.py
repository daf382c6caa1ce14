"""Pauses between attempts."""

from __future__ import annotations

import logging
import random
import time

from pyspark_kafkalog.broker.wire.sockets import (
    BrokenHandshakeError,
    RefusedError,
    UnknownHostError,
    UnreachedError,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions

_log = logging.getLogger("pyspark_kafkalog")

_QUIET_SECONDS = 2.0
"""How long attempts may fail before the log tells: a leader that moves takes less."""


class Backoff:
    """Pauses that double up to a largest, with a jitter of a fifth (KIP-580), for ``timeout`` seconds in all.

    They are those of retry.backoff.ms, or of reconnect.backoff.ms.
    """

    def __init__(self, options: ConnectionOptions, timeout: float, *, reconnecting: bool = False) -> None:
        first, largest = options.retry_backoff_ms, options.retry_backoff_max_ms
        if reconnecting:
            first, largest = options.reconnect_backoff_ms, options.reconnect_backoff_max_ms
        self._next = first / 1000
        self._largest = largest / 1000
        self._begun = time.monotonic()
        self._timeout = timeout
        self._connection_setup = options.socket_connection_setup_timeout_ms / 1000
        self._told = False
        self._before_last: Exception | None = None

    @property
    def remaining(self) -> float:
        """Seconds that are left for attempts, never below 0."""
        return max(self._timeout - self.elapsed, 0)

    @property
    def elapsed(self) -> float:
        """Seconds since the first attempt began."""
        return time.monotonic() - self._begun

    def pause(self, trouble: Exception, *, first_contact: bool = False) -> None:
        """Wait before another attempt, or raise ``trouble`` if the time for attempts is over.

        An attempt that had less time than the pause before it may have failed for that alone:
        then what is raised is why the attempt before it failed.

        :param first_contact: whether no broker has answered so far: what looks like a wrong option
            is then not tried for longer than socket.connection.setup.timeout.ms, and a port at which
            nobody listens not for half as long.
        """
        timeout = self._timeout
        if isinstance(trouble, UnreachedError) or (first_contact and isinstance(trouble, UnknownHostError)):
            timeout = 0
        elif first_contact and isinstance(trouble, RefusedError):
            timeout = min(timeout, self._connection_setup / 2)
        elif first_contact and isinstance(trouble, BrokenHandshakeError):
            timeout = min(timeout, self._connection_setup)
        pause = self._next * random.uniform(0.8, 1.2)
        elapsed = self.elapsed
        if elapsed + pause > timeout:
            raise self._before_last or trouble
        if elapsed > _QUIET_SECONDS and not self._told:
            self._told = True
            _log.warning("Trying again for up to %d s: %s", timeout - elapsed, trouble)
        else:
            _log.debug("Again in %d ms: %s", pause * 1000, trouble)
        time.sleep(pause)
        self._before_last = trouble if self.remaining < pause else None
        self._next = min(self._next * 2, self._largest)


def left(bound: Backoff | None) -> float | None:
    """Seconds that are left for an attempt; None if nothing bounds it."""
    return None if bound is None else bound.remaining
