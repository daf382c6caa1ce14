"""Data loss: offsets that a running stream can no longer read, by the logs that its plans have seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import GO_ON, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.read.partitions import names_of, not_selected

_EVERY_TOPIC = Selection()
_NEW_TARGET = "(and a new target if that counts micro-batches, as files do)"
"""The advice that goes with a new checkpoint, whose micro-batches count from 0."""
_NEWER_COPY = (
    "If an older copy was put in place, bring the newer one back, or begin with a new checkpoint"
    f" {_NEW_TARGET}."
)


def find_recreated(topics: Collection[str], known: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """The topics whose known id differs from the id of ``now``; unknown ids count as equal."""
    return {
        topic
        for topic in topics
        if (before := known.get(topic)) and (after := now.get(topic)) and before != after
    }


def find_data_loss(
    start: Offsets,
    end: Offsets,
    added: Offsets,
    recreated: Collection[str] = (),
    *,
    selection: Selection = _EVERY_TOPIC,
) -> Iterator[DataLossError]:
    """The data loss between ``start`` and ``end``: offsets that a stream can no longer read.

    :param start: without the partitions of recreated topics.
    :param added: the log start offsets of the partitions in ``end`` that ``start`` lacks.
    :param recreated: the topics that were deleted and recreated.
    :param selection: what the stream subscribes to now, perhaps not what it did when ``start`` was stored.
    """
    for topic in sorted(recreated):
        yield _lost(
            f"TOPIC_RECREATED: topic {topic} is not the one that was read: it was deleted and recreated, or"
            " this is another cluster or directory",
            hint="If it is another, give the reader the place that the query has read. Otherwise what was not"
            " read of the old topic is gone: failOnDataLoss=false reads the new one from its start. If its"
            " cluster has adopted a backup of the old one, that reads records twice: give the query a new"
            f" checkpoint and startingOffsets=committed {_NEW_TARGET}.",
        )
    deleted = start.keys() - end.keys()
    if others := not_selected(deleted, selection):
        deleted = deleted - others
        yield _lost(
            f"The checkpoint has offsets of {names_of(others)}, to which this query does not subscribe",
            hint="A checkpoint is for one subscription: give this query a checkpointLocation of its own, or"
            " subscribe to them again.",
        )
    if deleted:
        yield _lost(f"PARTITIONS_DELETED: {names_of(deleted)} have been deleted")
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
            f"{names_of(gone)} have been deleted",
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
