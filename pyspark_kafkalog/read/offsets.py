"""The offsets to read: the plan of a batch, and the start of a query; asks only the Place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import pairwise

from pyspark_kafkalog.errors import (
    GroupError,
    OptionError,
)
from pyspark_kafkalog.model import (
    ALL_OFFSETS,
    COMMITTED,
    EARLIEST,
    LATEST,
    OffsetRange,
    Place,
    Seen,
    TopicPartition,
    Watermarks,
)
from pyspark_kafkalog.model.groups import CommittedOffsets
from pyspark_kafkalog.options.offsets_json import PLANNED, Offsets
from pyspark_kafkalog.options.settings import GroupOptions, OffsetsOption, ReadOptions
from pyspark_kafkalog.options.times import with_iso
from pyspark_kafkalog.options.user_options import log_once
from pyspark_kafkalog.read.filters import ALL_ROWS, Bounds, offsets_within
from pyspark_kafkalog.read.partitions import look_up_partitions, names_of, with_topic_ids
from pyspark_kafkalog.read.splits import Split, cuts_between, split_ranges, with_decided

_log = logging.getLogger("pyspark_kafkalog")


def say_uncommitted(group: GroupOptions, what_commits: str) -> None:
    """Warn that a batch read commits nothing to its group, whose lag then shows what was read before.

    :param what_commits: the way to read that does.
    """
    if group.group_id is not None:
        _log.warning(
            "A batch read commits nothing to group %s: its lag stays as it is. %s commits what it has read,"
            " and kafkalog offsets reset sets the group by hand",
            group.group_id,
            what_commits,
        )


def start_from_group(
    options: ReadOptions,
    place: Place,
    groups: Callable[[], CommittedOffsets],
    *,
    may_be_new: bool = False,
) -> ReadOptions:
    """The options with the group's committed offsets in place of ``startingOffsets=committed``.

    :param may_be_new: whether a group may have no commits.
    :raises GroupError: if no partition has one and startingOffsetsByCommittedStrategy does not say where to
        start; if a partition has none and that is ``error``; or if one is not of its log, unless
        failOnDataLoss is false.
    """
    group = options.group.group_id
    if options.starting.values != COMMITTED or group is None:
        return options
    from pyspark_kafkalog.read.commits import check_commits

    partitions = look_up_partitions(place, options.selection)
    committed = groups().committed(group, partitions, require_stable=True)
    check_commits(place, group, committed, fail_on_data_loss=options.fail_on_data_loss)
    without = sorted(set(partitions) - committed.keys())
    if without and options.group.none_committed is None:
        raise GroupError(
            f"Group {group!r} has committed nothing for {names_of(without)}",
            hint="Set startingOffsetsByCommittedStrategy to earliest or latest to start there.",
        )
    may_be_new = may_be_new or options.group.may_be_new
    if without and not committed and not may_be_new:
        raise GroupError(
            f"Group {group!r} has committed nothing for {names_of(without)}",
            hint="Check its name. For a new group set startingOffsetsByCommittedStrategy to earliest or"
            " latest, to start there.",
        )
    at_ends = options.group.none_committed == LATEST
    # New partitions are to be read from their beginning.
    if without and not may_be_new and at_ends:
        log_once(
            logging.WARNING,
            "Consumer group %r has committed nothing for %s: starting at latest there. Check its name, or set"
            " startingOffsetsByCommittedStrategy",
            group,
            names_of(without),
        )
    offsets = {partition: committed_offset.offset for partition, committed_offset in committed.items()}
    if not options.fail_on_data_loss:  # what is beyond the end is not there
        ends = place.end_offsets(offsets, read_committed=False)
        offsets |= {partition: min(offset, offsets[partition]) for partition, offset in ends.items()}
    if at_ends:
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
                hint=_where_to_start(options, offsets, watermarks[partition]),
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
    planned = [
        Split(partition, OffsetRange(start, end), within[partition], seen[partition])
        for partition in partitions
        if _is_worth_a_task(requested[partition], ends[partition], existing[partition], within[partition])
        for start, end in pairwise([starts[partition], *cuts.get(partition, ()), ends[partition]])
    ]
    if not options.read_committed:
        return planned
    return with_decided(place, planned, look=lambda split: bool(cuts.get(split.partition)))


def _where_to_start(options: ReadOptions, offsets: OffsetRange, bounds: Watermarks) -> str:
    end = bounds.end(read_committed=options.read_committed)
    if offsets.start > end:
        return f"The log ends at {end}: start at {end} or before."
    return f"The log ends at {end}: end at {offsets.start} or later, or start at {offsets.end} or before."


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
    """The start offsets of a new stream: a number for each partition, sorted.

    :raises UnknownTopicOrPartitionError: like :func:`select_partitions`.
    :raises OptionError: if the user's offsets do not match the partitions.
    """
    partitions = look_up_partitions(place, options.selection)
    bounds = place.watermarks(partitions, read_committed=options.read_committed)
    partitions = tuple(partition for partition in partitions if partition in bounds)
    starts = _offset_per_partition(place, options, options.starting, partitions, bounds, _now_ms())
    return _resolve_sentinels(starts, bounds, options)


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
    """The offset of each partition: timestamps are looked up, EARLIEST and LATEST stay."""
    values = requested.at(now_ms)
    if isinstance(values, int):
        values = dict.fromkeys(partitions, values)
    elif values.keys() != set(partitions):
        kind = "TIMESTAMP" if requested.are_timestamps else "START"
        raise OptionError(
            f"KAFKA_{kind}_OFFSET_DOES_NOT_MATCH_ASSIGNED: {requested.option} must name exactly the "
            f"partitions that are read; specified {names_of(values)}, assigned {names_of(partitions)}",
            hint=_difference(requested, values, partitions),
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


def _difference(
    requested: OffsetsOption, given: Mapping[TopicPartition, int], read: Collection[TopicPartition]
) -> str:
    """The hint to an option that does not name the partitions that are read: what to change in it."""
    missing, foreign = set(read) - given.keys(), given.keys() - set(read)
    number = "-1 for its end" if requested.option.startswith("ending") else "-2 for its beginning"
    add = f"add {names_of(missing)}{'' if requested.are_timestamps else f' with an offset, or {number}'}"
    parts = [add] * bool(missing) + [f"leave out {names_of(foreign)}"] * bool(foreign)
    hint = ", and ".join(parts)
    return f"{hint[0].upper()}{hint[1:]}."


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
