"""Names and small text files of a Kafka log directory.

::

    <log root>/
      .lock  .kafka_cleanshutdown  meta.properties
      recovery-point-offset-checkpoint  replication-offset-checkpoint
      log-start-offset-checkpoint  cleaner-offset-checkpoint
      <topic>-<partition>/
        00000000000000000000.log  .index  .timeindex  .txnindex  .snapshot
        leader-epoch-checkpoint  partition.metadata

A checkpoint is text: a line ``0`` (the version), a line with the count
of entries, then one line an entry with its fields set apart by white space.
A broker does not start beside one that it can't read, so each byte is taken as
it does: lines and white space are Java's, numbers have 32 or 64 bits.

Sources: Kafka's ``LocalLog``, ``LogFileUtils``, ``LogManager``, ``CheckpointFile``,
``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``, ``PartitionMetadataFile``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.model import TopicPartition, check_topic
from pyspark_kafkalog.model.kafka_uuid import uuid_from_text, uuid_to_text

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SNAPSHOT_SUFFIX = ".snapshot"
CLEANED_SUFFIX = ".cleaned"
"""Written by the cleaner, not yet valid."""
SWAP_SUFFIX = ".swap"
"""Valid, and about to replace the segments that it covers."""
DELETED_SUFFIX = ".deleted"
"""About to be removed."""

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'
"""The content of the clean shutdown file, where no broker has shut down."""
META_PROPERTIES_FILE = "meta.properties"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
"""The checkpoint files of a log root that have an offset for each partition."""
_ROOT_FILES = frozenset({META_PROPERTIES_FILE, *OFFSET_CHECKPOINTS, LOCK_FILE, CLEAN_SHUTDOWN_FILE})
"""Kafka's files beside the partitions."""
_OWN_PREFIX = ".kafkalog-"
"""Begins the names of this package's files beside them."""
OF_FILE_SYSTEMS = frozenset({"lost+found", ".snapshot", ".DS_Store"})
"""Names that a folder may have before anybody has put something there."""

JOURNAL_FILE = ".kafkalog-publish"
"""The journal of an unfinished publish."""
JOURNAL_SEPARATOR = "\n\n"
"""Ends the part of the journal that readers need. The rest grows with the data, and is for an undo."""

TOPIC_CONFIGS_FILE = ".kafkalog-topics"
"""The file of the topics' configurations."""

BACKUP_FILE = ".kafkalog-backup"
"""The file about the cluster that a directory is a backup of."""

METADATA_TOPIC = "__cluster_metadata"
"""KRaft's own log, which Kafka's LogManager does not count among the partitions."""

_MAX_SET_ASIDE = 200
_DELETED_FOLDER = ".de1e7ed0de1e7ed0de1e7ed0de1e7ed0-delete"
_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1
_FIELD = r"(?:0|[1-9][0-9]*)"
_PARTITION_FOLDER = re.compile(rf"(?P<topic>.+)-(?P<partition>{_FIELD})\Z", re.DOTALL)
_UNUSED_FOLDER = re.compile(r".+-.+\..+-(?:delete|future|stray)\Z", re.DOTALL)
_ENDING = re.compile(r"-(?:delete|future|stray)\Z")
_WITH_ENDING = re.compile(rf"\S+-\S+\.\S+{_ENDING.pattern}", re.ASCII)
_REMOTE_INDEXES = "remote-log-index-cache"
"""The folder of a broker with tiered storage for indexes of remote segments."""
_SEGMENT_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z.]+)\Z")
_LINE_END = re.compile(r"\r\n|[\r\n]")
_BLANKS = r"[ \t\n\x0b\f\r]+"
_NUMBER = re.compile(r"[+-]?[0-9]{1,400}\Z")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?\Z")


