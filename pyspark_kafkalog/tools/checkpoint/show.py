"""The state of a checkpoint: where the query is, beside its place, and what its next start will do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyspark_kafkalog.errors import CorruptRecordError, KafkaLogError, why
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition, Watermarks
from pyspark_kafkalog.model.rows import BIGINT, INT, NOTE, STRING, column
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles
from pyspark_kafkalog.tools.checkpoint.goals import recreated_topics
from pyspark_kafkalog.tools.checkpoint.offset_log import LoggedSource
from pyspark_kafkalog.tools.groups.consumer_groups import (
    BEYOND,
    EXPIRED,
    GONE,
    OK,
    UNKNOWN,
    GroupOffset,
    offset_row,
)

RECREATED = "recreated"
"""The state of a position in a topic with another id than was read; only ``kafkalog`` stores ids."""
_NOTES = {
    BEYOND: "beyond the end of the log",
    GONE: "the partition does not exist",
    RECREATED: "another topic than was read",
}
_REWIND = "kafkalog checkpoint rewind --to-current"
_NOTES_OF_GROUPS = {
    BEYOND: f"beyond the end: {_REWIND}",
    RECREATED: f"other topics than were read, or another place: {_REWIND}",
}
_ADVICE = {
    EXPIRED: "records that were not read are deleted",
    BEYOND: "the log ends before the position: another topic, or one that was cut or created again",
    GONE: "the partition is gone",
    RECREATED: "the topic was deleted and created again, or this is not the place that the query reads",
}
_SAY_SO = "The next start fails there{unless}: {what} ({partitions})."
_UNLESS = ", unless its reader has failOnDataLoss=false"
"""Not said where it may be the wrong place: it would read all of that."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class CheckpointOffset:
    """The position of a source in a partition: the end of the last complete micro-batch.

    ``source`` is the name of the source, or its number. ``planned`` is where the micro-batch ends that is
    planned and not complete. Both are None where there is no such micro-batch. Without a place ``lag``,
    ``log_end_offset`` and ``expired`` are None. ``state`` is that of a committed offset, or ``recreated``.
    """

    source: str = field(metadata=column(STRING, "SOURCE"))
    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    offset: int | None = field(metadata=column(BIGINT, "OFFSET"))
    planned: int | None = field(default=None, metadata=column(BIGINT, "PLANNED", if_any=True))
    log_end_offset: int | None = field(default=None, metadata=column(BIGINT, "END"))
    lag: int | None = field(default=None, metadata=column(BIGINT, "LAG"))
    expired: int | None = field(default=None, metadata=column(BIGINT))
    state: str = field(default=OK, metadata=column(STRING))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The state of a checkpoint.

    ``planned`` and ``complete`` are the numbers of the newest micro-batches, None if there is none, and
    ``plans`` is how many plans there are. ``version`` is that of Spark's log of offsets. ``operators`` are
    the stateful ones. ``other_sources`` have the offsets of sources that read no topics. ``watermark_ms`` is
    the one of the newest plan. ``age_seconds`` tells how long ago Spark wrote the newest of these files.
    ``next_start`` says what the query will do, and ``problems`` why it would fail.
    """

    location: str
    query_id: str
    version: str
    planned: int | None
    complete: int | None
    plans: int
    operators: tuple[int, ...]
    watermark_ms: int
    age_seconds: float | None
    other_sources: Mapping[str, str]
    offsets: list[CheckpointOffset]
    next_start: str
    problems: list[str]


def checkpoint_state(location: str, place: Place | None = None, where: str = "") -> CheckpointState:
    """The state of the checkpoint at a location, beside the place that its query reads, if one is given.

    :param where: the place, as :func:`.places.identity` gives it.

    :raises KafkaLogError: if it is not a checkpoint, or its newest files can't be read.
    """
    files = CheckpointFiles.open(location)
    problems = [*_problems_of_logs(files)]
    plan = None if files.newest is None else files.plan(files.newest)
    offsets = checkpoint_offsets(files, place, where)
    problems += _problems_of_offsets(offsets)
    return CheckpointState(
        files.folder.label(),
        files.query_id,
        "" if plan is None else plan.version,
        files.newest,
        files.newest_complete,
        len(files.plans),
        files.operators,
        0 if plan is None else plan.watermark_ms,
        files.age(),
        {source.name: source.text for source in (plan.sources if plan else ()) if source.offsets is None},
        offsets,
        _next_start(files),
        problems,
    )


def checkpoint_offsets(
    files: CheckpointFiles, place: Place | None = None, where: str = "", *, read_committed: bool = False
) -> list[CheckpointOffset]:
    """The position of each source of topics in each partition, sorted.

    :raises KafkaLogError: if the newest plans can't be read.
    """
    if files.newest is None:
        return []
    position = files.position()
    ends = {} if files.is_complete else {source.name: source for source in files.plan(files.newest).sources}
    rows = []
    for name in sorted({*position, *ends}):
        at, planned = _offsets(position.get(name)), _offsets(ends.get(name))
        rows += [
            CheckpointOffset(name, *partition, at.get(partition), planned.get(partition))
            for partition in sorted({*at, *planned})
        ]
    if place is None or not rows:
        return rows
    partitions = {row.topic_partition for row in rows}
    bounds, unknown = place.try_watermarks(partitions, read_committed=read_committed)
    recreated = recreated_topics(files.state.topic_ids(where), place, {row.topic for row in rows})
    return [_beside(row, bounds, unknown, recreated, read_committed=read_committed) for row in rows]


def as_group_offsets(
    location: str, place: Place, where: str = "", *, read_committed: bool = False
) -> list[GroupOffset]:
    """The offsets of a checkpoint in the rows of a group, which is named like its location.

    If several sources read topics, each is a group: its name follows the location and a ``#``.
    """
    files = CheckpointFiles.open(location)
    rows = checkpoint_offsets(files, place, where, read_committed=read_committed)
    label, several = files.folder.label(), len({row.source for row in rows}) > 1
    return [
        GroupOffset(
            f"{label}#{row.source}" if several else label,
            row.topic,
            row.partition,
            row.offset,
            lag=row.lag,
            log_end_offset=row.log_end_offset,
            expired=row.expired,
            state=row.state if row.state != RECREATED else BEYOND,
            note=_NOTES_OF_GROUPS.get(row.state, row.note),
        )
        for row in rows
        if row.offset is not None
    ] or [GroupOffset(label, None, None, None, state="none", note="no micro-batch is complete")]


def _offsets(source: LoggedSource | None) -> Offsets:
    return {} if source is None or source.offsets is None else source.offsets


def _beside(
    row: CheckpointOffset,
    bounds: Mapping[TopicPartition, Watermarks],
    unknown: Mapping[TopicPartition, KafkaLogError],
    recreated: Collection[str],
    *,
    read_committed: bool,
) -> CheckpointOffset:
    partition = row.topic_partition
    if partition in unknown:
        return replace(row, state=UNKNOWN, note=why(unknown[partition]))
    if row.offset is None:
        found = bounds.get(partition)
        return row if found is None else replace(row, log_end_offset=found.end(read_committed=read_committed))
    committed = CommittedOffset(row.offset)
    beside = offset_row("", partition, committed, bounds.get(partition), read_committed=read_committed)
    state = RECREATED if row.topic in recreated and beside.state != GONE else beside.state
    return replace(
        row,
        log_end_offset=beside.log_end_offset,
        lag=None if state == RECREATED else beside.lag,
        expired=beside.expired,
        state=state,
        note=_NOTES.get(state, beside.note),
    )


def _problems_of_offsets(rows: Collection[CheckpointOffset]) -> Iterator[str]:
    for state, what in _ADVICE.items():
        found = [str(row.topic_partition) for row in rows if row.state == state]
        if found:
            named = ", ".join(found[:_MOST_NAMED])
            more = len(found) - _MOST_NAMED
            unless = "" if state == RECREATED else _UNLESS
            partitions = named + (f" and {more} more" if more > 0 else "")
            yield _SAY_SO.format(unless=unless, what=what, partitions=partitions)


def _problems_of_logs(files: CheckpointFiles) -> Iterator[str]:
    newest, complete = files.newest, files.newest_complete
    if newest is None:
        if complete is not None:
            yield (
                f"There are commits up to micro-batch {complete}, and no plan: the folder offsets is lost."
                " The query would start over."
            )
        return
    if files.begun is not None:
        yield (
            "A change was begun and not ended: the query doesn't start until kafkalog checkpoint runs again"
            " with --execute. Until then these are the offsets before it."
        )
    if files.lacks_partitions:
        yield (
            f"Spark 4.2.0 can't repeat micro-batch {newest}: the plan before it lacks"
            " spark.sql.shuffle.partitions. kafkalog checkpoint rewind --to-current --execute adds them."
        )
    if newest and not files.has_plan(newest - 1):
        yield (
            f"The plan of micro-batch {newest - 1} is missing, and Spark starts without it only if the query"
            " tracks its progress asynchronously."
        )
    if complete is not None and complete > newest:
        yield (
            f"Micro-batch {complete} is complete, and the newest plan is that of {newest}: the checkpoint was"
            " put together from two moments. Spark would repeat what is complete."
        )
    elif complete is not None:
        try:
            files.check_commit(complete)
        except (KafkaLogError, CorruptRecordError) as e:
            yield f"{e}."


def _next_start(files: CheckpointFiles) -> str:
    newest = files.newest
    if newest is None:
        return "The query has planned nothing: it begins where its options say."
    if files.is_complete:
        return f"Micro-batch {newest} is complete: the next one is {newest + 1}, from these offsets."
    begin = "these offsets" if files.before(newest) is not None else "where the query began"
    return (
        f"Micro-batch {newest} is planned and not complete: it is repeated, from {begin} to the planned ones."
    )
