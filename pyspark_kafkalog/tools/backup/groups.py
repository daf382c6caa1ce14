"""The offsets of consumer groups: a backup saves them, and a restore commits them where the records went.

By value, as a group's partition of ``__consumer_offsets`` depends on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError, listed
from pyspark_kafkalog.extensions.exactly_once.group_marker import marked_query
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.model.rows import BIGINT, INT, STRING, column
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from pyspark_kafkalog.tools.backup.plan import BackedUpPartition, BackupPlan
from pyspark_kafkalog.tools.groups.consumer_groups import no_such_group

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition, RestoredOffsets

_SHOWN = 5
"""The number of groups that a note names."""


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
            raise no_such_group(groups, [group], *also())


class SavedGroups:
    """The consumer groups in a backup. Their problems never end a backup of records.

    :param groups: those of the source, and ``saved`` those of the directory.
    :param names: only these; None for all.
    """

    def __init__(self, groups: GroupOffsets, saved: GroupOffsets, names: Collection[str] | None) -> None:
        self._groups, self._saved, self._names = groups, saved, names
        self._commits: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._problems: dict[str, str] = {}
        """The problems by group; those of all groups have the name ``""``."""
        self._gone: list[str] = []

    def check_names(self) -> None:
        """:raises GroupError: if a named group exists neither in the source nor in the directory."""
        check_groups_exist(self._groups, self._names or (), also=self._saved.group_ids)

    def read(self) -> None:
        """Read what groups have committed: before the ends of logs, so that none is ahead of the backup."""
        self._commits, self._problems, self._gone = {}, {}, []
        problems: list[KafkaLogError] = []
        try:
            names = self._names
            if names is None:
                names, problems = self._groups.try_group_ids()
            answers = self._groups.committed_by(names)
            known = set(self._saved.group_ids())
        except KafkaLogError as e:
            self._problems[""] = f"The offsets of groups could not be read: {e}"
            return
        if problems:
            self._problems[""] = ". ".join(map(str, problems))
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
        """The problems of groups, and those that the source no longer shows, as rows of no partition."""
        rows = [
            BackedUpPartition(OFFSETS_TOPIC, -1, problem=self._problems[group])
            for group in sorted(self._problems)
        ]
        if self._gone:
            why = "was deleted, has expired, or is hidden by ACLs"
            if "" in self._problems:
                why = f"is one of those that are not listed now, {why}"
            rows.append(
                BackedUpPartition(
                    OFFSETS_TOPIC,
                    -1,
                    note=f"The source shows no offsets of {listed(self._gone, _SHOWN)} any more: such a group"
                    f" {why}. Its saved offsets stay, and a restore would bring it back",
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


def delete_earlier(saved: GroupOffsets, planned: BackupPlan, here: Collection[TopicPartition]) -> None:
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
    target: GroupOffsets,
    names: Collection[str] | None,
    partitions: Sequence[PlannedPartition],
    offsets: Mapping[TopicPartition, RestoredOffsets],
    *,
    execute: bool = True,
    missing: Collection[str] = (),
) -> list[RestoredOffset]:
    """Commit the offsets of groups for restored partitions, and return them.

    What a group has committed in the target stays: its consumers may have gone on by now. The markers of
    exactly-once queries are left out: their offsets are batch numbers, and prove only what their own cluster
    has.

    :param names: of the groups; None for all.
    :param execute: False to commit nothing.
    :param missing: topics that the target does not have, for which no group can have committed.
    :raises KafkaLogError: of the first group that can't be read, after the others are committed.
    """
    planned = {partition.source: partition for partition in partitions}
    rows: list[RestoredOffset] = []
    problems: list[KafkaLogError] = []
    if names is None:
        names, problems = source.try_group_ids()
    failure = next(iter(problems), None)
    for group, answer in sorted(source.committed_by(names).items()):
        if isinstance(answer, KafkaLogError):
            failure = failure or answer
            continue
        if marked_query(group, answer.values()) is not None:
            continue
        committed = {partition: offset for partition, offset in answer.items() if partition in planned}
        there = [to for p in committed if (to := planned[p].destination).topic not in missing]
        found = target.committed(group, there) if there else {}
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
        if execute and wanted:
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
