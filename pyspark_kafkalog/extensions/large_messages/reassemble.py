"""Reassembles message segments into whole messages, in a stateful step between a source and the query.

Rows are packed into blobs before Spark shuffles them by partition, and unpacked
after the step, so that Python handles many rows as one:
:mod:`pyspark_kafkalog.extensions.large_messages.row_blobs` says why.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.large_messages.options import assembler_settings
from pyspark_kafkalog.model import DROPPED_FIELD, HEADERS_FIELD, ROW_FIELDS
from pyspark_kafkalog.options.arguments import check_rows
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.spark.features import arrow_schema, nullable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pyspark_kafkalog.extensions.audit.step_audit import StepAudit
    from pyspark_kafkalog.extensions.large_messages.step import ReassemblyPlan

DROPS_METRIC = "kafkalog_dropped_"
"""Prefix of the names of observed metrics that count dropped messages."""

_REQUIRED = ("topic", "partition", "offset", "value")


def reassemble(
    df: DataFrame,
    options: Mapping[str, object] | None = None,
    *,
    extra_columns: bool = False,
) -> DataFrame:
    """The rows of ``df`` with whole messages in place of message segments, in LinkedIn's wire format.

    A message takes the row of the record that completed it. In a stream incomplete messages
    wait in Spark's state store, of any kind; a batch gives the same rows. ``df`` must hold all records of
    a partition, each once, in any order within a micro-batch.

    :param df: records of ``format("kafkalog")`` or Spark's ``kafka``, a stream or not: columns
        ``topic``, ``partition``, ``offset`` and ``value``; other columns are kept. Without
        ``headers`` (``includeHeaders``) only message segments with the prefix in their value are found.
    :param options: settings of LinkedIn's consumer by name, such as ``message.assembler.buffer.capacity``;
        ``message.assembler.expiration.ms``; ``large.message.dead.letters``, which keeps dropped
        messages as rows with a non-null column ``dropped``; ``segment.deserializer.class``;
        ``auditLocation`` and related options, to count messages here instead of message segments in the
        source.
    :param extra_columns: add ``startingOffset``, where the message began, and ``segmentCount``.
    :raises OptionError: for invalid columns or options.
    """
    from pyspark_kafkalog.extensions.large_messages.available_now import end_with_data
    from pyspark_kafkalog.extensions.large_messages.row_blobs import PACKED, pack
    from pyspark_kafkalog.extensions.large_messages.step import (
        STATE,
        STEP_OUTPUT,
        assemble_sorted,
        assemble_with_state,
        unpack,
    )

    check_rows(df, "reassemble(rows)")
    _check_columns(df.schema)
    plan, schema = _plan(df.schema, options or {}, extra_columns)
    packed = df.mapInArrow(pack, PACKED)
    metric = f"{DROPS_METRIC}{uuid.uuid4().hex[:8]}"
    if df.isStreaming:
        timeout = GroupStateTimeout.NoTimeout
        if plan.settings.expiration_ms is not None:
            timeout = GroupStateTimeout.ProcessingTimeTimeout
            end_with_data(df.sparkSession, metric)
        step_output = packed.groupBy("topic", "partition").applyInPandasWithState(
            partial(assemble_with_state, plan), STEP_OUTPUT, STATE, "append", timeout
        )
    else:
        in_order = packed.repartition("topic", "partition").sortWithinPartitions(
            "topic", "partition", "firstOffset"
        )
        in_time = replace(plan, settings=replace(plan.settings, expiration_ms=None))
        step_output = in_order.mapInArrow(partial(assemble_sorted, plan=in_time), STEP_OUTPUT)
    counted = step_output.observe(metric, *_counts())
    audit = _audit(options or {}, schema.names, streaming=df.isStreaming)
    return counted.mapInArrow(partial(unpack, schema=plan.schema, audit=audit), schema)


def _plan(
    columns: StructType, options: Mapping[str, object], extra_columns: bool
) -> tuple[ReassemblyPlan, StructType]:
    """The plan of the step, and the schema of its rows for Spark."""
    from pyspark_kafkalog.extensions.large_messages.step import EXTRA_COLUMNS, ReassemblyPlan

    user = UserOptions(options, Use.REASSEMBLE)
    user.check_names()
    settings, dead_letters = assembler_settings(user), user.value("large.message.dead.letters")
    if settings.deserializer is not None:
        from pyspark_kafkalog.extensions.large_messages.serializers import SegmentDeserializer

        SegmentDeserializer(settings.deserializer)  # so that one that can't be imported is refused here
    added = [*(EXTRA_COLUMNS if extra_columns else ()), *([DROPPED_FIELD] if dead_letters else ())]
    for name, _ in added:
        if name in columns.names:
            raise OptionError(
                f"Column {name!r} exists already, but reassemble adds it", hint="Rename it first."
            )
    more = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in added)) if added else StructType()
    assert isinstance(more, StructType)
    schema = StructType([*nullable(columns).fields, *more.fields])
    return ReassemblyPlan(settings, arrow_schema(schema), extra_columns, dead_letters), schema


def _audit(options: Mapping[str, object], columns: Sequence[str], *, streaming: bool) -> StepAudit | None:
    """Counts the messages, if the options ask for it."""
    from pyspark_kafkalog.extensions.audit.options import audit_options

    audit = audit_options(UserOptions(options, Use.REASSEMBLE))
    if audit is None:
        return None
    from pyspark_kafkalog.extensions.audit.step_audit import StepAudit

    return StepAudit(audit, columns, streaming=streaming)


def _check_columns(columns: StructType) -> None:
    twice = [name for name, count in Counter(columns.names).items() if count > 1]
    if twice:
        raise OptionError(f"Column {twice[0]!r} exists twice", hint="Rename one of them.")
    kinds = {field.name: field.dataType.simpleString() for field in columns}
    for name in _REQUIRED:
        if name not in kinds:
            raise OptionError(
                f"Column {name!r}, which reassemble needs, is missing",
                hint="Pass the rows as the source reads them, with topic, partition, offset and value.",
            )
    headers, kind = HEADERS_FIELD
    for name, wanted in {**{name: ROW_FIELDS[name] for name in _REQUIRED}, headers: kind}.items():
        if kinds.get(name, wanted) != wanted:
            raise OptionError(f"Column {name!r} has type {kinds[name]}, expected {wanted}")


def _counts() -> list[Column]:
    """The number of dropped messages by reason, over the rows after the step."""
    from pyspark_kafkalog.extensions.large_messages.assembler import DropReason

    why, count = functions.col("reason"), functions.col("dropped")
    counts = {
        reason.value: functions.sum(functions.when(why == reason.value, count)) for reason in DropReason
    }
    return [functions.coalesce(count, functions.lit(0)).alias(name) for name, count in counts.items()]
