"""The only reader of user options: from Spark's strings to frozen dataclasses.

Precedence and refusals are those of Spark's own ``kafka`` source and sink (its
KafkaSourceProvider); names, values and defaults are in :data:`.table.SECTIONS`.
Wrong options are refused here, before any work starts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark_kafkalog import extensions
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import (
    COMMITTED,
    EARLIEST,
    HEADERS_FIELD,
    LATEST,
    ROW_FIELDS,
    EncodeSettings,
    QueryBatch,
    TopicPartition,
)
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.contracts import ExtensionOptions, OffsetsStore
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.partitioner import Distribution, distribution
from pyspark_kafkalog.options.table import SERVERS, WRITTEN_CONFIGS, ZOOKEEPER, Use, Where, from_option
from pyspark_kafkalog.options.times import Ago, Moment, at
from pyspark_kafkalog.options.user_options import UserOptions, log_once
from pyspark_kafkalog.options.values import group_id, paths

if TYPE_CHECKING:
    from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions, ProduceOptions

_EXCLUDE = "topics.exclude"
_ENDS_OF_BATCHES = "A batch starts at earliest or given offsets, and ends at latest or given offsets."


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """The place of the records: log directories, or brokers and how to fetch from them.

    Paths are not shown, because a URI may hold a secret. Offsets of groups with a retention of None stay.
    Without bootstrap servers the store of offsets knows the brokers.
    """

    paths: tuple[str, ...] = field(default=(), repr=False)
    brokers: ConnectionOptions | None = None
    fetch: FetchOptions | None = None
    offsets_retention_minutes: int | None = from_option("offsets.retention.minutes")
    offsets_store: OffsetsStore | None = None
    max_record_bytes: int = from_option("maxRecordBytes")

    @property
    def of_report(self) -> PlaceOptions:
        """The place for a report, which asks once, and says of each part why it did not answer."""
        if self.brokers is None or self.fetch is None:
            return self
        brokers = self.brokers.of_report if self.offsets_store is None else self.brokers
        wait = brokers.request_timeout_ms
        fetch = replace(self.fetch, num_retries=1, poll_timeout_ms=min(self.fetch.poll_timeout_ms, wait))
        return replace(self, brokers=brokers, fetch=fetch)


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read: those of ``topics``, of topics that ``pattern`` finds, or ``partitions``.

    With none of these, all topics that are not internal.

    ``pattern`` is for ``re.search`` with ``re.ASCII``. Topics whose whole names match a pattern of
    ``exclude`` are left out (MirrorMaker's DefaultTopicFilter).
    """

    topics: tuple[str, ...] | None = from_option("subscribe")
    pattern: str | None = from_option("subscribePattern")
    partitions: tuple[TopicPartition, ...] | None = from_option("assign")
    exclude: tuple[str, ...] | None = from_option(_EXCLUDE)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics that this names; None if it names none."""
        if self.partitions is not None:
            return tuple(sorted({partition.topic for partition in self.partitions}))
        return self.topics

    def covers(self, topic: str, *, internal: bool = False) -> bool:
        """Whether this selects any partition of ``topic``.

        :param internal: whether internal topics count even if they are not named.
        """
        if self.names is not None:
            found = topic in self.names
        else:
            found = (internal or topic not in INTERNAL_TOPICS) and (
                self.pattern is None or re.search(self.pattern, topic, re.ASCII) is not None
            )
        return found and not any(re.fullmatch(each, topic, re.ASCII) for each in self.exclude or ())


@dataclass(frozen=True, slots=True)
class OffsetsOption:
    """The start or end of a read: one value for all partitions, or one for each.

    ``option`` is the user option with the value. ``values`` are offsets, with
    EARLIEST and LATEST allowed, or points in time; COMMITTED, for all partitions,
    starts at a group's committed offsets.
    """

    option: str
    values: Moment | Mapping[TopicPartition, Moment]
    are_timestamps: bool = False

    def at(self, now_ms: int) -> int | Offsets:
        """The values as numbers; times ago count back from ``now_ms``."""
        if isinstance(self.values, Mapping):
            return {partition: at(moment, now_ms) for partition, moment in self.values.items()}
        return at(self.values, now_ms)


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of a micro-batch; None means no limit."""

    max_offsets: int | None = from_option("maxOffsetsPerTrigger")
    max_bytes: int | None = from_option("maxBytesPerTrigger")
    min_offsets: int | None = from_option("minOffsetsPerTrigger")
    max_delay_ms: int = from_option("maxTriggerDelay")
    limit_first: bool = from_option("limitFirstTrigger")

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return (self.max_offsets, self.max_bytes, self.min_offsets) != (None, None, None)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The consumer group of a query, if it has one.

    ``none_committed`` is where partitions without a committed offset start, EARLIEST
    or LATEST; None makes them an error. Without ``may_be_new`` it is one, too, if there is no commit at all.
    """

    group_id: str | None = None
    commits: bool = False
    required: bool = False
    none_committed: int | None = EARLIEST
    may_be_new: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader, apart from its place; ``ending`` is for a batch, ``limits`` for a stream."""

    selection: Selection
    starting: OffsetsOption
    ending: OffsetsOption
    limits: TriggerLimits
    no_match_is_latest: bool = from_option("startingOffsetsByTimestampStrategy")
    include_headers: bool = from_option("includeHeaders")
    fail_on_data_loss: bool = from_option("failOnDataLoss")
    min_partitions: int | None = from_option("minPartitions")
    max_partitions: int | None = from_option("maxPartitions")
    max_records_per_partition: int | None = from_option("maxRecordsPerPartition")
    read_committed: bool = from_option("kafka.isolation.level")
    check_crcs: bool = from_option("checkCrcs", "kafka.check.crcs")
    max_record_bytes: int = from_option("maxRecordBytes")
    checkpoint_location: str | None = from_option("checkpointLocation")
    group: GroupOptions = field(default_factory=GroupOptions)
    extensions: tuple[ExtensionOptions, ...] = ()

    @property
    def record_fields(self) -> dict[str, str]:
        """Name and Spark type of each column of records, if the user gives no schema."""
        columns = dict(ROW_FIELDS)
        if self.include_headers:
            columns.update([HEADERS_FIELD])
        for extension in self.extensions:
            columns.update(extension.columns)
        return columns

    @property
    def wants_tasks(self) -> bool:
        """Whether the user bounds the records of a task, so that small ranges don't share one."""
        return self.max_records_per_partition is not None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a writer. ``partitioner`` is ``module:name``; sizes in bytes, as in Kafka.

    For brokers ``brokers`` and ``produce`` are set and ``root`` is empty; settings that
    the topic has there (number of partitions, segments) keep their defaults.
    ``distribution`` places rows that neither a column nor a partitioner places.
    """

    root: str
    topic: str | None = from_option("topic")
    partitioner: str | None = from_option("partitioner")
    num_partitions: int = from_option("numPartitions")
    compression: str = from_option("compression.type", "kafka.compression.type")
    gzip_level: int = from_option("compression.gzip.level", "kafka.compression.gzip.level")
    lz4_level: int = from_option("compression.lz4.level", "kafka.compression.lz4.level")
    zstd_level: int = from_option("compression.zstd.level", "kafka.compression.zstd.level")
    batch_size: int = from_option("batch.size", "kafka.batch.size")
    max_message_bytes: int = EncodeSettings().max_message_bytes
    distribution: Distribution = "key"
    brokers: ConnectionOptions | None = None
    produce: ProduceOptions | None = None
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    """The given topic configurations of :data:`.table.WRITTEN_CONFIGS`; only for directories."""
    delete_policy: str | None = from_option("deletePolicy")
    """The import path of a function that names segments to delete; only for directories."""
    batch: QueryBatch | None = None
    """The batch as ``txnAppId`` and ``txnVersion`` name it."""
    checkpoint_location: str | None = field(default=None, repr=False)
    """The checkpoint of the query whose rows are written; not shown, because a URI may hold a secret."""
    fail_on_missing_marker: bool = from_option("failOnMissingMarker")
    extensions: tuple[ExtensionOptions, ...] = ()

    @property
    def for_tasks(self) -> WriteOptions:
        """The options that are sent to the tasks."""
        return replace(self, extensions=tuple(each.for_tasks for each in self.extensions))

    @property
    def encode_settings(self) -> EncodeSettings:
        """The settings of the encoder of record batches."""
        levels = {"gzip": self.gzip_level, "lz4": self.lz4_level, "zstd": self.zstd_level}
        level = levels.get(self.compression)
        settings = EncodeSettings(self.compression, self.batch_size, self.max_message_bytes, level=level)
        segment_bytes = int(self.topic_configs.get("segment.bytes", self.max_message_bytes))
        if segment_bytes < self.max_message_bytes:
            return replace(settings, max_message_bytes=segment_bytes, limit="the option segment.bytes")
        return settings


def place_options(options: Mapping[str, str], *, of_groups: bool = False) -> PlaceOptions:
    """The place of the records to read.

    :param of_groups: whether only groups are wanted, so that ZooKeeper is a place, too.
    :raises OptionError: unless exactly one of ``path`` and ``kafka.bootstrap.servers`` is given, and for
        options of the offsets' store that contradict each other.
    """
    user = UserOptions(options, Use.READ)
    name = ZOOKEEPER if of_groups and user.is_zookeeper else _place_name(user)
    offsets_store = extensions.offsets_store(user)
    if name in ("path", "paths"):
        return user.fill(PlaceOptions, paths=paths("path", user.text(name) or ""))
    from pyspark_kafkalog.options.brokers import FetchOptions, connection_options

    brokers, fetch = connection_options(user), user.fill(FetchOptions)
    return user.fill(PlaceOptions, brokers=brokers, fetch=fetch, offsets_store=offsets_store)


def _place_name(user: UserOptions) -> str:
    """The name of the one option that gives the place."""
    places = [name for name in ("path", "paths", SERVERS) if name in user]
    if user.is_zookeeper:
        raise OptionError(
            "ZooKeeper has only groups and their offsets, no records",
            hint=f"Give the brokers as option {SERVERS!r}, or on the command line as host:port.",
        )
    if not places:
        user.check_servers_name()
        user.check_names()
        raise OptionError(
            f"Expected option 'path' or {SERVERS!r}, got neither",
            hint="Give one, or a log directory to load() or save(). A table in the catalog passes"
            " no options to a Python data source: use CREATE OR REPLACE TEMPORARY VIEW .. USING kafkalog"
            " OPTIONS (..).",
        )
    if len(places) > 1:
        raise _only_one(places)
    return places[0]


def log_directories(user: UserOptions) -> tuple[str, ...]:
    """The log directories of the place, as given; empty for brokers."""
    return next((paths("path", user.text(name) or "") for name in ("path", "paths") if name in user), ())


def _only_one(names: list[str]) -> OptionError:
    hint = "load() and save() take no topic: give that as subscribe or topic." if "path" in names else None
    return OptionError(
        f"Only one of {' and '.join(map(repr, names))} can be given",
        hint=hint or f"Leave {'one' if len(names) == 2 else 'all but one'} out.",
    )


def common_read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a reader that are the same in a batch and a stream.

    :raises OptionError: for options that are wrong in both.
    """
    place_options(options)
    user = UserOptions(options, Use.READ)
    user.check_names()
    return _read_in_any_mode(user, EARLIEST)


