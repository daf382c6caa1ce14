"""Which partitions and offsets to read, and which records are lost; asks only the Place."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from pyspark_kafkalog.errors import (
    DataLossError,
    GroupError,
    OptionError,
    UnknownTopicOrPartitionError,
    listed,
)
from pyspark_kafkalog.groups import CommittedOffsets
from pyspark_kafkalog.model import (
    ALL_OFFSETS,
    COMMITTED,
    EARLIEST,
    GO_ON,
    LATEST,
    OffsetRange,
    Place,
    Seen,
    TopicPartition,
    Watermarks,
)
from pyspark_kafkalog.options.offsets_json import PLANNED, Offsets
from pyspark_kafkalog.options.settings import OffsetsOption, ReadOptions, Selection
from pyspark_kafkalog.options.times import with_iso
from pyspark_kafkalog.options.user_options import near_names
from pyspark_kafkalog.reading.commits import check_commits
from pyspark_kafkalog.reading.filters import ALL_ROWS, Bounds, offsets_within
from pyspark_kafkalog.reading.splits import Split, cuts_between, split_ranges
from pyspark_kafkalog.topics import INTERNAL_TOPICS, cleanup_policies

_log = logging.getLogger("pyspark_kafkalog")

_EVERY_TOPIC = Selection()
_NEWER_COPY = "If an older copy was put in place, bring the newer one back, or begin with a new checkpoint."
_ATTEMPTS = 3
_LOOK_PAUSE = 0.1


def select_partitions(
    topics: Mapping[str, tuple[int, ...]], selection: Selection, *, must_exist: bool = True
) -> tuple[TopicPartition, ...]:
    """The partitions among all ``topics`` that ``selection`` covers, sorted.

    Internal topics count only if they are named. Partitions of ``assign`` that
    do not exist are skipped, as in Spark (ConsumerStrategy).

    :param must_exist: False for a running stream, where a missing topic is data loss.
    :raises UnknownTopicOrPartitionError: if a named topic does not exist.
    """
    given = named_topics(selection)
    named = [topic for topic in topics if _covers(selection, topic)] if given is None else given
    unknown = [topic for topic in named if topic not in topics]
    if unknown and must_exist:
        hint = _existing_topics(topics)
        if near := dict.fromkeys(name for topic in unknown for name in near_names(topic, topics)):
            hint = f"Did you mean {' or '.join(near)}? {hint}"
        raise UnknownTopicOrPartitionError(f"No such topic: {', '.join(unknown)}", hint=hint)
    found = [TopicPartition(topic, number) for topic in named for number in topics.get(topic, ())]
    if selection.partitions is not None:
        found = list(set(selection.partitions).intersection(found))
    return tuple(sorted(found))


def _existing_topics(topics: Collection[str]) -> str:
    if not topics:
        return "There are no topics."
    number = "is 1 topic" if len(topics) == 1 else f"are {len(topics)} topics"
    return f"There {number}: {', '.join(sorted(topics)[:10])}."


def _warn_of_what_is_missing(
    topics: Mapping[str, tuple[int, ...]], selection: Selection, found: Collection[TopicPartition]
) -> None:
    """Say what a selection covers in vain: Spark skips it without a word."""
    if selection.pattern is not None and not found:
        text = "No topic matches subscribePattern %r, so nothing is read. %s"
        _log.warning(text, selection.pattern, _existing_topics(topics))
    missing = set(selection.partitions or ()).difference(found)
    for topic in sorted({partition.topic for partition in missing}):
        names = _listed([partition for partition in missing if partition.topic == topic])
        text = "No such partition: %s. Topic %s has %d."
        _log.warning(text, names, topic, len(topics[topic]))


def _covers(selection: Selection, topic: str) -> bool:
    """Whether a ``selection`` that names no topics covers this one."""
    found = selection.pattern is None or re.search(selection.pattern, topic, re.ASCII) is not None
    return found and topic not in INTERNAL_TOPICS


def not_selected(partitions: Iterable[TopicPartition], selection: Selection) -> set[TopicPartition]:
    """Those of ``partitions`` that ``selection`` would not cover even if they existed."""
    if selection.partitions is not None:
        return set(partitions).difference(selection.partitions)
    if selection.topics is not None:
        return {partition for partition in partitions if partition.topic not in selection.topics}
    return {partition for partition in partitions if not _covers(selection, partition.topic)}


def named_topics(selection: Selection) -> list[str] | None:
    """The topics that ``selection`` names; None if it names none."""
    if selection.topics is not None:
        return list(selection.topics)
    if selection.partitions is not None:
        return sorted({partition.topic for partition in selection.partitions})
    return None


def look_up_partitions(
    place: Place, selection: Selection, *, must_exist: bool = True
) -> tuple[TopicPartition, ...]:
    """Like :func:`select_partitions`, for a place; only the topics needed are looked up.

    A topic that must exist is looked up several times, since the brokers of a
    cluster learn of a new topic one after another.
    """
    names = named_topics(selection)
    topics = place.topics(names)
    if names is not None and must_exist:
        for _ in range(_ATTEMPTS - 1):
            if topics.keys() >= set(names):
                break
            time.sleep(_LOOK_PAUSE)
            topics = place.topics(names)
        if not topics.keys() >= set(names):
            topics = place.topics()  # for the error message
    found = select_partitions(topics, selection, must_exist=must_exist)
    if must_exist:
        _warn_of_what_is_missing(topics, selection, found)
    return found


def with_topic_ids(
    place: Place, partitions: Collection[TopicPartition]
) -> tuple[tuple[TopicPartition, ...], dict[str, str]]:
    """Those of ``partitions`` whose topics exist, and their topic ids; the given list may be outdated."""
    topic_ids = place.topic_ids({partition.topic for partition in partitions})
    return tuple(partition for partition in partitions if partition.topic in topic_ids), topic_ids


def check_compacted_start(options: ReadOptions, place: Place) -> None:
    """Refuse ``startingOffsets`` within a compacted topic for queries that reassemble large messages.

    :raises OptionError: naming the partition.
    """
    starting = options.starting
    values = starting.at(0)
    if not options.large_messages.enabled or starting.are_timestamps or isinstance(values, int):
        return
    offsets = {partition: offset for partition, offset in sorted(values.items()) if offset > 0}
    topics = {partition.topic for partition in offsets}
    policies = {topic: cleanup_policies(place.topic_config(topic)) for topic in topics}
    for partition, offset in offsets.items():
        if "compact" in policies[partition.topic]:
            raise OptionError(
                f"Option {starting.option!r} names an offset of a compacted topic, where earlier message"
                " segments may be gone",
                topic_partition=partition,
                offset=offset,
                hint="Start at earliest, latest, a timestamp or a group's committed offsets.",
            )


def start_from_group(
    options: ReadOptions, place: Place, groups: Callable[[], CommittedOffsets]
) -> ReadOptions:
    """The options with the group's committed offsets in place of ``startingOffsets=committed``.

    :raises GroupError: if a partition has none and startingOffsetsByCommittedStrategy is ``error``, or one
        that is not of its log, unless failOnDataLoss is false.
    """
    group = options.group.group_id
    if options.starting.values != COMMITTED or group is None:
        return options
    partitions = look_up_partitions(place, options.selection)
    committed = groups().committed(group, partitions, settled=True)
    check_commits(place, group, committed, fail_on_data_loss=options.fail_on_data_loss)
    without = sorted(set(partitions) - committed.keys())
    if without and options.group.none_committed is None:
        raise GroupError(
            f"Group {group!r} has committed nothing for {_listed(without)}",
            hint="Set startingOffsetsByCommittedStrategy to earliest or latest to start there.",
        )
    offsets = {partition: committed_offset.offset for partition, committed_offset in committed.items()}
    if not options.fail_on_data_loss:  # what is beyond the end is not there
        ends = place.end_offsets(offsets, read_committed=False)
        offsets |= {partition: min(offset, offsets[partition]) for partition, offset in ends.items()}
    if options.group.none_committed == LATEST:
        offsets.update(place.end_offsets(without, read_committed=options.read_committed))
    else:
        offsets.update(dict.fromkeys(without, EARLIEST))
    return replace(options, starting=replace(options.starting, values=offsets))


def plan_batch(place: Place, options: ReadOptions, bounds: Bounds = ALL_ROWS) -> list[Split]:
    """The tasks of a batch read, in order of partition and offset, without rows outside ``bounds``.

    Times ago count back from now. EARLIEST and LATEST stay in the outermost splits of
    a partition, and the tasks look them up, because Spark keeps the plan of a DataFrame:
    when it runs again, it sees new records and does not fail for expired ones. Inner cuts are fixed.
    With PLANNED as the end, all are: then a task that Spark runs again reads what it read before.
    Where offsets that the user gave are gone, a task reports it, whatever ``bounds`` leave to be read.

    :raises UnknownTopicOrPartitionError: like :func:`select_partitions`.
    :raises OptionError: if the user's offsets do not match the partitions, or a start is after its end.
    """
    partitions = look_up_partitions(place, options.selection)
    partitions, topic_ids = with_topic_ids(place, partitions)
    if _is_open(options) and bounds == ALL_ROWS:
        end_offsets = place.end_offsets(partitions, read_committed=False)
        epochs = place.leader_epochs(partitions)
        return [
            Split(
                partition,
                OffsetRange(EARLIEST, LATEST),
                seen=Seen(topic_ids.get(partition.topic, ""), epochs.get(partition, -1), end),
            )
            for partition, end in end_offsets.items()
        ]
    watermarks = place.watermarks(partitions, read_committed=options.read_committed)
    partitions = tuple(partition for partition in partitions if partition in watermarks)
    now_ms = _now_ms()
    starts = _offset_per_partition(place, options, options.starting, partitions, watermarks, now_ms)
    ends = _offset_per_partition(place, options, options.ending, partitions, watermarks, now_ms)
    known_starts, known_ends = (
        _resolve_sentinels(starts, watermarks, options),
        _resolve_sentinels(ends, watermarks, options),
    )
    requested = {p: OffsetRange(known_starts[p], known_ends[p]) for p in partitions}
    if options.ending.values == PLANNED:
        starts, ends = known_starts, known_ends
    for partition, offsets in requested.items():
        if starts[partition] >= 0 and offsets.start > offsets.end:
            raise OptionError(
                f"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {options.starting.option} gives "
                f"{offsets.start}, {options.ending.option} gives {offsets.end}",
                topic_partition=partition,
            )
    existing = {p: _existing(offsets, watermarks[p]) for p, offsets in requested.items()}
    within = offsets_within(place, bounds, watermarks)
    splits = split_ranges(
        (Split(partition, offsets.within(within[partition])) for partition, offsets in existing.items()),
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    epochs = place.leader_epochs(partitions)
    seen = {
        partition: Seen(
            topic_ids.get(partition.topic, ""),
            epochs.get(partition, -1),
            watermarks[partition].high_watermark,
        )
        for partition in partitions
    }
    cuts = cuts_between(splits)
    return [
        Split(partition, OffsetRange(start, end), within[partition], seen[partition])
        for partition in partitions
        if _is_worth_a_task(requested[partition], ends[partition], existing[partition], within[partition])
        for start, end in pairwise([starts[partition], *cuts.get(partition, ()), ends[partition]])
    ]


def _is_open(options: ReadOptions) -> bool:
    """Whether each partition goes to one task as a whole, so that only its end is looked up here."""
    whole = options.starting.values == EARLIEST and options.ending.values == LATEST
    return whole and options.min_partitions is None and options.max_records_per_partition is None


def _existing(offsets: OffsetRange, bounds: Watermarks) -> OffsetRange:
    """The part of ``offsets`` that exists; the outermost tasks report the rest."""
    return OffsetRange(max(offsets.start, bounds.log_start_offset), min(offsets.end, bounds.high_watermark))


def _is_worth_a_task(requested: OffsetRange, end: int, existing: OffsetRange, within: OffsetRange) -> bool:
    if requested.start < requested.end and requested != existing:
        return True
    possible = OffsetRange(requested.start, ALL_OFFSETS.end) if end == LATEST else requested
    wanted = possible.within(within)
    return wanted.start < wanted.end


def initial_offsets(place: Place, options: ReadOptions) -> Offsets:
    """Where a new stream starts: a number for each partition, sorted.

    :raises UnknownTopicOrPartitionError: like :func:`select_partitions`.
    :raises OptionError: if the user's offsets do not match the partitions.
    """
    partitions = look_up_partitions(place, options.selection)
    bounds = place.watermarks(partitions, read_committed=options.read_committed)
    partitions = tuple(partition for partition in partitions if partition in bounds)
    starts = _offset_per_partition(place, options, options.starting, partitions, bounds, _now_ms())
    return _resolve_sentinels(starts, bounds, options)


def log_start_offsets(place: Place, partitions: Collection[TopicPartition]) -> Offsets:
    """The log start offset of each of ``partitions`` that exists."""
    if not partitions:
        return {}
    bounds = place.watermarks(partitions, read_committed=False)
    return {partition: watermarks.log_start_offset for partition, watermarks in sorted(bounds.items())}


def _now_ms() -> int:
    """The one instant from which a plan counts times ago, for all partitions and both ends."""
    return time.time_ns() // 1_000_000


def _offset_per_partition(
    place: Place,
    options: ReadOptions,
    requested: OffsetsOption,
    partitions: Collection[TopicPartition],
    bounds: Mapping[TopicPartition, Watermarks],
    now_ms: int,
) -> Offsets:
    """One offset for each partition: timestamps are looked up, EARLIEST and LATEST stay."""
    values = requested.at(now_ms)
    if isinstance(values, int):
        values = dict.fromkeys(partitions, values)
    elif values.keys() != set(partitions):
        kind = "TIMESTAMP" if requested.are_timestamps else "START"
        raise OptionError(
            f"KAFKA_{kind}_OFFSET_DOES_NOT_MATCH_ASSIGNED: {requested.option} must name exactly the "
            f"partitions that are read; specified {_listed(values)}, assigned {_listed(partitions)}",
            hint=None if requested.are_timestamps else "Use -1 for latest, -2 for earliest.",
        )
    if not requested.are_timestamps:
        return values
    found = place.offsets_for_times(values) if values else {}
    offsets = {}
    for partition, timestamp in values.items():
        end = bounds[partition].end(read_committed=options.read_committed)
        offset = found.get(partition)
        if offset is None or offset >= end:
            if requested is options.starting and not options.no_match_is_latest:
                raise OptionError(
                    f"No record has a timestamp at or after {with_iso(timestamp)}, as"
                    f" {requested.option} asks",
                    topic_partition=partition,
                    hint="Set startingOffsetsByTimestampStrategy=latest to start at the end instead.",
                )
            offset = end
        offsets[partition] = offset
    return offsets


def _resolve_sentinels(
    offsets: Offsets, bounds: Mapping[TopicPartition, Watermarks], options: ReadOptions
) -> Offsets:
    result = {}
    for partition, offset in sorted(offsets.items()):
        if offset == EARLIEST:
            offset = bounds[partition].log_start_offset
        elif offset in (LATEST, PLANNED):
            offset = bounds[partition].end(read_committed=options.read_committed)
        result[partition] = offset
    return result


def find_recreated(topics: Collection[str], noted: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Those of ``topics`` whose noted id differs from the one now; unknown ids count as equal."""
    return {
        topic
        for topic in topics
        if (before := noted.get(topic)) and (after := now.get(topic)) and before != after
    }


