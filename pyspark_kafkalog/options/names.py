"""The names of the options: what each is for, its default and its meaning."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Use(enum.Flag):
    """What an option is for."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    ALL = READ | WRITE


class Where(enum.Flag):
    """What holds the records that an option is about."""

    DIRECTORY = enum.auto()
    BROKERS = enum.auto()
    ANY = DIRECTORY | BROKERS


@dataclass(frozen=True, slots=True)
class Option:
    """One option as users write and read about it; ``default`` as they would write it, or None."""

    name: str
    use: Use
    default: str | None
    meaning: str
    where: Where = Where.ANY


OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        Use.ALL,
        None,
        "Log directory: path or URI. To read also a JSON array or comma list of them.",
        where=Where.DIRECTORY,
    ),
    Option("subscribe", Use.READ, None, "Topics, separated by commas."),
    Option("subscribePattern", Use.READ, None, "Java regular expression, found anywhere in a topic's name."),
    Option("assign", Use.READ, None, 'Partitions, `{"topicA":[0,1]}`.'),
    Option(
        "startingOffsets",
        Use.READ,
        None,
        "`earliest` (a batch's default), `latest` (a stream's), `committed` (by the group) or "
        '`{"topicA":{"0":23,"1":-2}}`, where -2 is earliest and -1 latest. '
        "A stream uses it only before its first checkpoint.",
    ),
    Option(
        "startingOffsetsByCommittedStrategy",
        Use.READ,
        "auto",
        "`earliest`, `latest` or `error`, where the group has committed nothing; `auto`: as without a group.",
    ),
    Option("endingOffsets", Use.BATCH_READ, "latest", "`latest` or JSON as above, exclusive."),
    Option("startingTimestamp", Use.READ, None, "Milliseconds; beats the two other starting options."),
    Option(
        "startingOffsetsByTimestamp",
        Use.READ,
        None,
        '`{"topicA":{"0":1700000000000}}`, milliseconds; beats `startingOffsets`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        "error",
        "`error` or `latest`, where no record is as late as a starting timestamp.",
    ),
    Option("endingTimestamp", Use.BATCH_READ, None, "Milliseconds; beats the two other ending options."),
    Option("endingOffsetsByTimestamp", Use.BATCH_READ, None, "As for starting; beats `endingOffsets`."),
    Option("includeHeaders", Use.ALL, "false", "Read the column `headers`. A writer needs only the column."),
    Option("failOnDataLoss", Use.READ, "true", "`false`: warn and go on where records are gone or broken."),
    Option("minPartitions", Use.READ, None, "Split large partitions until Spark has about so many tasks."),
    Option("maxRecordsPerPartition", Use.READ, None, "The most offsets for one task."),
    Option("maxOffsetsPerTrigger", Use.STREAM_READ, None, "About the most offsets for one micro-batch."),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM_READ,
        None,
        "About the most bytes for one micro-batch, as stored, e.g. `64m`.",
    ),
    Option(
        "minOffsetsPerTrigger",
        Use.STREAM_READ,
        None,
        "Wait until so many offsets are unread. `Trigger.AvailableNow` does not wait.",
    ),
    Option("maxTriggerDelay", Use.STREAM_READ, "15m", "The longest such wait."),
    Option(
        "kafka.group.id",
        Use.READ,
        None,
        "Consumer group: a stream commits to it what each micro-batch has finished. Nothing joins it.",
    ),
    Option(
        "commitOffsets",
        Use.STREAM_READ,
        None,
        "`true`, `false`, or `required`: a commit that fails ends the query. By default true with a group.",
    ),
    Option(
        "queryName",
        Use.STREAM_READ,
        None,
        "With `commitOffsets` and no group, the group is `groupIdPrefix`, a hyphen and this.",
    ),
    Option("groupIdPrefix", Use.READ, "spark-kafka-source", "See `queryName`."),
    Option(
        "view",
        Use.BATCH_READ,
        None,
        "`group-offsets`, `groups`, `topics`, or `audit` of an `auditLocation`: rows are these, not records.",
    ),
    Option(
        "kafka.isolation.level",
        Use.READ,
        "read_uncommitted",
        "`read_committed` hides aborted transactions and stops before open ones.",
    ),
    Option("checkCrcs", Use.READ, "true", "Verify the checksum of every record batch."),
    Option(
        "checkpointLocation",
        Use.STREAM_READ | Use.WRITE,
        None,
        "The query's. A reader that is told it too keeps its start offsets and the ids of its topics there,"
        " and commits to its group as soon as a micro-batch is complete.",
    ),
    Option(
        "large.message.enabled",
        Use.ALL,
        "false",
        "Split values that are too large on write, and put them together on read, in LinkedIn's format.",
    ),
    Option(
        "message.assembler.expiration.offset.gap",
        Use.READ,
        "1000",
        "Offsets after its first message segment at which a message that is still incomplete is dropped.",
    ),
    Option(
        "message.assembler.buffer.capacity",
        Use.READ,
        "32000000",
        "Bytes of incomplete messages of one partition that are held in memory.",
    ),
    Option(
        "max.tracked.messages.per.partition",
        Use.READ,
        "500",
        "Delivered messages whose safe offsets are known.",
    ),
    Option(
        "exception.on.message.dropped",
        Use.READ,
        "false",
        "Fail where a full buffer drops a message: `reassemble` only.",
    ),
    Option(
        "message.assembler.expiration.ms",
        Use.READ,
        None,
        "Age at which an incomplete message is dropped: `reassemble` only.",
    ),
    Option(
        "large.message.dead.letters",
        Use.READ,
        "false",
        "Add a column `dropped`, and a row for each dropped message, which is null in all others.",
    ),
    Option(
        "large.message.safe.offsets",
        Use.STREAM_READ,
        None,
        "Commit safe offsets, as LinkedIn's consumer does. By default `large.message.enabled`; "
        "true also where `reassemble` does it.",
    ),
    Option(
        "max.message.segment.bytes",
        Use.WRITE,
        "800000",
        "With `large.message.enabled`: bytes above which a value is split into message segments.",
    ),
    Option(
        "header.timestamp.enabled",
        Use.WRITE,
        "true",
        "With `large.message.enabled`: every record gets its timestamp as a header `_t`, too.",
    ),
    Option(
        "li.record.header.enable",
        Use.WRITE,
        "false",
        "Say what a message segment is in its header `_lm` alone, not in its value.",
    ),
    Option(
        "li.large.message.segment.wrapping.required",
        Use.WRITE,
        "false",
        "With `large.message.enabled`: small values are message segments, too.",
    ),
    Option(
        "auditor.class",
        Use.ALL,
        None,
        "Count messages: `counting`, or an import path `package.module:Class` of one that is told of all.",
    ),
    Option(
        "auditLocation",
        Use.ALL,
        None,
        "Folder (path or URI) for the counts, which `view=audit` shows. Without it they are only logged.",
    ),
    Option("auditor.bucket.ms", Use.ALL, "600000", "Width of the buckets of time by which is counted."),
    Option("topic", Use.WRITE, None, "Topic of all rows; beats the column `topic`."),
    Option(
        "partitioner",
        Use.WRITE,
        None,
        "Import path `package.module:callable`, asked for rows with no `partition`.",
    ),
    Option(
        "offsets.retention.minutes",
        Use.READ,
        "10080",
        "How long the offsets of a consumer group without members last.",
        where=Where.DIRECTORY,
    ),
    Option(
        "numPartitions", Use.WRITE, "1", "Partitions of a topic that this write makes.", where=Where.DIRECTORY
    ),
    Option(
        "compression.type",
        Use.WRITE,
        "none",
        "`none`, `gzip`, `snappy`, `lz4` or `zstd`.",
        where=Where.DIRECTORY,
    ),
    Option(
        "batch.size",
        Use.WRITE,
        "16384",
        "Bytes of records, uncompressed, that fill a record batch.",
        where=Where.DIRECTORY,
    ),
    Option(
        "max.message.bytes",
        Use.WRITE,
        "1048588",
        "Bytes of the largest record batch, as stored.",
        where=Where.DIRECTORY,
    ),
    Option(
        "message.timestamp.type",
        Use.WRITE,
        "CreateTime",
        "`CreateTime` or `LogAppendTime`.",
        where=Where.DIRECTORY,
    ),
    Option(
        "segment.bytes",
        Use.WRITE,
        "1073741824",
        "Bytes at which a new segment begins.",
        where=Where.DIRECTORY,
    ),
    Option("segment.ms", Use.WRITE, "604800000", "Age at which a new segment begins.", where=Where.DIRECTORY),
    Option(
        "index.interval.bytes",
        Use.WRITE,
        "4096",
        "Bytes of log between two index entries.",
        where=Where.DIRECTORY,
    ),
)
"""All options but those of brokers, in the order of the README's table."""

OF_PLACES = ("path", "offsets.retention.minutes")
"""Those of them that say where something is, and how its groups are kept, whatever is done there."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """What else the user may have meant: near names, or else all but the many with a prefix."""
    names = sorted(known)
    if near := near_names(name, names):
        return f"Did you mean {' or '.join(near)}?"
    return f"Known are {', '.join(other for other in names if not other.startswith('kafka.'))}."


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names that are like this one but for the case, a ``kafka.`` before it or some letters."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    prefixed = by_lower.get(f"kafka.{name.lower()}")
    if prefixed is not None:
        return [prefixed]
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3)]