def parse_partition_folder(name: str) -> TopicPartition | None:
    """The partition whose live data the folder holds; None if ``name`` does not name a partition.

    The last ``-`` comes before the number. So folders that a broker deletes or moves
    (``<topic>-<n>.<hex>-delete``, ``-future``, ``-stray``) don't count.
    """
    match = _PARTITION_FOLDER.match(name)
    if match is None or int(match["partition"]) > _MAX_INT32 or match["topic"] == METADATA_TOPIC:
        return None
    try:
        return TopicPartition(check_topic(match["topic"]), int(match["partition"]))
    except OptionError:
        return None


def set_aside(partition: TopicPartition, what: str) -> str:
    """A name for another folder of a partition, as brokers give to what they delete: readers ignore it."""
    digest = hashlib.sha256(f"{what} {partition}".encode()).hexdigest()[:32]
    return f"{partition.topic[:_MAX_SET_ASIDE]}-{partition.partition}.{digest}-delete"


def deleted_folder(partition: TopicPartition) -> str:
    """The name that the folder of a deleted partition gets; a broker that starts removes it, too.

    Kafka cuts the topic as well (``LocalLog.logDeleteDirName``). Its digits are random, these are ours.
    """
    return f"{partition.topic[:_MAX_SET_ASIDE]}-{partition.partition}{_DELETED_FOLDER}"


def is_deleted_folder(name: str) -> bool:
    """Whether :func:`deleted_folder` gives this name."""
    return name.endswith(_DELETED_FOLDER)


def new_copy(partition: TopicPartition) -> str:
    """The folder where a new copy of a backup's partition grows."""
    return set_aside(partition, "new")


def partition_of(name: str) -> TopicPartition:
    """The partition that a file names, as its folder; ValueError for any other text."""
    partition = parse_partition_folder(name)
    if partition is None:
        raise ValueError(name)
    return partition


def is_unused_folder(name: str) -> bool:
    """Whether a broker gives this name to a partition that it deletes, moves or has found stray."""
    return _UNUSED_FOLDER.match(name) is not None or name == f"{METADATA_TOPIC}-0"


def may_be_there(name: str) -> bool:
    """Whether a broker starts on a log directory that holds a folder of this name.

    It stops at one that is not ``<topic>-<partition>``, with any topic, and an ending of its own at most
    (``UnifiedLog.parseTopicPartitionName``, ``LogManager.loadLogs``).
    """
    if name == _REMOTE_INDEXES:
        return True
    ending = _ENDING.search(name)
    if ending is not None:
        if _WITH_ENDING.match(name) is None:
            return False
        name = name[: name.rindex(".")]
    number = re.fullmatch(r".+-(\+?[0-9]{1,10})", name, re.DOTALL)
    return number is not None and int(number[1]) <= _MAX_INT32


def is_beside_partitions(name: str) -> bool:
    """Whether the name is one of Kafka or of this package for what is in a root, but not a live partition."""
    return name in _ROOT_FILES or name.startswith(_OWN_PREFIX) or is_unused_folder(name)


def segment_file(base_offset: int, suffix: str) -> str:
    """Name of a segment's file or of a producer snapshot: 20 digits and ``suffix``."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Base offset and suffix (``.log``, ``.index.swap`` ...) of a segment's file; None for any other name."""
    match = _SEGMENT_FILE.match(name)
    if match is None or int(match["offset"]) >= 2**63:
        return None
    return int(match["offset"]), match["suffix"]


def parse_offset_checkpoint(data: bytes, file: str) -> dict[TopicPartition, int]:
    """Read ``recovery-point-offset-checkpoint`` or a file like it; ``file`` is for errors."""
    return {
        TopicPartition(topic, _number(partition, _MAX_INT32, file)): _number(offset, _MAX_INT64, file)
        for topic, partition, offset in _parse_checkpoint(data, 3, file)
    }


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Inverse of :func:`parse_offset_checkpoint`."""
    return _format_checkpoint(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def parse_leader_epoch_checkpoint(data: bytes, file: str) -> list[tuple[int, int]]:
    """Read ``leader-epoch-checkpoint``: pairs of a leader epoch and its first offset."""
    return [
        (_number(epoch, _MAX_INT32, file), _number(offset, _MAX_INT64, file))
        for epoch, offset in _parse_checkpoint(data, 2, file)
    ]


def format_leader_epoch_checkpoint(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Inverse of :func:`parse_leader_epoch_checkpoint`."""
    return _format_checkpoint(f"{epoch} {offset}" for epoch, offset in epochs)


