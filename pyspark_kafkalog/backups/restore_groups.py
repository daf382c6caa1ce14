"""Translates the offsets of consumer groups by where their records went, and commits them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_kafkalog.backups.restore_state import OffsetMap, PlannedPartition
from pyspark_kafkalog.codec.marker import marked_query
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.rows import BIGINT, INT, STRING, column


@dataclass(frozen=True, slots=True)
class RestoredOffset:
    """An offset that a group had committed, and the one that it has, or would get, in the target.

    ``note`` says that the target had an offset before, that it refused the new one (then ``refused`` is
    true), or that the old one is beyond the end of what is restored.
    """

    group: str = field(metadata=column(STRING, "GROUP"))
    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    offset: int = field(metadata=column(BIGINT, "OFFSET"))
    target_topic: str = field(metadata=column(STRING, "TARGET", wide=True))
    target_offset: int = field(metadata=column(BIGINT, "NEW"))
    note: str = field(default="", metadata=column(STRING, "NOTE"))
    refused: bool = False


def restore_groups(
    source: GroupOffsets,
    target: GroupOffsets | None,
    names: Collection[str] | None,
    partitions: Sequence[PlannedPartition],
    offsets: Mapping[TopicPartition, OffsetMap],
) -> list[RestoredOffset]:
    """Commit the offsets of groups for restored partitions, and return them.

    What a group has committed in the target stays: its consumers may have gone on by now. The markers of
    exactly-once queries are left out: their offsets are batch numbers, and prove only what their own cluster
    has.

    :param target: None to commit nothing.
    :param names: of the groups; None for all.
    :raises KafkaLogError: of the first group that can't be read, after the others are committed.
    """
    planned = {partition.source: partition for partition in partitions}
    rows: list[RestoredOffset] = []
    failure: KafkaLogError | None = None
    for group, answer in sorted(source.committed_by(source.group_ids() if names is None else names).items()):
        if isinstance(answer, KafkaLogError):
            failure = failure or answer
            continue
        if marked_query(group, answer.values()) is not None:
            continue
        committed = {partition: offset for partition, offset in answer.items() if partition in planned}
        found = target.committed(group, [planned[p].destination for p in committed]) if target else {}
        wanted: dict[TopicPartition, CommittedOffset] = {}
        own = []
        for partition, old in sorted(committed.items()):
            destination = planned[partition].destination
            new = offsets[partition].target_of(old.offset)
            end, note = planned[partition].end, ""
            if old.offset > end:
                note = f"beyond the end of what is restored, {end}: becomes {new}"
            if destination in found:
                new, note = found[destination].offset, "committed before"
            else:
                wanted[destination] = CommittedOffset(new, metadata=old.metadata)
            own.append(RestoredOffset(group, *partition, old.offset, destination.topic, new, note))
        if target is not None and wanted:
            try:
                target.commit(group, wanted)
            except BrokerConnectionError:
                raise
            except KafkaLogError as e:
                why = f"not committed: {e.message}"
                own = [
                    replace(row, note=why, refused=True)
                    if TopicPartition(row.target_topic, row.partition) in wanted
                    else row
                    for row in own
                ]
        rows += own
    if failure is not None:
        raise failure
    return rows