def find_data_loss(
    start: Offsets,
    end: Offsets,
    added: Offsets,
    recreated: Collection[str] = (),
    *,
    selection: Selection = _EVERY_TOPIC,
) -> Iterator[DataLossError]:
    """What a stream can no longer read between ``start`` and ``end``.

    :param start: without the partitions of recreated topics.
    :param added: the log start offsets of the partitions in ``end`` that ``start`` lacks.
    :param recreated: the topics that were deleted and recreated.
    :param selection: what the stream subscribes to now, perhaps not what it did when ``start`` was stored.
    """
    for topic in sorted(recreated):
        yield _lost(
            f"TOPIC_RECREATED: topic {topic} was deleted and recreated, and its unread records are gone",
            hint="Set failOnDataLoss=false to read the new topic from its start. If its cluster has adopted a"
            " backup of the old one, that reads records twice: give the query a new checkpoint and"
            " startingOffsets=committed.",
        )
    deleted = start.keys() - end.keys()
    if others := not_selected(deleted, selection):
        deleted = deleted - others
        yield _lost(
            f"The checkpoint has offsets of {_listed(others)}, to which this query does not subscribe",
            hint="A checkpoint is for one subscription: give this query a checkpointLocation of its own, or"
            " subscribe to them again.",
        )
    if deleted:
        yield _lost(f"PARTITIONS_DELETED: {_listed(deleted)} have been deleted")
    for partition in sorted(end.keys() - start.keys()):
        if partition not in added:
            yield _lost(
                "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS: the partition was added, but may have been deleted",
                partition,
            )
        elif added[partition] != 0:
            yield _lost(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO: the partition was added, but starts from "
                f"{added[partition]} instead of 0",
                partition,
            )
    for partition in sorted(start.keys() & end.keys()):
        if end[partition] < start[partition]:
            yield _lost(
                f"PARTITION_OFFSET_CHANGED: the end went back from {start[partition]} to {end[partition]}; "
                "the topic may have been recreated, or a new query starts too high",
                partition,
                hint=f"{_NEWER_COPY} Set failOnDataLoss=false to go on without the new records below"
                f" offset {start[partition]}.",
            )


