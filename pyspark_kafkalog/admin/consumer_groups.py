"""Consumer groups, their committed offsets and their lag (Kafka's ConsumerGroupCommand)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark_kafkalog.admin.partitions import existing, partitions_of
from pyspark_kafkalog.errors import GroupError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import CommittedOffset, Group, Place, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.reading.offsets import named_topics

Progress = Callable[[int], None]
"""Called with the amount of work done since the previous call."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has committed for one partition; None where the place does not say.

    ``lag`` is ``log_end_offset - offset``, as in Kafka's tools: below 0 where the log was
    truncated after the commit. Both are None where the partition no longer exists.
    Timestamps are ms.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp: int | None
    expire_timestamp: int | None
    lag: int | None
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How many offsets a group is behind, over all partitions for which it has committed.

    ``max_lag`` is that of the partition that is furthest behind. ``gone`` counts the partitions that no
    longer exist and so have no lag.
    """

    group: str
    lag: int
    max_lag: int
    partitions: int
    gone: int


def groups(place_groups: GroupOffsets, names: Collection[str] | None = None) -> list[Group]:
    """All groups, or those in ``names``, sorted.

    :raises GroupError: if a named group does not exist.
    """
    wanted = place_groups.group_ids() if names is None else tuple(names)
    found = place_groups.describe(wanted)
    if names is not None:
        _check_all_found(names, found)
    return [found[group] for group in sorted(found)]


def group_offsets(
    place: Place,
    place_groups: GroupOffsets,
    names: Collection[str] | None = None,
    selection: Selection | None = None,
    *,
    progress: Progress | None = None,
) -> list[GroupOffset]:
    """What all groups, or those in ``names``, have committed, sorted by group, topic and partition.

    :param selection: which partitions to include; by default all, internal ones too.
    :param progress: called after each group.
    :raises GroupError: if a named group has committed nothing and does not exist.
    :raises UnknownTopicOrPartitionError: if a named topic does not exist, and none of the groups has
        committed offsets for it.
    """
    committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for group in sorted(place_groups.group_ids() if names is None else set(names)):
        committed[group] = place_groups.committed(group)
        if progress is not None:
            progress(1)
    if names is not None:
        empty = [group for group, offsets in committed.items() if not offsets]
        _check_all_found(empty, place_groups.describe(empty) if empty else {})
    if selection is not None:
        committed = {group: dict(_selected(offsets, selection)) for group, offsets in committed.items()}
        _check_topics(place, selection, committed)
    ends = _log_ends(place, {partition for offsets in committed.values() for partition in offsets})
    return [
        _row(group, partition, offset, ends.get(partition))
        for group, offsets in committed.items()
        for partition, offset in sorted(offsets.items())
    ]


def lags(offsets: Iterable[GroupOffset]) -> list[GroupLag]:
    """The lag of each group in ``offsets``; a negative lag counts as 0."""
    by_group: dict[str, list[int | None]] = {}
    for row in offsets:
        by_group.setdefault(row.group, []).append(None if row.lag is None else max(row.lag, 0))
    result = []
    for group, group_lags in sorted(by_group.items()):
        known = [lag for lag in group_lags if lag is not None]
        result.append(
            GroupLag(group, sum(known), max(known, default=0), len(group_lags), len(group_lags) - len(known))
        )
    return result


def total_lag(of_groups: Iterable[GroupLag]) -> int:
    """The sum of the lags of these groups."""
    return sum(group.lag for group in of_groups)


def delete_offsets(place_groups: GroupOffsets, group: str, partitions: Collection[TopicPartition]) -> None:
    """Delete what ``group`` has committed for ``partitions``.

    :raises GroupError: if a live member is subscribed to their topics.
    """
    place_groups.delete_offsets(group, partitions)


def delete_group(place_groups: GroupOffsets, group: str) -> None:
    """Delete ``group`` and all its offsets.

    :raises GroupError: if it has live members or does not exist.
    """
    place_groups.delete_group(group)


def _check_all_found(names: Iterable[str], found: Mapping[str, Group]) -> None:
    missing = sorted(group for group in names if group not in found or found[group].state == "Dead")
    if missing:
        raise GroupError(f"No such consumer group: {', '.join(map(repr, missing))}")


def _check_topics(
    place: Place, selection: Selection, committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> None:
    found = {partition.topic for offsets in committed.values() for partition in offsets}
    if missing := [topic for topic in named_topics(selection) or () if topic not in found]:
        partitions_of(place, Selection(topics=tuple(missing)))


def _selected(
    offsets: Mapping[TopicPartition, CommittedOffset], selection: Selection
) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    """Partitions need not exist: offsets committed for deleted ones are shown, too."""
    for partition, offset in offsets.items():
        if selection.pattern is not None:
            wanted = re.search(selection.pattern, partition.topic, re.ASCII) is not None
        elif selection.topics is not None:
            wanted = partition.topic in selection.topics
        else:
            wanted = selection.partitions is None or partition in selection.partitions
        if wanted:
            yield partition, offset


def _log_ends(place: Place, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    found = existing(place, partitions)
    bounds = place.watermarks(found, read_committed=False) if found else {}
    return {partition: watermarks.high_watermark for partition, watermarks in bounds.items()}


def _row(group: str, partition: TopicPartition, committed: CommittedOffset, end: int | None) -> GroupOffset:
    return GroupOffset(
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        offset=committed.offset,
        leader_epoch=_known(committed.leader_epoch),
        metadata=committed.metadata,
        commit_timestamp=_known(committed.commit_timestamp),
        expire_timestamp=_known(committed.expire_timestamp),
        lag=None if end is None else end - committed.offset,
        log_end_offset=end,
    )


def _known(value: int) -> int | None:
    return value if value >= 0 else None
