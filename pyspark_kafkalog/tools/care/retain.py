"""Deletes the oldest records: what retention says, or below given offsets (Kafka's DeleteRecordsCommand)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_kafkalog.client.partitions import topics_of
from pyspark_kafkalog.errors import (
    KafkaLogError,
    OptionError,
    no_such_partition,
    why,
)
from pyspark_kafkalog.extensions.cleanup import deleting
from pyspark_kafkalog.extensions.cleanup.policies import DeletePolicy
from pyspark_kafkalog.model import HIGH_WATERMARK, TopicPartition, check_topic
from pyspark_kafkalog.model.rows import BIGINT, INT, NOTE, SIZE, STRING, STRINGS, column
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG, where_not_json
from pyspark_kafkalog.options.settings import PlaceOptions, Selection
from pyspark_kafkalog.options.table import RETENTION_CONFIGS, Use
from pyspark_kafkalog.options.user_options import UserOptions, suggestion
from pyspark_kafkalog.options.values import import_path
from pyspark_kafkalog.places import open_place

_EXAMPLE = '{"partitions":[{"topic":"orders","partition":0,"offset":23}],"version":1}'


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The loss of one partition: the records below ``new_log_start_offset``.

    ``segments`` and ``stored_bytes`` say how many segments go with them, and their size; None for brokers,
    which delete theirs later. ``reasons`` name the rules by which segments go. A partition that can't be
    used or asked loses nothing: its offsets are None, and its ``note`` says why.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    log_start_offset: int | None = field(metadata=column(BIGINT, "START"))
    new_log_start_offset: int | None = field(metadata=column(BIGINT, "NEW START"))
    segments: int | None = field(default=None, metadata=column(INT, "SEGMENTS"))
    stored_bytes: int | None = field(default=None, metadata=column(SIZE, "SIZE"))
    reasons: tuple[str, ...] = field(default=(), metadata=column(STRINGS, "BECAUSE OF"))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))


def retain(
    place: PlaceOptions,
    topics: Collection[str] | None,
    configs: Mapping[str, str],
    *,
    exclude: Collection[str],
    delete_policy: str | None,
    execute: bool,
    progress: Callable[[], None],
) -> list[DeletedRecords]:
    """Delete the segments of a log directory that are due, and return what each partition loses.

    See :meth:`.kafka.LogCare.retain`.
    """
    if place.brokers is not None:
        raise OptionError(
            "Brokers apply retention by themselves",
            hint="Set it on the topics: kafkalog topics alter --set retention.ms=7d.",
        )
    given = UserOptions({**configs, "path": ""}, Use.WRITE)
    for name in sorted(set(configs) - set(RETENTION_CONFIGS)):
        raise OptionError(
            f"Unknown configuration {name!r} for retention", hint=suggestion(name, RETENTION_CONFIGS)
        )
    wanted = given.given(*RETENTION_CONFIGS)
    if exclude:
        selection = Selection(topics=None if topics is None else tuple(topics), exclude=tuple(exclude))
        topics = topics_of(open_place(place), selection, internal=True)
    policy = None if delete_policy is None else DeletePolicy(import_path("deletePolicy", delete_policy))
    return _of_directory(
        deleting.retain(place.paths, topics, wanted, policy, execute=execute, progress=progress)
    )


def delete_records(
    place: PlaceOptions, offsets: Mapping[TopicPartition, int], *, execute: bool
) -> list[DeletedRecords]:
    """Delete the records below these offsets, and return what each partition loses.

    See :meth:`.kafka.LogCare.delete_records`.
    """
    if place.brokers is None:
        return _of_directory(deleting.delete_records(place.paths, offsets, execute=execute))
    bounds, failures = open_place(place).try_watermarks(offsets)
    if missing := offsets.keys() - bounds.keys() - failures.keys():
        raise no_such_partition(missing)
    new = {}
    for partition in sorted(bounds):
        offset, end = offsets[partition], bounds[partition].high_watermark
        if not HIGH_WATERMARK <= offset <= end:
            raise OptionError(
                f"Cannot delete records before offset {offset}: the high watermark is {end}",
                topic_partition=partition,
                hint=f"Give an offset from 0 to {end}, or {HIGH_WATERMARK} for the high watermark.",
            )
        new[partition] = max(bounds[partition].log_start_offset, end if offset < 0 else offset)
    if execute:
        from pyspark_kafkalog.broker.delete_records import delete_records as delete_from_brokers

        new, failed = delete_from_brokers(place.brokers, {partition: offsets[partition] for partition in new})
        failures |= failed
    return [
        _failed(partition, failures[partition])
        if partition in failures
        else DeletedRecords(*partition, bounds[partition].log_start_offset, new[partition])
        for partition in sorted(offsets)
    ]


def parse_offset_json(text: str) -> dict[TopicPartition, int]:
    """Read the file that kafka-delete-records.sh takes as ``--offset-json-file``.

    :raises OptionError: for any other text, and for a partition that is named twice.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise _unexpected(f"it is not JSON{where_not_json(text, e)}") from None
    if not isinstance(content, dict) or not isinstance(content.get("partitions"), list):
        raise _unexpected("expected an object with a list of partitions")
    if content.get("version", 1) != 1:
        raise _unexpected(f"expected version 1, got {content['version']!r}")
    offsets: dict[TopicPartition, int] = {}
    for entry in content["partitions"]:
        partition, offset = _entry(entry)
        if partition in offsets:
            raise _unexpected(f"{partition} is named twice")
        offsets[partition] = offset
    return offsets


def _entry(entry: Any) -> tuple[TopicPartition, int]:
    if isinstance(entry, dict):
        topic, number, offset = (entry.get(name) for name in ("topic", "partition", "offset"))
        if (
            isinstance(topic, str)
            and (type(number) is int and 0 <= number <= MAX_INT)
            and (type(offset) is int and HIGH_WATERMARK <= offset <= MAX_LONG)
        ):
            return TopicPartition(check_topic(topic), number), offset
    raise _unexpected(f"expected topic, partition and offset, got {entry!r:.100}")


def _unexpected(fault: str) -> OptionError:
    return OptionError(
        f"Cannot use the offsets of the file: {fault}", hint=f"Write, for example, {_EXAMPLE}."
    )


def _of_directory(found: deleting.Deletions) -> list[DeletedRecords]:
    deletions, failures = found
    done = [
        DeletedRecords(
            *deletion.partition,
            deletion.start,
            deletion.new_start,
            deletion.segments,
            deletion.stored_bytes,
            deletion.reasons,
        )
        for deletion in deletions
    ]
    return done + [_failed(*failure) for failure in failures.items()]


def _failed(partition: TopicPartition, error: KafkaLogError) -> DeletedRecords:
    return DeletedRecords(*partition, None, None, note=why(error))
