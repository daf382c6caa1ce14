"""THE loop of attempts: what has to be repeated, until a deadline and with pauses in between."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import (
    BrokenHandshakeError,
    ClosedPortError,
    NeverReachedError,
    OutOfTimeError,
    UnknownHostError,
)
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.options.brokers import ConnectionOptions

Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Any)

_log = logging.getLogger("pyspark_kafkalog")

_QUIET_SECONDS = 2.0
"""The time for which attempts may fail before a warning is logged: an ordinary leader election takes less."""


@dataclass(slots=True)
class Repeated:
    """A call that is repeated as a whole after its deadline: users are told once, of all the time."""

    more: float = 0.0
    """Seconds after this deadline for which it goes on."""
    has_warned: bool = False


class Backoff:
    """Pauses until a deadline that double up to a maximum, with a jitter of a fifth (KIP-580).

    They follow retry.backoff.ms or, if ``reconnecting``, reconnect.backoff.ms.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        deadline: Deadline,
        *,
        reconnecting: bool = False,
        repeated: Repeated | None = None,
    ) -> None:
        first, maximum = options.retry_backoff_ms, options.retry_backoff_max_ms
        if reconnecting:
            first, maximum = options.reconnect_backoff_ms, options.reconnect_backoff_max_ms
        self._next = first / 1000
        self._maximum = maximum / 1000
        self._started = time.monotonic()
        self.deadline = deadline
        """The deadline of all attempts."""
        self._connection_setup = options.socket_connection_setup_timeout_ms / 1000
        self._repeated = repeated or Repeated()
        self._telling: KafkaLogError | None = None
        """The last error that tells more than that the time was over, if there was one."""

    def repeat(
        self,
        attempt: Callable[[], Answer | KafkaLogError],
        *,
        first_contact: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Repeat ``attempt`` while it returns an error; its answer.

        :param first_contact: see :meth:`pause`.
        :raises KafkaLogError: the last error, if no time for another attempt is left; and what ``attempt``
            raises, which no repetition cures.
        """
        while True:
            outcome = attempt()
            if not isinstance(outcome, KafkaLogError):
                return outcome
            self.pause(outcome, first_contact=first_contact())

    def repeat_each(
        self,
        keys: Iterable[Key],
        attempt: Callable[[list[Key]], Mapping[Key, KafkaLogError]],
        failures: dict[Key, KafkaLogError] | None = None,
    ) -> None:
        """Repeat ``attempt`` with those keys for which it returns errors.

        :param failures: takes an error of each key, if no time for another attempt is left: the last one that
            tells more than that the time was over.
        :raises KafkaLogError: one of them without ``failures``; and what ``attempt`` raises, except a broken
            connection of a later one, which is another error of each key.
        """
        remaining = sorted(set(keys))
        telling: dict[Key, KafkaLogError] = {}
        while remaining:
            try:
                errors = attempt(remaining)
            except BrokerConnectionError as e:
                if not telling:
                    raise
                errors = dict.fromkeys(remaining, e)  # what others were told stays
            remaining = [key for key in remaining if key in errors]
            for key in remaining:
                if key not in telling or not isinstance(errors[key], OutOfTimeError):
                    telling[key] = errors[key]
            if remaining:
                try:
                    self.pause(errors[remaining[-1]])
                except KafkaLogError:
                    if failures is None:
                        raise telling[remaining[-1]] from None
                    failures.update((key, telling[key]) for key in remaining)
                    return

    def pause(self, error: KafkaLogError, *, first_contact: bool = False, grow: bool = True) -> None:
        """Wait before another attempt, or raise ``error`` if no time for one is left.

        The last attempt may have failed only for want of time: then the last error that tells more is raised.

        :param error: why the last attempt failed.
        :param first_contact: whether no broker has answered so far: what looks like a wrong option
            is then tried for at most half of socket.connection.setup.timeout.ms.
        :param grow: whether the next pause is longer.
        """
        deadline = self.deadline
        if isinstance(error, NeverReachedError) or (first_contact and isinstance(error, UnknownHostError)):
            deadline = Deadline(self._started)
        elif first_contact and isinstance(error, ClosedPortError | BrokenHandshakeError):
            deadline = Deadline(self._started + self._connection_setup / 2).bounded_by(deadline)
        if self._telling is None or not isinstance(error, OutOfTimeError):
            self._telling = error
        pause = self._next * random.uniform(0.8, 1.2)
        now = time.monotonic()
        if now + pause > deadline.at:
            raise self._telling
        if now - self._started > _QUIET_SECONDS and not self._repeated.has_warned:
            self._repeated.has_warned = True
            _log.warning("Retrying for up to %d s: %s", deadline.at - now + self._repeated.more, error)
        else:
            _log.debug("Retrying in %d ms: %s", pause * 1000, error)
        time.sleep(pause)
        self._next = min(self._next * 2, self._maximum) if grow else self._next
