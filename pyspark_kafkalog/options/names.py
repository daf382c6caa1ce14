"""The names of all options, where each may stand, its default, and what Spark adds or refuses itself."""

from __future__ import annotations

import difflib
import enum
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options import values as option_values
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG

_log = logging.getLogger("pyspark_kafkalog")


class Use(enum.Flag):
    """What an option is for."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    ALL = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """One option as users write and read about it; ``default`` as they would write it, or None."""

    name: str
    use: Use
    default: str | None
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option(
        "path", Use.ALL, None, "Log directory: path or URI. To read also a JSON array or comma list of them."
    ),
    Option("subscribe", Use.READ, None, "Topics, separated by commas."),
    Option("subscribePattern", Use.READ, None, "Java regular expression, found anywhere in a topic's name."),
    Option("assign", Use.READ, None, 'Partitions, `{"topicA":[0,1]}`.'),
    Option(
        "startingOffsets",
        Use.READ,
        None,
        "`earliest` (a batch's default), `latest` (a stream's) or "
        '`{"topicA":{"0":23,"1":-2}}`, where -2 is earliest and -1 latest. '
        "A stream uses it only before its first checkpoint.",
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
        "The query's. A reader that is told it too keeps its start offsets there.",
    ),
    Option("topic", Use.WRITE, None, "Topic of all rows; beats the column `topic`."),
    Option(
        "partitioner",
        Use.WRITE,
        None,
        "Import path `package.module:callable`, asked for rows with no `partition`.",
    ),
    Option("numPartitions", Use.WRITE, "1", "Partitions of a topic that this write makes."),
    Option("compression.type", Use.WRITE, "none", "`none`, `gzip`, `snappy`, `lz4` or `zstd`."),
    Option("batch.size", Use.WRITE, "16384", "Bytes of records, uncompressed, that fill a record batch."),
    Option("max.message.bytes", Use.WRITE, "1048588", "Bytes of the largest record batch, as stored."),
    Option("message.timestamp.type", Use.WRITE, "CreateTime", "`CreateTime` or `LogAppendTime`."),
    Option("segment.bytes", Use.WRITE, "1073741824", "Bytes at which a new segment begins."),
    Option("segment.ms", Use.WRITE, "604800000", "Age at which a new segment begins."),
    Option("index.interval.bytes", Use.WRITE, "4096", "Bytes of log between two index entries."),
)
"""All options of this version, in the order of the README's table."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

_ADDED_BY_SPARK = re.compile(r"paths|queryname|location|owner|provider|comment|option\..*")
"""Names that Spark adds: ``load([..])``, ``queryName``, and ``CREATE TABLE`` (observed with PySpark 4.2)."""

_FOR_BROKERS = {
    "groupidprefix",
    "kafka.group.id",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
}
"""Options of Spark's source that cannot matter for a directory, and are let pass."""

_REFUSED_BY_SPARK = {
    "kafka.auto.offset.reset": "Set startingOffsets to earliest or latest instead.",
    "kafka.key.deserializer": "Keys are read as bytes: use DataFrame operations to deserialize them.",
    "kafka.value.deserializer": "Values are read as bytes: use DataFrame operations to deserialize them.",
    "kafka.enable.auto.commit": "Spark keeps track of what is read.",
    "kafka.interceptor.classes": "Use DataFrame operations instead.",
    "kafka.key.serializer": "Give the column key as string or binary.",
    "kafka.value.serializer": "Give the column value as string or binary.",
}
SERVERS = "kafka.bootstrap.servers"


class GivenOptions:
    """The options that the user gave, with the defaults of :data:`OPTIONS` behind them."""

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        for name in self._values:
            _check_name(name, use)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower(), _BY_NAME[name.lower()].default)

    def boolean(self, name: str) -> bool:
        return option_values.boolean(name, self.text(name) or "")

    def choice(self, name: str, *allowed: str) -> str:
        return option_values.choice(name, self.text(name) or "", allowed)

    def integer(self, name: str, lowest: int, highest: int = MAX_INT) -> int:
        return option_values.integer(name, self.text(name) or "", lowest, highest)

    def limit(self, name: str, highest: int = MAX_LONG) -> int | None:
        return self.integer(name, 1, highest) if name in self else None


def _check_name(name: str, use: Use) -> None:
    option = _BY_NAME.get(name)
    if option is not None and option.use & use:
        return
    if name == SERVERS or _ADDED_BY_SPARK.fullmatch(name):
        return
    if name in _FOR_BROKERS:
        _log.debug("Option %s concerns brokers, and is ignored for a log directory", name)
        return
    if name in _REFUSED_BY_SPARK:
        raise OptionError(
            f"Kafka option {name.removeprefix('kafka.')!r} is not supported", hint=_REFUSED_BY_SPARK[name]
        )
    if option is not None:
        other = "reading" if use is Use.WRITE else "writing"
        raise OptionError(f"Option {option.name!r} is for {other} only")
    usable = {known.name for known in OPTIONS if known.use & use}
    if name.startswith("kafka."):
        bare = name.removeprefix("kafka.")
        hint = f"Write {bare!r} instead." if bare in usable else "Leave it out."
        raise OptionError(f"Option {name!r} concerns brokers, and 'path' is a log directory", hint=hint)
    raise OptionError(f"Unknown option {name!r}", hint=suggestion(name, usable))


def suggestion(name: str, known: Iterable[str]) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3)]
    return (
        f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(sorted(by_lower.values()))}."
    )
