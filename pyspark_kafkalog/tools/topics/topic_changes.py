"""Makes, changes and deletes topics (Kafka's TopicCommand and ConfigCommand): first shown, then done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral

from pyspark_kafkalog.client.partitions import of_some
from pyspark_kafkalog.errors import OptionError, TopicExistsError, UnknownTopicOrPartitionError, listed, why
from pyspark_kafkalog.model import Place, TopicPartition, check_topic
from pyspark_kafkalog.model.rows import BIGINT, INT, NOTE, SIZE, STRING, Kind, column
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NewTopic, Topics
from pyspark_kafkalog.options.arguments import check_all, check_kind
from pyspark_kafkalog.options.topic_configs import check_topic_configs
from pyspark_kafkalog.options.user_options import near_names

_NAMED = 20
"""The number of topics that a message names."""

PARTITIONS = "partitions"
"""Stands for the number of partitions among the changes of a topic."""
_MOST_PARTITIONS = 100_000
_HELD_BY_INTERNAL_TOPICS: Mapping[str, str] = {
    OFFSETS_TOPIC: "the offsets of all consumer groups, and all markers of exactly-once writes",
    TRANSACTIONS_TOPIC: "the state of all transactions, so that those under way may never end",
    "__share_group_state": "the state of all share groups",
    "__remote_log_metadata": "the knowledge of what is in tiered storage",
}
"""The loss that comes with the deletion of each internal topic."""
_CREATED = Kind("boolean", text=lambda created: "created" if created else "existed before")


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic after :func:`create_topics`; ``created`` is False if it existed before."""

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partitions: int = field(metadata=column(INT, "PARTITIONS"))
    created: bool = field(metadata=column(_CREATED, "NOTE"))