def read_options(options: Mapping[str, str], *, batch: bool) -> ReadOptions:
    """The options of a batch reader or a stream reader.

    :raises OptionError: for anything unknown, malformed or contradictory.
    """
    user = UserOptions(options, Use.BATCH_READ if batch else Use.STREAM_READ)
    user.check_names()
    group = group_options(user, batch=batch)
    read = _read_in_any_mode(user, EARLIEST if batch else LATEST, group=group)
    if batch:
        _refuse_sentinel(read.starting, LATEST, "latest")
        _refuse_sentinel(read.ending, EARLIEST, "earliest")
        _check_order(read.starting, read.ending)
    for extension in read.extensions:
        extension.check(read)
    user.warn_without("startingOffsetsByTimestampStrategy", "startingTimestamp", "startingOffsetsByTimestamp")
    if read.starting.values != COMMITTED and not user.value("groupMembership"):
        user.warn_without("startingOffsetsByCommittedStrategy", "startingOffsets=committed")
    if read.starting.values == COMMITTED and group.group_id is None:
        raise OptionError(
            "Option 'startingOffsets' is 'committed', but no consumer group is given",
            hint="Give the group as option 'kafka.group.id'.",
        )
    return read


def _read_in_any_mode(user: UserOptions, start: int, **others: Any) -> ReadOptions:
    read = user.fill(
        ReadOptions,
        selection=selection(user),
        starting=_offsets(user, "starting", start),
        ending=_offsets(user, "ending"),
        limits=_limits(user),
        **others,
    )
    _check_tasks(read)
    return replace(read, extensions=extensions.of_read(user))


