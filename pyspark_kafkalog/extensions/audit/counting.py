"""Audits: messages and bytes that each task wrote or read, by topic, kind and bucket of time.

The counts are those of LinkedIn's clients (``AbstractAuditor``,
``CountingAuditStats``): a message counts once, however many message segments it
has, with the bytes of its key and value before it is split or after it is reassembled.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import binary_column
from pyspark_kafkalog.extensions.audit.files import mark_committed, put_audit, read_audits
from pyspark_kafkalog.extensions.audit.options import AuditOptions
from pyspark_kafkalog.options.values import COUNTING
from pyspark_kafkalog.plugins import imported, shown

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.large_messages.assembler import Dropped

PRODUCER, CONSUMER = "producer", "consumer"
ATTEMPT, SUCCESS, FAILURE = "ATTEMPT", "SUCCESS", "FAILURE"
DROPPED = "DROPPED-"
"""Prefix of the reason for which a reader dropped a message."""

_MAX_EMPTY_BUCKETS = 1000
"""The most empty buckets that are counted, too, which is cheaper than sorting the messages."""

_log = logging.getLogger("pyspark_kafkalog")


class AuditedTask(NamedTuple):
    """The task whose messages are counted: its share of a micro-batch, or of a batch job.

    ``side`` is ``producer`` or ``consumer``. ``query`` and ``batch`` are the ids of a stream and its
    micro-batch; a batch job has a random ``query``, and None. ``share`` names the task's share within the
    batch, and stays the same when the task is run again.
    """

    side: str
    query: str
    batch: int | None
    share: str


class AuditCount(NamedTuple):
    """Messages of one topic and kind in one bucket of time, and the bytes of their keys and values.

    ``kind`` is ``ATTEMPT``, ``SUCCESS`` or ``FAILURE``, or ``DROPPED-`` and why a reader dropped a large
    message. ``bucket_start`` is in ms since the epoch; None where timestamps are not known.
    """

    topic: str
    kind: str
    bucket_start: int | None
    messages: int
    bytes: int


class Auditor(Protocol):
    """Counts the messages of one task, as LinkedIn's ``Auditor`` does. For the option ``auditor.class``.

    Write a class with these methods. Each task calls it as ``Class(task, bucket_ms)``, with an
    :class:`AuditedTask` and the width of a bucket in milliseconds. An error that it raises fails the
    task, unless the task has already failed. ::

        from collections import Counter

        from pyspark_kafkalog import AuditCount, AuditedTask

        class Totals:
            def __init__(self, task: AuditedTask, bucket_ms: int) -> None:
                self._messages, self._bytes = Counter(), Counter()

            def record(self, count: AuditCount) -> None:
                self._messages[count.topic, count.kind] += count.messages
                self._bytes[count.topic, count.kind] += count.bytes

            def close(self) -> list[AuditCount]:
                return [
                    AuditCount(topic, kind, None, messages, self._bytes[topic, kind])
                    for (topic, kind), messages in self._messages.items()
                ]
    """

    def record(self, count: AuditCount) -> None:
        """Add messages of an arrow batch; when a write ends, also the outcome of its attempts."""

    def close(self) -> Iterable[AuditCount]:
        """Return the counts to report of the task. Called once, when the task ends."""


class CountingAuditor:
    """Sums the counts."""

    def __init__(self, task: AuditedTask, bucket_ms: int) -> None:
        self._sums: dict[tuple[str, str, int | None], tuple[int, int]] = {}

    def record(self, count: AuditCount) -> None:
        """See :meth:`Auditor.record`."""
        messages, size = self._sums.get(count[:3], (0, 0))
        self._sums[count[:3]] = (messages + count.messages, size + count.bytes)

    def close(self) -> list[AuditCount]:
        """See :meth:`Auditor.close`."""
        return [AuditCount(*key, *sums) for key, sums in self._sums.items()]


def load_auditor(name: str, task: AuditedTask, bucket_ms: int) -> Auditor:
    """The auditor of a task: ``counting``, or a class of the user's at ``module:name``.

    :raises OptionError: if it can't be imported or is not callable.
    """
    if name == COUNTING:
        return CountingAuditor(task, bucket_ms)
    auditor: Auditor = imported(f"The auditor {shown(name)!r}", name, form="package.module:Class")(
        task, bucket_ms
    )
    return auditor


class TaskAudit:
    """Feeds the auditor of one task, and stores what it reports."""

    def __init__(self, options: AuditOptions, task: AuditedTask) -> None:
        self._options = options
        self._task = task
        self._auditor = load_auditor(options.auditor, task, options.bucket_ms)
        self._attempts = CountingAuditor(task, options.bucket_ms)

    def count(self, topic: str, kind: str, sizes: np.ndarray, timestamps: np.ndarray | None) -> None:
        """Count messages, given their sizes in bytes and, if known, their timestamps in ms."""
        for found in counted(topic, kind, sizes, timestamps, self._options.bucket_ms):
            self._auditor.record(found)
            if kind == ATTEMPT:
                self._attempts.record(found)

    def count_attempts_as(self, kind: str) -> None:
        """Count all attempts again under ``kind``, their outcome."""
        for count in self._attempts.close():
            self._auditor.record(count._replace(kind=kind))

    def report(self, *, share: str | None = None, awaits_commit: bool = False) -> None:
        """Log the counts, and write them to the location in the options.

        :param share: replaces the share of the task.
        :param awaits_commit: successes count only once the batch is marked as committed.
        :raises LogDirectoryError: if the file can't be written.
        """
        counts = sorted(self._auditor.close(), key=_order)
        for count in counts:
            _log.info("%s", format_count(count, self._options.bucket_ms))
        if self._options.location is None:
            return
        rows = [_row(self._task, count, self._options.bucket_ms) for count in counts]
        for row in rows:
            row["awaitsCommit"] = awaits_commit and row["kind"] == SUCCESS
        data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        put_audit(self._options.location, folders(self._task), share or self._task.share, data)


class WriteAudit:
    """A context manager that counts what one task writes: attempts, and at the end their outcome.

    A task that fails leaves a file for each attempt. It counts, whatever becomes of the next attempt.
    """

    def __init__(
        self, options: AuditOptions, task: AuditedTask, *, attempt: int, awaits_commit: bool
    ) -> None:
        self._audit = TaskAudit(options, task)
        self._failed_share = f"{task.share}.failed-{attempt}"
        self._awaits_commit = awaits_commit

    def attempted(self, topic: str, records: pa.RecordBatch, rows: np.ndarray | None) -> None:
        """Count these rows of ``records`` (columns key, value, timestamp: int64), or all of them."""
        sizes, timestamps = message_sizes(records), records.column("timestamp").to_numpy()
        if rows is not None:
            sizes, timestamps = sizes[rows], timestamps[rows]
        self._audit.count(topic, ATTEMPT, sizes, timestamps)

    def __enter__(self) -> WriteAudit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._audit.count_attempts_as(SUCCESS)
            self._audit.report(awaits_commit=self._awaits_commit)
            return
        try:
            self._audit.count_attempts_as(FAILURE)
            self._audit.report(share=self._failed_share)
        except Exception:
            _log.warning("The audit of a task that failed is lost", exc_info=True)  # must not hide the cause


class ReadAudit:
    """Counts what one task reads of one topic: the rows it delivers, and the large messages it drops.

    Bytes are counted if the columns key and value are read, buckets of time if timestamp is.
    """

    def __init__(self, options: AuditOptions, task: AuditedTask, topic: str) -> None:
        self._audit = TaskAudit(options, task)
        self._topic = topic

    def passing(self, arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, counted as they pass; the counts are reported after the last row.

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
        self._audit.count(self._topic, SUCCESS, message_sizes(rows), _milliseconds(rows))

    def dropped(self, messages: Sequence[Dropped]) -> None:
        """Count dropped messages, with the bytes of the slices that were held."""
        for reason, group in groupby(messages, key=lambda message: message.reason.value):
            sizes = [sum(len(segment.slice or b"") for segment in message.segments) for message in group]
            self._audit.count(self._topic, DROPPED + reason, np.array(sizes, np.int64), None)

    def dropped_for(self, reason: str, messages: int) -> None:
        """Count this many dropped messages of unknown size."""
        self._audit.count(self._topic, DROPPED + reason, np.zeros(messages, np.int64), None)

    def report(self) -> None:
        """See :meth:`TaskAudit.report`."""
        self._audit.report()


def committed(options: AuditOptions, task: AuditedTask, shares: int) -> None:
    """Mark the batch of ``task`` as visible: all that its tasks wrote, in this many shares, has succeeded.

    :raises LogDirectoryError: if the file can't be written.
    """
    if options.location is not None:
        mark_committed(options.location, folders(task), shares)


def folders(task: AuditedTask) -> tuple[str, ...]:
    """The folders, below the location, of a batch's files."""
    return task.side, task.query, "batch" if task.batch is None else str(task.batch)


