"""The partitions of a place, as an administrator sees them (Kafka's TopicCommand and GetOffsetShell)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import (
    BrokerError,
    KafkaLogError,
    no_such_partition,
    why,
)
from pyspark_kafkalog.model import Files, Place, StoredSize, TopicPartition, Watermarks
from pyspark_kafkalog.model.rows import BIGINT, BOOLEAN, INT, NOTE, SIZE, STRING, TIMESTAMP, column
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.user_options import partitions_like
from pyspark_kafkalog.read.partitions import look_up_partitions


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a partition; timestamps are ms. None: the place does not say, or no record has one.

    ``earliest_timestamp`` is that of the first record that has one, ``latest_timestamp`` the
    greatest of all. Brokers don't report ``segments``, and report ``stored_bytes`` only to users
    who may describe the cluster. A partition that does not tell its bounds has none, and its ``note`` says
    why.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    topic_id: str | None = field(metadata=column(STRING, "TOPIC ID", wide=True, rank=2))
    log_start_offset: int | None = field(metadata=column(BIGINT, "START"))
    high_watermark: int | None = field(metadata=column(BIGINT, "END"))
    last_stable_offset: int | None = field(metadata=column(BIGINT, "STABLE", wide=True))
    stored_bytes: int | None = field(metadata=column(SIZE, "SIZE"))
    earliest_timestamp: int | None = field(metadata=column(TIMESTAMP, "EARLIEST", wide=True, rank=1))
    latest_timestamp: int | None = field(metadata=column(TIMESTAMP, "LATEST", rank=1))
    segments: int | None = field(metadata=column(INT, "SEGMENTS", wide=True))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True, rank=1))


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The state of a segment of a log directory; timestamps are ms, None if no record has one.

    ``segment`` is the name of its ``.log``, and ``file`` the path or URI. ``index_state`` is ``ok``,
    ``missing`` or ``damaged``: that of the worse of ``.index`` and ``.timeindex``, judged by its size and
    last entry, as a broker does on loading; ``verify`` reads all entries. Writes go to the ``active`` one.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    segment: str = field(metadata=column(STRING))
    file: str = field(metadata=column(STRING, "FILE", wide=True, rank=2))
    base_offset: int = field(metadata=column(BIGINT, "START"))
    stored_bytes: int = field(metadata=column(SIZE, "SIZE"))
    earliest_timestamp: int | None = field(metadata=column(TIMESTAMP, "EARLIEST", wide=True, rank=1))
    latest_timestamp: int | None = field(metadata=column(TIMESTAMP, "LATEST", rank=1))
    index_state: str = field(metadata=column(STRING, "INDEX"))
    active: bool = field(metadata=column(BOOLEAN, "ACTIVE", wide=True))


EVERY_TOPIC = Selection()
"""The selection of all topics that are not internal."""


def topics(
    place: Place, selection: Selection = EVERY_TOPIC, *, internal: bool = False
) -> list[PartitionState]:
    """Every partition of ``selection``, sorted.

    See :meth:`.kafka.TopicAdmin.partitions`.
    """
    return describe_partitions(place, partitions_of(place, selection, internal=internal))


def segments(
    place: Place, selection: Selection = EVERY_TOPIC, *, internal: bool = False
) -> list[SegmentState]:
    """Every segment of the partitions of ``selection``, in order; none for brokers, which don't show theirs.

    See :meth:`.kafka.TopicAdmin.segments`.
    """
    if not isinstance(place, Files):
        return []
    return [
        SegmentState(
            *partition,
            segment=segment.file.rpartition("/")[2],
            file=segment.file,
            base_offset=segment.base_offset,
            stored_bytes=segment.stored_bytes,
            earliest_timestamp=if_known(segment.earliest_timestamp),
            latest_timestamp=if_known(segment.latest_timestamp),
            index_state=segment.index_state,
            active=segment.active,
        )
        for partition in partitions_of(place, selection, internal=internal)
        for segment in place.segments(partition)
    ]


def partitions_of(
    place: Place, selection: Selection = EVERY_TOPIC, *, internal: bool = False
) -> tuple[TopicPartition, ...]:
    """The partitions of ``selection``, sorted; see :func:`topics`."""
    if internal and selection.names is None:
        found = place.topics().items()
        return tuple(
            TopicPartition(topic, number)
            for topic, numbers in found
            if selection.covers(topic, internal=True)
            for number in numbers
        )
    return look_up_partitions(place, selection)


def topics_of(place: Place, selection: Selection, *, internal: bool = False) -> list[str]:
    """The topics of ``selection`` that have partitions, sorted; see :func:`topics`."""
    return sorted({partition.topic for partition in partitions_of(place, selection, internal=internal)})


def existing(place: Place, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """The ``partitions`` that exist, in the given order."""
    topics = place.topics({partition.topic for partition in partitions}) if partitions else {}
    return [partition for partition in partitions if partition.partition in topics.get(partition.topic, ())]


def bounds_of(place: Place, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
    """The bounds of each of ``partitions``.

    :raises UnknownTopicOrPartitionError: if one does not exist.
    """
    try:
        bounds = place.watermarks(partitions, read_committed=False) if partitions else {}
    except BrokerError as e:
        raise e if len(partitions) < 2 else with_way_out(e) from e
    if missing := set(partitions).difference(bounds):
        check_exist(place, partitions)
        raise no_such_partition(missing)  # it was made meanwhile
    return bounds


def check_exist(place: Place, partitions: Collection[TopicPartition]) -> None:
    """Refuse partitions that do not exist.

    :raises UnknownTopicOrPartitionError: naming those that the topic has, or the topics that there are.
    """
    known = partitions_of(place, internal=True)
    if missing := set(partitions).difference(known):
        raise no_such_partition(missing, hint=partitions_like(missing, known))


def describe_partitions(place: Place, partitions: Collection[TopicPartition]) -> list[PartitionState]:
    """The state of those of ``partitions`` that exist, sorted."""
    if not partitions:
        return []
    ids = place.topic_ids({partition.topic for partition in partitions})
    bounds, failures = place.try_watermarks(partitions, read_committed=True)
    sizes = place.stored_sizes(bounds)
    oldest, newest = place.oldest_timestamps(bounds), place.newest_timestamps(bounds)
    return [
        PartitionState(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=ids.get(partition.topic) or None,
            log_start_offset=None if marks is None else marks.log_start_offset,
            high_watermark=None if marks is None else marks.high_watermark,
            last_stable_offset=None if marks is None else marks.last_stable_offset,
            stored_bytes=sizes[partition].stored_bytes if partition in sizes else None,
            earliest_timestamp=if_known(oldest.get(partition)),
            latest_timestamp=if_known(newest.get(partition)),
            segments=_segments(sizes.get(partition)),
            note=why(failures[partition]) if partition in failures else "",
        )
        for partition in sorted(bounds.keys() | failures.keys())
        for marks in [bounds.get(partition)]
    ]


def with_way_out(error: BrokerError) -> KafkaLogError:
    """The error of one of several partitions, which are asked for by name."""
    return error.with_hint(
        f"{f'{error.hint} ' if error.hint else ''}Or name only partitions that kafkalog topics shows."
    )


def of_some(partitions: Collection[TopicPartition], reason: str) -> str:
    """The note, in the row of several partitions, about those that don't tell their bounds."""
    first, *others = sorted(partitions)
    return f"{first}{f' and {len(others)} more' if others else ''}: {reason}"


def _segments(size: StoredSize | None) -> int | None:
    return None if size is None or size.segments is None else len(size.segments)


def if_known(value: int | None) -> int | None:
    """A timestamp or an epoch; None where -1 says that there is none."""
    return value if value is not None and value >= 0 else None
