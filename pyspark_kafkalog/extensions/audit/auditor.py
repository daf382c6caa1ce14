"""Auditors: they see the messages of a task where these are, and count them.

As in LinkedIn's clients (``Auditor``, ``AbstractAuditor``, ``CountingAuditStats``, ``LoggingAuditor``), a
message counts once, however many message segments it has, with the bytes of its key and value before it is
split or after it is reassembled.
"""

from __future__ import annotations

import datetime
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.audit.counting import counted
from pyspark_kafkalog.model import TopicPartition

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRODUCER, CONSUMER = "producer", "consumer"
ATTEMPT, SUCCESS, FAILURE = "ATTEMPT", "SUCCESS", "FAILURE"
DROPPED = "DROPPED-"
"""Prefix of the reason for which a reader dropped a message."""
COLUMNS = ("key", "value", "headers", "timestamp")
"""The columns of records that an auditor may ask for."""

_log = logging.getLogger("pyspark_kafkalog")


class AuditedTask(NamedTuple):
    """The task whose messages are audited: its share of a micro-batch, or of a batch job.

    ``side`` is ``producer`` or ``consumer``. ``query`` and ``batch`` are the ids of a stream and its
    micro-batch; a batch job has a random ``query``, and no ``batch``. ``share`` names the task's share within
    the batch, and stays the same when the task is run again.
    """

    side: str
    query: str
    batch: int | None
    share: str


class AuditedRecord(NamedTuple):
    """A message that an auditor sees: where it is, and what is in it.

    ``timestamp`` is in ms since the epoch. ``bytes`` are those of key and value. What the auditor did not ask
    for by :attr:`Auditor.columns` is None, or no headers.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int | None
    bytes: int


class AuditCount(NamedTuple):
    """Messages of one topic, kind and audit key in one bucket of time, and their bytes.

    ``kind`` is ``ATTEMPT``, ``SUCCESS`` or ``FAILURE``, or ``DROPPED-`` and why a reader dropped a large
    message. ``key`` is None where the auditor makes none. ``bucket_start`` is in ms since the epoch; None
    where timestamps are not known.
    """

    topic: str
    kind: str
    key: str | None
    bucket_start: int | None
    messages: int
    bytes: int


class Auditor(ABC):
    """An auditor of one task, as LinkedIn's ``Auditor``. For the option ``auditor.class``.

    Derive from :class:`CountingAuditor` to count by keys of your own, and from this class for all else. Each
    task makes one, as ``Class(task, bucket_ms)``. An error that it raises fails the task, unless the task
    has already failed, or brokers have all its rows: then it is logged.
    """

    columns: ClassVar[Collection[str]] = COLUMNS
    """The columns that it needs, some of ``key``, ``value``, ``headers`` and ``timestamp``. A read reads them
    even if the query does not. The fewer, the cheaper."""

    def __init__(self, task: AuditedTask, bucket_ms: int) -> None:
        self.task = task
        """The task, an :class:`AuditedTask`."""
        self.bucket_ms = bucket_ms
        """The width of a bucket in milliseconds."""

    @abstractmethod
    def audit(self, partition: TopicPartition, records: pa.RecordBatch) -> None:
        """See messages of one partition, before a write sends them or as a read returns them.

        :param records: the columns asked for: key and value (binary), headers (list of structs of key and
            value), timestamp (ms, UTC; sometimes there unasked); and ``bytes`` (int64), the size of key and
            value as far as they are read.
        """

    def dropped(self, topic: str, reason: str, sizes: NDArray[np.int64]) -> None:  # noqa: B027
        """See large messages that a reader drops, as some of their segments are missing.

        :param sizes: the bytes of each message that the reader had.
        """

    @abstractmethod
    def close(self, outcome: str) -> Iterable[AuditCount]:
        """Return the counts to store. Called once, at the end; not for a read that is left before its end.

        :param outcome: ``SUCCESS``, or ``FAILURE`` of a write, which may be tried again.
        """


class CountingAuditor(Auditor):
    """Counts messages and bytes by topic, audit key, kind and bucket of time.

    By itself, as ``auditor.class=counting``, it has no keys, and needs no columns. Derive a class that has
    one of :meth:`audit_key` and :meth:`audit_keys`. ::

        from pyspark_kafkalog import AuditedRecord, CountingAuditor

        class ByTenant(CountingAuditor):
            columns = ("headers",)

            def audit_key(self, record: AuditedRecord) -> str | None:
                tenant = dict(record.headers).get("tenant")
                return None if tenant is None else tenant.decode()
    """

    columns: ClassVar[Collection[str]] = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        has_keys = "audit_key" in cls.__dict__ or "audit_keys" in cls.__dict__
        if has_keys and "columns" not in cls.__dict__ and not cls.columns:
            cls.columns = COLUMNS

    def __init__(self, task: AuditedTask, bucket_ms: int) -> None:
        super().__init__(task, bucket_ms)
        self._sums: dict[tuple[str, str | None, int | None], tuple[int, int]] = {}
        self._dropped: dict[tuple[str, str], tuple[int, int]] = {}
        self._calls = type(self).audit_key is not CountingAuditor.audit_key

    def audit_key(self, record: AuditedRecord) -> str | None:
        """The category of a message, such as a tenant; None for none. Called for each message."""
        return None

    def audit_keys(self, partition: TopicPartition, records: pa.RecordBatch) -> pa.Array | None:
        """The categories of many messages: a string or null for each row; None if no message has one.

        The fast way, for a class that computes them from Arrow's columns. By default this calls
        :meth:`audit_key` for each row.

        :param records: as :meth:`Auditor.audit` gets them.
        :raises TypeError: if that returns anything else than a string or None.
        """
        if not self._calls:
            return None
        keys = [self.audit_key(record) for record in records_of(partition, records)]
        wrong = next((key for key in keys if not isinstance(key, str | None)), None)
        if wrong is not None:
            raise TypeError(f"expected audit_key to return a string or None, got {type(wrong).__name__}")
        return pa.array(keys, pa.string())

    def audit(self, partition: TopicPartition, records: pa.RecordBatch) -> None:
        """See :meth:`Auditor.audit`.

        :raises TypeError: if :meth:`audit_keys` returns anything else than a string or null for each row.
        """
        keys = self.audit_keys(partition, records)
        if keys is not None:
            keys = _checked(keys, records.num_rows)
        timestamps = None
        if "timestamp" in records.schema.names:
            timestamps = records.column("timestamp").cast(pa.int64()).to_numpy()
        sizes, sums = records.column("bytes").to_numpy(), self._sums
        for key, start, messages, size in counted(keys, sizes, timestamps, self.bucket_ms):
            where = partition.topic, key, start
            before = sums.get(where, (0, 0))
            sums[where] = before[0] + messages, before[1] + size

    def dropped(self, topic: str, reason: str, sizes: NDArray[np.int64]) -> None:
        """See :meth:`Auditor.dropped`."""
        messages, size = self._dropped.get((topic, reason), (0, 0))
        self._dropped[topic, reason] = messages + sizes.size, size + int(sizes.sum())

    def close(self, outcome: str) -> list[AuditCount]:
        """See :meth:`Auditor.close`: of a write, each count as ``ATTEMPT`` and as its outcome."""
        kinds = (ATTEMPT, outcome) if self.task.side == PRODUCER else (outcome,)
        found = [
            AuditCount(topic, kind, key, start, *sums)
            for (topic, key, start), sums in self._sums.items()
            for kind in kinds
        ]
        lost = (
            AuditCount(topic, DROPPED + reason, None, None, *sums)
            for (topic, reason), sums in self._dropped.items()
        )
        return sorted([*found, *lost], key=in_order)


class LoggingAuditor(CountingAuditor):
    """Counts, and logs each count at INFO as LinkedIn's LoggingAuditor does: ``auditor.class=logging``."""

    def close(self, outcome: str) -> list[AuditCount]:
        """See :meth:`Auditor.close`."""
        counts = super().close(outcome)
        for count in counts:
            _log.info("%s", format_count(count, self.bucket_ms))
        return counts


