"""Resets of a group's offsets, planned for review and then executed (Kafka's OffsetsUtils).

As with Kafka's tool, a group with live members is not changed, an offset beyond
the log becomes the nearest that exists, and a timestamp after the last record
becomes the end. For readers that reassemble large messages, a plan is then changed so that
they miss no message where they continue.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from pyspark_kafkalog.client.partitions import bounds_of, check_exist, existing
from pyspark_kafkalog.errors import GroupError, OptionError
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition, Watermarks
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.model.rows import BIGINT, INT, STRING, column
from pyspark_kafkalog.read.commits import check_inactive
from pyspark_kafkalog.read.times import offsets_at
from pyspark_kafkalog.tools.groups.safe_offsets import safe_offsets

_DEFAULT_ASSEMBLER = AssemblerSettings()


class ResetTo(enum.Enum):
    """The target of a reset; the last three take a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    """The committed offset, or the end where nothing is committed."""
    TIMESTAMP = "timestamp"
    """The first record with this timestamp (ms) or a later one."""
    SHIFT = "shift"
    """The committed offset plus this number, which may be negative."""
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ResetStep:
    """The new ``offset`` of one partition; ``current`` is the committed one, or None.

    ``note`` says why it differs from the offset that was requested.
    """

    group: str = field(metadata=column(STRING, "GROUP"))
    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    current: int | None = field(metadata=column(BIGINT, "CURRENT"))
    offset: int = field(metadata=column(BIGINT, "NEW"))
    note: str = field(default="", metadata=column(STRING, "NOTE"))
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class _Goal:
    offset: int
    note: str = ""


def plan_reset(
    place: Place,
    groups: GroupOffsets,
    group: str,
    partitions: Collection[TopicPartition] | None,
    to: ResetTo,
    value: int = 0,
) -> list[ResetStep]:
    """The changes that a reset of ``group`` would make to each partition; nothing is changed.

    See :meth:`.kafka.GroupAdmin.plan_reset`.
    """
    try:
        to = ResetTo(to)
    except ValueError:
        names = ", ".join(each.value for each in ResetTo)
        raise OptionError(f"Expected one of {names} to reset to, got {to!r}") from None
    check_inactive(groups, group)
    if partitions is not None:
        check_exist(place, partitions)  # brokers would be asked again and again
    committed = groups.committed(group, partitions)
    if partitions is None:
        partitions = existing(place, committed)
    bounds = bounds_of(place, partitions)
    at_time = offsets_at(place, bounds, value) if to is ResetTo.TIMESTAMP else {}
    steps = []
    for partition, watermarks in sorted(bounds.items()):
        now = committed.get(partition)
        if to is ResetTo.EARLIEST:
            goal = _Goal(watermarks.log_start_offset)
        elif to is ResetTo.LATEST:
            goal = _Goal(watermarks.high_watermark)
        elif to is ResetTo.CURRENT:
            goal = (
                _Goal(watermarks.high_watermark, "nothing is committed") if now is None else _Goal(now.offset)
            )
        elif to is ResetTo.TIMESTAMP:
            is_end = at_time[partition] == watermarks.high_watermark
            goal = _Goal(at_time[partition], "no record at or after this time" if is_end else "")
        elif to is ResetTo.OFFSET:
            goal = _clamped(value, watermarks)
        elif now is None:
            raise GroupError(
                f"Group {group!r} has no committed offset to shift from",
                topic_partition=partition,
                hint="Name the others, as TOPIC:0,1, or first set this one to the earliest or latest.",
            )
        else:
            goal = _clamped(now.offset + value, watermarks)
        steps.append(_step(group, partition, now, goal))
    return steps


def plan_import(
    place: Place, groups: GroupOffsets, wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> list[ResetStep]:
    """The changes that committing these offsets would make; see :func:`plan_reset`. Metadata is kept.

    See :meth:`.kafka.GroupAdmin.plan_import`.
    """
    steps = []
    for group, offsets in sorted(wanted.items()):
        check_inactive(groups, group)
        committed = groups.committed(group, offsets)
        bounds = bounds_of(place, offsets)
        epochs = {partition: offsets[partition].leader_epoch for partition in bounds}
        ends = place.epoch_ends({partition: epoch for partition, epoch in epochs.items() if epoch >= 0})
        for partition, watermarks in sorted(bounds.items()):
            imported = offsets[partition]
            goal = _clamped(imported.offset, watermarks)
            known, end = ends.get(partition, (-1, -1))
            is_its_own = not goal.note and known == imported.leader_epoch and end >= imported.offset
            epoch = imported.leader_epoch if is_its_own else -1
            steps.append(_step(group, partition, committed.get(partition), goal, epoch, imported.metadata))
    return steps


def for_whole_messages(
    place: Place, steps: Collection[ResetStep], settings: AssemblerSettings = _DEFAULT_ASSEMBLER
) -> list[ResetStep]:
    """The steps of :func:`plan_reset` with safe offsets, and the first wanted message in the metadata.

    After such a reset LinkedIn's consumer, or a query with ``large.message.enabled``, continues with the
    first message whose offset is at least that of the step. A seek back within the messages that the
    consumer tracks does the same (LiKafkaConsumerImpl.seek).

    :raises KafkaLogError: if records before an offset can't be read.
    """
    from pyspark_kafkalog.extensions.large_messages.format import commit_metadata

    ends = {TopicPartition(step.topic, step.partition): step.offset for step in steps}
    safe = safe_offsets(place, ends, settings)
    return [
        replace(
            step,
            offset=safe[TopicPartition(step.topic, step.partition)],
            metadata=commit_metadata(step.offset),
            note=step.note or _note(step.offset, safe[TopicPartition(step.topic, step.partition)]),
            leader_epoch=-1,
        )
        for step in steps
    ]


def execute(groups: GroupOffsets, steps: Collection[ResetStep]) -> None:
    """Commit the planned offsets, one group after the other.

    See :meth:`.kafka.GroupAdmin.reset`.
    """
    by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for step in steps:
        offset = CommittedOffset(step.offset, step.leader_epoch, step.metadata)
        by_group.setdefault(step.group, {})[TopicPartition(step.topic, step.partition)] = offset
    for group, offsets in by_group.items():
        groups.commit(group, offsets)


def _clamped(offset: int, bounds: Watermarks) -> _Goal:
    if offset < bounds.log_start_offset:
        return _Goal(bounds.log_start_offset, f"the log starts after {offset}")
    if offset > bounds.high_watermark:
        return _Goal(bounds.high_watermark, f"the log ends before {offset}")
    return _Goal(offset)


def _step(
    group: str,
    partition: TopicPartition,
    now: CommittedOffset | None,
    goal: _Goal,
    leader_epoch: int = -1,
    metadata: str = "",
) -> ResetStep:
    return ResetStep(
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        current=None if now is None else now.offset,
        offset=goal.offset,
        note=goal.note,
        leader_epoch=leader_epoch,
        metadata=metadata,
    )


def _note(wanted: int, safe: int) -> str:
    return "" if wanted == safe else f"for messages from offset {wanted} on"
