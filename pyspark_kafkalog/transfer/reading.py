"""From a range of offsets in a place to arrow batches: fetch, isolation, decode, data loss."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.codec.decode import Decoded, DecodeLimits, decode
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import (
    ALL_OFFSETS,
    EARLIEST,
    LATEST,
    OffsetRange,
    OnCorrupt,
    Place,
    TopicPartition,
)
from pyspark_kafkalog.planning.splitting import Split

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class ReadRules:
    """What holds for every range of one read."""

    schema: pa.Schema
    """The columns to build, exactly as Spark wants them."""
    read_committed: bool
    fail_on_data_loss: bool
    limits: DecodeLimits


class _LeftOut:
    """Counts and logs what is left out of one range where data loss is allowed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: CorruptRecordError) -> None:
        self.count += 1
        _log.warning("Left out, as failOnDataLoss=false asks: %s", error)


ReadRange = Callable[..., "Iterator[pa.RecordBatch]"]
"""What takes the arguments of :func:`read_range`, and gives rows of that range."""


def read_split(
    place: Place, split: Split, rules: ReadRules, read: ReadRange | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of ``split``; see :func:`read_range`, in whose place ``read`` may stand.

    :raises DataLossError: also if the topic is not the one that was planned for.
    """
    topic = split.partition.topic
    place.expect(split.partition, split.seen)
    topic_id = split.seen.topic_id
    now = place.topic_ids([topic]).get(topic) if topic_id else None
    if now and now != topic_id:
        what = f"TOPIC_RECREATED: topic {topic} was deleted and made anew since the query was planned"
        _lost(rules, what, split.partition, split.offsets.start)
        return
    yield from (read or read_range)(place, split.partition, split.offsets, rules, within=split.within)


def read_range(
    place: Place,
    partition: TopicPartition,
    offsets: OffsetRange,
    rules: ReadRules,
    *,
    within: OffsetRange = ALL_OFFSETS,
) -> Iterator[pa.RecordBatch]:
    """The rows of ``offsets`` in offset order, as arrow batches of ``rules.schema``; none is empty.

    ``offsets`` may hold EARLIEST as its start and LATEST as its end: they are
    looked up now, so that a plan that Spark kept sees what has come since.

    :param within: the offsets that are wanted; the others must exist all the same.
    :raises DataLossError: if offsets of the range are gone and ``rules.fail_on_data_loss``.
    :raises CorruptRecordError: for broken bytes, if ``rules.fail_on_data_loss``; otherwise they
        are left out, logged and counted, and reading goes on at the next valid batch.
    """
    wanted, _ = resolve(place, partition, offsets, rules)
    yield from read_existing(place, partition, wanted.within(within), rules)


def read_existing(
    place: Place, partition: TopicPartition, wanted: OffsetRange, rules: ReadRules
) -> Iterator[pa.RecordBatch]:
    """The rows of offsets that :func:`resolve` has found to exist; see :func:`read_range`."""
    left_out = None if rules.fail_on_data_loss else _LeftOut()
    position = wanted.start
    while position < wanted.end:
        try:
            for arrow_batch, position in decoded(  # noqa: B007, B020 - progress survives the error below
                place, partition, OffsetRange(position, wanted.end), rules, left_out
            ):
                if arrow_batch.num_rows:
                    yield arrow_batch
            break
        except (DataLossError, UnknownTopicOrPartitionError) as e:
            if rules.fail_on_data_loss:
                raise
            _log.warning("Left out, as failOnDataLoss=false asks: %s", e)
            following = e.next_offset if isinstance(e, DataLossError) else None
            position = wanted.end if following is None else max(position, following)
    if left_out is not None and left_out.count:
        _log.warning("%s: %d broken stretches left out of offsets %s", partition, left_out.count, wanted)


def decoded(
    place: Place,
    partition: TopicPartition,
    offsets: OffsetRange,
    rules: ReadRules,
    on_corrupt: OnCorrupt | None,
) -> Iterator[Decoded]:
    """The visible rows of ``offsets``, all of which must exist."""
    visible = Visibility(()) if rules.read_committed else None
    position = offsets.start
    for piece in place.fetch(partition, offsets, read_committed=rules.read_committed, on_corrupt=on_corrupt):
        if visible is not None:
            visible.expect(piece.aborted)
        for its in decode(
            piece.buffer,
            topic_partition=partition,
            offsets=OffsetRange(position, offsets.end),
            visible=visible,
            schema=rules.schema,
            limits=rules.limits,
            origin=piece.origin,
            on_corrupt=on_corrupt,
        ):
            position = its.next_offset
            yield its


def resolve(
    place: Place, partition: TopicPartition, offsets: OffsetRange, rules: ReadRules
) -> tuple[OffsetRange, int]:
    """Those of ``offsets`` that exist, as numbers, and the log start offset.

    :raises DataLossError: if some are gone and ``rules.fail_on_data_loss``.
    """
    late_end = offsets.end == LATEST
    bounds = place.watermarks([partition], read_committed=rules.read_committed and late_end).get(partition)
    if bounds is None:
        _lost(rules, "The partition is gone", partition, offsets.start)
        return OffsetRange(0, 0), 0
    start = bounds.log_start_offset if offsets.start == EARLIEST else offsets.start
    end = bounds.end(read_committed=rules.read_committed) if late_end else offsets.end
    if start < bounds.log_start_offset:
        _lost(
            rules,
            f"COULD_NOT_READ_OFFSET_RANGE: offsets {start} to {min(end, bounds.log_start_offset) - 1}"
            f" are below the log start offset {bounds.log_start_offset}",
            partition,
            start,
        )
        start = bounds.log_start_offset
    if end > bounds.high_watermark:
        _lost(
            rules,
            f"COULD_NOT_READ_OFFSET_RANGE: the log ends at {bounds.high_watermark}, before offset {end}",
            partition,
            max(start, bounds.high_watermark),
        )
        end = bounds.high_watermark
    return OffsetRange(start, end), bounds.log_start_offset


def _lost(rules: ReadRules, what: str, partition: TopicPartition, offset: int) -> None:
    error = DataLossError(
        what,
        topic_partition=partition,
        offset=offset,
        hint="Set failOnDataLoss=false to read on without them." if rules.fail_on_data_loss else None,
    )
    if rules.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
