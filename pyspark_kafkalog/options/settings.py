"""The only reader of user options: from Spark's strings to frozen dataclasses.

Names, values, defaults, precedence and refusals are those of Spark's own
``kafka`` source and sink (its KafkaSourceProvider) and of Kafka's topic
configs; :data:`~pyspark_kafkalog.options.names.OPTIONS` lists them all. What is
wrong is refused here, before any work starts.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import unquote

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import (
    COMMITTED,
    DROPPED_FIELD,
    EARLIEST,
    HEADERS_FIELD,
    LATEST,
    ROW_FIELDS,
    SplitterSettings,
    TopicPartition,
    check_topic,
)
from pyspark_kafkalog.options import values as option_values
from pyspark_kafkalog.options.auditing import AuditOptions, audit_options
from pyspark_kafkalog.options.brokers import (
    ConnectionOptions,
    FetchOptions,
    ProduceOptions,
    connection_options,
    fetch_options,
    produce_options,
)
from pyspark_kafkalog.options.groups import GroupOptions, group_options
from pyspark_kafkalog.options.java_pattern import java_pattern
from pyspark_kafkalog.options.kafka_names import SERVERS
from pyspark_kafkalog.options.largemessages import LargeMessageOptions, large_message_options
from pyspark_kafkalog.options.names import OPTIONS, Use, Where
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG, Offsets, parse_offsets, parse_partitions
from pyspark_kafkalog.options.splitting import splitter_settings
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_PRODUCER_PACKAGE = "org.apache.kafka.clients.producer."


Distribution = Literal["key", "sticky", "round-robin"]
"""By the key's hash, and in batches where it is null; in batches; one row here, the next one there."""

