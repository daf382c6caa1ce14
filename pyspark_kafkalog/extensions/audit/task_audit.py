"""The audit of one task: feeds its auditor, and stores what that returns."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import KafkaLogError, OptionError, listed
from pyspark_kafkalog.extensions.audit.auditor import (
    COLUMNS,
    FAILURE,
    SUCCESS,
    AuditCount,
    AuditedTask,
    Auditor,
    CountingAuditor,
    LoggingAuditor,
    in_order,
)
from pyspark_kafkalog.extensions.audit.counting import message_sizes
from pyspark_kafkalog.extensions.audit.stores import Name, batch_name
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.values import COUNTING, LOGGING
from pyspark_kafkalog.plugins import check_takes, imported, raised, shown

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.audit.options import AuditOptions
    from pyspark_kafkalog.extensions.large_messages.assembler import Dropped

_METHODS = ("audit_key", "audit_keys", "audit", "dropped", "close")
_BUILT_IN = {COUNTING: CountingAuditor, LOGGING: LoggingAuditor}
_TIMESTAMP = pa.timestamp("ms", tz="UTC")

_log = logging.getLogger("pyspark_kafkalog")


@lru_cache(8)
def auditor_class(name: str) -> type[Auditor]:
    """The class of an auditor: ``counting``, ``logging``, or one of the user's at ``module:name``.

    :raises OptionError: if it can't be imported, isn't an auditor, has no method that is called, or asks for
        columns that there are not.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    what = f"The auditor {shown(name)!r}"
    found = imported(what, name, form="package.module:Class")
    if not (isinstance(found, type) and issubclass(found, Auditor)):
        raise OptionError(
            f"{what} is not an auditor",
            hint="Derive a class from pyspark_kafkalog.CountingAuditor or Auditor, and name the class.",
        )
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise OptionError(f"{what} lacks {listed(missing, 5)}", hint="Add it to the class.")
    check_takes(what, found, "task", "bucket_ms")
    unknown = [column for column in found.columns if column not in COLUMNS]
    if isinstance(found.columns, str) or unknown:
        raise OptionError(
            f"{what} asks for the columns {found.columns!r}",
            hint=f"Set columns to a tuple of some of {', '.join(COLUMNS)}.",
        )
    if issubclass(found, CountingAuditor) and not _overridden(found, _METHODS):
        raise OptionError(f"{what} has no method that is called", hint="Write audit_key or audit_keys.")
    return found


def needs_store(name: str) -> bool:
    """Whether an auditor only counts, so that its counts are lost if they are not stored.

    :raises OptionError: as :func:`auditor_class`.
    """
    found = auditor_class(name)
    return issubclass(found, CountingAuditor) and not _overridden(found, ("audit", "dropped", "close"))


def _overridden(found: type[Auditor], methods: Iterable[str]) -> bool:
    """Whether a class has one of these methods of CountingAuditor from elsewhere."""
    return any(getattr(found, method) is not getattr(CountingAuditor, method) for method in methods)


class TaskAudit:
    """Feeds the auditor of one task, and stores what it returns."""

    def __init__(self, options: AuditOptions, task: AuditedTask) -> None:
        self._options = options
        self._task = task
        self._what = f"The auditor {shown(options.auditor)!r}"
        kind = auditor_class(options.auditor)
        self._columns = [name for name in kind.columns if name != "timestamp"]
        self._store = options.store
        if self._store is not None:
            self._store.check(batch_name(task))
        with self._errors():
            self._auditor = kind(task, options.bucket_ms)

    def seen(
        self,
        partition: TopicPartition,
        records: pa.RecordBatch,
        sizes: np.ndarray,
        timestamps: np.ndarray | None,
        rows: np.ndarray | None = None,
    ) -> None:
        """Show messages to the auditor: these ``rows`` of ``records``, or all.

        :param sizes: the bytes of all messages, and ``timestamps`` their times in ms, if these are known.
        """
        if rows is not None:
            sizes, timestamps = sizes[rows], None if timestamps is None else timestamps[rows]
        if not sizes.size:
            return
        chosen = records.select([name for name in self._columns if name in records.schema.names])
        if rows is not None and chosen.num_columns:
            chosen = chosen.take(pa.array(rows))
        arrays, names = list(chosen.columns), list(chosen.schema.names)
        if timestamps is not None:
            arrays.append(pa.array(timestamps).cast(_TIMESTAMP))
            names.append("timestamp")
        arrays.append(pa.array(sizes))
        with self._errors(partition):
            self._auditor.audit(partition, pa.RecordBatch.from_arrays(arrays, names=[*names, "bytes"]))

    def dropped(self, topic: str, reason: str, sizes: np.ndarray) -> None:
        """Show dropped messages to the auditor, of which these bytes were there."""
        with self._errors():
            self._auditor.dropped(topic, reason, sizes)

    def report(
        self, outcome: str, *, share: str | None = None, awaits_commit: bool = False
    ) -> list[AuditCount]:
        """Close the auditor, store its counts, and return them.

        :param share: replaces the share of the task.
        :param awaits_commit: successes count only once the batch is marked as committed.
        :raises KafkaLogError: if the auditor raises anything, or the counts can't be stored.
        """
        with self._errors():
            counts = list(self._auditor.close(outcome))
        wrong = next((count for count in counts if not isinstance(count, AuditCount)), None)
        if wrong is not None:
            raise KafkaLogError(f"{self._what} returned {type(wrong).__name__}, expected AuditCount")
        if self._store is not None:
            data = lines_of(self._task, counts, self._options.bucket_ms, awaits_commit=awaits_commit)
            self._store.put(Name(batch_name(self._task), share or self._task.share), data)
        return counts

    @contextmanager
    def _errors(self, partition: TopicPartition | None = None) -> Iterator[None]:
        """Turn what the user's code raises into an error that names it."""
        try:
            yield
        except KafkaLogError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            raise KafkaLogError(f"{self._what} {raised(e)}", topic_partition=partition) from e


