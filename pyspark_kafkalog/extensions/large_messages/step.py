"""Turns the packed rows of one partition, and its open messages, into packed rows of whole messages.

In a stream :func:`assemble_with_state` takes the new rows of a partition and what Spark's state store has
of it, once in a micro-batch. In a batch :func:`assemble_sorted` goes over all rows of a task.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_kafkalog.extensions.large_messages.assembler import Dropped, check_none_dropped
from pyspark_kafkalog.extensions.large_messages.output import SEGMENT_COUNT, STARTING_OFFSET
from pyspark_kafkalog.extensions.large_messages.reassembler import Reassembler
from pyspark_kafkalog.extensions.large_messages.row_blobs import (
    Blob,
    ddl,
    decoded,
    encoded,
    in_offset_order,
    pieces,
)
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.garbage import freeze_modules
from pyspark_kafkalog.model import DROPPED_FIELD, TopicPartition
from pyspark_kafkalog.spark.worker import short_errors

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

    from pyspark_kafkalog.extensions.audit.step_audit import StepAudit

_log = logging.getLogger("pyspark_kafkalog")

STEP_OUTPUT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.binary()),
        ("reason", pa.string()),
        ("dropped", pa.int64()),
    ]
)
"""The columns after the step: a blob of rows, or a reason and count of dropped messages."""
STEP_OUTPUT = ddl(STEP_OUTPUT_SCHEMA)
StepRow = tuple[str, int, bytes | None, str | None, int]
"""A row after the step; absent values are null or 0."""

STATE = "open binary"
"""The column of Spark's state: what :meth:`PartitionAssembly.state` gives."""

EXTRA_COLUMNS = ((STARTING_OFFSET.name, "bigint"), (SEGMENT_COUNT.name, "int"))
"""The columns that ``extra_columns`` adds, with Spark's types."""

_BATCH_BYTES = 32 * 2**20
"""About this many bytes of blobs go to Spark at a time."""


@dataclass(frozen=True, slots=True)
class ReassemblyPlan:
    """The options that the user gave; ``schema`` is that of the resulting rows."""

    settings: AssemblerSettings
    schema: pa.Schema
    extra_columns: bool = False
    dead_letters: bool = False


class PartitionAssembly:
    """The large messages of one partition, continued from the state that an earlier one left."""

    def __init__(self, partition: TopicPartition, plan: ReassemblyPlan, state: bytes | None = None) -> None:
        self._partition = partition
        self._plan = plan
        self._reassembler = Reassembler(
            partition, plan.settings, evict=True, state=state, extra_columns=plan.extra_columns
        )
        self._drops: Counter[str] = Counter()

    def feed(self, blobs: Iterable[Blob], now_ms: int = -1) -> Iterator[StepRow]:
        """The whole messages in ``blobs``, which are sorted by first offset.

        :raises LargeMessageDroppedError: if a message is dropped, but not for its age, and the settings ask
            for an error.
        """
        for rows, blob in in_offset_order(blobs, self._partition):
            found = self._reassembler.find(rows)
            for done in self._reassembler.feed_in_parts(rows, found, now_ms=now_ms, max_bytes=_BATCH_BYTES):
                if done.rows is rows and blob is not None:
                    yield self._blob_row(blob)
                elif done.rows.num_rows:
                    yield from self._encoded(done.rows)
                yield from self._dropped(done.dropped)

    def expire(self, now_ms: int) -> Iterator[StepRow]:
        """Drop messages that have been open for too long."""
        yield from self._dropped(self._reassembler.expire(now_ms))

    def counts(self) -> Iterator[StepRow]:
        """The number of messages that were dropped so far, by reason."""
        for reason, count in sorted(self._drops.items()):
            yield *self._partition, None, reason, count
        if self._drops:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self._drops.items()))
            _log.warning("Dropped large messages of %s: %s", self._partition, reasons)

    def state(self) -> bytes | None:
        """The open messages, from which another one continues; None if there are none."""
        return self._reassembler.state()

    def next_expiry_ms(self) -> int | None:
        """The time at which :meth:`expire` will have something to drop; None if never."""
        return self._reassembler.next_expiry_ms()

    def _dropped(self, dropped: Sequence[Dropped]) -> Iterator[StepRow]:
        check_none_dropped(dropped, self._plan.settings)
        self._drops.update(drop.reason.value for drop in dropped)
        if dropped and self._plan.dead_letters:
            yield from self._encoded(_dead_letters(dropped, self._plan.schema))

    def _encoded(self, rows: pa.RecordBatch) -> Iterator[StepRow]:
        for piece in pieces(rows):
            yield self._blob_row(encoded(piece).rows)

    def _blob_row(self, blob: bytes) -> StepRow:
        return *self._partition, blob, None, 0


@short_errors
def assemble_sorted(batches: Iterable[pa.RecordBatch], plan: ReassemblyPlan) -> Iterator[pa.RecordBatch]:
    """Run the step over all packed rows of a task, sorted by partition and first offset."""
    yield from in_batches(_assemble_sorted(batches, plan))
    freeze_modules()