_JAVA_PARTITIONERS: Mapping[str, Distribution] = {
    "internals.DefaultPartitioner": "key",
    "UniformStickyPartitioner": "sticky",
    "RoundRobinPartitioner": "round-robin",
}


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Where the records are: log directories, or brokers and how to fetch from them.

    Paths are not shown, because a URI may hold a secret.
    """

    paths: tuple[str, ...] = field(default=(), repr=False)
    brokers: ConnectionOptions | None = None
    fetch: FetchOptions | None = None
    offsets_retention_minutes: int = 10080


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions to read. At most one is set; none means all topics that are not internal.

    ``pattern`` is one for ``re.search`` with ``re.ASCII``.
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class OffsetsOption:
    """Where to start or to end: one value for all partitions, or one for each.

    ``option`` is the user option that it came from. ``values`` are offsets,
    with EARLIEST and LATEST allowed, or timestamps in milliseconds; or COMMITTED,
    for all partitions, where a group starts.
    """

    option: str
    values: int | Offsets
    are_timestamps: bool = False


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much a micro-batch may hold; None is no limit."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All that a reader is told besides its place; ``ending`` is for a batch, ``limits`` for a stream."""

    selection: Selection
    starting: OffsetsOption
    ending: OffsetsOption
    no_match_is_latest: bool
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    limits: TriggerLimits
    read_committed: bool
    check_crcs: bool
    checkpoint_location: str | None
    group: GroupOptions = field(default_factory=GroupOptions)
    large_messages: LargeMessageOptions = field(default_factory=LargeMessageOptions)
    audit: AuditOptions | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All that a writer is told. ``partitioner`` is ``module:name``; sizes in bytes as Kafka counts them.

    For brokers ``brokers`` and ``produce`` are set and ``root`` is empty; what is a
    topic's own there (number of partitions, segments) stands at its default.
    ``distribution`` says where rows go that neither a column nor a partitioner sends;
    a ``splitter`` of None splits nothing.
    """

    root: str
    topic: str | None
    partitioner: str | None
    num_partitions: int
    compression: str
    batch_size: int
    max_message_bytes: int
    log_append_time: bool
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    distribution: Distribution = "key"
    brokers: ConnectionOptions | None = None
    produce: ProduceOptions | None = None
    splitter: SplitterSettings | None = None
    audit: AuditOptions | None = None


def place_options(options: Mapping[str, str]) -> PlaceOptions:
    """Where the records to read are.

    :raises OptionError: unless exactly one of ``path`` and ``kafka.bootstrap.servers`` is given.
    """
    given = UserOptions(options, Use.READ)
    name = _place_name(given)
    if name == SERVERS:
        return PlaceOptions(brokers=connection_options(given), fetch=fetch_options(given))
    retention = given.integer("offsets.retention.minutes", 1)
    return PlaceOptions(_paths(given.text(name) or ""), offsets_retention_minutes=retention)


def _place_name(given: UserOptions) -> str:
    """The one option that says where the records are."""
    places = [name for name in ("path", "paths", SERVERS) if name in given]
    if not places:
        given.check_names()
        raise OptionError(
            "No place of records is given",
            hint="Give brokers as option 'kafka.bootstrap.servers', or a log directory as option 'path', or"
            " to load() or save(). A table in the catalog hands no options to a Python data source: use"
            " CREATE TEMPORARY VIEW .. USING kafkalog OPTIONS (..)",
        )
    if len(places) > 1:
        raise OptionError(f"Only one of {' and '.join(map(repr, places))} can be given")
    return places[0]


def _paths(given_text: str) -> tuple[str, ...]:
    text = given_text.strip()
    paths: Any = text.split(",")
    if text.startswith("["):
        try:
            paths = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise OptionError(f"Option 'path' starts with '[' and is no JSON array: {e}") from e
    if not all(isinstance(path, str) and path.strip() for path in paths) or not paths:
        raise OptionError(
            "Option 'path' must be a path, a comma list or a JSON array of paths, none of them empty"
        )
    return tuple(path.strip() for path in paths)


def default_columns(options: Mapping[str, str]) -> dict[str, str]:
    """Name and Spark type of each column, where the user gives no schema of their own.

    :raises OptionError: for options that are wrong in a batch and in a stream alike.
    """
    place_options(options)
    given = UserOptions(options, Use.READ)
    given.check_names()
    _offsets(given, "starting", EARLIEST)
    _offsets(given, "ending", LATEST)
    its = _read_in_any_mode(given)
    added = [(HEADERS_FIELD, its["include_headers"]), (DROPPED_FIELD, its["large_messages"].dead_letters)]
    return {**ROW_FIELDS, **dict(column for column, is_asked_for in added if is_asked_for)}


def read_options(options: Mapping[str, str], *, batch: bool) -> ReadOptions:
    """What a batch reader, or a stream reader, is to do.

    :raises OptionError: for anything unknown, malformed or contradictory.
    """
    given = UserOptions(options, Use.READ)
    given.check_names()
    here, elsewhere = (Use.BATCH_READ, "stream") if batch else (Use.STREAM_READ, "batch")
    for option in OPTIONS:
        if option.name in given and here not in option.use:
            if not batch:
                raise OptionError(f"Option {option.name!r} is not valid in streaming queries")
            log_once(
                logging.WARNING, "Option %s is ignored in a batch: it concerns a %s", option.name, elsewhere
            )
    starting = _offsets(given, "starting", EARLIEST if batch else LATEST)
    ending = _offsets(given, "ending", LATEST)
    if batch:
        _refuse_sentinel(starting, LATEST, "latest")
        _refuse_sentinel(ending, EARLIEST, "earliest")
        _check_order(starting, ending)
    group = group_options(given, batch=batch)
    if starting.values == COMMITTED and group.group_id is None:
        raise OptionError(
            "Option 'startingOffsets' is committed, and there is no group that has",
            hint="Give the group as option 'kafka.group.id'.",
        )
    return ReadOptions(starting=starting, ending=ending, group=group, **_read_in_any_mode(given))


def _read_in_any_mode(given: UserOptions) -> dict[str, Any]:
    check_crcs = "checkCrcs" if "checkCrcs" in given else "kafka.check.crcs"
    strategy = given.choice("startingOffsetsByTimestampStrategy", "error", "latest")
    isolation = given.choice("kafka.isolation.level", "read_uncommitted", "read_committed")
    return {
        "selection": _selection(given),
        "no_match_is_latest": strategy == "latest",
        "include_headers": given.boolean("includeHeaders"),
        "fail_on_data_loss": given.boolean("failOnDataLoss"),
        "min_partitions": given.limit("minPartitions", MAX_INT),
        "max_records_per_partition": given.limit("maxRecordsPerPartition"),
        "limits": _limits(given),
        "read_committed": isolation == "read_committed",
        "check_crcs": given.boolean(check_crcs),
        "checkpoint_location": given.text("checkpointLocation"),
        "large_messages": large_message_options(given),
        "audit": audit_options(given),
    }


def _limits(given: UserOptions) -> TriggerLimits:
    max_offsets, min_offsets = given.limit("maxOffsetsPerTrigger"), given.limit("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise OptionError(
            f"The value of minOffsetsPerTrigger ({min_offsets}) is higher than"
            f" the maxOffsetsPerTrigger ({max_offsets})"
        )
    max_bytes, max_delay = given.text("maxBytesPerTrigger"), given.text("maxTriggerDelay")
    return TriggerLimits(
        max_offsets=max_offsets,
        max_bytes=None if max_bytes is None else option_values.size_in_bytes("maxBytesPerTrigger", max_bytes),
        min_offsets=min_offsets,
        max_delay_ms=option_values.milliseconds("maxTriggerDelay", max_delay or ""),
    )


def _selection(given: UserOptions) -> Selection:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(named) > 1:
        raise OptionError(f"Only one of {' and '.join(map(repr, named))} can be given")
    if not named and given.where is Where.BROKERS and "view" not in given:
        raise OptionError("One of 'subscribe', 'subscribePattern' and 'assign' must be given for brokers")
    if not named:
        return Selection()
    text = (given.text(named[0]) or "").strip()
    if named == ["assign"]:
        partitions = parse_partitions(text, option="assign")
        if not partitions:
            raise OptionError("Option 'assign' names no partition")
        return Selection(partitions=partitions)
    if named == ["subscribePattern"]:
        if not text:
            raise OptionError("Option 'subscribePattern' is empty")
        return Selection(pattern=java_pattern("subscribePattern", text))
    topics = [topic.strip() for topic in text.split(",") if topic.strip()]
    if not topics:
        raise OptionError("Option 'subscribe' names no topic")
    return Selection(topics=tuple(dict.fromkeys(check_topic(topic) for topic in topics)))


def _offsets(given: UserOptions, side: str, default: int) -> OffsetsOption:
    """Spark's three ranks: one timestamp, timestamps by partition, offsets; lower ones are not looked at."""
    if (name := f"{side}Timestamp") in given:
        return OffsetsOption(name, given.integer(name, 0, MAX_LONG), are_timestamps=True)
    if (name := f"{side}OffsetsByTimestamp") in given:
        example = '{"topicA":{"0":123456789,"1":123456789}}'
        timestamps = parse_offsets(given.text(name) or "", option=name, example=example)
        return OffsetsOption(name, timestamps, are_timestamps=True)
    name = f"{side}Offsets"
    text = given.text(name)
    if text is None:
        return OffsetsOption(name, default)
    words = {"earliest": EARLIEST, "latest": LATEST}
    if side == "starting":
        words["committed"] = COMMITTED
    if (word := text.strip().lower()) in words:
        return OffsetsOption(name, words[word])
    if word and not word.startswith(("{", "[", '"')):
        raise OptionError(
            f"Option {name!r} must be {', '.join(words)} or JSON{option_values.shown(name, text)}",
            hint='Expected JSON is e.g. {"topicA":{"0":23,"1":-1}}.',
        )
    return OffsetsOption(name, parse_offsets(text, option=name, lowest=EARLIEST))