def parse_partition_metadata(data: bytes, file: str) -> str:
    """The topic id, 22 characters, in ``partition.metadata``; higher versions are read the same way."""
    values = [_fields(line, ":" + _BLANKS) for line in _lines(data, file)[:2]]
    if [len(value) for value in values] != [2, 2] or _number(values[0][1], _MAX_INT32, file) < 0:
        raise _malformed("expected version and topic_id", file, _TOPIC_ID_HINT)
    if not _TOPIC_ID.match(values[1][1]):
        fault = f"expected a topic id of 22 characters, got {values[1][1][:50]!r}"
        raise _malformed(fault, file, _TOPIC_ID_HINT)
    topic_id = uuid_from_text(values[1][1][:22])
    if not topic_id.int:
        raise _malformed("topic_id is zero", file, _TOPIC_ID_HINT)
    return uuid_to_text(topic_id)


def readable_topic_id(data: bytes | None) -> str:
    """The topic id in ``partition.metadata``; empty without one (before Kafka 2.8), or if it is malformed."""
    try:
        return parse_partition_metadata(data, PARTITION_METADATA_FILE) if data else ""
    except LogDirectoryError:
        return ""


def format_partition_metadata(topic_id: str) -> bytes:
    """Inverse of :func:`parse_partition_metadata`."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def _parse_checkpoint(data: bytes, fields: int, file: str) -> list[list[str]]:
    lines = _lines(data, file)
    if not lines:
        return []
    if not _NUMBER.match(lines[0]) or int(lines[0]) != 0:
        raise _malformed(f"expected version 0, got {lines[0][:50]!r}", file)
    if len(lines) < 2:
        raise _malformed("expected a count of entries, got nothing", file)
    count = _number(lines[1], _MAX_INT32, file)
    entries = [_fields(line, _BLANKS) for line in lines[2:]]
    for number, entry in enumerate(entries, 3):
        if len(entry) != fields:
            raise _malformed(f"expected {fields} fields in line {number}, got {len(entry)}", file)
    if count != len(entries):
        raise _malformed(f"expected {count} entries, got {len(entries)}", file)
    return entries


def _lines(data: bytes, file: str) -> list[str]:
    """The lines of a file as Java's BufferedReader has them: a newline at the end begins no other line."""
    try:
        lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError:
        raise _malformed("expected UTF-8 text", file) from None
    return lines if lines[-1] else lines[:-1]


def _fields(line: str, separator: str) -> list[str]:
    """The fields of a line as Java's Pattern.split has them: empty fields at the end do not count."""
    fields = re.split(separator, line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


def _format_checkpoint(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in ("0", str(len(entries)), *entries)).encode()


def _number(text: str, largest: int, file: str) -> int:
    """A signed number of 32 or 64 bits, of which ``largest`` is the largest."""
    if not _NUMBER.match(text) or not -largest - 1 <= int(text) <= largest:
        raise _malformed(f"expected a number up to {largest}, got {text[:50]!r}", file)
    return int(text)


_WRITTEN_AGAIN = "Delete it while no broker or writer uses the directory; a broker writes it again."
_TOPIC_ID_HINT = (
    "Copy it from another partition of the topic. In a broker's own directory it may also be deleted while no"
    " broker or writer uses that; the broker writes it again."
)


def _malformed(fault: str, file: str, hint: str = _WRITTEN_AGAIN) -> LogDirectoryError:
    return LogDirectoryError(
        f"Malformed file: {fault}",
        file=file,
        hint=hint,
    )