def _check_tasks(read: ReadOptions) -> None:
    """Refuse numbers of tasks that contradict each other.

    :raises OptionError: saying which.
    """
    most, least = read.max_partitions, read.min_partitions
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"Option minPartitions ({least}) is higher than maxPartitions ({most})",
            hint="Lower the first, or raise the second.",
        )
    if most is not None and read.max_records_per_partition is not None:
        raise OptionError(
            "Only one of 'maxPartitions' and 'maxRecordsPerPartition' can be given: so many records may not"
            " fit into so few tasks",
            hint="Leave one out. To limit a micro-batch as well, set maxOffsetsPerTrigger.",
        )


def _limits(user: UserOptions) -> TriggerLimits:
    limits = user.fill(TriggerLimits)
    most, least = limits.max_offsets, limits.min_offsets
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"Option minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})",
            hint="Lower the first, or raise the second.",
        )
    user.warn_without("maxTriggerDelay", "minOffsetsPerTrigger")
    user.warn_without(
        "limitFirstTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"
    )
    return limits


def selects_topics(user: UserOptions) -> bool:
    """Whether the options say which topics are read."""
    return any(name in user for name in ("subscribe", "subscribePattern", "assign", _EXCLUDE))


def selection(user: UserOptions) -> Selection:
    """The partitions that the options select.

    :raises OptionError: for more than one selecting option, and for none when reading brokers.
    """
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name in user]
    if len(named) > 1:
        raise _only_one(named)
    if _EXCLUDE in user and named not in ([], ["subscribePattern"]):
        raise OptionError(
            f"Option {_EXCLUDE!r} can't be given with {named[0]!r}",
            hint=f"Leave out {_EXCLUDE}, or name the topics by subscribePattern.",
        )
    if not selects_topics(user) and user.where is Where.BROKERS and "view" not in user:
        raise OptionError(
            "One of 'subscribe', 'subscribePattern' and 'assign' must be given for brokers",
            hint="Write, for example, .option('subscribe', 'orders'). The view 'topics' lists the topics.",
        )
    return user.fill(Selection)


