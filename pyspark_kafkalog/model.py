"""The nouns of the package, frozen, and what a place of records must offer.

All offset ranges are half-open, and an offset that stands for progress is the
next one to read. Timestamps are milliseconds since the epoch, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark_kafkalog.errors import CorruptRecordError, OptionError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

EARLIEST = -2
"""Stands for the log start offset wherever an offset is asked for (Kafka's ListOffsets)."""
LATEST = -1
"""Stands for the end of what may be read (Kafka's ListOffsets)."""

COMMITTED = -3
"""Stands for what a consumer group has committed, where a query starts; of this package only."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics left out unless they are named (Kafka's Topic.INTERNAL_TOPICS)."""

ROW_FIELDS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""Columns of a row and their Spark types, in order, all nullable (Spark's KafkaRecordToRowConverter)."""
HEADERS_FIELD = ("headers", "array<struct<key:string,value:binary>>")
"""The column that ``includeHeaders`` adds; null, not empty, where a record has no header."""
DROPPED_FIELD = (
    "dropped",
    "struct<reason:string,messageId:binary,startingOffset:bigint,segmentCount:int,"
    "segments:array<struct<offset:bigint,number:int,value:binary>>>",
)
"""The column that dead letters add: a large message that was dropped; null in all other rows."""

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def check_topic(topic: str) -> str:
    """Return ``topic``; :class:`OptionError` if Kafka would refuse it (Kafka's Topic.validate)."""
    if not _LEGAL_TOPIC.match(topic) or topic in (".", ".."):
        raise OptionError(
            f"Illegal topic name {topic[:300]!r}",
            hint="Topic names have 1 to 249 of the characters a-z A-Z 0-9 . _ - and are not '.' or '..'.",
        )
    return topic


class TopicPartition(NamedTuple):
    """One partition of a topic. Sorts by topic, then by number; prints as ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def listed(partitions: Collection[TopicPartition], most: int) -> str:
    """The names of so many of ``partitions`` at most, in order, and how many more there are."""
    names = ", ".join(map(str, sorted(partitions)[:most]))
    return names if len(partitions) <= most else f"{names} and {len(partitions) - most} more"


class OffsetRange(NamedTuple):
    """Record offsets ``start <= offset < end`` of one partition."""

    start: int
    end: int

    def within(self, other: OffsetRange) -> OffsetRange:
        """The part of this range that is in ``other``; of no offsets if none is."""
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.end, other.end)))


ALL_OFFSETS = OffsetRange(0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The bounds of a partition, each an offset.

    ``log_start_offset`` is the first that exists, ``high_watermark`` the first
    that does not yet, ``last_stable_offset`` the first that belongs to an open
    transaction (``high_watermark`` if none is open).
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int

    def end(self, *, read_committed: bool) -> int:
        """The first offset that a reader of the given isolation level may not see."""
        return self.last_stable_offset if read_committed else self.high_watermark


class Seen(NamedTuple):
    """What a plan saw of a partition, which holds for whoever carries it out.

    ``topic_id`` is empty and ``leader_epoch`` -1 where it is not known; the records below ``end`` were there.
    """

    topic_id: str = ""
    leader_epoch: int = -1
    end: int = 0


NOTHING_SEEN = Seen()


@dataclass(frozen=True, slots=True)
class StoredSize:
    """The bytes of a partition's record batches; how many segments they are in, None if that is not told."""

    size_bytes: int
    segments: int | None = None


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction of one partition.

    ``last_offset`` is that of its abort marker; None where the place does not
    tell (a fetch response), then the marker itself ends the transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the bytes of a buffer came from, for error messages: a file, and buffer[0]'s position in it."""

    file: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive whole record batches of one partition, as stored.

    ``buffer`` may hold batches below and above the range that was asked for;
    the decoder drops those records. ``headers`` are those of its batches, which
    whoever cuts the slice has to parse: the table of :class:`.codec.walk.Batches`.
    ``aborted`` are the aborted transactions that overlap the slice, empty for read_uncommitted.
    """

    buffer: pa.Buffer
    headers: np.ndarray
    origin: Origin
    aborted: tuple[AbortedTransaction, ...] = ()


class QueryBatch(NamedTuple):
    """Whose records are written: a micro-batch of a streaming query, or a batch job.

    Spark keeps a query's id in its checkpoint, and may do a micro-batch again under the same
    ``batch_id``. A batch job has an id of its own, and no ``batch_id``.
    """

    query_id: str
    batch_id: int | None = None

    @property
    def job(self) -> str:
        """Its name among what is staged."""
        return self.query_id if self.batch_id is None else f"{self.query_id}-{self.batch_id}"

    def __str__(self) -> str:
        return "A batch" if self.batch_id is None else f"Micro-batch {self.batch_id}"


class TaskAttempt(NamedTuple):
    """An attempt at one of the tasks of a batch; ``stage`` is another each time that Spark makes them."""

    stage: int
    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """How records are put into batches; names and defaults are Kafka's.

    ``batch_size`` bounds a batch before compression, in bytes, unless it holds a
    single record; ``max_message_bytes`` bounds it as stored, and ``limit`` says what
    sets that bound, for the user who meets it.
    """

    compression: str = "none"
    batch_size: int = 16384
    max_message_bytes: int = 1048588
    limit: str = "the option max.message.bytes"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class Encoded:
    """Consecutive record batches: their bytes, and how many records and batches those are."""

    data: np.ndarray
    records: int
    batches: int


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a log is laid out; names and defaults are those of Kafka's topic settings."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    log_append_time: bool = False


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What was written to a partition. Offsets are -1 where no broker told any (acks=0, duplicates)."""

    records: int
    batches: int
    first_offset: int
    last_offset: int


OnCorrupt = Callable[[CorruptRecordError], None]
"""Called with each stretch of bytes that is left out. Where None is passed instead, the error is raised."""


class Place(Protocol):
    """Where records live: a log directory, or the brokers of a cluster."""

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
        """Every topic, internal ones too, with its partition numbers in order; or those of ``names``."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The id of each of ``topics`` that exists: 22 characters, empty where the place knows none.

        A topic that is deleted and made anew under its name gets another one (KIP-516).
        """

    def watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Watermarks]:
        """Bounds of those partitions that exist.

        Without ``read_committed`` the last stable offset may be given as the
        high watermark, since finding it can cost a scan.
        """

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """The end of each partition that exists, sorted: the first offset that may not be read yet."""

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The newest leader epochs that are known of these partitions, without those of which none is.

        Whatever was asked of the place before, was answered in these epochs or older ones.
        """

    def expect(self, partition: TopicPartition, seen: Seen) -> None:
        """Hold answers that contradict what a plan has seen for out of date.

        They are believed only on evidence: of the leader, in an epoch that is no older, and where the
        log ends before ``seen.end``, after kafkaConsumer.pollTimeoutMs. What was seen last counts.
        """

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """For each partition the offset of the first record with timestamp >= the given ms, or None.

        As a broker looks into one segment only, None does not mean that there is no such record.
        """

    def newest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """For each partition ms that no record's timestamp exceeds, -1 without records.

        Partitions of which the place doesn't know are left out.
        """

    def oldest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """For each partition the ms of the first record that has a timestamp, -1 if none has one.

        Partitions that don't exist are left out. Later records may be older.
        """

    def stored_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredSize]:
        """What the log of each partition takes, of which the place knows."""

    def mean_record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """Stored bytes per offset, on average over each partition of which the place knows."""

    def fetch(
        self,
        partition: TopicPartition,
        offsets: OffsetRange,
        *,
        read_committed: bool,
        on_corrupt: OnCorrupt | None = None,
        topic_id: str = "",
        confirm: bool = False,
    ) -> Iterator[Slice]:
        """Record batches that cover ``offsets``, in order, in slices of a bounded size.

        :param topic_id: that of the topic that was planned for. If another one takes its place, there
            is a data loss.
        :param confirm: whether to look, before anything is given, if that topic is still there with all
            of ``offsets``, of which there may be none.
        :raises UnconfirmedError: if one was to ``confirm`` that, and could not.
        :raises CorruptRecordError: at a place where no batch can be framed and
            which is not the torn tail of the log, unless ``on_corrupt`` is
            given: then it is told, and the next valid batch is sought.
        """

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The configs of a topic, those that are set for all topics included; empty if they are not known."""

    def file_faults(self, partition: TopicPartition) -> list[CorruptRecordError]:
        """What is wrong with a partition's files besides its record batches; brokers show none of theirs."""

    def offset_after_bytes(self, partition: TopicPartition, offsets: OffsetRange, max_bytes: int) -> int:
        """An end in (start, end] so that the batches of [start, it) take about ``max_bytes`` at most.

        Always moves on by at least one record batch.
        """


class TaskSink(Protocol):
    """Takes the encoded record batches of one task. Left without :meth:`finish`, it drops what it can."""

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, the same whenever it is asked for: equal keys go to one of them.

        :raises UnknownTopicOrPartitionError: if there is no such topic and it isn't made on the way.
        """

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether a partition beyond that number has come to be since, which rows may name."""

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """How to encode what is to be appended to ``partition`` next."""

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Take the record batches, to stand in ``partition`` in the order of the calls."""

    def advance(self) -> None:
        """Do what can be done without waiting: some rows are appended, and others are to come."""

    def finish(self) -> Any:
        """Wait until all that was appended is safe, and return what :meth:`Sink.commit` needs of it."""


class Sink(Protocol):
    """How rows get into a place. Made on the driver and pickled to the tasks, so it holds little."""

    @property
    def needs_commit(self) -> bool:
        """Whether rows become visible by :meth:`commit`; else they are as soon as a task has written them."""

    def open(self, batch: QueryBatch, attempt: TaskAttempt) -> AbstractContextManager[TaskSink]:
        """What one task of ``batch`` writes to."""

    def commit(self, batch: QueryBatch, finished: Sequence[Any]) -> None:
        """Complete a batch, with what :meth:`TaskSink.finish` gave of each task; again, if Spark does so."""

    def abort(self, batch: QueryBatch) -> None:
        """Take back what tasks of ``batch`` have written, as far as that goes; never raises."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a consumer group has committed for one partition: ``offset`` is the next one it will read.

    Timestamps are ms, -1 where the place does not tell (brokers do not); without an
    ``expire_timestamp`` of its own a commit lives as long as its group (KIP-211).
    ``leader_epoch`` is that of the last record read, -1 if unknown (KIP-320).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A live member of a group, and the partitions that are assigned to it."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group. ``state`` is Kafka's word (Empty, Stable, PreparingRebalance, Dead, ...).

    ``protocol_type`` is ``consumer`` for consumers and empty for a group that only
    commits; ``protocol`` is the assignor's name; ``coordinator`` a broker's id, -1 in a directory.
    """

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()
    coordinator: int = -1


class CommittedOffsets(Protocol):
    """What consumer groups have committed."""

    def committed(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What ``group`` has committed, for all partitions or for these; without those that have nothing."""


class GroupOffsets(CommittedOffsets, Protocol):
    """The consumer groups of a place and what they have committed: ``__consumer_offsets``."""

    def group_ids(self) -> tuple[str, ...]:
        """The groups that there are, sorted."""

    def describe(self, groups: Collection[str]) -> dict[str, Group]:
        """Those of ``groups`` that exist."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit as a group without members, all or what the error does not name.

        A ``leader_epoch`` of -1 is filled in where the place knows the partition's.

        :raises GroupError: if the group has live members, or can't be written to.
        """

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Forget what ``group`` has committed for these partitions; no error where there is nothing.

        :raises GroupError: if a live member is subscribed to their topics.
        """

    def delete_group(self, group: str) -> None:
        """Forget all of a group.

        :raises GroupError: if it has live members, or does not exist.
        """


@dataclass(frozen=True, slots=True)
class AssemblerSettings:
    """How long message segments wait for the rest of their large message (LinkedIn's LargeMessageBufferPool).

    Bytes, offsets and milliseconds; an ``expiration_ms`` of None lets them wait for ever on a partition
    to which nothing is added. The first three are at least 1.
    """

    buffer_capacity: int = 32_000_000
    expiration_offset_gap: int = 1000
    max_tracked_messages: int = 500
    exception_on_message_dropped: bool = False
    expiration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SplitterSettings:
    """How large messages are split (LinkedIn's LiKafkaProducerConfig).

    Values above ``segment_bytes`` are. ``header_only`` leaves values without a prefix; ``wrap`` treats
    a message that is not split as one of one message segment.
    """

    segment_bytes: int = 800_000
    timestamp_header: bool = True
    header_only: bool = False
    wrap: bool = False
