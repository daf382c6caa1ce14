"""Consumer groups, their committed offsets and their lag (Kafka's ConsumerGroupCommand)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from pyspark_kafkalog import extensions
from pyspark_kafkalog.client.partitions import if_known, of_some, partitions_of
from pyspark_kafkalog.errors import GroupError, KafkaLogError, why
from pyspark_kafkalog.extensions.exactly_once.group_marker import marked_query, may_have_marker
from pyspark_kafkalog.model import CommittedOffset, Group, Place, TopicPartition, Watermarks
from pyspark_kafkalog.model.groups import OWN_PREFIX, GroupOffsets
from pyspark_kafkalog.model.rows import BIGINT, INT, NOTE, STRING, TIMESTAMP, column
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.user_options import names_like

OK, EXPIRED, BEYOND, GONE, MARKER, UNKNOWN = "ok expired beyond gone marker unknown".split()  # noqa: SIM905
"""The states of a commit: within its log; below the log's start; above its end; of a partition that does not
exist; no progress, but an exactly-once query's marker; of a log that does not tell where it ends.
"""
NONE, FAILED = "none", "failed"
"""The states of a group's offset: nothing is committed; not readable."""
UNLISTED = ""
"""Stands for the groups that a place does not list, in a row whose note says why."""
_ALARMING = (FAILED, NONE, UNKNOWN, BEYOND)
_SHARE = "share"
RESET = "kafkalog offsets reset"


_OF_QUERY = "of query "
_NOTE = NOTE._replace(
    text=lambda note: MARKER if note.startswith(_OF_QUERY) else note or None, wide_text=NOTE.text
)
"""A note; only a wide table has room for the id of a marker's query."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The committed offset of a group for one partition; None where the place does not say.

    ``lag`` counts what can still be read; offsets that were deleted before they were read are ``expired``.
    Above the end of the log (``state`` is ``beyond``) the lag is below 0, as in Kafka's tools. Lag and end
    are None where the partition no longer exists, for the marker of an exactly-once query, and where the log
    does not tell where it ends, such as without a leader (``unknown``). A named group that has committed
    nothing, and a group that can't be read, have a row without topic, whose ``note`` says why. Groups that
    the place can't list have one, too, whose ``group`` is empty. Timestamps are ms.
    """

    group: str = field(metadata=column(STRING, "GROUP"))
    topic: str | None = field(metadata=column(STRING, "TOPIC"))
    partition: int | None = field(metadata=column(INT, "PARTITION"))
    offset: int | None = field(metadata=column(BIGINT, "OFFSET"))
    leader_epoch: int | None = field(default=None, metadata=column(INT, "EPOCH", wide=True, rank=2))
    metadata: str = field(default="", metadata=column(STRING, "METADATA", wide=True, rank=3))
    commit_timestamp: int | None = field(
        default=None, metadata=column(TIMESTAMP, "COMMITTED", wide=True, rank=2)
    )
    expire_timestamp: int | None = field(
        default=None, metadata=column(TIMESTAMP, "EXPIRES", wide=True, rank=2)
    )
    lag: int | None = field(default=None, metadata=column(BIGINT, "LAG", rank=1))
    log_end_offset: int | None = field(default=None, metadata=column(BIGINT, "END"))
    expired: int | None = field(default=None, metadata=column(BIGINT))
    state: str = field(default=OK, metadata=column(STRING))
    note: str = field(default="", metadata=column(_NOTE, "NOTE", if_any=True, rank=1))


class HasLag(Protocol):
    """A row about the lag of a group."""

    @property
    def lag(self) -> int | None:
        """Its lag in offsets."""

    @property
    def state(self) -> str:
        """Its state, of which some are alarming."""


_Lagging = TypeVar("_Lagging", bound=HasLag)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group, over all partitions for which it has committed.

    ``max_lag`` is that of the partition that is furthest behind; both are None if no partition has a lag.
    ``gone`` counts the partitions that no longer exist, ``beyond`` those whose log ends before the commit,
    and ``expired`` the offsets that were deleted before the group read them. ``state`` is the worst of its
    rows' states, and ``note`` says what to do.
    """

    group: str = field(metadata=column(STRING, "GROUP"))
    lag: int | None = field(metadata=column(BIGINT, "LAG"))
    max_lag: int | None = field(metadata=column(BIGINT, "MAX LAG"))
    partitions: int = field(metadata=column(INT, "PARTITIONS"))
    gone: int = field(metadata=column(INT, "GONE"))
    beyond: int = field(default=0, metadata=column(INT))
    expired: int = field(default=0, metadata=column(BIGINT, "EXPIRED", if_any=True))
    state: str = field(default=OK, metadata=column(STRING))
    note: str = field(default="", metadata=column(_NOTE, "NOTE", if_any=True))

    def is_alarming(self, max_lag: int, *, named: bool) -> bool:
        """Whether the lag is above ``max_lag`` or can't be trusted; of a ``named`` group it must be known."""
        if self.state in _ALARMING or (named and self.lag is None):
            return True
        return self.lag is not None and self.lag > max_lag


