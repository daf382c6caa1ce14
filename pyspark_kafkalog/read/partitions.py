"""The partitions that a query reads: those that exist and that its options select."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from pyspark_kafkalog.errors import UnknownTopicOrPartitionError, listed, numbered
from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.user_options import names_like

_log = logging.getLogger("pyspark_kafkalog")

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
    named = selection.names
    if named is None:
        named = tuple(topic for topic in topics if selection.covers(topic))
    unknown = [topic for topic in named if topic not in topics]
    if unknown and must_exist:
        hint = names_like(unknown, topics, "topic")
        raise UnknownTopicOrPartitionError(f"No such topic: {', '.join(unknown)}", hint=hint)
    found = [TopicPartition(topic, number) for topic in named for number in topics.get(topic, ())]
    if selection.partitions is not None:
        found = list(set(selection.partitions).intersection(found))
    return tuple(sorted(found))


def _warn_of_what_is_missing(
    topics: Mapping[str, tuple[int, ...]], selection: Selection, found: Collection[TopicPartition]
) -> None:
    """Say what a selection covers in vain: Spark skips it without a word."""
    if selection.pattern is not None and not found:
        text = "No topic matches subscribePattern %r%s, so nothing is read. %s"
        rest = " without being excluded" if selection.exclude else ""
        _log.warning(text, selection.pattern, rest, names_like((), topics, "topic"))
    elif selection.exclude and not found:
        _log.warning("Every topic is excluded, so nothing is read. %s", names_like((), topics, "topic"))
    missing = set(selection.partitions or ()).difference(found)
    for topic in sorted({partition.topic for partition in missing}):
        names = names_of([partition for partition in missing if partition.topic == topic])
        text = "No such partition: %s. Topic %s has %s."
        _log.warning(text, names, topic, numbered(len(topics[topic])))


def not_selected(partitions: Iterable[TopicPartition], selection: Selection) -> set[TopicPartition]:
    """The partitions that ``selection`` would not cover even if they existed."""
    if selection.partitions is not None:
        return set(partitions).difference(selection.partitions)
    return {partition for partition in partitions if not selection.covers(partition.topic)}


def look_up_partitions(
    place: Place, selection: Selection, *, must_exist: bool = True
) -> tuple[TopicPartition, ...]:
    """Like :func:`select_partitions`, for a place; only the topics needed are looked up.

    A topic that must exist is looked up several times, since the brokers of a
    cluster learn of a new topic one after another.
    """
    names = selection.names
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
    """The partitions whose topics exist, and their topic ids; the given list may be outdated."""
    topic_ids = place.topic_ids({partition.topic for partition in partitions})
    return tuple(partition for partition in partitions if partition.topic in topic_ids), topic_ids


def names_of(partitions: Collection[TopicPartition]) -> str:
    """The names of the first 20 partitions, for a message."""
    return listed(partitions, 20) or "none"
