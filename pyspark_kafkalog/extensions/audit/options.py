"""The options of an audit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.filesystem.hadoop import check_outside
from pyspark_kafkalog.model import ALL_OFFSETS
from pyspark_kafkalog.options.brokers import (
    ConnectionOptions,
    ProduceOptions,
    connection_options,
    produce_options,
)
from pyspark_kafkalog.options.settings import ReadOptions, log_directories
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import COUNTING
from pyspark_kafkalog.plugins import shown
from pyspark_kafkalog.read.counting import ReadCounting
from pyspark_kafkalog.write.counting import CountsRows, WriteCounting

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.audit.auditor import AuditCount, Auditor
    from pyspark_kafkalog.extensions.audit.stores import Store
    from pyspark_kafkalog.extensions.audit.task_audit import ReadAudit, WriteAudit
    from pyspark_kafkalog.model import QueryBatch, TaskAttempt
    from pyspark_kafkalog.read.splits import Split


@dataclass(frozen=True, slots=True)
class AuditOptions(ReadCounting, WriteCounting):
    """``auditor`` is COUNTING, LOGGING or ``module:name``.

    Without a location or a topic no counts are stored. A location is not shown, as a URI may hold a secret.
    """

    auditor: str = COUNTING
    location: str | None = field(default=None, repr=False)
    bucket_ms: int = from_option("auditor.bucket.ms")
    topic: str | None = None
    connection: ConnectionOptions | None = None
    produce: ProduceOptions | None = None

    @property
    def store(self) -> Store | None:
        """The place for the counts; None without one."""
        if self.location is not None:
            from pyspark_kafkalog.extensions.audit.stores import FolderStore

            return FolderStore(self.location)
        if self.topic is None:
            return None
        from pyspark_kafkalog.extensions.audit.topic import TopicStore

        assert self.connection is not None, "auditTopic is an option of brokers"
        assert self.produce is not None, "auditTopic is an option of brokers"
        return TopicStore(self.topic, self.connection, self.produce)

    @property
    def is_set(self) -> bool:
        """See :attr:`.read.counting.ReadCounting.is_set`."""
        return True

    def check(self, read: ReadOptions) -> None:
        """See :meth:`.contracts.ExtensionOptions.check`."""
        if self.topic is not None and read.selection.covers(self.topic):
            raise _counts_itself(self.topic)

    def load(self) -> None:
        """See :meth:`.write.counting.WriteCounting.load`."""
        self._class()

    def counted_columns(self) -> Collection[str]:
        """See :meth:`.read.counting.ReadCounting.counted_columns`."""
        return self._class().columns

    def _class(self) -> type[Auditor]:
        """The auditor's.

        :raises OptionError: if it isn't an auditor, or its counts would go nowhere.
        """
        from pyspark_kafkalog.extensions.audit.task_audit import auditor_class, needs_store

        if self.location is None and self.topic is None and needs_store(self.auditor):
            raise _counts_nowhere(shown(self.auditor))
        return auditor_class(self.auditor)

    def of_split(self, split: Split, batch: QueryBatch, number: int | None = None) -> ReadAudit:
        """See :meth:`.read.counting.ReadCounting.of_split`."""
        from pyspark_kafkalog.extensions.audit.auditor import CONSUMER, AuditedTask
        from pyspark_kafkalog.extensions.audit.task_audit import ReadAudit

        start, end = split.offsets
        share = f"{split.partition}.{start}-{end}" if number is None else f"{number:05d}"
        if number is None and split.within != ALL_OFFSETS:
            share += ".{}-{}".format(*split.within)
        task = AuditedTask(CONSUMER, *batch, share)
        return ReadAudit(self, task, split.partition, awaits_commit=number is not None)

    def all_read(self, batch: QueryBatch, splits: int) -> None:
        """See :meth:`.read.counting.ReadCounting.all_read`."""
        from pyspark_kafkalog.extensions.audit.auditor import CONSUMER, AuditedTask
        from pyspark_kafkalog.extensions.audit.stores import mark_committed

        if (store := self.store) is not None:
            mark_committed(store, AuditedTask(CONSUMER, *batch, ""), splits)

    def of_task(self, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool) -> WriteAudit:
        """See :meth:`.write.counting.WriteCounting.of_task`."""
        from pyspark_kafkalog.extensions.audit.auditor import PRODUCER, AuditedTask
        from pyspark_kafkalog.extensions.audit.task_audit import WriteAudit

        task = AuditedTask(PRODUCER, *batch, f"{attempt.task:05d}")
        return WriteAudit(self, task, attempt=attempt.attempt, awaits_commit=awaits_commit)

    def counted(self, count: CountsRows | None) -> list[AuditCount] | None:
        """See :meth:`.write.counting.WriteCounting.counted`; None if the rows are visible by now."""
        from pyspark_kafkalog.extensions.audit.task_audit import WriteAudit

        assert isinstance(count, WriteAudit), "of_task has made it"
        return count.awaiting

    def committed(self, batch: QueryBatch, tasks: int, counted: Sequence[Any], *, is_new: bool) -> None:
        """See :meth:`.write.counting.WriteCounting.committed`."""
        from pyspark_kafkalog.extensions.audit.auditor import PRODUCER, AuditedTask
        from pyspark_kafkalog.extensions.audit.stores import mark_committed
        from pyspark_kafkalog.extensions.audit.task_audit import lines_of, total

        if (store := self.store) is None:
            return
        task = AuditedTask(PRODUCER, *batch, "")
        counts = total(count for of_task in counted if of_task is not None for count in of_task)
        mark = lines_of(task, counts, self.bucket_ms) if counts else tasks
        mark_committed(store, task, mark, once=not is_new)


def audit_options(user: UserOptions) -> AuditOptions | None:
    """The options for the counting of messages; None if they are not counted.

    :raises OptionError: for malformed values, two places for the counts, or none if nothing else sees them.
    """
    auditor, location = user.value("auditor.class"), user.value("auditLocation")
    topic, bucket_ms = user.value("auditTopic"), user.value("auditor.bucket.ms")
    if auditor is None and ("auditor.class" in user or (location is None and topic is None)):
        return None
    if location is not None and topic is not None:
        raise OptionError(
            "Only one of 'auditLocation' and 'auditTopic' can be given", hint="Leave one of them out."
        )
    if auditor == COUNTING and location is None and topic is None:
        raise _counts_nowhere(auditor)
    if location is not None:
        check_outside(log_directories(user), location, "auditLocation")
    audit = AuditOptions(auditor or COUNTING, location, bucket_ms)
    if topic is None:
        return audit
    if user.text("topic") == topic:
        raise _counts_itself(topic)
    connection, produce = connection_options(user), produce_options(user)
    return replace(audit, topic=topic, connection=connection, produce=produce)


def _counts_nowhere(auditor: str) -> OptionError:
    return OptionError(
        f"Option 'auditor.class' is {auditor!r}, but nothing says where the counts go",
        hint="Give auditLocation or auditTopic, or auditor.class=logging.",
    )


def _counts_itself(topic: str) -> OptionError:
    return OptionError(
        f"Topic {topic!r} can't take the counts of its own records",
        hint="Give another topic as auditTopic, or leave it out of a pattern by topics.exclude.",
    )