def _checked(keys: Any, rows: int) -> pa.Array:
    """The keys as strings, one for each row.

    :raises TypeError: if they are anything else.
    """
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if not isinstance(keys, pa.Array) or len(keys) != rows:
        got = f"{len(keys)} of them" if isinstance(keys, pa.Array) else type(keys).__name__
        raise TypeError(f"expected audit_keys to return a pyarrow.Array of {rows} keys, got {got}")
    kind = keys.type.value_type if pa.types.is_dictionary(keys.type) else keys.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise TypeError(f"expected keys to be strings, got {kind}: cast them")
    return keys


def records_of(partition: TopicPartition, records: pa.RecordBatch) -> Iterable[AuditedRecord]:
    """The rows of :meth:`Auditor.audit`, one by one."""
    nothing: list[Any] = [None] * records.num_rows
    columns = dict.fromkeys(COLUMNS, nothing)
    for name in set(columns) & set(records.schema.names):
        column = records.column(name)
        columns[name] = (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
    topic, number = partition
    sizes = records.column("bytes").to_pylist()
    for key, value, headers, timestamp, size in zip(*columns.values(), sizes, strict=True):
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        yield AuditedRecord(topic, number, key, value, pairs, timestamp, size)


def in_order(count: AuditCount) -> tuple[str, str, str, int]:
    """The key by which counts are sorted."""
    return count.topic, count.kind, count.key or "", count.bucket_start or 0


def format_count(count: AuditCount, bucket_ms: int) -> str:
    """A count as LinkedIn's LoggingAuditor logs it, in UTC; an audit key stands last."""
    start = count.bucket_start
    key = "" if count.key is None else f",{count.key}"
    counts = f"({count.messages} messages, {count.bytes} bytes)"
    if start is None:
        return f"({count.topic},{count.kind}{key}), {counts}"
    return (
        f"[{_date(start)} - {_date(start + bucket_ms)}] :"
        f" ({count.topic},{start // bucket_ms},{count.kind}{key}), {counts}"
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