@short_errors
def assemble_with_state(
    plan: ReassemblyPlan, key: tuple[Any, Any], frames: Iterator[Any], state: GroupState
) -> Iterator[Any]:
    """Run the step over the new packed rows of a partition, or let its messages expire.

    For ``applyInPandasWithState``: its data frames have few rows, as each holds a blob of many.
    """
    topic, number = key
    partition = TopicPartition(str(topic), int(number))
    now_ms = -1 if plan.settings.expiration_ms is None else state.getCurrentProcessingTimeMs()
    before = bytes(state.get[0]) if state.exists else None
    assembly = PartitionAssembly(partition, plan, before)
    done = assembly.expire(now_ms) if state.hasTimedOut else assembly.feed(_sorted(frames), now_ms)
    for batch in in_batches(chain(done, assembly.counts())):
        yield batch.to_pandas()
    after = assembly.state()
    if after is not None:
        state.update((after,))
        expiry_ms = assembly.next_expiry_ms()
        if expiry_ms is not None:
            state.setTimeoutDuration(max(expiry_ms - now_ms, 1))
    elif before is not None:
        state.remove()
    freeze_modules()


def in_batches(rows: Iterable[StepRow]) -> Iterator[pa.RecordBatch]:
    """Rows after the step as arrow batches, each of a bounded size."""
    buffered: list[StepRow] = []
    size = 0
    for row in rows:
        buffered.append(row)
        size += len(row[2] or b"")
        if size >= _BATCH_BYTES:
            yield _to_arrow_batch(buffered)
            buffered, size = [], 0
    if buffered:
        yield _to_arrow_batch(buffered)


def unpack(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, audit: StepAudit | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows in the blobs of ``batches``, with the columns of ``schema``.

    :param audit: counts them, and dropped messages.
    """
    for batch in batches:
        for topic, number, blob, reason, count in zip(*batch.columns, strict=True):
            partition = TopicPartition(topic.as_py(), number.as_py())
            if blob.is_valid:
                rows = _completed(decoded(blob.as_buffer()), partition, schema)
                if audit is not None:
                    audit.delivered(partition, rows)
                yield rows
            elif audit is not None:
                audit.dropped(partition, reason.as_py(), count.as_py())
    if audit is not None:
        audit.report()
    freeze_modules()


def _assemble_sorted(batches: Iterable[pa.RecordBatch], plan: ReassemblyPlan) -> Iterator[StepRow]:
    for partition, blobs in groupby(_blobs(batches), key=lambda found: found[0]):
        assembly = PartitionAssembly(partition, plan)
        yield from assembly.feed(blob for _, blob in blobs)
        yield from assembly.counts()


def _blobs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, Blob]]:
    for batch in batches:
        for topic, number, first, last, rows in zip(*batch.columns, strict=True):
            partition = TopicPartition(topic.as_py(), number.as_py())
            yield partition, Blob(first.as_py(), last.as_py(), rows.as_py())


def _sorted(frames: Iterable[Any]) -> list[Blob]:
    """The blobs of a partition; they arrive in the order of the tasks that packed them."""
    columns = ("firstOffset", "lastOffset", "rows")
    return sorted(
        (Blob(*row) for frame in frames for row in zip(*(frame[name] for name in columns), strict=True)),
        key=lambda blob: blob.first_offset,
    )


def _to_arrow_batch(rows: Sequence[StepRow]) -> pa.RecordBatch:
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), STEP_OUTPUT_SCHEMA, strict=True)
    ]
    return pa.record_batch(columns, schema=STEP_OUTPUT_SCHEMA)


def _dead_letters(dropped: Sequence[Dropped], schema: pa.Schema) -> pa.RecordBatch:
    """A row for each dropped message, with the columns that are known."""
    letters = [drop.letter({}) for drop in dropped]
    return pa.record_batch(
        {
            "offset": pa.array([drop.offset for drop in dropped], pa.int64()),
            STARTING_OFFSET.name: pa.array([drop.starting_offset for drop in dropped], STARTING_OFFSET.type),
            SEGMENT_COUNT.name: pa.array([drop.segment_count for drop in dropped], SEGMENT_COUNT.type),
            DROPPED_FIELD[0]: pa.array(letters, schema.field(DROPPED_FIELD[0]).type),
        }
    )


def _completed(rows: pa.RecordBatch, partition: TopicPartition, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` with all columns of ``schema``: those missing in blobs are derived, or null."""
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            column = rows.column(field.name)
        elif field.name == "topic":
            column = pa.repeat(partition.topic, rows.num_rows)
        elif field.name == "partition":
            column = pa.repeat(pa.scalar(partition.partition, field.type), rows.num_rows)
        elif field.name == STARTING_OFFSET.name:
            column = rows.column("offset")
        elif field.name == SEGMENT_COUNT.name:
            column = pa.repeat(pa.scalar(1, field.type), rows.num_rows)
        else:
            column = pa.nulls(rows.num_rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=schema)
