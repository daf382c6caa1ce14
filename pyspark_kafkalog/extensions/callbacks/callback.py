"""Objects of the user's that hear what becomes of record batches, as Kafka's interceptors and callbacks do.

The stages are those of Kafka's first producer (``kafka.producer.async.CallbackHandler``) and of
``ProducerInterceptor`` and ``Callback`` of the newer one.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafkalog.extensions.callbacks.metrics import WriteMetrics


class WriteShare(NamedTuple):
    """The share of a write that one object hears of: that of an attempt at a task, or of the commit.

    ``query`` and ``batch`` are the ids of a stream and its micro-batch. A batch job has None as ``batch``,
    and a random ``query`` unless it names its batches (``txnAppId``). ``task`` is the number of the task,
    from 0, and ``attempt`` that of the attempt; ``task`` is None in the commit on the driver.
    """

    query: str
    batch: int | None
    task: int | None
    attempt: int


class BatchEvent(NamedTuple):
    """An event of one record batch.

    ``number`` is its place, from 0, among the batches of its task for the partition; ``bytes`` is its stored
    size. ``time`` is that of the event, in ms since the epoch; ``attempts`` says how often the batch was
    sent, and ``broker`` to which one last (None: to none). An acknowledgement has ``base_offset``, the offset
    of the first record (-1 if it is not known, as with ``acks=0``); ``append_time``, ms since the epoch, if
    the topic has LogAppendTime (else -1); and ``latency_ms``, the time from the last send until the response
    was read (None if there is none). ``error`` says why a batch is sent again, or has failed.
    """

    topic: str
    partition: int
    number: int
    records: int
    bytes: int
    time: int
    attempts: int
    broker: int | None = None
    base_offset: int = -1
    append_time: int = -1
    latency_ms: float | None = None
    error: str | None = None


class WriteCallback:
    """Hears what becomes of the record batches of a write. For the option ``callback.class``.

    Write a class with the methods that you need; it may inherit the others from here. Each attempt at a task
    makes an object as ``Class(share)``, with a :class:`WriteShare`, and so does the commit on the driver. All
    calls of an object come from one thread, one after the other. If it raises anything, that is logged, the
    object is not called again, and the write goes on. ::

        from pyspark_kafkalog import BatchEvent, WriteCallback, WriteShare

        class Offsets(WriteCallback):
            def __init__(self, share: WriteShare) -> None:
                self.ends: dict[tuple[str, int], int] = {}

            def on_acknowledgement(self, batch: BatchEvent) -> None:
                self.ends[batch.topic, batch.partition] = batch.base_offset + batch.records
    """

    def __init__(self, share: WriteShare) -> None:
        """Begin to hear of a share of a write, of which nothing was sent yet."""

    def on_enqueue(self, batch: BatchEvent) -> None:
        """Hear that a batch waits to be sent; in a directory, or exactly once, that it is staged."""

    def on_send(self, batch: BatchEvent) -> None:
        """Hear that a batch is about to be sent, for the first time or again."""

    def on_acknowledgement(self, batch: BatchEvent) -> None:
        """Hear that a batch is in the log; in a directory, once for all batches of a partition."""

    def on_retry(self, batch: BatchEvent) -> None:
        """Hear that a batch was not acknowledged, and waits to be sent again."""

    def on_error(self, batch: BatchEvent) -> None:
        """Hear that a batch was not acknowledged, and is not sent again: it may or may not be in the log."""

    def on_commit(self, metrics: WriteMetrics) -> None:
        """Hear, on the driver, that a batch or micro-batch is written, with the sum of its tasks' metrics."""

    def close(self, metrics: WriteMetrics, error: BaseException | None) -> None:
        """Hear that the share has ended; nothing follows.

        :param metrics: of the share; of a commit that has succeeded, the sum of all.
        :param error: why the task or the commit failed; None if it succeeded.
        """


METHODS = tuple(name for name in vars(WriteCallback) if name == "close" or name.startswith("on_"))
"""The methods by which an object hears."""
