"""The offsets to which a checkpoint is set back, or forward, as users ask for them."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafkalog.client.partitions import existing
from pyspark_kafkalog.errors import GroupError, OptionError, listed, no_such_partition
from pyspark_kafkalog.model import Place, TopicPartition, Watermarks
from pyspark_kafkalog.model.rows import BIGINT, INT, STRING, column
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.user_options import partitions_like
from pyspark_kafkalog.read.times import offsets_at
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles


class RewindTo(enum.Enum):
    """The target of a rewind; the last four take a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    """The position, or the nearest offset that exists; the start of a topic that was created again."""
    TIMESTAMP = "timestamp"
    """The first record with this timestamp (ms) or a later one."""
    BATCH = "batch"
    """The end of this micro-batch, whose plan is still there."""
    GROUP = "group"
    """The offsets that this consumer group has committed."""
    OFFSETS = "offsets"
    """The given offsets by partition."""


OF_PLACE = frozenset(RewindTo) - {RewindTo.BATCH, RewindTo.OFFSETS}
"""The targets for which the place must be asked."""
_NAMES_NEW = frozenset({RewindTo.LATEST, RewindTo.TIMESTAMP, RewindTo.GROUP, RewindTo.OFFSETS})
"""The targets that tell where a partition begins that the query has not read yet."""
_AT_ENDS = (RewindTo.LATEST, RewindTo.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class CheckpointStep:
    """The new position of a source in one partition; ``current`` is None if it has none there.

    ``offset`` is None for a partition that is left out. ``note`` says why the new one is not as asked for, or
    how exact it is.
    """

    source: str = field(metadata=column(STRING, "SOURCE"))
    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    current: int | None = field(metadata=column(BIGINT, "CURRENT"))
    offset: int | None = field(metadata=column(BIGINT, "NEW"))
    note: str = field(default="", metadata=column(STRING, "NOTE"))


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a rewind: ``value`` is milliseconds, a micro-batch, or offsets by partition.

    ``sources`` and ``topics`` say whose position changes: all of them if they are None. A partition of
    ``topics`` is one of them, or of its topic if that has no partitions here.
    """

    to: RewindTo
    value: int | Mapping[TopicPartition, int] = 0
    sources: Collection[str] | None = None
    topics: Collection[TopicPartition | str] | None = None

    def covers(self, partition: TopicPartition) -> bool:
        """Whether the position in a partition is to change."""
        return self.topics is None or partition in self.topics or partition.topic in self.topics

    def covers_all(self, topic: str) -> bool:
        """Whether the positions in all partitions of a topic are to change, in all sources."""
        return self.sources is None and (self.topics is None or topic in self.topics)


def steps_to(
    files: CheckpointFiles, place: Place | None, goal: Goal, known: Mapping[str, str]
) -> list[CheckpointStep]:
    """The new position of each source of topics that the goal is about, sorted.

    :param place: the place that the query reads; offsets are then such that exist there.
    :param known: the stored ids of topics.
    :raises OptionError: if the goal does not fit the checkpoint.
    :raises UnknownTopicOrPartitionError: if it names a partition that was never there.
    """
    if place is None and goal.to in OF_PLACE:
        raise OptionError(
            f"Only the place that the query reads can tell what {goal.to.value} is",
            hint="Give PLACE, behind the checkpoint.",
        )
    sources = files.position().items()
    position = {name: source.offsets for name, source in sources if source.offsets is not None}
    _check_names(goal, position)
    other = set() if place is None else recreated_topics(known, place, {p.topic for p in _all(position)})
    steps: list[CheckpointStep] = []
    wanted_batch = _ends_of_batch(files, goal)
    for name, current in position.items():
        if goal.sources is not None and name not in goal.sources:
            continue
        wanted = {p: offset for p, offset in wanted_batch.get(name, {}).items() if goal.covers(p)}
        covered = {p: offset for p, offset in current.items() if goal.covers(p)}
        if goal.to is RewindTo.BATCH:
            moved = _as_given({**dict.fromkeys(covered), **wanted}, place)
        elif isinstance(goal.value, Mapping):
            topics = {partition.topic for partition in current}
            given = {p: at for p, at in goal.value.items() if p.topic in topics and goal.covers(p)}
            moved = _as_given(given, place)
            missing = {p for p, (at, _) in moved.items() if at is None} - current.keys()
            if missing and goal.to is RewindTo.OFFSETS:
                raise no_such_partition(missing, hint=partitions_like(missing, _all(position)))
        else:
            assert place is not None
            moved = _of_place(place, goal, covered, known)
        steps += [
            CheckpointStep(
                name,
                *partition,
                current.get(partition),
                offset,
                OTHER_TOPIC if offset is not None and partition.topic in other else note,
            )
            for partition, (offset, note) in sorted(moved.items())
        ]
    if not steps:
        raise OptionError(
            "The checkpoint has no position that this is about", hint="kafkalog checkpoint show has them all."
        )
    return steps


def repeated_ends(
    files: CheckpointFiles, place: Place | None, goal: Goal, known: Mapping[str, str]
) -> dict[str, Offsets] | None:
    """The ends, by source, of the micro-batch that is not complete, if it is repeated up to them; else None.

    Where the query stays at the nearest offsets that exist, it stays so at these, too. So a sink that has
    that micro-batch already gets nothing twice.
    """
    if goal.to is not RewindTo.CURRENT or files.newest is None or files.is_complete:
        return None
    assert place is not None
    repeated = {}
    for source in files.plan(files.newest).sources:
        if source.offsets is None or (goal.sources is not None and source.name not in goal.sources):
            continue
        covered = {p: offset for p, offset in source.offsets.items() if goal.covers(p)}
        moved = _of_place(place, goal, covered, known)
        ends = {p: moved[p][0] if p in moved else offset for p, offset in source.offsets.items()}
        repeated[source.name] = {p: offset for p, offset in ends.items() if offset is not None}
    return repeated


def committed_offsets(committed: Mapping[TopicPartition, int], group: str) -> Mapping[TopicPartition, int]:
    """The offsets that a group has committed, as the value of a goal.

    :raises GroupError: if that is nothing.
    """
    if not committed:
        raise GroupError(
            f"Group {group!r} has committed nothing for the topics that the query reads",
            hint="kafkalog offsets PLACE --group shows what it has committed.",
        )
    return committed


_Moved = dict[TopicPartition, tuple[int | None, str]]


def _as_given(wanted: Mapping[TopicPartition, int | None], place: Place | None) -> _Moved:
    if place is None:
        return {partition: (at, _NEW if at is None else "") for partition, at in wanted.items()}
    bounds = _bounds(place, wanted)
    return {
        partition: (None, _GONE)
        if partition not in bounds
        else (None, _NEW)
        if offset is None
        else _clamped(offset, bounds[partition])
        for partition, offset in wanted.items()
    }


_GONE = "the partition is gone: left out"
OTHER_TOPIC = "another topic than was read"
_NEW = "not read yet at that time: from its start"


def _of_place(place: Place, goal: Goal, covered: Offsets, known: Mapping[str, str]) -> _Moved:
    partitions = {*covered}
    if goal.to in _NAMES_NEW:
        topics = place.topics({partition.topic for partition in covered})
        partitions |= {
            partition
            for topic, numbers in topics.items()
            for number in numbers
            if goal.covers(partition := TopicPartition(topic, number))
        }
    bounds = _bounds(place, partitions)
    recreated = recreated_topics(known, place, {partition.topic for partition in covered})
    assert isinstance(goal.value, int)
    at_time = offsets_at(place, bounds, goal.value) if goal.to is RewindTo.TIMESTAMP else {}
    # A read_committed reader does not start beyond an open transaction.
    stable_ends = place.end_offsets(bounds, read_committed=True) if goal.to in _AT_ENDS else {}
    moved: _Moved = dict.fromkeys(partitions - bounds.keys(), (None, _GONE))
    for partition, marks in bounds.items():
        if goal.to is RewindTo.EARLIEST:
            moved[partition] = marks.log_start_offset, ""
        elif goal.to in _AT_ENDS:
            at = at_time.get(partition, marks.high_watermark)
            is_end = goal.to is RewindTo.TIMESTAMP and at == marks.high_watermark
            note = "no record at or after this time" if is_end else ""
            stable = stable_ends.get(partition, at)
            moved[partition] = (stable, "a transaction is open there") if stable < at else (at, note)
        elif partition.topic in recreated:
            moved[partition] = marks.log_start_offset, OTHER_TOPIC
        else:
            moved[partition] = _clamped(covered[partition], marks)
    return moved


def recreated_topics(known: Mapping[str, str], place: Place, topics: Collection[str]) -> set[str]:
    """The topics whose stored ids are not those that they have now."""
    now = place.topic_ids({*known} & {*topics}) if known else {}
    return {topic for topic, topic_id in now.items() if topic_id and topic_id != known[topic]}


def _ends_of_batch(files: CheckpointFiles, goal: Goal) -> dict[str, Offsets]:
    if goal.to is not RewindTo.BATCH:
        return {}
    assert isinstance(goal.value, int)
    if not files.has_plan(goal.value):
        kept = f"from {files.plans[0]} to {files.plans[-1]}" if files.plans else "none"
        raise OptionError(
            f"The checkpoint has no plan of micro-batch {goal.value}",
            file=files.offsets.label(),
            hint=f"Its plans are: {kept}. Spark keeps the last 100, unless it is told otherwise.",
        )
    sources = files.plan(goal.value).sources
    return {source.name: source.offsets for source in sources if source.offsets is not None}


def _check_names(goal: Goal, position: Mapping[str, Offsets]) -> None:
    """:raises OptionError: if the goal names a source, a topic or a partition that nothing reads."""
    if unknown := sorted({*(goal.sources or ())} - position.keys()):
        raise OptionError(
            f"No source {unknown[0]!r} of the query reads topics",
            hint=f"Those that do: {', '.join(sorted(position)) or 'none'}.",
        )
    topics = {partition.topic for partition in _all(position)}
    named = [*(goal.topics or ()), *(goal.value if isinstance(goal.value, Mapping) else ())]
    foreign = {name if isinstance(name, str) else name.topic for name in named} - topics
    if foreign:
        raise OptionError(
            f"The query does not read {listed(sorted(foreign), 5)}",
            hint=f"It reads {listed(sorted(topics), 5) or 'no topics'}.",
        )


def _all(position: Mapping[str, Offsets]) -> set[TopicPartition]:
    """The partitions that the query has read."""
    return {partition for offsets in position.values() for partition in offsets}


def _bounds(place: Place, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
    there = existing(place, sorted(partitions))
    return place.watermarks(there, read_committed=False) if there else {}


def _clamped(offset: int, marks: Watermarks) -> tuple[int, str]:
    if offset < marks.log_start_offset:
        return marks.log_start_offset, f"the log starts after {offset}"
    if offset > marks.high_watermark:
        return marks.high_watermark, f"the log ends before {offset}"
    return offset, ""