def counted(
    topic: str, kind: str, sizes: np.ndarray, timestamps: np.ndarray | None, bucket_ms: int
) -> Iterator[AuditCount]:
    """The counts by bucket: the timestamp divided by ``bucket_ms``, rounded towards zero as in Java."""
    if not sizes.size:
        return
    if timestamps is None:
        yield AuditCount(topic, kind, None, sizes.size, int(sizes.sum()))
        return
    first, last = _bucket(np.array([timestamps.min(), timestamps.max()]), bucket_ms).tolist()
    if first == last:
        yield AuditCount(topic, kind, first * bucket_ms, sizes.size, int(sizes.sum()))
        return
    buckets = _bucket(timestamps, bucket_ms)
    if last - first > _MAX_EMPTY_BUCKETS + sizes.size:
        found, places = np.unique(buckets, return_inverse=True)
    else:
        found, places = np.arange(first, last + 1), buckets - first
    messages = np.bincount(places)
    totals = np.bincount(places, weights=sizes)  # exact: an arrow batch has less than 2**53 bytes
    for place in np.flatnonzero(messages).tolist():
        start, count, total = int(found[place]) * bucket_ms, int(messages[place]), int(totals[place])
        yield AuditCount(topic, kind, start, count, total)


def _bucket(timestamps: np.ndarray, bucket_ms: int) -> np.ndarray:
    """Divides, rounding towards zero."""
    if timestamps.min() >= 0:
        return timestamps // bucket_ms
    return np.where(timestamps < 0, -(-timestamps // bucket_ms), timestamps // bucket_ms)


def message_sizes(rows: pa.RecordBatch) -> np.ndarray:
    """The bytes of key and value in each row, as far as the columns exist; null counts 0."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for name in "key", "value":
        if name not in rows.schema.names:
            continue
        column = rows.column(name)
        if column.null_count == 0:
            sizes += np.diff(binary_column(column)[0])
        elif column.null_count < rows.num_rows:
            sizes += pc.binary_length(column).fill_null(0).to_numpy()
    return sizes


def _milliseconds(rows: pa.RecordBatch) -> np.ndarray | None:
    if "timestamp" not in rows.schema.names:
        return None
    micros: np.ndarray = rows.column("timestamp").cast(pa.int64()).fill_null(-1000).to_numpy()
    return micros // 1000


def format_count(count: AuditCount, bucket_ms: int) -> str:
    """A count as LinkedIn's LoggingAuditor logs it, in UTC."""
    start = count.bucket_start
    if start is None:
        return f"({count.topic},{count.kind}), ({count.messages} messages, {count.bytes} bytes)"
    return (
        f"[{_date(start)} - {_date(start + bucket_ms)}] : ({count.topic},{start // bucket_ms},{count.kind}),"
        f" ({count.messages} messages, {count.bytes} bytes)"
    )


def _date(milliseconds: int) -> str:
    """The time as Java's Date prints it, whatever the locale."""
    try:
        date = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[date.weekday()]
    month = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()[date.month - 1]  # noqa: SIM905
    return f"{day} {month} {date:%d %H:%M:%S} UTC {date.year}"


def _row(task: AuditedTask, count: AuditCount, bucket_ms: int) -> dict[str, Any]:
    start = count.bucket_start
    return {
        "side": task.side,
        "topic": count.topic,
        "kind": count.kind,
        "bucketStart": start,
        "bucketEnd": None if start is None else start + bucket_ms,
        "messages": count.messages,
        "bytes": count.bytes,
        "query": task.query,
        "batch": task.batch,
    }


def batch_report(location: str, side: str, query: str, batch: int) -> Iterator[str]:
    """The counts of one side of a micro-batch, summed over its tasks, as :func:`format_count` writes them."""
    task = AuditedTask(side, query, batch, "")
    widths: dict[AuditCount, int] = {}
    auditor = CountingAuditor(task, 0)
    for row in audit_rows(location, folders(task)):
        start = row["bucketStart"]
        count = AuditCount(row["topic"], row["kind"], start, row["messages"], row["bytes"])
        auditor.record(count)
        widths[count._replace(messages=0, bytes=0)] = 1 if start is None else row["bucketEnd"] - start
    for count in sorted(auditor.close(), key=_order):
        yield f"{side} {format_count(count, widths[count._replace(messages=0, bytes=0)])}"


def _order(count: AuditCount) -> tuple[str, str, int]:
    return count.topic, count.kind, count.bucket_start or 0


def audit_rows(location: str, within: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The counts at a location, one per task, bucket and kind; times in ms.

    :param within: only those in these folders.
    """
    for data, is_committed in read_audits(location, within):
        for line in data.splitlines():
            row = json.loads(line)
            if is_committed or not row.pop("awaitsCommit", False):
                row.pop("awaitsCommit", None)
                yield row
