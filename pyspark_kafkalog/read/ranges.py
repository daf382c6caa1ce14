"""The rows of a split as arrow batches: fetch, isolation, decode, data loss."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafkalog.codec.decode import Decoded, DecodeLimits, decode_slice
from pyspark_kafkalog.codec.isolation import AbortedRecords, Visibility
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import (
    CorruptRecordError,
    DataLossError,
    KafkaLogError,
    UnconfirmedError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.model import (
    EARLIEST,
    GO_ON,
    LATEST,
    TO_NEXT_BATCH,
    Fetch,
    OffsetRange,
    Place,
    TopicPartition,
    Watermarks,
    not_here,
    went_back,
)
from pyspark_kafkalog.read.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class ReadRules:
    """The rules for every split of one read."""

    schema: pa.Schema
    """The columns to build, exactly as Spark wants them."""
    read_committed: bool
    fail_on_data_loss: bool
    limits: DecodeLimits = field(default_factory=DecodeLimits)
    aborted: AbortedRecords | None = None
    """Counts what read_committed would leave out; None if no one asks."""


class Existing(NamedTuple):
    """The existing part of a split: its ``wanted`` offsets, as numbers, and the log start offset.

    The offsets are None without the partition, or if its topic is known to be another one. The log start
    offset is None where the plan has seen the offsets, so that no bounds were looked up.
    """

    wanted: OffsetRange | None
    log_start_offset: int | None


class SplitReader(Protocol):
    """Makes rows of the records of a split: as they are, or whole large messages."""

    def read(self, split: Split, found: Existing | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of ``split`` in offset order, as arrow batches of the schema; none is empty.

        :param found: what :func:`existing` has just said of it; it is asked now if this is None.
        :raises DataLossError: if offsets of the split are gone, or its topic is not the one that was
            planned for, and the rules say ``fail_on_data_loss``.
        :raises CorruptRecordError: for broken bytes, if ``fail_on_data_loss``; otherwise they are left
            out, logged and counted, and reading goes on at the next valid batch.
        """


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Makes a row of every record, including message segments; see :class:`SplitReader`."""

    place: Place
    rules: ReadRules

    def read(self, split: Split, found: Existing | None = None) -> Iterator[pa.RecordBatch]:
        """See :meth:`SplitReader.read`."""
        wanted, _ = found or existing(self.place, [split], self.rules)[0]
        if wanted is not None:
            yield from rows_of(self.place, split, wanted, self.rules)


def existing(place: Place, splits: Sequence[Split], rules: ReadRules) -> list[Existing]:
    """The existing part of each of ``splits``, looked up for all at once where their ends need it.

    EARLIEST and LATEST are looked up now, so that a plan that Spark kept sees what has come since. What
    exists may still be another topic's: :func:`rows_of` finds out.

    :raises DataLossError: if some offsets of a split are gone and ``rules.fail_on_data_loss``.
    """
    for split in splits:
        place.expect(split.partition, split.seen)
    open_ends = [split for split in splits if split.needs_bounds]
    late_end = any(split.offsets.end == LATEST for split in open_ends)
    bounds = (
        place.watermarks(
            [split.partition for split in open_ends], read_committed=rules.read_committed and late_end
        )
        if open_ends
        else {}
    )
    return [
        _existing(place, split, bounds.get(split.partition), rules)
        if split.needs_bounds
        else Existing(split.offsets, None)
        for split in splits
    ]


def _existing(place: Place, split: Split, bounds: Watermarks | None, rules: ReadRules) -> Existing:
    offsets = _with_numbers(split.offsets, bounds, rules)
    is_whole = (
        bounds is not None
        and bounds.log_start_offset <= offsets.start <= offsets.end <= bounds.high_watermark
        and (split.offsets.end != LATEST or split.seen.end <= bounds.high_watermark)
    )
    if not is_whole and _is_recreated(place, split, rules):
        return Existing(None, 0)
    return _checked(split, offsets, bounds, rules)


def rows_of(place: Place, split: Split, wanted: OffsetRange, rules: ReadRules) -> Iterator[pa.RecordBatch]:
    """The rows of ``wanted``: offsets of ``split``, from the plan or from :func:`existing`.

    The fetch itself shows whether they exist and belong to the topic. If it can't, or misses
    something, topic and bounds are looked up, and they decide. Without a topic id they can't, as
    they may be those of another topic by now: then the fetch has the last word.
    """
    _check_epoch(place, split, rules)
    left_out = None if rules.fail_on_data_loss else _LeftOut()
    topic_id = split.seen.topic_id
    looked_up_at: int | None = None

    def after(error: KafkaLogError, rest: OffsetRange) -> OffsetRange | None:
        nonlocal looked_up_at
        following = error.next_offset if isinstance(error, DataLossError) else None
        if topic_id and not is_another_log(error, rest) and rest.start != looked_up_at:
            # A fetch that misses all the rest has waited for it.
            is_waited_for = isinstance(error, DataLossError) and following is None
            place.expect(split.partition, split.seen._replace(end=0 if is_waited_for else rest.end))
            found = _remaining(place, split, rest, rules)
            looked_up_at = None if found is None else found.start
            return found
        if rules.fail_on_data_loss:
            raise error
        _log.warning("Skipped, because failOnDataLoss=false: %s", error)
        return rest._replace(start=rest.end if following is None else max(rest.start, following))

    yield from rows_despite_losses(
        place, replace(first_fetch(split, wanted, rules), on_corrupt=left_out), rules, after
    )
    if left_out is not None and left_out.count:
        _log.warning(
            "%s: skipped %d corrupt %s in offsets %d to %d",
            split.partition,
            left_out.count,
            "stretch" if left_out.count == 1 else "stretches",
            wanted.start,
            wanted.end - 1,
        )


def is_another_log(error: KafkaLogError, rest: OffsetRange) -> bool:
    """Whether a fetch has lost nothing, but found another log than was planned, to go on in with ``rest``."""
    return isinstance(error, DataLossError) and error.next_offset == rest.start


def first_fetch(split: Split, offsets: OffsetRange, rules: ReadRules) -> Fetch:
    """The fetch that a read of ``offsets`` begins with: it must confirm the topic, if the plan knows it."""
    topic_id = split.seen.topic_id
    return Fetch(split.partition, offsets, rules.read_committed, topic_id, confirm=bool(topic_id))


def rows_despite_losses(
    place: Place,
    wanted: Fetch,
    rules: ReadRules,
    after: Callable[[KafkaLogError, OffsetRange], OffsetRange | None],
) -> Iterator[pa.RecordBatch]:
    """The visible rows that are ``wanted``, continued where offsets turn out to be missing.

    :param after: called with the error and the offsets that are left; returns those to go on with, None to
        end there.
    """
    position, end = wanted.offsets
    while wanted.confirm or position < end:
        try:
            for arrow_batch, position in _decoded(place, wanted, rules):  # noqa: B007 - outlives an error
                if arrow_batch.num_rows:
                    yield arrow_batch
            return
        except (UnconfirmedError, DataLossError, UnknownTopicOrPartitionError) as e:
            remaining = after(e, OffsetRange(position, end))
            if remaining is None:
                return
            wanted = replace(wanted, offsets=remaining, confirm=False)
            position, end = remaining


def _decoded(place: Place, wanted: Fetch, rules: ReadRules) -> Iterator[Decoded]:
    """The visible rows that are ``wanted``, all of which must exist."""
    visible = Visibility(()) if wanted.read_committed else None
    position, end = wanted.offsets
    for piece in place.fetch(wanted):
        if visible is not None:
            visible.expect(piece.aborted)
        elif rules.aborted is not None:
            rules.aborted.add(wanted.partition, piece.buffer, batches_of(piece), OffsetRange(position, end))
        found = decode_slice(
            piece,
            topic_partition=wanted.partition,
            offsets=OffsetRange(position, end),
            visible=visible,
            schema=rules.schema,
            limits=rules.limits,
            on_corrupt=wanted.on_corrupt,
        )
        try:
            for result in found:
                position = result.next_offset
                yield result
        except CorruptRecordError as e:
            if wanted.on_corrupt is None and e.hint is None:
                raise e.with_hint(TO_NEXT_BATCH) from e
            raise


def _remaining(place: Place, split: Split, offsets: OffsetRange, rules: ReadRules) -> OffsetRange | None:
    """The part of ``offsets`` that exists in the planned topic; None if the topic no longer exists."""
    if _is_recreated(place, split, rules):
        return None
    bounds = place.watermarks([split.partition], read_committed=False).get(split.partition)
    _check_epoch(place, split, rules)
    return _checked(split, offsets, bounds, rules).wanted


def _check_epoch(place: Place, split: Split, rules: ReadRules) -> None:
    """See that no look-up has proved the partition to be back at an older leader epoch than was planned for.

    Its log may be as long as before, or longer, with other records.
    """
    now = place.leader_epochs([split.partition]).get(split.partition, -1)
    if 0 <= now < split.seen.leader_epoch:
        _lost(rules, went_back(split.partition, split.offsets.start, split.seen.leader_epoch, now))


def _is_recreated(place: Place, split: Split, rules: ReadRules) -> bool:
    topic, topic_id = split.partition.topic, split.seen.topic_id
    now = place.topic_ids([topic]).get(topic) if topic_id else None
    if not now or now == topic_id:
        return False
    what = f"TOPIC_RECREATED: topic {topic} was deleted and recreated since the query was planned"
    _lost(rules, _loss(what, split.partition, split.offsets.start))
    return True


def _with_numbers(offsets: OffsetRange, bounds: Watermarks | None, rules: ReadRules) -> OffsetRange:
    """``offsets`` with numbers for EARLIEST and LATEST, if the partition exists."""
    if bounds is None:
        return offsets
    start = bounds.log_start_offset if offsets.start == EARLIEST else offsets.start
    end = bounds.end(read_committed=rules.read_committed) if offsets.end == LATEST else offsets.end
    return OffsetRange(start, end)


def _checked(split: Split, offsets: OffsetRange, bounds: Watermarks | None, rules: ReadRules) -> Existing:
    """The part of ``offsets`` that is within ``bounds`` and wanted."""
    partition = split.partition
    if bounds is None:
        _lost(rules, _loss("The partition no longer exists", partition, offsets.start))
        return Existing(None, 0)
    start, end = offsets.start, max(offsets)
    lowest, highest = bounds.log_start_offset, bounds.high_watermark
    if start < lowest:
        below = OffsetRange(start, min(end, lowest))
        what = (
            f"COULD_NOT_READ_OFFSET_RANGE: offsets {below.start} to {below.end - 1}"
            f" are below the log start offset {lowest}"
        )
        elsewhere = bounds.elsewhere and below.within(bounds.elsewhere)
        if elsewhere and elsewhere.start < elsewhere.end:
            what += f". {not_here(elsewhere)}"
        _lost(rules, _loss(what, partition, start))
    if max(end, split.seen.end if split.offsets.end == LATEST else 0) > highest:
        what = f"COULD_NOT_READ_OFFSET_RANGE: the log ends at {highest}, before offset "
        hint = GO_ON
        if highest < split.seen.end:
            what += f"{split.seen.end}, where the planner saw it end. Is it the same log on every machine?"
        else:
            what += str(end)
            hint = f"If you gave this end, give {highest} at most. {GO_ON}"
        _lost(rules, _loss(what, partition, max(start, highest), hint))
    start, end = (min(max(offset, lowest), highest) for offset in (start, end))
    wanted = OffsetRange(start, end).within(split.within)
    return Existing(wanted if wanted.start < wanted.end else OffsetRange(end, end), lowest)


class _LeftOut:
    """Counts and logs what is skipped in one split where data loss is allowed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: CorruptRecordError | DataLossError) -> None:
        self.count += 1
        _log.warning("Skipped, because failOnDataLoss=false: %s", error)


def _loss(what: str, partition: TopicPartition, offset: int, hint: str = GO_ON) -> DataLossError:
    return DataLossError(what, topic_partition=partition, offset=offset, hint=hint)


def _lost(rules: ReadRules, loss: DataLossError) -> None:
    """Raise what a look at topic, bounds and leader epoch has proved, or log it."""
    if rules.fail_on_data_loss:
        raise loss
    _log.warning("%s", loss.with_hint(None))