def _offsets(user: UserOptions, side: str, default: int = LATEST) -> OffsetsOption:
    """The offsets of a side, in Spark's precedence: one timestamp, timestamps by partition, offsets."""
    names = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    given = [name for name in names if name in user]
    for name in given[1:]:
        log_once(logging.WARNING, "Option %s is ignored, because %s takes precedence", name, given[0])
    for name in names[:2]:
        if name in user:
            return OffsetsOption(name, user.value(name), are_timestamps=True)
    name = names[2]
    values = user.value(name)
    return OffsetsOption(name, default if values is None else values)


_OTHER_END = {EARLIEST: "the end of the log", LATEST: "its beginning"}
"""The meaning of the other of the two."""


def _refuse_sentinel(offsets: OffsetsOption, sentinel: int, word: str) -> None:
    if offsets.are_timestamps:
        return
    values = offsets.values
    if not isinstance(values, Mapping):
        if values == sentinel:
            raise OptionError(
                f"Option {offsets.option!r} can't be {word} for batch queries",
                hint=f"Leave it out. {_ENDS_OF_BATCHES}",
            )
        return
    for topic_partition, offset in values.items():
        if offset == sentinel:
            raise OptionError(
                f"Option {offsets.option!r} for {topic_partition} can't be {sentinel} ({word}) in a batch",
                hint=f"Write an offset, or {-3 - sentinel} for {_OTHER_END[sentinel]}.",
            )


def _is_later(first: object, last: object) -> bool:
    """Whether one point in time is later than another, if both are so given that this is known."""
    if isinstance(first, Ago) and isinstance(last, Ago):
        return first.ms < last.ms
    return isinstance(first, int) and isinstance(last, int) and first > last


def _check_order(starting: OffsetsOption, ending: OffsetsOption) -> None:
    """Two times, and Spark's cross-checks of two maps of the same kind; the rest is checked when resolved."""
    first, last = starting.values, ending.values
    if starting.are_timestamps and ending.are_timestamps and _is_later(first, last):
        raise OptionError(
            f"No record can match: {starting.option} is later than {ending.option}",
            hint="Exchange them, or leave one out.",
        )
    if not (isinstance(first, Mapping) and isinstance(last, Mapping)):
        return
    if starting.are_timestamps != ending.are_timestamps:
        return
    if first.keys() != last.keys():
        raise OptionError(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET: "
            f"{starting.option} and {ending.option} should have the same partitions, "
            f"but only one of them has {', '.join(map(str, sorted(first.keys() ^ last.keys())))}"
        )
    for topic_partition, start in first.items():
        end = last[topic_partition]
        if isinstance(start, int) and isinstance(end, int) and 0 <= end < start:
            raise OptionError(
                f"UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {starting.option} {start} "
                f"is greater than {ending.option} {end}",
                topic_partition=topic_partition,
                hint=f"End at {start} or later, or start at {end} or before.",
            )


