"""The table of options. Each row has the name, what it applies to, parser, default and meaning.

Everything else about an option follows from its row: which names are refused and what is
suggested instead (:mod:`.user_options`), the values and defaults of the frozen dataclasses
(:func:`from_option`), and ``docs/options.md`` (:mod:`.page`). Names, values and defaults are those of
Spark's Kafka source and sink; of Kafka's clients, behind ``kafka.`` (CommonClientConfigs, ConsumerConfig,
ProducerConfig, SaslConfigs and SslConfigs of 3.9 and 4.x); of Kafka's topics (TopicConfig); and of
LinkedIn's (li-apache-kafka-clients 1.0.66). Other settings of Kafka's are in :mod:`.client_settings`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark_kafkalog.model import COMMITTED, EARLIEST, LATEST
from pyspark_kafkalog.options.java_pattern import java_pattern
from pyspark_kafkalog.options.offsets_json import MAX_LONG, PLANNED
from pyspark_kafkalog.options.security import certificates, login_module, private_key
from pyspark_kafkalog.options.times import moment, moments
from pyspark_kafkalog.options.values import (
    Parser,
    as_given,
    assignors,
    auditor,
    boolean,
    callback,
    compression,
    group_id,
    group_instance_id,
    gzip_level,
    import_path,
    integer,
    java_class,
    location,
    lz4_level,
    milliseconds,
    not_blank,
    offsets_or,
    one_of,
    one_of_these,
    partitions,
    paths,
    patterns,
    rack,
    segment_function,
    separated,
    servers,
    size_in_bytes,
    some_of,
    stripped,
    topic,
    topics,
    unless_blank,
    zookeeper_connect,
    zstd_level,
)


class Use(enum.Flag):
    """The kinds of use that an option applies to."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    WRITE = enum.auto()
    REASSEMBLE = enum.auto()
    GROUP_OFFSETS_VIEW = enum.auto()
    GROUPS_VIEW = enum.auto()
    TOPICS_VIEW = enum.auto()
    AUDIT_VIEW = enum.auto()
    METRICS_VIEW = enum.auto()
    SEGMENTS_VIEW = enum.auto()
    BATCHES_VIEW = enum.auto()
    ADMIN = enum.auto()
    """The command line, and ``pyspark_kafkalog.connect``."""
    READ = BATCH_READ | STREAM_READ
    VIEWS = (
        GROUP_OFFSETS_VIEW
        | GROUPS_VIEW
        | TOPICS_VIEW
        | AUDIT_VIEW
        | METRICS_VIEW
        | SEGMENTS_VIEW
        | BATCHES_VIEW
    )
    INSPECT = VIEWS | ADMIN


class Where(enum.Flag):
    """The places that an option applies to."""

    DIRECTORY = enum.auto()
    BROKERS = enum.auto()
    ANY = DIRECTORY | BROKERS


@dataclass(frozen=True, slots=True)
class Option:
    """A row: ``default`` as users would write it, or None; ``meaning`` is Markdown.

    ``extension`` is the folder that the option is of; empty for the core's. ``beside_path`` is the advice to
    those who give an option of brokers to a log directory.
    """

    name: str
    use: Use
    parser: Parser
    default: str | None
    meaning: str
    where: Where = Where.ANY
    extension: str = ""
    beside_path: str = "Leave it out."


class Section:
    """Options that belong together, under a heading of the docs; all are of ``extension``, if given."""

    def __init__(self, title: str, *options: Option, extension: str = "") -> None:
        self.title = title
        self.options = (
            tuple(replace(option, extension=extension) for option in options) if extension else options
        )


SERVERS = "kafka.bootstrap.servers"
ZOOKEEPER = "zookeeper.connect"
RETENTION_CONFIGS = ("retention.ms", "retention.bytes", "cleanup.policy")
"""Configurations of topics that say what a log keeps."""
WRITTEN_CONFIGS = (
    *RETENTION_CONFIGS,
    "segment.bytes",
    "segment.ms",
    "index.interval.bytes",
    "max.message.bytes",
    "message.timestamp.type",
)
"""The configurations of topics, but those of compression, that are options of a write to a directory, too."""
VIEW_USES = {
    "group-offsets": Use.GROUP_OFFSETS_VIEW,
    "groups": Use.GROUPS_VIEW,
    "topics": Use.TOPICS_VIEW,
    "segments": Use.SEGMENTS_VIEW,
    "batches": Use.BATCHES_VIEW,
    "audit": Use.AUDIT_VIEW,
    "metrics": Use.METRICS_VIEW,
}
"""The values of the option ``view``."""

_BATCH, _STREAM, _READ, _WRITE = Use.BATCH_READ, Use.STREAM_READ, Use.READ, Use.WRITE
_READ_OR_INSPECT = Use.READ | Use.INSPECT
_ANY = Use.READ | Use.WRITE | Use.INSPECT
_PARTITION_VIEWS = Use.GROUP_OFFSETS_VIEW | Use.TOPICS_VIEW | Use.SEGMENTS_VIEW | Use.BATCHES_VIEW
_SELECTING = Use.READ | _PARTITION_VIEWS
_ASSEMBLING = Use.READ | Use.REASSEMBLE
_DECODING = Use.READ | Use.WRITE | Use.ADMIN
_VALUES_READ = Use.READ | Use.ADMIN
HEADER_SERIALIZER = "HeaderSchemaIdSerializer"
VALUE_FORMATS = (
    *("avro", "confluent-avro", "glue-avro", "apicurio-avro", "azure-avro"),
    *("json", "confluent-json", "glue-json", "apicurio-json"),
    *("protobuf", "confluent-protobuf", "glue-protobuf", "apicurio-protobuf"),
)
_DROP = "To drop such values, set includeCorrupt=true, and keep the rows where corrupt is null."
_OTHER_FORMATS = "Others are read as bytes: a cast makes them text, and a transform decodes them."
_SCHEMA_IDS = java_class("PrefixSchemaIdSerializer", HEADER_SERIALIZER)
TOPIC_STRATEGY, RECORD_STRATEGY = "TopicNameStrategy", "RecordNameStrategy"
TOPIC_RECORD_STRATEGY = "TopicRecordNameStrategy"
_STRATEGIES = java_class(TOPIC_STRATEGY, RECORD_STRATEGY, TOPIC_RECORD_STRATEGY)
_PROTOCOLS = "TLS is SSL here, and SASL_SSL with a login."
_AUDITING = Use.READ | Use.WRITE | Use.REASSEMBLE
_directory = partial(Option, where=Where.DIRECTORY)
_brokers = partial(Option, where=Where.BROKERS)
_zookeeper = partial(_brokers, extension="zookeeper")
_member = partial(_brokers, extension="membership")
_once = partial(_brokers, extension="exactly_once")