def _refuse_sentinel(offsets: OffsetsOption, sentinel: int, word: str) -> None:
    if offsets.are_timestamps:
        return
    values = offsets.values
    if isinstance(values, int):
        if values == sentinel:
            raise OptionError(
                f"Option {offsets.option!r} can't be {word} for batch queries",
                hint="A batch starts at earliest or at offsets, and ends at latest or at offsets.",
            )
        return
    for topic_partition, offset in values.items():
        if offset == sentinel:
            raise OptionError(
                f"Option {offsets.option!r} for {topic_partition} can't be {word} for batch queries"
            )


def _check_order(starting: OffsetsOption, ending: OffsetsOption) -> None:
    """Spark's cross-checks of two maps of the same kind; the rest shows when offsets are resolved."""
    first, last = starting.values, ending.values
    if isinstance(first, int) or isinstance(last, int) or starting.are_timestamps != ending.are_timestamps:
        return
    if first.keys() != last.keys():
        raise OptionError(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET: "
            f"{starting.option} and {ending.option} should have the same partitions, "
            f"but only one of them has {', '.join(map(str, sorted(first.keys() ^ last.keys())))}"
        )
    for topic_partition, start in first.items():
        if 0 <= last[topic_partition] < start:
            raise OptionError(
                f"UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {starting.option} {start} "
                f"is greater than {ending.option} {last[topic_partition]}",
                topic_partition=topic_partition,
            )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """What a writer is to do.

    :raises OptionError: for anything unknown, malformed or contradictory.
    """
    given = UserOptions(options, Use.WRITE)
    place = _place_name(given)
    given.check_names()
    given.boolean("includeHeaders")
    topic, partitioner = given.text("topic"), given.text("partitioner")
    timestamp_type = given.choice("message.timestamp.type", "CreateTime", "LogAppendTime")
    common = WriteOptions(
        root="" if place == SERVERS else _local_root(_paths(given.text(place) or "")),
        topic=None if topic is None else check_topic(topic.strip()),
        partitioner=None if partitioner is None else option_values.import_path("partitioner", partitioner),
        num_partitions=given.integer("numPartitions", 1),
        compression=given.choice("compression.type", *_COMPRESSIONS),
        batch_size=given.integer("batch.size", 0),
        max_message_bytes=given.integer("max.message.bytes", 0),
        log_append_time=timestamp_type == "LogAppendTime",
        segment_bytes=given.integer("segment.bytes", 14),
        segment_ms=given.integer("segment.ms", 1, MAX_LONG),
        index_interval_bytes=given.integer("index.interval.bytes", 0),
        audit=audit_options(given),
    )
    if place != SERVERS:
        return replace(
            common,
            splitter=splitter_settings(
                given,
                compression=common.compression,
                largest_batch=common.max_message_bytes,
                limit="max.message.bytes",
            ),
        )
    produce = produce_options(given)
    compression = given.choice("kafka.compression.type", *_COMPRESSIONS)
    return replace(
        common,
        compression=compression,
        batch_size=given.integer("kafka.batch.size", 0),
        max_message_bytes=produce.max_request_size,
        distribution=_distribution(given),
        brokers=connection_options(given),
        produce=produce,
        splitter=splitter_settings(
            given,
            compression=compression,
            largest_batch=produce.max_request_size,
            limit="kafka.max.request.size",
        ),
    )


def _distribution(given: UserOptions) -> Distribution:
    name = given.trimmed("kafka.partitioner.class")
    ignores_keys = given.boolean("kafka.partitioner.ignore.keys")
    if name is None:
        return "sticky" if ignores_keys else "key"
    if "partitioner" in given:
        raise OptionError("Only one of 'partitioner' and 'kafka.partitioner.class' can be given")
    known = _JAVA_PARTITIONERS.get(name.removeprefix("kafkashaded.").removeprefix(_PRODUCER_PACKAGE))
    if known is None:
        raise OptionError(
            "Option 'kafka.partitioner.class' names a Java class that is not known here",
            hint="Give the option 'partitioner' the import path package.module:callable of one in Python.",
        )
    return known


def _local_root(paths: tuple[str, ...]) -> str:
    if len(paths) > 1:
        raise OptionError(f"A writer takes one path, not {len(paths)}")
    path = paths[0]
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
    if scheme is None:
        return path
    local = re.fullmatch(r"file:(?://(?:localhost)?)?(/(?!/).*)", path)
    if local is None:
        raise OptionError(
            f"A log directory at {scheme[1]}: can be read but not written, for it can't be appended to",
            hint="Write to a local or mounted folder.",
        )
    return unquote(local[1])
