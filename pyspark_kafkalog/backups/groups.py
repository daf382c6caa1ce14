"""Saves what consumer groups have committed: by value, as a group's partition depends on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pyspark_kafkalog.backups.plan import BackedUpPartition, Plan
from pyspark_kafkalog.codec.offsets_topic import OFFSETS_TOPIC
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition

Commits = dict[str, dict[TopicPartition, CommittedOffset]]


def read_commits(groups: GroupOffsets, names: Collection[str] | None) -> Commits:
    """The offsets that these groups, or all, have committed."""
    wanted = groups.group_ids() if names is None else names
    return {group: found for group in wanted if (found := groups.committed(group))}


def offsets_partitions(place: Place) -> tuple[int, KafkaLogError | None]:
    """The partitions of a place's ``__consumer_offsets``; 0 if it is not there, or with an error if unknown.

    :raises BrokerConnectionError: if no broker answers.
    """
    try:
        return len(place.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC, ())), None
    except BrokerConnectionError:  # nor can records be copied
        raise
    except KafkaLogError as e:
        return 0, e


def save_commits(saved: GroupOffsets, commits: Commits, rows: Iterable[BackedUpPartition]) -> None:
    """Save those that have changed, and delete those beyond the end of a partition's backup, of any group.

    Offsets beyond the end are left out, which the next run saves. Those of partitions with a problem, or
    without a source, stay as they are: the new ones may belong to other records than those saved.

    :raises KafkaLogError: the first one of a group, when the others are saved.
    """
    ends = {
        TopicPartition(row.topic, row.partition): row.log_end_offset
        for row in rows
        if row.problem is None and row.high_watermark is not None
    }
    failure = None
    for group in sorted({*saved.group_ids(), *commits}):
        try:
            _save(saved, group, commits.get(group, {}), ends)
        except KafkaLogError as e:
            failure = failure or e
    if failure is not None:
        raise failure


def _save(
    saved: GroupOffsets,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> None:
    known = saved.committed(group)
    _delete_beyond(saved, group, known, ends)
    new = {
        partition: replace(offset, commit_timestamp=-1)
        for partition, offset in offsets.items()
        if partition in ends
        and offset.offset <= ends[partition]
        and (partition not in known or _differ(known[partition], offset))
    }
    if new:
        saved.commit(group, new)


def delete_commits(saved: GroupOffsets, ends: Mapping[TopicPartition, int]) -> None:
    """Delete what any group has saved beyond these ends, before the partitions get other records there."""
    for group in saved.group_ids() if ends else ():
        _delete_beyond(saved, group, saved.committed(group, ends), ends)


def delete_earlier(saved: GroupOffsets, planned: Plan, here: Collection[TopicPartition]) -> None:
    """Delete what groups have saved in planned partitions that are not ``here``: it is of earlier copies.

    Partitions where that fails are planned no more.
    """
    new = planned.bounds.keys() - here
    try:
        delete_commits(saved, dict.fromkeys(new, -1))
    except KafkaLogError as e:
        for partition in new:
            del planned.bounds[partition]
            planned.failures[partition] = e


def _delete_beyond(
    saved: GroupOffsets,
    group: str,
    known: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> None:
    beyond = [
        partition for partition in known.keys() & ends.keys() if known[partition].offset > ends[partition]
    ]
    if beyond:
        saved.delete_offsets(group, beyond)


def _differ(saved: CommittedOffset, offset: CommittedOffset) -> bool:
    is_older = offset.leader_epoch >= 0 and saved.leader_epoch != offset.leader_epoch
    return (saved.offset, saved.metadata) != (offset.offset, offset.metadata) or is_older
