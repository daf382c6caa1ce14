"""A rewind: a query goes on from other offsets of the same place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.tools.checkpoint.change import (
    CheckpointChange,
    batches_to_change,
    changed_by,
    check_of_place,
    plan_change,
)
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles
from pyspark_kafkalog.tools.checkpoint.goals import (
    Goal,
    RewindTo,
    committed_offsets,
    repeated_ends,
    steps_to,
)
from pyspark_kafkalog.tools.checkpoint.sink_history import open_sink_history

if TYPE_CHECKING:
    from pyspark_kafkalog.client.kafka import Kafka


def plan_rewind(
    location: str,
    to: RewindTo,
    value: int | str | Mapping[TopicPartition, int] = 0,
    *,
    kafka: Kafka | None,
    sources: Collection[str] | None = None,
    topics: Collection[TopicPartition | str] | None = None,
    with_state: bool = False,
    with_sink: Kafka | None = None,
) -> CheckpointChange:
    """The change of a rewind; see :meth:`.room.CheckpointAdmin.plan_rewind`.

    :param kafka: the place that the query reads; without it nothing tells which of the offsets exist.
    """
    files = CheckpointFiles.open(location)
    batches_to_change(files)
    place = None if kafka is None else kafka.place
    if to is RewindTo.GROUP:
        if kafka is None or not isinstance(value, str):
            raise OptionError("A group is one of a place", hint="Give PLACE, and the name of the group.")
        committed = kafka.groups.committed(value)
        given = {partition: offset.offset for partition, offset in committed.items()}
        read = {topic for topic, _ in _read(files)}
        if not given:
            kafka.groups.describe([value])  # which names those that are near, if there is no such group
        value = committed_offsets({p: at for p, at in given.items() if p.topic in read}, value)
    if isinstance(value, Mapping) and not all(isinstance(each, TopicPartition) for each in value):
        raise OptionError("Expected offsets by partition", hint='Write {TopicPartition("orders", 0): 23}.')
    if isinstance(value, str) or (to in (RewindTo.GROUP, RewindTo.OFFSETS)) != isinstance(value, Mapping):
        raise OptionError(f"Expected a value that fits {to.value}, got {type(value).__name__}")
    notes = []
    if to is RewindTo.BATCH and isinstance(value, int):
        check_of_place(files, value)
        if kept := changed_by(files, value):
            notes.append(
                f"Micro-batch {value} ends where a change has set it: {kept} has how it was planned."
            )
    goal = Goal(to, value, sources, topics)
    where = "" if kafka is None else identity(kafka.place_options)[1]
    known = files.state.topic_ids(where)
    steps = steps_to(files, place, goal, known)
    topic_ids: Mapping[str, str] = {}
    if kafka is not None and place is not None:
        covered = {step.topic for step in steps if goal.covers_all(step.topic)}
        topic_ids = place.topic_ids(covered)
    return plan_change(
        files,
        steps,
        repeated=repeated_ends(files, place, goal, known),
        with_state=with_state,
        sink=None if with_sink is None else open_sink_history(with_sink, files.query_id, location),
        topic_ids=topic_ids,
        place=where,
        notes=notes,
    )


def _read(files: CheckpointFiles) -> set[TopicPartition]:
    """The partitions that the query has read."""
    return {partition for source in files.position().values() for partition in source.offsets or ()}