def log_went_back(partition: TopicPartition, offset: int, why: str) -> DataLossError:
    """The error of a stream whose log has other records below ``offset`` than it has read."""
    return _lost(
        f"LOG_WENT_BACK: records below offset {offset} are not those that were read, as {why}; the log was"
        " cut, for instance when a disk or directory was set back, and has grown again",
        partition,
        hint=f"{_NEWER_COPY} Set failOnDataLoss=false to go on at this offset, without the new records below"
        " it.",
    )


def check_nothing_lost_while_available_now(end: Offsets, latest: Offsets, recreated: Collection[str]) -> None:
    """Check that everything up to the frozen ends of ``Trigger.AvailableNow`` can still be read.

    :param recreated: the topics that were recreated since the ends were frozen.
    :raises DataLossError: whatever failOnDataLoss says, as in Spark.
    """
    for topic in sorted(recreated):
        raise _lost(
            f"TOPIC_RECREATED: topic {topic} was recreated after this query's end was fixed",
            hint="Restart the query.",
        )
    gone = end.keys() - latest.keys()
    if gone:
        raise _lost(
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW: "
            f"{_listed(gone)} have been deleted",
            hint="Restart the query.",
        )
    for partition, offset in sorted(end.items()):
        if offset > latest[partition]:
            raise _lost(
                "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW: "
                f"the batch ends at {offset}, but the partition at {latest[partition]}",
                partition,
                hint="Restart the query.",
            )


def _lost(
    message: str,
    partition: TopicPartition | None = None,
    *,
    hint: str = GO_ON,
) -> DataLossError:
    return DataLossError(message, topic_partition=partition, hint=hint)


def _listed(partitions: Collection[TopicPartition]) -> str:
    return listed(partitions, 20) or "none"
