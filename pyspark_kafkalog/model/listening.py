"""The events of a write: sinks tell a listener, and an extension has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark_kafkalog.model import TopicPartition


class BatchOnItsWay(Protocol):
    """A record batch that a write has encoded.

    ``number`` is its place among those that this task has for its partition, from 0. ``size`` and
    ``plain_size`` are its bytes as it is stored, and as it would be without compression; ``attempts`` says
    how often it was sent.
    """

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def number(self) -> int: ...

    @property
    def records(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def plain_size(self) -> int: ...

    @property
    def attempts(self) -> int: ...


class WriteListener(Protocol):
    """Hears what becomes of record batches. Sinks call it in the thread that writes.

    No method raises: a write never ends because of what listens to it. A batch that is enqueued in a producer
    is later either acknowledged or has failed, each once. One that is staged gets no later event in its task.
    """

    def enqueued(self, batch: BatchOnItsWay) -> None:
        """Hear that a batch waits in a producer, or is staged."""

    def sending(self, node: int, batches: Sequence[BatchOnItsWay]) -> None:
        """Hear that these batches are about to go to a broker, in one request."""

    def throttled(self, node: int, seconds: float) -> None:
        """Hear that a broker wants no requests for so long (KIP-219)."""

    def acknowledged(self, batch: BatchOnItsWay, base_offset: int, append_time: int) -> None:
        """Hear that a batch is in the log.

        :param base_offset: -1 if it is not known.
        :param append_time: ms since the epoch, if the topic has LogAppendTime, or else -1.
        """

    def retried(self, batch: BatchOnItsWay, reason: str) -> None:
        """Hear that a batch was not acknowledged, and waits to be sent again."""

    def found_there(self) -> None:
        """Hear, in a commit, that the whole batch was there already, and nothing is written now."""

    def failed(self, batch: BatchOnItsWay, reason: str) -> None:
        """Hear that a batch was not acknowledged, and is not sent again: it may or may not be in the log."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch that no producer sends: see :class:`BatchOnItsWay`."""

    partition: TopicPartition
    number: int
    records: int
    size: int
    plain_size: int
    attempts: int = 0