def group_options(user: UserOptions, *, batch: bool) -> GroupOptions:
    """The group in the options. A batch commits nothing.

    :raises OptionError: for a group id that Kafka would refuse, and for ``commitOffsets`` without a group.
    """
    strategies: dict[str, int | None] = {
        "auto": EARLIEST if batch else LATEST,
        "earliest": EARLIEST,
        "latest": LATEST,
        "error": None,
    }
    strategy = user.value("startingOffsetsByCommittedStrategy")
    starts: dict[str, Any] = {
        "none_committed": strategies[strategy],
        "may_be_new": strategy in ("earliest", "latest"),
    }
    group = user.value("kafka.group.id")
    if group is not None and "groupIdPrefix" in user:
        log_once(logging.WARNING, "Option groupIdPrefix is ignored, because kafka.group.id is set")
    commits = user.value("commitOffsets") or ("false" if group is None else "true")
    if batch or commits == "false":
        return GroupOptions(group, **starts)
    return GroupOptions(group or _generated_id(user), True, commits == "required", **starts)


def _generated_id(user: UserOptions) -> str:
    name = user.value("queryName")
    if name is None:
        raise OptionError(
            "Option 'commitOffsets' is set, but no consumer group is given",
            hint="Give 'kafka.group.id', or give 'queryName' to this reader as well,"
            " because Spark does not pass the name of a query to its source.",
        )
    return group_id("groupIdPrefix", f"{user.value('groupIdPrefix')}-{name}")


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a writer.

    :raises OptionError: for anything unknown, malformed or contradictory.
    """
    user = UserOptions(options, Use.WRITE)
    place = _place_name(user)
    user.check_names()
    for name in "includeHeaders", "checkpointLocation", "delivery.guarantee":
        user.value(name)
    to_brokers = place == SERVERS
    if "kafka.group.id" in user and not to_brokers:
        raise OptionError("Option 'kafka.group.id' is for reading only", hint="Leave it out.")
    brokers, produce = _of_producers(user) if to_brokers else (None, None)
    largest = user.value("kafka.max.request.size" if to_brokers else "max.message.bytes")
    write = user.fill(
        WriteOptions,
        root="" if to_brokers else _one_root(paths("path", user.text(place) or "")),
        brokers=brokers,
        produce=produce,
        max_message_bytes=EncodeSettings().max_message_bytes if largest is None else largest,
        topic_configs=user.given(*WRITTEN_CONFIGS),
        batch=_named_batch(user),
        checkpoint_location=user.value("checkpointLocation"),
        distribution=distribution(user),
    )
    return replace(write, extensions=extensions.of_write(user, write))


def _of_producers(user: UserOptions) -> tuple[ConnectionOptions, ProduceOptions]:
    from pyspark_kafkalog.options.brokers import connection_options, produce_options

    return connection_options(user), produce_options(user)


def _named_batch(user: UserOptions) -> QueryBatch | None:
    """The batch of a job that names its batches (Delta's idempotent writes).

    :raises OptionError: if only one of the two options is given.
    """
    app, version = user.value("txnAppId"), user.value("txnVersion")
    if (app is None) != (version is None):
        given, missing = ("txnAppId", "txnVersion") if version is None else ("txnVersion", "txnAppId")
        raise OptionError(f"Option {given!r} needs {missing!r}", hint="Give both, or leave both out.")
    if app is None:
        return None
    # A job may write the same version to several topics. No query has such a name: Spark's ids are UUIDs.
    name = json.dumps([app, user.value("topic")])
    return QueryBatch(f"app-{hashlib.sha256(name.encode()).hexdigest()[:32]}", version)


def _one_root(found: tuple[str, ...]) -> str:
    if len(found) > 1:
        raise OptionError(f"Option 'path': expected one path to write to, got {len(found)}")
    return local_root(found[0])


def local_root(path: str) -> str:
    """The path of a log directory to write to, which may be given as a ``file:`` URI.

    :raises OptionError: for any other URI.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
    if scheme is None:
        return path
    local = re.fullmatch(r"file:(?://(?:localhost)?)?(/(?!/).*)", path)
    if local is None:
        raise OptionError(
            f"A log directory at {scheme[1]}: can be read but not written, as its files can't be appended to",
            hint="Write to a local or mounted folder.",
        )
    return unquote(local[1])


def several(names: Collection[str]) -> Collection[str]:
    """Names; a text is one of them, and not its letters."""
    return (names,) if isinstance(names, str) else names


def several_or_none(names: Collection[str] | None) -> Collection[str] | None:
    """The values as :func:`several` has them; None where none were given."""
    return None if names is None else several(names)