def groups(place_groups: GroupOffsets, names: Collection[str] | None = None) -> list[Group]:
    """The groups, or those in ``names``, sorted.

    See :meth:`.kafka.GroupAdmin.describe`.
    """
    wanted, problems = place_groups.try_group_ids() if names is None else (tuple(names), [])
    answers = place_groups.describe(wanted)
    if names is not None:
        _check_all_found(place_groups, names, answers)
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, KafkaLogError)}
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, KafkaLogError)}
    for error in failed.values() if not (found or problems) else ():
        raise error
    suspects = [name for name, group in found.items() if may_have_marker(name) and not group.protocol_type]
    for name, commits in (place_groups.committed_by(suspects) if suspects else {}).items():
        query = None if isinstance(commits, KafkaLogError) else marked_query(name, commits.values())
        if query is not None:
            found[name] = replace(found[name], protocol_type=MARKER, protocol=query)
    found |= {name: Group(name, "", members=None, note=str(error)) for name, error in failed.items()}
    unlisted = [Group(UNLISTED, "", members=None, note=str(problem)) for problem in problems]
    return unlisted + [found[group] for group in sorted(found)]


def group_offsets(
    place: Place | None,
    place_groups: GroupOffsets,
    names: Collection[str] | None = None,
    selection: Selection | None = None,
    *,
    read_committed: bool = False,
) -> list[GroupOffset]:
    """The committed offsets of all groups, or those in ``names``, sorted by group, topic and partition.

    See :meth:`.kafka.GroupAdmin.offsets`.

    :param place: None if nothing tells where the logs end.
    """
    wanted, problems = place_groups.try_group_ids() if names is None else (tuple(names), [])
    answers = place_groups.committed_by(wanted)
    failed = {group: answer for group, answer in answers.items() if isinstance(answer, KafkaLogError)}
    committed = {group: answer for group, answer in answers.items() if not isinstance(answer, KafkaLogError)}
    for error in failed.values() if not (committed or problems) else ():
        raise error
    empty = {group for group, offsets in committed.items() if not offsets} if names is not None else set()
    known: Mapping[str, Group | KafkaLogError] = place_groups.describe(empty) if empty else {}
    _check_all_found(place_groups, empty, known)
    queries = {group: marked_query(group, offsets.values()) for group, offsets in committed.items()}
    if selection is not None:
        committed = {group: dict(_selected(offsets, selection)) for group, offsets in committed.items()}
        if place is not None:
            _check_topics(place, selection, committed)
    found = {partition for offsets in committed.values() for partition in offsets}
    bounds: Mapping[TopicPartition, Watermarks] = {}
    unknown: Mapping[TopicPartition, KafkaLogError] = {}
    if place is not None and found:
        bounds, unknown = place.try_watermarks(found, read_committed=read_committed)
    rows = [GroupOffset(UNLISTED, None, None, None, state=FAILED, note=str(problem)) for problem in problems]
    for group in sorted(answers):
        if group in failed:
            rows.append(GroupOffset(group, None, None, None, state=FAILED, note=str(failed[group])))
            continue
        for partition, offset in sorted(committed[group].items()):
            if (query := queries[group]) is not None:
                row = replace(_commit(group, partition, offset), state=MARKER, note=f"{_OF_QUERY}{query}")
            elif place is None:
                note = "no broker tells where the log ends"
                row = replace(_commit(group, partition, offset), state=UNKNOWN, note=note)
            elif partition in unknown:
                row = replace(_commit(group, partition, offset), state=UNKNOWN, note=why(unknown[partition]))
            else:
                row = offset_row(
                    group, partition, offset, bounds.get(partition), read_committed=read_committed
                )
            rows.append(row)
        if names is not None and not committed[group]:
            note = _why_none(known.get(group), is_narrowed=group not in empty)
            rows.append(GroupOffset(group, None, None, None, state=NONE, note=note))
    return rows


def lags(offsets: Iterable[GroupOffset]) -> list[GroupLag]:
    """The lag of each group in ``offsets``; a negative lag counts as 0."""
    by_group: dict[str, list[GroupOffset]] = {}
    for row in offsets:
        by_group.setdefault(row.group, []).append(row)
    return [_lag_of(group, rows) for group, rows in sorted(by_group.items())]


def _lag_of(group: str, rows: Collection[GroupOffset]) -> GroupLag:
    known = [max(row.lag, 0) for row in rows if row.lag is not None]
    states = Counter(row.state for row in rows)
    worst = next(state for state in (*_ALARMING, OK, EXPIRED, GONE, MARKER) if states[state])
    if worst == BEYOND:
        note = f"{states[BEYOND]} {next(row.note for row in rows if row.state == BEYOND)}"
    elif worst == UNKNOWN:
        unknown = [row for row in rows if row.state == UNKNOWN]
        note = of_some(
            [TopicPartition(row.topic or "", row.partition or 0) for row in unknown], unknown[0].note
        )
    elif worst == FAILED:
        note = "; ".join(row.note for row in rows if row.state == FAILED)
    else:
        note = "" if worst == EXPIRED else next(row.note for row in rows if row.state == worst)
    return GroupLag(
        group=group,
        lag=sum(known) if known else None,
        max_lag=max(known) if known else None,
        partitions=sum(row.topic is not None for row in rows),
        gone=states[GONE],
        beyond=states[BEYOND],
        expired=sum(row.expired or 0 for row in rows),
        state=worst,
        note=note,
    )