@dataclass(frozen=True, slots=True)
class TopicToDelete:
    """A topic, and what is lost with it: ``records`` are offsets, some of which may have no record.

    Both are None where the place does not say, such as without a leader; then ``note`` says why.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partitions: int = field(metadata=column(INT, "PARTITIONS"))
    records: int | None = field(metadata=column(BIGINT, "RECORDS"))
    stored_bytes: int | None = field(metadata=column(SIZE, "SIZE"))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A new value of a topic's configuration, or of its number of :data:`PARTITIONS`.

    ``current`` is the topic's own value, None if it inherits one; ``new`` is None where it is to inherit.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    name: str = field(metadata=column(STRING, "NAME"))
    current: str | None = field(metadata=column(STRING, "CURRENT"))
    new: str | None = field(metadata=column(STRING, "NEW"))


def create_topics(
    place: Place,
    topics: Topics,
    new: Sequence[NewTopic],
    *,
    if_not_exists: bool = False,
    validate_only: bool = False,
) -> list[CreatedTopic]:
    """Create topics, and return them as they are then.

    See :meth:`.kafka.TopicAdmin.create`.
    """
    _check_new(topics, new)
    existing = place.topics([topic.topic for topic in new])
    if not if_not_exists and existing:
        names = listed(existing, _NAMED)
        raise TopicExistsError(
            f"Topic {names} exists already" if len(existing) == 1 else f"Topics {names} exist already",
            hint="Choose another name, or give if_not_exists=True to leave what exists as it is.",
        )
    missing = [topic for topic in new if topic.topic not in existing]
    if missing:
        topics.create(missing, validate_only=validate_only)
    made = {} if validate_only else place.topics([topic.topic for topic in missing])
    return [
        CreatedTopic(
            topic.topic,
            len(made.get(topic.topic, existing.get(topic.topic, ()))) or topic.partitions or 1,
            topic.topic not in existing,
        )
        for topic in new
    ]


def _check_new(topics: Topics, new: Sequence[NewTopic]) -> None:
    check_all(new, NewTopic, "kafka.topics.create([NewTopic('orders', partitions=3)])")
    for topic in new:
        if check_topic(topic.topic) in INTERNAL_TOPICS:
            raise OptionError(
                f"{topic.topic} is an internal topic, which brokers alone create",
                hint="Name another topic. Brokers create this one when they first need it.",
            )
        for number in topic.partitions, topic.replication_factor:
            if number is not None:
                check_kind(number, Integral, "NewTopic('orders', partitions=3)")
        if topic.partitions is not None and not 1 <= topic.partitions <= _MOST_PARTITIONS:
            raise OptionError(
                f"Topic {topic.topic}: expected 1 to {_MOST_PARTITIONS} partitions, got {topic.partitions}"
            )
        if topic.replication_factor is not None and not 1 <= topic.replication_factor < 2**15:
            raise OptionError(
                f"Topic {topic.topic}: expected a replication factor of 1 or more,"
                f" got {topic.replication_factor}"
            )
    if len({topic.topic for topic in new}) < len(new):
        raise OptionError("A topic to create is named twice")
    if any(topic.configs for topic in new):
        names = topics.config_names()
        for topic in new:
            check_topic_configs(topic.configs, names)


def plan_deletion(place: Place, names: Collection[str], *, if_exists: bool = False) -> list[TopicToDelete]:
    """The deletions that :func:`delete_topics` would do; nothing is changed.

    See :meth:`.kafka.TopicAdmin.plan_deletion`.
    """
    if internal := INTERNAL_TOPICS.intersection(names):
        topic = min(internal)
        raise OptionError(
            f"{topic} is an internal topic. With it would go {_HELD_BY_INTERNAL_TOPICS[topic]}",
            hint="Leave it out. kafkalog offsets delete removes single groups; the whole topic, only Kafka's"
            " own kafka-topics.",
        )
    found = place.topics([check_topic(name) for name in names])
    _check_exist(place, names, found, if_exists=if_exists)
    partitions = [TopicPartition(topic, number) for topic in found for number in found[topic]]
    bounds, failures = place.try_watermarks(partitions) if partitions else ({}, {})
    sizes = place.stored_sizes(bounds) if bounds else {}
    rows = []
    for topic in sorted(found):
        own = [partition for partition in partitions if partition.topic == topic]
        known = [sizes[partition].stored_bytes for partition in own if partition in sizes]
        silent = [partition for partition in own if partition in failures]
        records = sum(bounds[p].high_watermark - bounds[p].log_start_offset for p in own if p in bounds)
        rows.append(
            TopicToDelete(
                topic,
                len(own),
                None if silent else records,
                sum(known) if len(known) == len(own) else None,
                of_some(silent, why(failures[silent[0]])) if silent else "",
            )
        )
    return rows


def delete_topics(topics: Topics, deletion: Sequence[TopicToDelete]) -> None:
    """Delete the topics of :func:`plan_deletion` with all their records, and their committed offsets.

    See :meth:`.kafka.TopicAdmin.delete`.
    """
    check_all(deletion, TopicToDelete, "kafka.topics.delete(kafka.topics.plan_deletion(['orders']))")
    if deletion:
        topics.delete([row.topic for row in deletion])


def plan_alteration(
    place: Place,
    topics: Topics,
    names: Collection[str],
    *,
    partitions: int | None = None,
    configs: Mapping[str, str | None] | None = None,
    if_exists: bool = False,
) -> list[TopicChange]:
    """The changes that :func:`alter_topics` would make; nothing is changed, but the place has checked them.

    See :meth:`.kafka.TopicAdmin.plan_alteration`.
    """
    wanted = configs or {}
    if wanted:
        check_topic_configs(wanted, topics.config_names())
    found = place.topics([check_topic(name) for name in names])
    _check_exist(place, names, found, if_exists=if_exists)
    own = topics.configs(list(found)) if wanted else {}
    changes = []
    for topic in sorted(found):
        count = len(found[topic])
        if partitions is not None and partitions != count:
            if partitions < count:
                raise OptionError(
                    f"Topic {topic} has {count} partitions: expected more, got {partitions}",
                    hint="Partitions can only be added.",
                )
            topics.add_partitions(topic, partitions, validate_only=True)
            changes.append(TopicChange(topic, PARTITIONS, str(count), str(partitions)))
        current = own.get(topic, {})
        different = {name: value for name, value in wanted.items() if current.get(name) != value}
        if different:
            topics.alter_configs(topic, different, validate_only=True)
        changes += [TopicChange(topic, name, current.get(name), new) for name, new in different.items()]
    return changes


def alter_topics(topics: Topics, changes: Sequence[TopicChange]) -> None:
    """Carry out what :func:`plan_alteration` gave."""
    example = "kafka.topics.alter(kafka.topics.plan_alteration(['orders'], partitions=3))"
    check_all(changes, TopicChange, example)
    for topic in dict.fromkeys(change.topic for change in changes):
        own = {change.name: change.new for change in changes if change.topic == topic}
        partitions = own.pop(PARTITIONS, None)
        if partitions is not None:
            topics.add_partitions(topic, int(partitions))
        if own:
            topics.alter_configs(topic, own)


def _check_exist(place: Place, names: Collection[str], found: Collection[str], *, if_exists: bool) -> None:
    missing = sorted(name for name in names if name not in found)
    if missing and not if_exists:
        near = near_names(missing[0], place.topics())
        meant = f"Did you mean {' or '.join(near)}? Otherwise leave it out" if near else "Leave it out"
        raise UnknownTopicOrPartitionError(
            f"No such topic: {missing[0]}", hint=f"{meant}, or give if_exists=True."
        )
