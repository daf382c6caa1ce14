"""Saves what consumer groups have committed: by value, as a group's partition depends on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pyspark_kafkalog.backups.plan import BackedUpPartition
from pyspark_kafkalog.codec.offsets_topic import OFFSETS_TOPIC
from pyspark_kafkalog.model import CommittedOffset, GroupOffsets, Place, TopicPartition

Commits = dict[str, dict[TopicPartition, CommittedOffset]]


def read_commits(groups: GroupOffsets, names: Collection[str] | None) -> Commits:
    """The offsets that these groups, or all, have committed."""
    wanted = groups.group_ids() if names is None else names
    return {group: found for group in wanted if (found := groups.committed(group))}


def offsets_partitions(place: Place) -> int:
    """The partitions of a place's ``__consumer_offsets``; 0 if it is not there."""
    return len(place.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC, ()))


def save_commits(saved: GroupOffsets, commits: Commits, rows: Iterable[BackedUpPartition]) -> int:
    """Save those that have changed; returns of how many groups.

    Offsets beyond the end of a partition's backup are left out, which the next run saves. So are those of
    partitions with a problem, or without a source: they may belong to other records than those saved.
    """
    ends = {
        TopicPartition(row.topic, row.partition): row.log_end_offset
        for row in rows
        if row.problem is None and row.high_watermark is not None
    }
    changed = 0
    for group, offsets in commits.items():
        known = saved.committed(group)
        new = {
            partition: replace(offset, commit_timestamp=-1)
            for partition, offset in offsets.items()
            if partition in ends
            and offset.offset <= ends[partition]
            and (partition not in known or _differ(known[partition], offset))
        }
        if new:
            saved.commit(group, new)
            changed += 1
    return changed


def _differ(saved: CommittedOffset, offset: CommittedOffset) -> bool:
    is_older = offset.leader_epoch >= 0 and saved.leader_epoch != offset.leader_epoch
    return (saved.offset, saved.metadata) != (offset.offset, offset.metadata) or is_older
