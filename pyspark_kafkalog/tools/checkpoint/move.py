"""A move: a query goes on in another cluster, which has copies of the records that it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import KafkaLogError, listed, no_such_partition
from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.tools.checkpoint.change import (
    CheckpointChange,
    batches_to_change,
    plan_change,
    was_moved,
)
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles
from pyspark_kafkalog.tools.checkpoint.goals import CheckpointStep
from pyspark_kafkalog.tools.checkpoint.sink_history import open_sink_history
from pyspark_kafkalog.tools.checkpoint.translation import EXACT, UNKNOWN, Translated, Translation

if TYPE_CHECKING:
    from pyspark_kafkalog.client.kafka import Kafka


def plan_move(
    location: str,
    kafka: Kafka,
    translation: Translation,
    *,
    with_state: bool = False,
    with_sink: Kafka | None = None,
) -> CheckpointChange:
    """The change of a move to a place; see :meth:`.room.CheckpointAdmin.plan_move`."""
    files = CheckpointFiles.open(location)
    batches_to_change(files)
    position = {
        name: source.offsets for name, source in files.position().items() if source.offsets is not None
    }
    place = kafka.place
    cluster, target = identity(kafka.place_options)
    read = {partition.topic for offsets in position.values() for partition in offsets}
    if was_moved(files, target):
        translation = _Moved(read)
    topic_ids = files.state.topic_ids(target)
    unproven = read - {*translation.check_source(topic_ids)}
    translated: dict[TopicPartition, Translated] = {}
    steps = []
    for name, offsets in position.items():
        found = translation.translate(offsets)
        translated |= found
        for partition, offset in sorted(offsets.items()):
            to = found[partition]
            steps.append(CheckpointStep(name, *to.partition, offset, to.offset, _note(partition, to)))
    if unknown := sorted(partition for partition, to in translated.items() if to.exactness == UNKNOWN):
        first = translated[unknown[0]]
        raise KafkaLogError(
            f"It is not known where the query goes on in {listed(unknown, 5)}: {first.note}",
            topic_partition=unknown[0],
            hint="Set the checkpoint to offsets that were copied, by kafkalog checkpoint rewind.",
        )
    planned = {} if files.is_complete else _planned(files, translation, translated)
    ends = [to for found in planned.values() for to in found.values()]
    ids_there = place.topic_ids({to.partition.topic for to in translated.values()})
    translation.check_target(cluster, ids_there)
    _check_there(place, [*translated.values(), *ends])
    is_exact = all(to.exactness == EXACT for to in [*translated.values(), *ends])
    return plan_change(
        files,
        steps,
        repeated={name: _offsets(found.values()) for name, found in planned.items()},
        with_state=with_state or is_exact,
        sink=None if with_sink is None else open_sink_history(with_sink, files.query_id, location),
        topic_ids=ids_there,
        place=target,
        names={
            partition: to.partition
            for found in (translated, *planned.values())
            for partition, to in found.items()
        },
        notes=[*_notes(kafka, translated), *_unproven(unproven, topic_ids)],
        target=target,
    )


def _planned(
    files: CheckpointFiles, translation: Translation, position: Mapping[TopicPartition, Translated]
) -> dict[str, dict[TopicPartition, Translated]]:
    """The ends of the micro-batch that is not complete, by source: it is repeated up to them.

    So a sink that has it already is told nothing else by its number. What nothing is known of is left to the
    next micro-batch.
    """
    assert files.newest is not None
    planned = {}
    for source in files.plan(files.newest).sources:
        if source.offsets is None:
            continue
        found = {}
        for partition, to in translation.translate(source.offsets).items():
            begin = position.get(partition)
            if to.offset is not None and (begin is None or to.offset >= (begin.offset or 0)):
                found[partition] = to
            elif begin is not None:
                found[partition] = begin
        planned[source.name] = found
    return planned


def _offsets(translated: Iterable[Translated]) -> Offsets:
    return {to.partition: to.offset for to in translated if to.offset is not None}


class _Moved:
    """The translation of a checkpoint that is moved already, of a query that reads these topics."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def check_source(self, topic_ids: Mapping[str, str]) -> Collection[str]:
        """See :meth:`.translation.Translation.check_source`."""
        return self._topics

    def check_target(self, cluster_id: str | None, topic_ids: Mapping[str, str]) -> None:
        """See :meth:`.translation.Translation.check_target`."""

    def translate(self, offsets: Offsets) -> Mapping[TopicPartition, Translated]:
        """See :meth:`.translation.Translation.translate`."""
        return {partition: Translated(partition, offset, EXACT, 0) for partition, offset in offsets.items()}


def _note(partition: TopicPartition, to: Translated) -> str:
    was = f"was {partition}; " if partition != to.partition else ""
    repeated = f", at most {to.repeated} again" if to.repeated else ""
    return f"{was}{to.exactness}{repeated}{f': {to.note}' if to.note else ''}"


def _notes(kafka: Kafka, translated: Mapping[TopicPartition, Translated]) -> Iterator[str]:
    yield f"Before its next start, let the query read {kafka.name}."
    names = {old.topic: to.partition.topic for old, to in translated.items()}
    if renamed := [f"{old} is {new}" for old, new in sorted(names.items()) if old != new]:
        yield f"Topics have other names there: {', '.join(renamed)}."
    if any(to.exactness != EXACT for to in translated.values()):
        yield "Where it is not exact, records come again that the query has processed: none is left out."


def _unproven(topics: Collection[str], topic_ids: Mapping[str, str]) -> Iterator[str]:
    """Say of which topics nothing shows that the query has read those that were copied."""
    known = {topic for topic in topics if topic_ids.get(topic)}
    for of, lacks in (
        ({*topics} - known, 'the checkpoint has no id of it: a reader of format("kafkalog") stores that'),
        (known, "nothing tells the id of what was copied"),
    ):
        if of:
            yield f"See that the query has read what was copied, of {listed(sorted(of), 5)}: {lacks}."


def _check_there(place: Place, translated: Collection[Translated]) -> None:
    """See that all offsets are those of logs that are there.

    :raises KafkaLogError: if a partition is missing, or its log has not the offset.
    """
    targets = [(to.partition, to.offset) for to in translated if to.offset is not None]
    partitions = {partition for partition, _ in targets}
    bounds = place.watermarks(partitions, read_committed=False)
    if missing := partitions - bounds.keys():
        raise no_such_partition(missing)
    for partition, offset in targets:
        marks = bounds[partition]
        if not marks.log_start_offset <= offset <= marks.high_watermark:
            raise KafkaLogError(
                f"The log of the place is from {marks.log_start_offset} to {marks.high_watermark}",
                topic_partition=partition,
                offset=offset,
                hint="Records were deleted there, or the copy is not up to date. Wait for it, or set the"
                " checkpoint to offsets that it has.",
            )