def by_lag(rows: Iterable[_Lagging]) -> list[_Lagging]:
    """The rows with the one that is furthest behind first, after those whose lag says nothing."""
    return sorted(rows, key=lambda row: (row.state not in _ALARMING, -(row.lag or 0)))


def total_lag(of_groups: Collection[GroupLag]) -> int | None:
    """The sum of the lags of these groups; None if that of one, or of one of its partitions, is unknown."""
    if any(group.state in (FAILED, NONE, UNKNOWN) for group in of_groups):
        return None
    return sum(group.lag or 0 for group in of_groups)


def delete_offsets(place_groups: GroupOffsets, group: str, partitions: Collection[TopicPartition]) -> None:
    """Delete what ``group`` has committed for ``partitions``.

    See :meth:`.kafka.GroupAdmin.delete_offsets`.
    """
    extensions.check_no_marker(place_groups, group, "gone")
    place_groups.delete_offsets(group, partitions)


def delete_group(place_groups: GroupOffsets, group: str) -> None:
    """Delete ``group`` and all its offsets.

    See :meth:`.kafka.GroupAdmin.delete`.
    """
    extensions.check_no_marker(place_groups, group, "gone")
    place_groups.delete_group(group)


_OF_MARKER = re.compile(rf"{OWN_PREFIX}[a-z2-7]{{26}}")
"""The names of groups that hold markers of exactly-once queries. People don't type them."""


def no_such_group(place_groups: GroupOffsets, missing: Collection[str], *others: str) -> GroupError:
    """The error of groups that do not exist, with the names of those that do, and of ``others``."""
    hint = None
    with suppress(KafkaLogError):
        names = {*place_groups.try_group_ids()[0], *others}
        of_people = {name for name in names if not _OF_MARKER.fullmatch(name)}
        hint = names_like(missing, of_people or names, "consumer group")
    return GroupError(f"No such consumer group: {', '.join(map(repr, sorted(missing)))}", hint=hint)


def _check_all_found(
    place_groups: GroupOffsets, names: Iterable[str], found: Mapping[str, Group | KafkaLogError]
) -> None:
    dead = {name for name, group in found.items() if isinstance(group, Group) and group.state == "Dead"}
    if missing := [name for name in names if name not in found or name in dead]:
        raise no_such_group(place_groups, missing)


def _check_topics(
    place: Place, selection: Selection, committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> None:
    found = {partition.topic for offsets in committed.values() for partition in offsets}
    if missing := [topic for topic in selection.names or () if topic not in found]:
        partitions_of(place, Selection(topics=tuple(missing)))


def _selected(
    offsets: Mapping[TopicPartition, CommittedOffset], selection: Selection
) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    """Partitions need not exist: offsets committed for deleted ones are shown, too."""
    for partition, offset in offsets.items():
        if selection.partitions is not None:
            wanted = partition in selection.partitions
        else:
            wanted = selection.covers(partition.topic, internal=True)
        if wanted:
            yield partition, offset


def _why_none(group: Group | KafkaLogError | None, *, is_narrowed: bool) -> str:
    if isinstance(group, Group) and group.protocol_type == _SHARE:
        return "a share group commits no offsets"
    return "nothing is committed for these topics" if is_narrowed else "nothing is committed"


def offset_row(
    group: str,
    partition: TopicPartition,
    committed: CommittedOffset,
    bounds: Watermarks | None,
    *,
    read_committed: bool,
) -> GroupOffset:
    """The row of an offset in a partition with these bounds; None if that does not exist."""
    row = _commit(group, partition, committed)
    if bounds is None:
        return replace(row, state=GONE, note="the partition does not exist")
    start, end, offset = bounds.log_start_offset, bounds.end(read_committed=read_committed), committed.offset
    if offset > bounds.high_watermark:
        lag = bounds.high_watermark - offset
        return replace(row, lag=lag, log_end_offset=end, state=BEYOND, note=f"beyond the end: {RESET}")
    row = replace(row, lag=max(end - max(offset, start), 0), log_end_offset=end)
    if offset >= start:
        return row
    return replace(row, expired=start - offset, state=EXPIRED, note=f"{start - offset} expired unread")


def _commit(group: str, partition: TopicPartition, committed: CommittedOffset) -> GroupOffset:
    return GroupOffset(
        group=group,
        topic=partition.topic,
        partition=partition.partition,
        offset=committed.offset,
        leader_epoch=if_known(committed.leader_epoch),
        metadata=committed.metadata,
        commit_timestamp=if_known(committed.commit_timestamp),
        expire_timestamp=if_known(committed.expire_timestamp),
    )
