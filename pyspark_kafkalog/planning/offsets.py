"""Which partitions to read, from where to where, and what is lost: pure but for what a Place answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

from pyspark_kafkalog.errors import DataLossError, OptionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import (
    EARLIEST,
    INTERNAL_TOPICS,
    LATEST,
    OffsetRange,
    Place,
    TopicPartition,
    Watermarks,
)
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import OffsetsOption, ReadOptions, Selection
from pyspark_kafkalog.planning.splitting import Split, split_ranges


def select_partitions(
    topics: Mapping[str, tuple[int, ...]], selection: Selection, *, must_exist: bool = True
) -> tuple[TopicPartition, ...]:
    """The partitions that ``selection`` means among all ``topics``, sorted.

    Internal topics only count where they are named. Partitions of ``assign``
    that do not exist are left out in silence, as by Spark (ConsumerStrategy).

    :param must_exist: False for a stream under way, where a topic that is gone is a matter of data loss.
    :raises UnknownTopicOrPartitionError: for a topic that is named and does not exist.
    """
    if selection.pattern is not None:
        found_in = re.compile(selection.pattern, re.ASCII).search
        named = [topic for topic in topics if found_in(topic) and topic not in INTERNAL_TOPICS]
    elif selection.topics is not None:
        named = list(selection.topics)
    elif selection.partitions is not None:
        named = sorted({partition.topic for partition in selection.partitions})
    else:
        named = [topic for topic in topics if topic not in INTERNAL_TOPICS]
    unknown = [topic for topic in named if topic not in topics]
    if unknown and must_exist:
        raise UnknownTopicOrPartitionError(
            f"No such topic: {', '.join(unknown)}",
            hint=f"There are {len(topics)} topics: {', '.join(sorted(topics)[:10])}."
            if topics
            else "There are none.",
        )
    found = [TopicPartition(topic, number) for topic in named for number in topics.get(topic, ())]
    if selection.partitions is not None:
        found = list(set(selection.partitions).intersection(found))
    return tuple(sorted(found))


def plan_batch(place: Place, options: ReadOptions) -> list[Split]:
    """The tasks of a batch read, in order of partition and offset.

    EARLIEST and LATEST stay in the outermost splits of a partition, for the
    tasks to look up, because Spark keeps the plan of a DataFrame: run again, it
    sees what has come since and does not miss what has expired. Inner cuts are
    fixed.

    :raises UnknownTopicOrPartitionError: as :func:`select_partitions`.
    :raises OptionError: where the offsets that the user gave do not fit the partitions or cross.
    """
    partitions = select_partitions(place.topics(), options.selection)
    bounds = place.watermarks(partitions, read_committed=options.read_committed)
    partitions = tuple(partition for partition in partitions if partition in bounds)
    starts = _bind(place, options, options.starting, partitions, bounds)
    ends = _bind(place, options, options.ending, partitions, bounds)
    known_starts, known_ends = _look_up(starts, bounds, options), _look_up(ends, bounds, options)
    asked = {p: OffsetRange(known_starts[p], known_ends[p]) for p in partitions}
    for partition, offsets in asked.items():
        if starts[partition] >= 0 and offsets.start > offsets.end:
            raise OptionError(
                f"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {options.starting.option} gives "
                f"{offsets.start}, {options.ending.option} gives {offsets.end}",
                topic_partition=partition,
            )
    splits = split_ranges(
        (Split(partition, _existing(offsets, bounds[partition])) for partition, offsets in asked.items()),
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    cuts: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    for split in splits:
        cuts[split.partition].append(split.offsets.start)
    return [
        Split(partition, OffsetRange(start, end))
        for partition in partitions
        if ends[partition] == LATEST or asked[partition].start < asked[partition].end
        for start, end in pairwise([starts[partition], *cuts[partition][1:], ends[partition]])
    ]


def _existing(offsets: OffsetRange, bounds: Watermarks) -> OffsetRange:
    """The part of ``offsets`` that is worth cutting; the rest is for the outermost tasks to report."""
    return OffsetRange(max(offsets.start, bounds.log_start_offset), min(offsets.end, bounds.high_watermark))


def initial_offsets(place: Place, options: ReadOptions) -> Offsets:
    """Where a new stream starts, in canonical order, with nothing left to look up.

    :raises UnknownTopicOrPartitionError: as :func:`select_partitions`.
    :raises OptionError: where the offsets that the user gave do not fit the partitions.
    """
    partitions = select_partitions(place.topics(), options.selection)
    bounds = place.watermarks(partitions, read_committed=options.read_committed)
    partitions = tuple(partition for partition in partitions if partition in bounds)
    return _look_up(_bind(place, options, options.starting, partitions, bounds), bounds, options)


def latest_offsets(place: Place, options: ReadOptions) -> Offsets:
    """Where each partition that a stream reads ends now, in canonical order."""
    partitions = select_partitions(place.topics(), options.selection, must_exist=False)
    bounds = place.watermarks(partitions, read_committed=options.read_committed)
    return {
        partition: bounds[partition].end(read_committed=options.read_committed)
        for partition in partitions
        if partition in bounds
    }


def log_start_offsets(place: Place, partitions: Collection[TopicPartition]) -> Offsets:
    """Where each of ``partitions`` that exists begins."""
    if not partitions:
        return {}
    bounds = place.watermarks(partitions, read_committed=False)
    return {partition: watermarks.log_start_offset for partition, watermarks in sorted(bounds.items())}


def _bind(
    place: Place,
    options: ReadOptions,
    asked: OffsetsOption,
    partitions: Collection[TopicPartition],
    bounds: Mapping[TopicPartition, Watermarks],
) -> Offsets:
    """One offset for each partition; timestamps are looked up, EARLIEST and LATEST stay."""
    values = asked.values
    if isinstance(values, int):
        values = dict.fromkeys(partitions, values)
    elif values.keys() != set(partitions):
        kind = "TIMESTAMP" if asked.are_timestamps else "START"
        raise OptionError(
            f"KAFKA_{kind}_OFFSET_DOES_NOT_MATCH_ASSIGNED: {asked.option} must have every partition "
            f"that is read and no other; specified {_listed(values)}, assigned {_listed(partitions)}",
            hint=None if asked.are_timestamps else "Use -1 for latest, -2 for earliest.",
        )
    if not asked.are_timestamps:
        return values
    found = place.offsets_for_times(values) if values else {}
    offsets = {}
    for partition, timestamp in values.items():
        end = bounds[partition].end(read_committed=options.read_committed)
        offset = found.get(partition)
        if offset is None or offset >= end:
            if asked is options.starting and not options.no_match_is_latest:
                raise OptionError(
                    f"No record has a timestamp at or after {timestamp}, as {asked.option} asks",
                    topic_partition=partition,
                    hint="With startingOffsetsByTimestampStrategy=latest such partitions start at their end.",
                )
            offset = end
        offsets[partition] = offset
    return offsets


def _look_up(offsets: Offsets, bounds: Mapping[TopicPartition, Watermarks], options: ReadOptions) -> Offsets:
    result = {}
    for partition, offset in sorted(offsets.items()):
        if offset == EARLIEST:
            offset = bounds[partition].log_start_offset
        elif offset == LATEST:
            offset = bounds[partition].end(read_committed=options.read_committed)
        result[partition] = offset
    return result


def find_data_loss(start: Offsets, end: Offsets, added: Offsets) -> Iterator[DataLossError]:
    """What a stream that stood at ``start`` can't read any more on its way to ``end``.

    :param added: the log start offsets of those partitions of ``end`` that ``start`` lacks.
    """
    deleted = start.keys() - end.keys()
    if deleted:
        yield _lost(f"PARTITIONS_DELETED: {_listed(deleted)} have been deleted")
    for partition in sorted(end.keys() - start.keys()):
        if partition not in added:
            yield _lost(
                "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS: it was added and may have been deleted", partition
            )
        elif added[partition] != 0:
            yield _lost(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO: it was added and starts from "
                f"{added[partition]} instead of 0",
                partition,
            )
    for partition in sorted(start.keys() & end.keys()):
        if end[partition] < start[partition]:
            yield _lost(
                f"PARTITION_OFFSET_CHANGED: the end went back from {start[partition]} to {end[partition]}; "
                "the topic may have been made anew, or a new query starts too high",
                partition,
            )


def check_nothing_lost_while_available_now(end: Offsets, latest: Offsets) -> None:
    """With ``Trigger.AvailableNow`` the ends were frozen, and all of them must stay readable.

    :raises DataLossError: whatever failOnDataLoss says, as by Spark.
    """
    gone = end.keys() - latest.keys()
    if gone:
        raise _lost(
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW: "
            f"{_listed(gone)} have been deleted",
            hint="Restart the query, this may pass.",
        )
    for partition, offset in sorted(end.items()):
        if offset > latest[partition]:
            raise _lost(
                "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW: "
                f"the batch ends at {offset} and the partition at {latest[partition]}",
                partition,
                hint="Restart the query, this may pass.",
            )


def _lost(
    message: str,
    partition: TopicPartition | None = None,
    *,
    hint: str = "With failOnDataLoss=false the query goes on without what is lost.",
) -> DataLossError:
    return DataLossError(message, topic_partition=partition, hint=hint)


def _listed(partitions: Collection[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "none"