class WriteAudit:
    """A context manager that audits what one task writes: attempts, and at the end their outcome.

    A task that fails stores an entry for each attempt. It counts, whatever becomes of the next attempt. Once
    rows are visible, an audit that fails is only logged.
    """

    def __init__(
        self, options: AuditOptions, task: AuditedTask, *, attempt: int, awaits_commit: bool
    ) -> None:
        self._audit = TaskAudit(options, task)
        self._failed_share = f"{task.share}.failed-{attempt}"
        self._awaits_commit = awaits_commit
        self.awaiting: list[AuditCount] | None = None
        """The counts of a task that has ended well, and whose rows await the commit."""
        self._of: pa.RecordBatch | None = None
        self._sizes = self._timestamps = np.zeros(0, np.int64)

    def attempted(self, partition: TopicPartition, records: pa.RecordBatch, rows: np.ndarray | None) -> None:
        """Show these rows of ``records`` (columns key, value, headers, timestamp: int64), or all of them."""
        if records is not self._of:  # the rows of all partitions come one after another
            self._of, self._sizes = records, message_sizes(records)
            self._timestamps = records.column("timestamp").to_numpy()
        self._audit.seen(partition, records, self._sizes, self._timestamps, rows)

    def __enter__(self) -> WriteAudit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end_well()
            return
        try:
            self._audit.report(FAILURE, share=self._failed_share)
        except Exception:
            _log.warning("The audit of a task that failed is lost", exc_info=True)  # must not hide the cause

    def _end_well(self) -> None:
        if self._awaits_commit:
            counts = self._audit.report(SUCCESS, awaits_commit=True)
            self.awaiting = [AuditCount(*count) for count in counts]  # a class of the user's may not unpickle
            return
        try:
            self._audit.report(SUCCESS)
        except Exception:  # an error would make Spark write all rows again, which are visible
            _log.warning("The rows of a task are written, but their audit is lost", exc_info=True)


class ReadAudit:
    """Audits what one task reads of one partition: the rows it delivers, and the large messages it drops.

    Bytes are counted if the columns key and value are read, buckets of time if timestamp is.

    :param awaits_commit: whether it counts only once the batch is marked as read.
    """

    def __init__(
        self,
        options: AuditOptions,
        task: AuditedTask,
        partition: TopicPartition,
        *,
        awaits_commit: bool = False,
    ) -> None:
        self._audit = TaskAudit(options, task)
        self._partition = partition
        self._awaits_commit = awaits_commit

    def passing(self, arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, counted as they pass; the counts are stored after the last row.

        Rows of dropped messages (column ``dropped``) do not count.
        """
        for rows in arrow_batches:
            self.delivered(rows)
            yield rows
        self.report()

    def delivered(self, rows: pa.RecordBatch) -> None:
        """Count messages; see :meth:`passing`."""
        if "dropped" in rows.schema.names:
            rows = rows.filter(rows.column("dropped").is_null())
        self._audit.seen(self._partition, rows, message_sizes(rows), _milliseconds(rows))

    def dropped(self, messages: Sequence[Dropped]) -> None:
        """Count dropped messages, with the bytes of the slices that were held."""
        for reason, group in groupby(messages, key=lambda message: message.reason.value):
            sizes = [sum(len(segment.slice or b"") for segment in message.segments) for message in group]
            self._audit.dropped(self._partition.topic, reason, np.array(sizes, np.int64))

    def dropped_for(self, reason: str, messages: int) -> None:
        """Count this many dropped messages of unknown size."""
        self._audit.dropped(self._partition.topic, reason, np.zeros(messages, np.int64))

    def report(self) -> None:
        """See :meth:`TaskAudit.report`."""
        self._audit.report(SUCCESS, awaits_commit=self._awaits_commit)


def _milliseconds(rows: pa.RecordBatch) -> np.ndarray | None:
    if "timestamp" not in rows.schema.names:
        return None
    column = rows.column("timestamp").cast(_TIMESTAMP, safe=False).cast(pa.int64())
    found: np.ndarray = (column.fill_null(-1) if column.null_count else column).to_numpy()
    return found


def total(counts: Iterable[AuditCount]) -> list[AuditCount]:
    """The sums of the counts of several tasks."""
    sums: defaultdict[AuditCount, list[int]] = defaultdict(lambda: [0, 0])
    for count in counts:
        found = sums[count._replace(messages=0, bytes=0)]
        found[0] += count.messages
        found[1] += count.bytes
    summed = (count._replace(messages=messages, bytes=size) for count, (messages, size) in sums.items())
    return sorted(summed, key=in_order)


def lines_of(
    task: AuditedTask, counts: Iterable[AuditCount], bucket_ms: int, *, awaits_commit: bool = False
) -> bytes:
    """The counts as an entry has them.

    :param awaits_commit: successes count only once the batch is marked as committed.
    """
    rows = [_row(task, count, bucket_ms) for count in counts]
    for row in rows:
        row["awaitsCommit"] = awaits_commit and row["kind"] == SUCCESS
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _row(task: AuditedTask, count: AuditCount, bucket_ms: int) -> dict[str, Any]:
    start = count.bucket_start
    return {
        "side": task.side,
        "topic": count.topic,
        "kind": count.kind,
        "auditKey": count.key,
        "bucketStart": start,
        "bucketEnd": None if start is None else start + bucket_ms,
        "messages": count.messages,
        "bytes": count.bytes,
        "query": task.query,
        "batch": task.batch,
    }
