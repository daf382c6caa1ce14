"""Saves what consumer groups have committed: by value, as a group's partition depends on the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from pyspark_kafkalog.backups.plan import BackedUpPartition, Plan
from pyspark_kafkalog.codec.offsets_topic import OFFSETS_TOPIC
from pyspark_kafkalog.errors import BrokerConnectionError, GroupError, KafkaLogError, listed
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition

_SHOWN = 5
"""How many groups a note names."""


def offsets_partitions(place: Place) -> int:
    """The partitions of a place's ``__consumer_offsets``; 0 if there are none, or it does not say.

    :raises BrokerConnectionError: if no broker answers.
    """
    try:
        return len(place.topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC, ()))
    except BrokerConnectionError:  # nor can records be copied
        raise
    except KafkaLogError:
        return 0


def check_groups_exist(
    groups: GroupOffsets, names: Collection[str], also: Callable[[], Collection[str]] = tuple
) -> None:
    """Check the groups that a user has named. One that can't be looked up is believed: reading it will tell.

    :param also: gives names that count, too.
    :raises GroupError: if one does not exist.
    """
    for group in names:
        try:
            is_known = group in groups.describe([group]) or groups.committed(group)
        except KafkaLogError:
            continue
        if not is_known and group not in also():
            raise GroupError(
                f"No such group: {group!r}", hint="See kafkalog lag for those that have committed offsets."
            )


class SavedGroups:
    """What a backup saves of consumer groups. What is wrong with them never ends a backup of records.

    :param groups: those of the source, and ``saved`` those of the directory.
    :param names: only these; None for all.
    """

    def __init__(self, groups: GroupOffsets, saved: GroupOffsets, names: Collection[str] | None) -> None:
        self._groups, self._saved, self._names = groups, saved, names
        self._commits: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._problems: dict[str, str] = {}
        """By group; those of all groups have the name ``""``."""
        self._gone: list[str] = []

    def check_names(self) -> None:
        """:raises GroupError: if a named group exists neither in the source nor in the directory."""
        check_groups_exist(self._groups, self._names or (), also=self._saved.group_ids)

    def read(self) -> None:
        """Read what groups have committed: before the ends of logs, so that none is ahead of the backup."""
        self._commits, self._problems, self._gone = {}, {}, []
        try:
            names = self._groups.group_ids() if self._names is None else self._names
            answers = self._groups.committed_by(names)
            known = set(self._saved.group_ids())
        except KafkaLogError as e:
            self._problems[""] = f"The offsets of groups could not be read: {e}"
            return
        for group, answer in answers.items():
            if isinstance(answer, KafkaLogError):
                self._problems[group] = f"The offsets of group {group!r} could not be read: {answer}"
            elif answer:
                self._commits[group] = answer
        shown = self._commits.keys() | self._problems.keys()
        wanted = known if self._names is None else known & set(self._names)
        self._gone = sorted(wanted - shown)

    def save(self, rows: Iterable[BackedUpPartition]) -> None:
        """Save those that have changed, and delete any beyond the end of a partition's backup.

        Offsets beyond the end are left out, which the next run saves. Those of partitions with a problem, or
        without a source, stay as they are: the new ones may belong to other records than those saved.
        """
        ends = {
            TopicPartition(row.topic, row.partition): row.log_end_offset
            for row in rows
            if row.problem is None and row.high_watermark is not None
        }
        try:
            groups = {*self._saved.group_ids(), *self._commits}
        except KafkaLogError as e:
            self._problems[""] = f"The offsets of groups could not be saved: {e}"
            return
        for group in sorted(groups):
            try:
                _save(self._saved, group, self._commits.get(group, {}), ends)
            except KafkaLogError as e:
                self._problems[group] = f"The offsets of group {group!r} could not be saved: {e}"

    def rows(self) -> list[BackedUpPartition]:
        """What is wrong with groups, and which the source no longer shows, as rows of no partition."""
        rows = [
            BackedUpPartition(OFFSETS_TOPIC, -1, problem=self._problems[group])
            for group in sorted(self._problems)
        ]
        if self._gone:
            rows.append(
                BackedUpPartition(
                    OFFSETS_TOPIC,
                    -1,
                    note=f"The source shows no offsets of {listed(self._gone, _SHOWN)} any more: such a group"
                    " was deleted, has expired, or is hidden by ACLs. Its saved offsets stay, and a restore"
                    " would bring it back",
                )
            )
        return rows


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
        saved.commit(group, new, as_they_are=True)


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