def _levels(option: Callable[..., Option], prefix: str) -> Iterator[Option]:
    """The levels of compressions (KIP-390)."""
    kinds = (("gzip", gzip_level, "-1"), ("lz4", lz4_level, "9"), ("zstd", zstd_level, "3"))
    ranges = {"gzip": "1 to 9, or -1 for 6", "lz4": "1 to 17; 9 is the fast one", "zstd": "-131072 to 22"}
    for name, parser, default in kinds:
        meaning = f"With `{name}`, how hard to compress: {ranges[name]}."
        yield option(f"{prefix}.{name}.level", _WRITE, parser, default, meaning)


# fmt: off
SECTIONS = (
    Section(
        "Which place",
        _directory("path", _ANY, paths, None,
                   "Path or URI of a log directory. A read also takes several, separated by commas or as a"
                   " JSON array."),
        _brokers(SERVERS, _ANY, servers, None,
                 "Brokers to start with: `host:port`, separated by commas."),
        Option("view", _BATCH | Use.VIEWS, one_of(*VIEW_USES), None,
               "What rows describe instead of records: `topics`, `segments`, record `batches`, `groups`,"
               " `group-offsets`, `audit`, the counts in an `auditLocation` or an `auditTopic`, or `metrics`,"
               " what writes have stored in a `metricsLocation`."),
    ),
    Section(
        "Which partitions to read",
        Option("subscribe", _SELECTING | Use.AUDIT_VIEW, topics, None, "Topics, separated by commas."),
        Option("subscribePattern", _SELECTING, not_blank(java_pattern), None,
               "Java regular expression. A topic is read if any part of its name matches."),
        Option("topics.exclude", _SELECTING, patterns, None,
               "Java regular expressions, separated by commas. A topic is left out if its whole name matches"
               " one. Give it with `subscribePattern`, or alone to read all other topics that are not"
               " internal."),
        Option("assign", _SELECTING, partitions, None, 'Partitions, such as `{"topicA":[0,1]}`.'),
    ),
    Section(
        "Where to start and to end",
        Option("startingOffsets", _READ,
               offsets_or({"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}), None,
               "`earliest` (default of a batch), `latest` (default of a stream), `committed` (by the"
               ' group) or `{"topicA":{"0":23,"1":-2}}`, where -2 is earliest and -1 latest. A stream uses'
               " it only before its first checkpoint."),
        Option("startingOffsetsByCommittedStrategy", _READ,
               one_of("auto", "earliest", "latest", "error"), "auto",
               "Where a partition starts if the group has committed nothing for it: `earliest`, `latest`,"
               " `error`, or `auto`. `auto` starts where a query without a group would, but fails if the"
               " group has committed nothing at all: its name may be misspelt."),
        Option("endingOffsets", _BATCH,
               offsets_or({"earliest": EARLIEST, "latest": LATEST, "planned": PLANNED}), "latest",
               "`latest`, `planned`, or JSON as for `startingOffsets`, exclusive. `planned` looks `latest`"
               " up once, when the query is planned. A task that runs again then reads the same records."),
        Option("startingTimestamp", _READ, moment, None,
               "Milliseconds, `2026-01-31T12:00:00Z` (UTC if it has no zone), or how long before the query"
               " is planned, such as `-1h` or `-2d`. Takes precedence over the two other starting options."),
        Option("startingOffsetsByTimestamp", _READ, moments, None,
               'A time for each partition, `{"topicA":{"0":1700000000000,"1":"-1h"}}`, in the forms of'
               " `startingTimestamp`. Takes precedence over `startingOffsets`."),
        Option("startingOffsetsByTimestampStrategy", _READ,
               one_of_these({"error": False, "latest": True}), "error",
               "What to do if no record is at or after a starting timestamp: `error`, or start at `latest`."),
        Option("endingTimestamp", _BATCH, moment, None,
               "A time as for `startingTimestamp`. Takes precedence over the two other ending options."),
        Option("endingOffsetsByTimestamp", _BATCH, moments, None,
               "JSON as for `startingOffsetsByTimestamp`. Takes precedence over `endingOffsets`."),
    ),
    Section(
        "How to read",
        Option("includeHeaders", _READ | _WRITE, boolean, "false",
               "Read the column `headers`. A write needs no option, only the column."),
        Option("transform", _READ | _WRITE, import_path, None,
               "Import path `package.module:function` of a function that takes rows as an Arrow batch and"
               " returns them changed ([how](plug-ins.md#transform)). It runs last in a read, first in a"
               " write.",
               extension="transform"),
        Option("failOnDataLoss", _READ, boolean, "true",
               "`false`: log a warning and continue where records are gone or corrupt."),
        Option("minPartitions", _READ | Use.BATCHES_VIEW, integer(1), None,
               "The least number of tasks, approximately. The largest partitions are divided first. If"
               " there are more partitions than this, small ones share tasks."),
        Option("maxPartitions", _READ, integer(1), None,
               "The most tasks. If there would be more, each reads several partitions one after the other,"
               " in about equal shares of bytes. Partitions that one broker leads go together, so that a"
               " task connects to few brokers. It can't be lower than `minPartitions`, or be given with"
               " `maxRecordsPerPartition`."),
        Option("maxRecordsPerPartition", _READ, integer(1, MAX_LONG), None, "The most offsets in one task."),
        Option("kafka.isolation.level", _READ,
               one_of_these({"read_uncommitted": False, "read_committed": True}), "read_uncommitted",
               "`read_committed` hides aborted transactions and stops before open ones."),
        Option("checkCrcs", _READ | Use.BATCHES_VIEW, boolean, "true",
               "Verify the checksum of every record batch. The view `batches` needs it for the column"
               " `valid`."),
        Option("maxRecordBytes", _READ | Use.ADMIN, size_in_bytes, "256m",
               "The largest record, in bytes, that a batch of more than 16 MiB (decompressed) may have. A"
               " larger one fails the read, even with `failOnDataLoss=false`: see"
               " [Memory](performance.md#memory)."),
    ),
    Section(
        "Streams",
        Option("maxOffsetsPerTrigger", _STREAM, integer(1, MAX_LONG), None,
               "The most offsets in one micro-batch, approximately. `Trigger.Once` has no limits, and reads"
               " all that is there."),
        Option("maxBytesPerTrigger", _STREAM, size_in_bytes, None,
               "The most stored bytes in one micro-batch, approximately, such as `64m`. Record batches are"
               " not divided."),
        Option("minOffsetsPerTrigger", _STREAM, integer(1, MAX_LONG), None,
               "Wait until this many offsets are unread. The first micro-batch of a run does not wait, nor"
               " does `Trigger.AvailableNow`."),
        Option("maxTriggerDelay", _STREAM, milliseconds, "15m",
               "The longest wait for `minOffsetsPerTrigger`, such as `30s`. A number without a unit is"
               " milliseconds."),
        Option("limitFirstTrigger", _STREAM, boolean, "false",
               "Limit the first micro-batch of a run, too, on Spark versions that don't tell a source its"
               " trigger (see [Spark versions](spark-versions.md)). Don't use it with `Trigger.AvailableNow`"
               " or `Once`, which would end before everything is read. It has no effect on other versions."),
        Option("checkpointLocation", _STREAM | _WRITE, location, None,
               "The query's checkpoint. Give it to the reader, too. The reader then stores in it its start"
               " offsets, the ids of its topics and how far it has read their logs, and commits to its"
               " group as soon as a micro-batch is complete."),
    ),
    Section(
        "Consumer groups",
        Option("kafka.group.id", _READ | _WRITE | Use.GROUP_OFFSETS_VIEW | Use.GROUPS_VIEW, group_id, None,
               "Consumer group. A stream commits the offsets of each finished micro-batch to it, and joins it"
               ' only with `groupMembership`. A batch read commits nothing, as with `format("kafka")`: use a'
               " stream with `Trigger.AvailableNow`, or `kafkalog offsets reset`. A view shows only these"
               " groups, separated by commas. A write needs the group for `commitSourceOffsets`."),
        Option("commitOffsets", _STREAM, one_of("true", "false", "required"), None,
               "`true`, `false`, or `required`, with which a failed commit ends the query. Default: `true`"
               " with a group. It can't be `false` with `groupMembership`."),
        Option("queryName", _STREAM, unless_blank(stripped), None,
               "With `commitOffsets` and no `kafka.group.id`, the group is `groupIdPrefix`, a hyphen and"
               " this name."),
        Option("groupIdPrefix", _READ, as_given, "spark-kafka-source", "See `queryName`."),
        _zookeeper("offsets.storage", _READ, one_of("kafka", "zookeeper"), "kafka",
                 "Where the group's offsets are: in `kafka`, or in `zookeeper`, as with consumers before"
                 " Kafka 2.0 ([how](zookeeper.md))."),
        _zookeeper("dual.commit.enabled", _READ, boolean, "false",
                 "`true`: commit to Kafka and to ZooKeeper, and start at the later of the two commits."),
        _zookeeper(ZOOKEEPER, _READ | Use.ADMIN, zookeeper_connect, None,
                 "Address of ZooKeeper, `host:port[,host:port][/chroot]`, for the two options above. Without"
                 " brokers it is a place with only groups, for `connect` and the command line."),
        _member("groupMembership", _STREAM, boolean, "false",
                 "`true`: join the group as one member, and read only the partitions that the group assigns,"
                 " from the group's commits on ([shared groups](shared-groups.md)). Needs `kafka.group.id`"
                 " and `checkpointLocation`.",
                 beside_path="Leave it out: the groups of a log directory have no members."),
        _member("groupMembershipLost", _STREAM, one_of_these({"fail": False, "rejoin": True}), "fail",
                 "What to do if the group has continued without the query while a micro-batch ran: `fail`, or"
                 " `rejoin`, which leaves the micro-batch uncommitted and joins again."),
        _member("kafka.group.protocol", _STREAM, one_of("classic", "consumer"), "classic",
                 "With `groupMembership`: `classic`, where a member assigns partitions, or `consumer`"
                 " (KIP-848, Kafka 4.0), where the group's coordinator does. With `consumer` the brokers"
                 " decide the assignor, the session timeout and the heartbeat interval."),
        _member("kafka.group.remote.assignor", _STREAM, unless_blank(stripped), None,
                 "With `kafka.group.protocol=consumer`: the brokers' assignor to use, such as `uniform` or"
                 " `range`. Default: the first of the brokers' list."),
        _member("kafka.partition.assignment.strategy", _STREAM, assignors, "range,cooperative-sticky",
                 "With `groupMembership`: `range`, `roundrobin`, `cooperative-sticky`, or Kafka's class"
                 " names, separated by commas, preferred first. The members must have one in common."),
        _member("kafka.group.instance.id", _STREAM, group_instance_id, None,
                 "With `groupMembership`: a name that no other member has. Then a restart within the session"
                 " timeout moves no partition."),
        _member("kafka.session.timeout.ms", _STREAM, integer(1), "45000",
                 "With `groupMembership`: the time without a heartbeat after which a member is removed from"
                 " the group."),
        _member("kafka.heartbeat.interval.ms", _STREAM, integer(1), "3000",
                 "With `groupMembership`: the time between two heartbeats."),
        _member("kafka.max.poll.interval.ms", _STREAM, integer(1), "300000",
                 "With `groupMembership`: how long the group waits for a running micro-batch before it moves"
                 " partitions."),
        _directory("offsets.retention.minutes", _READ_OR_INSPECT, integer(1), "10080",
                   "How long to keep the offsets of a consumer group without members."),
    ),
    Section(
        "Large messages",
        Option("large.message.enabled", _READ | _WRITE, boolean, "false",
               "A write cuts values that are too large into message segments, and a read puts them"
               " together, in LinkedIn's format."),
        Option("message.assembler.expiration.offset.gap", _ASSEMBLING | _WRITE | Use.ADMIN,
               integer(1), "1000",
               "An incomplete message is dropped this many offsets after its first message segment. A write"
               " refuses a value with so many message segments that readers would drop it."),
        Option("message.assembler.buffer.capacity", _ASSEMBLING,
               integer(1), "32000000",
               "Bytes of incomplete messages to hold in memory for one partition."),
        Option("exception.on.message.dropped", _ASSEMBLING,
               boolean, "false",
               "Fail if a message is dropped because its message segments contradict each other or, in"
               " `reassemble`, because the buffer is full. As with LinkedIn's consumer, a message that is"
               " incomplete for too long never fails anything."),
        Option("message.assembler.expiration.ms", _ASSEMBLING, integer(1, MAX_LONG), None,
               "Age at which an incomplete message is dropped. Only in `reassemble`, since a read has no"
               " clock."),
        Option("large.message.dead.letters", _ASSEMBLING, boolean, "false",
               "Add a column `dropped`, and a row for each dropped message. The column is null in all"
               " other rows."),
        Option("segment.deserializer.class", _ASSEMBLING | Use.ADMIN,
               segment_function("DefaultSegmentDeserializer"), None,
               "Import path `package.module:function` of a function that finds the message segment in a"
               " value, for formats other than LinkedIn's ([how](plug-ins.md#message-segments))."),
        Option("large.message.safe.offsets", _STREAM, boolean, None,
               "Commit safe offsets, as LinkedIn's consumer does. Default: the value of"
               " `large.message.enabled`. Set it to `true` for `reassemble`."),
        Option("max.message.segment.bytes", _WRITE, integer(1), "800000",
               "With `large.message.enabled`: values of more bytes are cut into message segments."),
        Option("header.timestamp.enabled", _WRITE, boolean, "true",
               "With `large.message.enabled`: also write each record's timestamp, as the header `_t`."),
        Option("li.record.header.enable", _WRITE, boolean, "false",
               "With `large.message.enabled`: describe a message segment only in its header `_lm`, not in"
               " its value."),
        Option("li.large.message.segment.wrapping.required", _WRITE, boolean, "false",
               "With `large.message.enabled`: write small values as message segments, too."),
        Option("segment.serializer", _WRITE, segment_function("DefaultSegmentSerializer"), None,
               "With `large.message.enabled`: import path `package.module:function` of a function that makes"
               " the value of a message segment ([how](plug-ins.md#message-segments))."),
        extension="large_messages",
    ),
    Section(
        "Audit",
        Option("auditor.class", _AUDITING, auditor, None,
               "Audit messages: `counting` (the default where a place for counts is given), `logging`, or the"
               " import path `package.module:Class` of [your own auditor](audit.md#your-own-auditor)."
               " LinkedIn's `LoggingAuditor` and `NoOpAuditor`, by their Java names, mean `logging` and no"
               " audit."),
        Option("auditLocation", _AUDITING, not_blank(location), None,
               "Folder (path or URI) for the counts, which `view=audit` shows."),
        _brokers("auditTopic", Use.READ | Use.WRITE, topic, None,
                 "Topic of the same cluster for the counts, instead of a folder.",
                 beside_path="Give auditLocation, a folder, for a log directory."),
        Option("auditor.bucket.ms", _AUDITING, integer(1, MAX_LONG), "600000",
               "Width of the time buckets in which messages are counted."),
        extension="audit",
    ),
    Section(
        "Callbacks and metrics of a write",
        Option("callback.class", _WRITE, callback, None,
               "Import path `package.module:Class` of a class that hears of record batches that are sent,"
               " acknowledged, sent again or failed, and of the metrics of the write"
               " ([how](callbacks.md)). `metrics`: only log the metrics."),
        Option("metricsLocation", _WRITE, not_blank(location), None,
               "Folder (path or URI) for the metrics of each task, which `view=metrics` shows. Without it"
               " they are only logged, if `callback.class` is given."),
        extension="callbacks",
    ),
    Section(
        "Values as columns",
        Option("value.format", _DECODING, one_of(*VALUE_FORMATS, hint=_OTHER_FORMATS), None,
               "The encoding of values; a name before a hyphen is the registry of their schemas. A read"
               " decodes values into the column `value`, a write encodes it ([how](typed-values.md)). One of"
               f" {', '.join(f'`{name}`' for name in VALUE_FORMATS)}."),
        Option("value.schema", _DECODING, unless_blank(as_given), None,
               "The schema of the column: Avro's as JSON, the text of a `.proto` file or its descriptors in"
               " base64, or a JSON Schema; to read JSON, also fields in Spark's DDL. The default is the"
               " registry's newest schema for the topic, and for `json` the type of the column in the"
               " DataFrame's schema."),
        Option("value.message", _DECODING, not_blank(stripped), None,
               "The name of the Protobuf message, with its package or without it. Default: the schema's"
               " only message, or its first one if it is from a registry."),
        Option("key.format", _DECODING, one_of(*VALUE_FORMATS, hint=_OTHER_FORMATS), None,
               "The same for the column `key`."),
        Option("key.schema", _DECODING, unless_blank(as_given), None, "The same for the column `key`."),
        Option("key.message", _DECODING, not_blank(stripped), None, "The same for the column `key`."),
        Option("mode", _READ, one_of_these({"PERMISSIVE": False, "FAILFAST": True}, _DROP), "PERMISSIVE",
               "What becomes of a value that can't be decoded. `PERMISSIVE`: a struct of nulls; from JSON,"
               " one of the fields that could be read. `FAILFAST`: an error that names its place."),
        Option("columnNameOfCorruptRecord", _VALUES_READ, not_blank(as_given), "_corrupt_record",
               "The field that gets the text of JSON that can't be decoded, if the schema has this field."),
        Option("timeZone", _VALUES_READ, unless_blank(stripped), None,
               "The time zone of timestamps in JSON that have none. Default: `spark.sql.session.timeZone`;"
               " without Spark UTC."),
        Option("recursive.fields.max.depth", _VALUES_READ, integer(-1, 10, {-1: 0}), "0",
               "How many levels of a Protobuf message that contains itself are read, up to 10. `1` leaves"
               " out the fields that contain it; `0` refuses the message."),
        Option("enums.as.ints", _VALUES_READ, boolean, "false",
               "Read enums of Protobuf as their numbers, instead of their names."),
        Option("emit.default.values", _VALUES_READ, boolean, "false",
               "Protobuf does not write fields that have their default. `true`: read these as their"
               " default, not as null."),
        Option("upcast.unsigned.ints", _VALUES_READ, boolean, "false",
               "Read unsigned numbers of Protobuf as `bigint` and `decimal(20,0)`, which hold them all."),
        Option("unwrap.primitive.wrapper.types", _VALUES_READ, boolean, "false",
               "Read Protobuf's wrappers, such as `Int64Value`, as their value instead of a struct."),
        Option("retain.empty.message.types", _VALUES_READ, boolean, "false",
               "Read Protobuf messages without fields as a struct with a dummy field, instead of leaving"
               " them out."),
        Option("convert.any.fields.to.json", _VALUES_READ, boolean, "false",
               "Read `google.protobuf.Any` as the JSON of its message, instead of a struct of its type and"
               " bytes. The schema, or one that it imports, must define the message."),
        Option("includeSchemaId", _READ, boolean, "false",
               "Read the columns `schemaId` and `schemaGuid`, which name the registry's schema of each"
               " value, and `keySchemaId` and `keySchemaGuid`, which name that of each key."),
        Option("includeCorrupt", _READ, boolean, "false",
               "Read the column `corrupt`: the whole record, with the reason, if its key or value can't be"
               " decoded, and otherwise null ([how](dead-letters.md)). It needs `PERMISSIVE`."),
        Option("auto.register.schemas", _WRITE, boolean, "false",
               "Register the schema of a write: `value.schema`, or one that is made from the columns. With"
               " `false` a write uses `value.schema`, which the registry must have, or the topic's newest"
               " schema."),
        Option("value.schema.id.serializer", _WRITE, _SCHEMA_IDS, None,
               "How a value names its schema. `PrefixSchemaIdSerializer`, the default, writes the schema's"
               " id before the value; `HeaderSchemaIdSerializer` writes its GUID into the header"
               " `__value_schema_id`."),
        Option("key.schema.id.serializer", _WRITE, _SCHEMA_IDS, None, "The same for the column `key`."),
        Option("value.subject.name.strategy", _DECODING, _STRATEGIES, TOPIC_STRATEGY,
               "Which subject of a Confluent registry has the schema: `TopicNameStrategy` (`orders-value`),"
               " `RecordNameStrategy` (`shop.Order`) or `TopicRecordNameStrategy` (`orders-shop.Order`). The"
               " last two need `value.schema` or, to write, `auto.register.schemas`."),
        Option("key.subject.name.strategy", _DECODING, _STRATEGIES, TOPIC_STRATEGY,
               "The same for the column `key`."),
        extension="typed_values",
    ),
    Section(
        "Schema registry",
        Option("schema.registry.url", _DECODING, unless_blank(as_given), None,
               "URLs of the schema registry, separated by commas. If one fails, the next one is asked."),
        Option("basic.auth.credentials.source", _DECODING, one_of("URL", "USER_INFO"), None,
               "Where the login is: in the URL, or in `basic.auth.user.info`. You can leave this out."),
        Option("basic.auth.user.info", _DECODING, unless_blank(as_given), None,
               "The login, `user:password`, or `key:secret` of Confluent Cloud."),
        Option("bearer.auth.credentials.source", _DECODING, one_of("STATIC_TOKEN"), None,
               "`STATIC_TOKEN`: the token is in `bearer.auth.token`. You can leave this out."),
        Option("bearer.auth.token", _DECODING, unless_blank(stripped), None,
               "A bearer token, instead of a login."),
        Option("http.read.timeout.ms", _DECODING, integer(1), "60000",
               "How long to wait for a registry that sends nothing."),
        Option("schema.registry.ssl.truststore.location", _DECODING, unless_blank(location), None,
               "PEM file of the authorities to trust for the registry, on every machine."
               " Default: the system's."),
        Option("schema.registry.ssl.keystore.location", _DECODING, unless_blank(location), None,
               "PEM file of the client's certificate chain and private key for the registry, on every"
               " machine."),
        Option("schema.registry.ssl.key.password", _DECODING, as_given, None,
               "The password of that private key."),
        Option("apicurio.registry.url", _DECODING, unless_blank(as_given), None,
               "URLs of an Apicurio Registry's own API, such as `https://host:8080/apis/registry/v3`, in"
               " place of `schema.registry.url`. Logins and TLS are as above."),
        Option("apicurio.registry.use-id", _DECODING, one_of("contentId", "globalId"), "contentId",
               "Which of Apicurio's ids stands before values. A header names its kind of id itself."),
        Option("region", _DECODING, unless_blank(stripped), None,
               "The region of an AWS Glue Schema Registry. Default: the one that the AWS SDK finds, which"
               " also finds the credentials."),
        Option("endpoint", _DECODING, unless_blank(stripped), None,
               "URL of Glue. Default: that of the region."),
        Option("registry.name", _DECODING, not_blank(stripped), "default-registry",
               "The name of the registry in Glue."),
        Option("schemaName", _DECODING, unless_blank(stripped), None,
               "The name of the schema in Glue. Default: the topic, for keys, too."),
        Option("compatibility", _WRITE,
               one_of("NONE", "DISABLED", "BACKWARD", "BACKWARD_ALL", "FORWARD", "FORWARD_ALL", "FULL",
                      "FULL_ALL"),
               "BACKWARD", "The compatibility of a schema that `auto.register.schemas` creates in Glue."),
        extension="typed_values",
    ),
    Section(
        "Writing",
        Option("topic", _WRITE, topic, None, "Topic of all rows. Takes precedence over the column `topic`."),
        Option("partitioner", _WRITE, import_path, None,
               "Import path `package.module:callable` of a function that chooses the partition of rows that"
               " have none."),
    ),
    Section(
        "Writing once",
        Option("delivery.guarantee", _WRITE, one_of("at-least-once", "exactly-once"), None,
               "`exactly-once`: brokers show each batch whole and once to `read_committed` readers"
               " ([how](exactly-once.md)). Default for brokers: `at-least-once`. A log directory always"
               " shows each micro-batch once.",
               extension="exactly_once"),
        Option("txnAppId", _WRITE, not_blank(stripped), None,
               "With `txnVersion`: the name of the job that writes a batch, the same at each run."),
        Option("txnVersion", _WRITE, integer(0, MAX_LONG - 1), None,
               "Number of the batch. A batch that the job `txnAppId` has written before is not written again."
               " Each batch must have a higher number than the last."),
        _once("stagingLocation", _WRITE, not_blank(location), None,
                 "Folder (path or URI) for rows that wait for the commit. The driver and all workers must see"
                 " it. Default: the checkpoint, or, on a single machine, its folder for temporary files."),
        Option("failOnMissingMarker", _WRITE, boolean, "true",
               "`false`: write a batch even if nothing tells whether it was already written. That is so if"
               " the cluster or directory has lost its marker or is older than the checkpoint, or if the"
               " checkpoint can't be read."),
        _once("commitSourceOffsets", _WRITE, one_of("false", "transaction"), "false",
                 "`transaction`: commit the offsets that the micro-batch has read to `kafka.group.id`, in the"
                 " transaction of its rows. The source must read the sink's cluster without"
                 " `groupMembership`, and needs the query's `checkpointLocation`, too."),
        _once("kafka.transaction.timeout.ms", _WRITE, integer(1), "60000",
                 "The longest time that producing a staged batch may take."),
    ),
    Section(
        "Writing to a log directory",
        _directory("numPartitions", _WRITE, integer(1), "1",
                   "Partitions of a topic that this write creates."),
        _directory("compression.type", _WRITE, compression, "none",
                   "`none`, `gzip`, `snappy`, `lz4` or `zstd`. The topic's own type and level take"
                   " precedence, as in brokers, unless the type is `producer`."),
        *_levels(_directory, "compression"),
        _directory("batch.size", _WRITE, integer(0), "16384",
                   "Bytes of records, uncompressed, that fill a record batch."),
        _directory("max.message.bytes", _WRITE, integer(0), None,
                   "Bytes of the largest record batch, as stored. The topic's own limit applies, too."
                   " Default: the topic's own, else 1048588."),
        _directory("message.timestamp.type", _WRITE,
                   one_of_these({"CreateTime": False, "LogAppendTime": True}), None,
                   "`CreateTime` or `LogAppendTime`. Default: the topic's own, else `CreateTime`."),
        _directory("segment.bytes", _WRITE, integer(14), None,
                   "Bytes at which a new segment begins. Default: the topic's own, else 1073741824."),
        _directory("segment.ms", _WRITE, integer(1, MAX_LONG), None,
                   "Age at which a new segment begins. Default: the topic's own, else 604800000."),
        _directory("index.interval.bytes", _WRITE, integer(0), None,
                   "Bytes of log between two index entries. Default: the topic's own, else 4096."),
        _directory("retention.ms", _WRITE, integer(-1, MAX_LONG), None,
                   "Age of a segment's newest record at which the segment is deleted; -1: never"
                   " ([how](retention.md)). Default: the topic's own, else never."),
        _directory("retention.bytes", _WRITE, integer(-1, MAX_LONG), None,
                   "Bytes of a partition above which its oldest segments are deleted; -1: no limit. Default"
                   " as for `retention.ms`."),
        _directory("cleanup.policy", _WRITE, some_of("delete", "compact"), None,
                   "`delete`, `compact` or both. Without `delete`, `retention.ms` and `retention.bytes`"
                   " have no effect. With `compact`, here or in the topic, commits"
                   " [compact](compaction.md#while-writing), and each row needs a key. Default: the topic's"
                   " own, else `delete`."),
        _directory("deletePolicy", _WRITE, import_path, None,
                   "Import path `package.module:function` of a function that names more segments to delete"
                   " than `retention.ms` and `retention.bytes` do"
                   " ([how](retention.md#a-policy-of-your-own))."),
    ),
    Section(
        "Connecting to brokers",
        _brokers("kafka.client.id", _ANY, as_given, "pyspark-kafkalog",
                 "The client's name in the brokers' logs and quotas."),
        _brokers("kafka.request.timeout.ms", _ANY, integer(1), "30000",
                 "How long to wait for a broker that sends nothing."),
        _brokers("kafka.socket.connection.setup.timeout.ms", _ANY, integer(1, MAX_LONG), "10000",
                 "The longest wait for a connection. The first broker has half of this time to answer."),
        _brokers("kafka.connections.max.idle.ms", _ANY,
                 integer(-1, MAX_LONG, meaning={-1: MAX_LONG}), "540000",
                 "A connection that is idle for longer is closed; -1: never."),
        _brokers("kafka.metadata.max.age.ms", _ANY, integer(0, MAX_LONG), "300000",
                 "How long known topics and leaders are used before brokers are asked again."),
        _brokers("kafka.retry.backoff.ms", _ANY, integer(0, MAX_LONG), "100",
                 "The first wait before a request is repeated."),
        _brokers("kafka.retry.backoff.max.ms", _ANY, integer(0, MAX_LONG), "1000",
                 "The longest wait before a request is repeated."),
        _brokers("kafka.reconnect.backoff.ms", _ANY, integer(0, MAX_LONG), "50",
                 "The first wait before connecting to a broker again."),
        _brokers("kafka.reconnect.backoff.max.ms", _ANY, integer(0, MAX_LONG), "1000",
                 "The longest wait before connecting to a broker again."),
        _brokers("kafka.client.dns.lookup", _ANY,
                 one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), "use_all_dns_ips",
                 "`use_all_dns_ips` or `resolve_canonical_bootstrap_servers_only`."),
        _brokers("kafka.receive.buffer.bytes", _ANY, integer(-1, meaning={-1: None}), "-1",
                 "The socket's receive buffer; -1: the system's default."),
        _brokers("kafka.send.buffer.bytes", _ANY, integer(-1, meaning={-1: None}), "-1",
                 "The socket's send buffer; -1: the system's default."),
    ),
    Section(
        "Reading from brokers",
        _brokers("kafkaConsumer.pollTimeoutMs", _READ_OR_INSPECT, integer(1, MAX_LONG), "120000",
                 "How long a task goes on asking while its fetches get no answer."),
        _brokers("fetchOffset.numRetries", _READ_OR_INSPECT, integer(1), "3",
                 "The most attempts to look up offsets."),
        _brokers("fetchOffset.retryIntervalMs", _READ_OR_INSPECT, integer(0, MAX_LONG), "1000",
                 "The wait between two attempts to look up offsets."),
        _brokers("kafka.fetch.min.bytes", _READ_OR_INSPECT, integer(0), "1",
                 "A broker holds a fetch back until it has this many bytes."),
        _brokers("kafka.fetch.max.wait.ms", _READ_OR_INSPECT, integer(0), "500",
                 "The longest that a broker holds a fetch back."),
        _brokers("kafka.fetch.max.bytes", _READ_OR_INSPECT, integer(0), "52428800",
                 "The most bytes of a fetch, approximately."),
        _brokers("kafka.max.partition.fetch.bytes", _READ_OR_INSPECT, integer(0), "8388608",
                 "The most bytes of one partition in a fetch, approximately (Kafka's default: 1 MiB)."),
        _brokers("kafka.client.rack", _READ_OR_INSPECT, rack, "",
                 "The rack of the readers, which fetch from a replica in the same rack. To give each worker"
                 " its own rack, name an environment variable (`env:NAME`), a cloud whose metadata service"
                 " tells the zone (`aws`, `gcp` or `azure`), or a function that returns the rack"
                 " (`package.module:function`)."),
        _brokers("kafka.check.crcs", _READ_OR_INSPECT, boolean, "true",
                 "The same as `checkCrcs`, which takes precedence."),
    ),
    Section(
        "Writing to brokers",
        _brokers("kafka.acks", _WRITE, one_of_these({"all": -1, "-1": -1, "0": 0, "1": 1}), "all",
                 "`all`, `1` (the leader) or `0` (no acknowledgement)."),
        _brokers("kafka.enable.idempotence", _WRITE, boolean, "true",
                 "A repeated request adds no record twice. Idempotence is off with other `acks` than"
                 " `all`, with `retries` of 0, and with more than 5 requests in flight."),
        _brokers("kafka.compression.type", _WRITE, compression, "none",
                 "`none`, `gzip`, `snappy`, `lz4` or `zstd`."),
        *_levels(_brokers, "kafka.compression"),
        _brokers("kafka.batch.size", _WRITE, integer(0), "262144",
                 "Bytes of records, uncompressed, that fill a record batch. Kafka's default, 16 KiB, is"
                 " for latency; a task has its rows at hand."),
        _brokers("kafka.max.request.size", _WRITE, integer(0), "1048576", "Bytes of the largest request."),
        _brokers("kafka.linger.ms", _WRITE, integer(0, MAX_LONG), "0",
                 "Nothing lingers, since a task has its rows at hand. The option only counts"
                 " towards `kafka.delivery.timeout.ms`."),
        _brokers("kafka.buffer.memory", _WRITE, integer(0, MAX_LONG), "33554432",
                 "Bytes that may wait to be acknowledged."),
        _brokers("kafka.max.in.flight.requests.per.connection", _WRITE, integer(1), "5",
                 "Requests to one broker that may wait for an answer."),
        _brokers("kafka.retries", _WRITE, integer(0), "2147483647",
                 "How often a record batch may be sent again."),
        _brokers("kafka.delivery.timeout.ms", _WRITE, integer(0), "120000",
                 "The longest time to deliver a record batch, without the time to compute rows."),
        _brokers("kafka.partitioner.class", _WRITE, unless_blank(stripped), None,
                 "Full name of Kafka's `DefaultPartitioner`, `UniformStickyPartitioner` or"
                 " `RoundRobinPartitioner`. For a partitioner of your own use `partitioner`."),
        _brokers("kafka.partitioner.ignore.keys", _WRITE, boolean, "false",
                 "Distribute rows with keys in the same way as rows without."),
    ),
    Section(
        "Security",
        _brokers("kafka.security.protocol", _ANY,
                 one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", hint=_PROTOCOLS), "PLAINTEXT",
                 "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."),
        _brokers("kafka.sasl.mechanism", _ANY,
                 one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"),
                 "GSSAPI",
                 "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM` or `GSSAPI`."),
        _brokers("kafka.sasl.jaas.config", _ANY, login_module, None,
                 "Who logs in, in the form of Java's clients: see [Credentials](security.md#credentials)."),
        _brokers("kafka.sasl.kerberos.service.name", _ANY, unless_blank(stripped), None,
                 "The brokers' Kerberos service."),
        _brokers("kafka.sasl.login.callback.handler.class", _ANY, unless_blank(stripped), None,
                 "Import path `package.module:callable` of a function that returns an OAuth token, or"
                 " the Java class of a cloud."),
        _brokers("kafka.sasl.client.callback.handler.class", _ANY, unless_blank(stripped), None,
                 "Amazon's `IAMClientCallbackHandler`, which goes with `AWS_MSK_IAM`."),
        _brokers("kafka.sasl.oauthbearer.provider", _ANY, one_of("aws", "gcp", "azure"), None,
                 "Which cloud gives tokens, `aws`, `gcp` or `azure`: see [Clouds](security.md#clouds)."),
        _brokers("kafka.sasl.aws.region", _ANY, unless_blank(stripped), None,
                 "The region of an MSK cluster whose broker names don't show it."),
        _brokers("kafka.sasl.oauthbearer.token.endpoint.url", _ANY, unless_blank(stripped), None,
                 "Where OAuth tokens come from: `https:` or `file:`."),
        _brokers("org.apache.kafka.sasl.oauthbearer.allowed.urls", _ANY, separated, None,
                 "The only token endpoints that may be asked, separated by commas; they may begin with"
                 " `http:`. In Java this is a system property."),
        _brokers("kafka.sasl.oauthbearer.client.credentials.client.id", _ANY,
                 unless_blank(stripped), None,
                 "The same as `clientId` in the JAAS text."),
        _brokers("kafka.sasl.oauthbearer.client.credentials.client.secret", _ANY, as_given, None,
                 "The same as `clientSecret` in the JAAS text."),
        _brokers("kafka.sasl.oauthbearer.scope", _ANY, unless_blank(stripped), None,
                 "The same as `scope` in the JAAS text."),
        _brokers("kafka.sasl.oauthbearer.jwt.retriever.class", _ANY,
                 java_class("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever",
                            "JwtBearerJwtRetriever"),
                 "DefaultJwtRetriever",
                 "`JwtBearerJwtRetriever`, with or without its package: an assertion is itself the grant. By"
                 " default an assertion replaces the client's secret."),
        _brokers("kafka.sasl.oauthbearer.assertion.file", _ANY, unless_blank(location), None,
                 "File on every machine with a signed JWT, which is read for each request of a token."),
        _brokers("kafka.sasl.oauthbearer.assertion.private.key.file", _ANY, unless_blank(location), None,
                 "PEM file on every machine with the key that signs JWTs. It needs the Python package"
                 " `cryptography`."),
        _brokers("kafka.sasl.oauthbearer.assertion.private.key.passphrase", _ANY, as_given, None,
                 "The passphrase with which the key is encrypted."),
        _brokers("kafka.sasl.oauthbearer.assertion.algorithm", _ANY, one_of("RS256", "ES256"), "RS256",
                 "How JWTs are signed, `RS256` or `ES256`."),
        _brokers("kafka.sasl.oauthbearer.assertion.template.file", _ANY, unless_blank(location), None,
                 "File of JSON with more fields of JWTs, in the objects `header` and `payload`."),
        _brokers("kafka.sasl.oauthbearer.assertion.claim.iss", _ANY, unless_blank(stripped), None,
                 "The claim `iss` of JWTs."),
        _brokers("kafka.sasl.oauthbearer.assertion.claim.sub", _ANY, unless_blank(stripped), None,
                 "The claim `sub` of JWTs."),
        _brokers("kafka.sasl.oauthbearer.assertion.claim.aud", _ANY, unless_blank(stripped), None,
                 "The claim `aud` of JWTs."),
        _brokers("kafka.sasl.oauthbearer.assertion.claim.exp.seconds", _ANY, integer(0, 86_400), "300",
                 "For how many seconds a JWT is valid."),
        _brokers("kafka.sasl.oauthbearer.assertion.claim.nbf.seconds", _ANY, integer(0, 3600), "60",
                 "For how many seconds before its creation a JWT is already valid, since clocks differ."),
        _brokers("kafka.sasl.oauthbearer.assertion.claim.jti.include", _ANY, boolean, "false",
                 "Whether each JWT has an id of its own, the claim `jti`."),
        _brokers("kafka.sasl.oauthbearer.header.urlencode", _ANY, boolean, "false",
                 "URL-encode client id and secret in the authorization header."),
        _brokers("kafka.sasl.login.connect.timeout.ms", _ANY, integer(1), "10000",
                 "The longest wait for a connection to the token endpoint."),
        _brokers("kafka.sasl.login.read.timeout.ms", _ANY, integer(1), "10000",
                 "The longest wait for an answer of the token endpoint."),
        _brokers("kafka.sasl.login.retry.backoff.ms", _ANY, integer(0, MAX_LONG), "100",
                 "The first wait before the token endpoint is asked again."),
        _brokers("kafka.sasl.login.retry.backoff.max.ms", _ANY, integer(0, MAX_LONG), "10000",
                 "The longest wait before the token endpoint is asked again."),
        _brokers("kafka.ssl.truststore.type", _ANY, stripped, "PEM",
                 "`PEM`. Convert other stores. A PEM store has no `kafka.ssl.truststore.password`."),
        _brokers("kafka.ssl.truststore.certificates", _ANY, unless_blank(certificates), None,
                 "Certificates of the authorities to trust, as PEM text."),
        _brokers("kafka.ssl.truststore.location", _ANY, unless_blank(location), None,
                 "PEM file of the authorities to trust, on every machine. Without it and"
                 " `kafka.ssl.truststore.certificates`, the system's authorities are trusted."),
        _brokers("kafka.ssl.keystore.type", _ANY, stripped, "PEM",
                 "`PEM`. Convert other stores. A PEM store has no `kafka.ssl.keystore.password`."),
        _brokers("kafka.ssl.keystore.certificate.chain", _ANY, unless_blank(certificates), None,
                 "The client's certificate chain, as PEM text."),
        _brokers("kafka.ssl.keystore.key", _ANY, unless_blank(private_key), None,
                 "The client's private key, as PEM text."),
        _brokers("kafka.ssl.keystore.location", _ANY, unless_blank(location), None,
                 "PEM file of certificate chain and private key, on every machine."),
        _brokers("kafka.ssl.key.password", _ANY, as_given, None,
                 "The password of the private key."),
        _brokers("kafka.ssl.endpoint.identification.algorithm", _ANY,
                 one_of_these({"https": True, "": False}), "https",
                 "`https`: check the host name in a broker's certificate. Empty: don't check it."),
        _brokers("kafka.ssl.enabled.protocols", _ANY,
                 some_of("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"), "TLSv1.2,TLSv1.3",
                 "TLS versions to offer to brokers."),
        _brokers("kafka.ssl.protocol", _ANY,
                 one_of("TLS", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"), "TLSv1.3",
                 "The newest TLS version to offer."),
        _zookeeper("zookeeper.sasl.jaas.config", _READ | Use.ADMIN, login_module, None,
                 "The login to ZooKeeper by SASL DIGEST-MD5, like `Client` in the JAAS file of a broker"
                 " ([how](zookeeper.md#log-in))."),
        _zookeeper("zookeeper.addauth", _READ | Use.ADMIN, unless_blank(stripped), None,
                 "`digest user:password`, as after `addauth` in ZooKeeper's shell, for ACLs of the scheme"
                 " `digest`."),
        _zookeeper("zookeeper.ssl.client.enable", _READ | Use.ADMIN, boolean, "false",
                 "`true`: connect to ZooKeeper by TLS."),
        _zookeeper("zookeeper.ssl.truststore.location", _READ | Use.ADMIN, unless_blank(location), None,
                 "PEM file of the authorities to trust, else the system's."),
        _zookeeper("zookeeper.ssl.keystore.location", _READ | Use.ADMIN, unless_blank(location), None,
                 "PEM file of certificate chain and private key."),
        _zookeeper("zookeeper.ssl.keystore.password", _READ | Use.ADMIN, as_given, None,
                 "The password of the private key."),
        _zookeeper("zookeeper.ssl.endpoint.identification.algorithm", _READ | Use.ADMIN,
                 one_of_these({"https": True, "": False}), "https",
                 "`https`: check the host name in a server's certificate. Empty: don't check it."),
    ),
)
# fmt: on
"""The options, in the order of the docs."""

BY_NAME = {option.name.lower(): option for section in SECTIONS for option in section.options}
"""The rows by their names in lower case, as Spark passes them."""

DEFAULTS: dict[str, Any] = {
    name: None if option.default is None else option.parser(option.name, option.default)
    for name, option in BY_NAME.items()
}
"""The values of options that are not given, by the same keys."""


def from_option(name: str, *others: str) -> Any:
    """A dataclass field for :meth:`.UserOptions.fill`, set by the first of these options that the user gives.

    Its default is that of the first option.
    """
    return field(default=DEFAULTS[name.lower()], metadata={"options": (name, *others)})
