"""Sinks, and the standing of a batch to the last one that a sink has of its query.

A number that fits proves nothing: checkpoints and sinks go back. So the plans are compared, too, by digests.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from pyspark_kafkalog.model import Encoded, EncodeSettings, Plan, QueryBatch, TaskAttempt, TopicPartition

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

JOB_SKIPPED = (
    "txnVersion %d of this txnAppId is there already, so nothing more is written. If these are other rows, as"
    " of a new checkpoint, whose micro-batches begin at 0 again, give another txnAppId"
)
"""The warning about a job's batch that a sink has: its number alone says that it is the same one."""
FinishedT = TypeVar("FinishedT")
"""The result of a task for the commit; it is pickled."""
GivenT = TypeVar("GivenT", covariant=True)


class TaskSink(Protocol[GivenT]):
    """Takes the encoded record batches of one task. If left without :meth:`finish`, it drops what it can."""

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; the same at each call, so that equal keys meet.

        :raises UnknownTopicOrPartitionError: if the topic does not exist and is not created by the write.
        """

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether a partition beyond that count has been added since; rows may name it."""

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """The settings of the encoder for the next record batches of ``partition``."""

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Take record batches; those of a ``partition`` keep the order of the calls."""

    def advance(self, *, flush: bool = False) -> None:
        """Do what can be done without waiting for the place; called between rows.

        With ``flush`` also for a few rows, and by waiting for a place that is gone.

        Nothing, unless a sink says otherwise.
        """
        return

    def visible_records(self) -> int:
        """The number of appended records that readers can see by now, whatever becomes of the others.

        None of them, unless a sink says otherwise.
        """
        return 0

    def finish(self) -> GivenT:
        """Wait until everything appended is safe, and return what :meth:`Sink.commit` needs."""


class Sink(Protocol[FinishedT]):
    """Writes rows to a place. Made on the driver and pickled to the tasks, so it holds little."""

    @property
    def needs_commit(self) -> bool:
        """Whether :meth:`commit` makes rows visible; if not, they are visible once they are written."""

    def open(
        self, batch: QueryBatch, attempt: TaskAttempt, listener: WriteListener | None = None
    ) -> AbstractContextManager[TaskSink[FinishedT]]:
        """The sink of one task of ``batch``, which tells a listener what becomes of record batches."""

    def commit(
        self,
        batch: QueryBatch,
        finished: Sequence[FinishedT],
        plan: Plan,
        listener: WriteListener | None = None,
    ) -> bool:
        """Complete a batch, which is planned so, with what :meth:`TaskSink.finish` gave. Can be repeated.

        :param listener: hears of record batches that are sent, or become visible, only now.
        :return: False if the batch was there already, perhaps with other rows, and nothing was written now.
        """

    def abort(self, batch: QueryBatch, finished: Sequence[FinishedT]) -> None:
        """Take back what the tasks of ``batch`` have written, as far as possible; never raises.

        Another driver may be at the same micro-batch. So what a message does not name stays, unless the batch
        has a name that no other can have.
        """


class LastBatch(NamedTuple):
    """The batch of a query that a sink has shown last. ``plan`` is its digest, empty if that is not known."""

    batch_id: int
    plan: str


class Standing(enum.Enum):
    """The standing of a batch to the last one of its query."""

    SAME = enum.auto()
    """The batch is the last one."""
    NEXT = enum.auto()
    """The batch follows the last one."""
    AHEAD = enum.auto()
    """The sink has a later one."""
    BEHIND = enum.auto()
    """The sink lacks some that were written before it."""
    OTHER = enum.auto()
    """The batch is the last one, or follows it, but was planned otherwise: by another history."""
    UNKNOWN = enum.auto()
    """The batch has the number of the last one, and nothing tells whether it is the same."""


def older_version(batch_id: int, last: LastBatch) -> tuple[str, str]:
    """The error text and hint if a job gives a number below the last one."""
    return (
        f"Expected txnVersion {last.batch_id} or later of this txnAppId, got {batch_id}",
        "A later version was written. Give a higher txnVersion; or another txnAppId if the numbers begin"
        " again, as numbers of micro-batches do with a new checkpoint.",
    )


def standing(batch_id: int, plan: Plan, last: LastBatch, *, is_job: bool = False) -> Standing:
    """The standing of a micro-batch to the last one, or, with ``is_job``, of a batch numbered by its job.

    The number is a job's promise, and it may leave some out; a plan is compared where it is known.
    """
    if last.batch_id > batch_id:
        return Standing.AHEAD
    if last.batch_id < batch_id:
        if is_job:
            return Standing.NEXT
        if last.batch_id < batch_id - 1:
            return Standing.BEHIND
        return Standing.OTHER if last.plan and plan.digest and plan.before != last.plan else Standing.NEXT
    if plan.digest and last.plan:
        return Standing.SAME if plan.digest == last.plan else Standing.OTHER
    return Standing.SAME if is_job or plan.digest == last.plan else Standing.UNKNOWN
