"""The nouns of the package, frozen, and the protocols of a place of records.

All offset ranges are half-open. Progress is given as the next offset to read.
Timestamps are milliseconds since the epoch, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError, OptionError
from pyspark_kafkalog.model.rows import BOOLEAN, COUNT, INT, NOTE, STRING, Kind, column

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

EARLIEST = -2
"""Stands for the log start offset where an offset is expected (Kafka's ListOffsets)."""
LATEST = -1
"""Stands for the end of the readable records (Kafka's ListOffsets)."""
COMMITTED = -3
"""Stands for a consumer group's committed offset as the start of a query; only in this package."""

HIGH_WATERMARK = -1
"""Stands for the high watermark where records below an offset are deleted, as in Kafka's DeleteRecords."""

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
"""The column that dead letters add: a dropped large message, null in all other rows."""
CORRUPT_FIELD = (
    "corrupt",
    "struct<reason:string,column:string,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    f"key:binary,value:binary,headers:{HEADERS_FIELD[1]}>",
)
"""The column that ``includeCorrupt`` adds: a record that can't be decoded, whole; null in all other rows."""
ERROR_HEADERS = "__connect.errors."
"""The prefix of the headers in which Kafka Connect says what is wrong with a dead letter."""

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_WITH_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249}):[0-9,]+")


def check_topic(topic: str) -> str:
    """Return ``topic``; :class:`OptionError` if Kafka would refuse it (Kafka's Topic.validate)."""
    if not _LEGAL_TOPIC.match(topic) or topic in (".", ".."):
        raise OptionError(
            f"Illegal topic name {topic[:300]!r}",
            hint=_instead_of(topic)
            or "Topic names have 1 to 249 of the characters a-z A-Z 0-9 . _ - and are not '.' or '..'.",
        )
    return topic


def _instead_of(topic: str) -> str:
    """The sentence about what an illegal name was probably meant for; none if that is not clear."""
    if "," in topic:
        return "Name one topic, without commas."
    if with_partition := _WITH_PARTITION.fullmatch(topic):
        return f"Leave out the partition: {with_partition[1]}."
    return "Patterns are not taken here: write each name out." if set(topic) & set("*?[(|") else ""


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by topic, then by number; prints as ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Record offsets ``start <= offset < end`` of one partition."""

    start: int
    end: int

    def within(self, other: OffsetRange) -> OffsetRange:
        """The part of this range that is in ``other``; empty if they don't overlap."""
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.end, other.end)))


ALL_OFFSETS = OffsetRange(0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The bounds of a partition, each an offset.

    ``log_start_offset`` is the first that exists, ``high_watermark`` the first that does not exist yet,
    ``last_stable_offset`` the first of an open transaction (``high_watermark`` if none is open).
    ``elsewhere`` are the offsets before the first that the log has as well, but not this place: those that a
    broker with tiered storage has moved out of its directory. None if there are none.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    elsewhere: OffsetRange | None = None

    def end(self, *, read_committed: bool) -> int:
        """The first offset that a reader of the given isolation level may not see."""
        return self.last_stable_offset if read_committed else self.high_watermark


def not_here(offsets: OffsetRange) -> str:
    """The error text for offsets in tiered storage, or else not in this directory."""
    return (
        f"Offsets {offsets.start} to {offsets.end - 1} are not in this directory: its broker keeps them"
        " elsewhere, such as in remote storage"
    )


def not_copied(offsets: OffsetRange) -> str:
    """The error text for a gap of a backup."""
    return f"Offsets {offsets.start} to {offsets.end - 1} are not in this backup: its source had deleted them"


GO_ON = "Set failOnDataLoss=false to continue without the lost records."
"""The hint where records are gone."""
TO_NEXT_BATCH = "Set failOnDataLoss=false to continue at the next valid batch."
"""The hint where record batches are corrupt."""


def lost(
    partition: TopicPartition,
    offsets: OffsetRange,
    why: str,
    *,
    next_offset: int | None = None,
    file: str | None = None,
    broker: str | None = None,
) -> DataLossError:
    """The error of a fetch of ``offsets``, which its log no longer has.

    :param next_offset: the first later offset that exists; None if all the rest is gone.
    """
    return DataLossError(
        f"Offsets {offsets.start} to {offsets.end - 1} are gone: {why}",
        topic_partition=partition,
        offset=offsets.start,
        next_offset=next_offset,
        file=file,
        broker=broker,
        hint=GO_ON,
    )


def went_back(
    partition: TopicPartition, offset: int, seen: int, now: int, *, broker: str | None = None
) -> DataLossError:
    """The error of a log of which a plan has seen a newer leader epoch than it has now."""
    return DataLossError(
        f"LOG_WENT_BACK: the records are not those that were planned, as the log was in leader epoch {seen},"
        f" and the cluster is back at {now}; it was set back to an older copy",
        topic_partition=partition,
        offset=offset,
        next_offset=offset,
        broker=broker,
        hint="Set failOnDataLoss=false to read what is there now.",
    )


@dataclass(frozen=True, slots=True)
class StoredSize:
    """The bytes of a partition's record batches, and the base offsets of its segments, None if unknown."""

    stored_bytes: int
    segments: tuple[int, ...] | None = None


class StoredSegment(NamedTuple):
    """A live segment. Timestamps are ms, -1 if no record has one. Of its two indexes the worse counts."""

    file: str
    base_offset: int
    stored_bytes: int
    earliest_timestamp: int
    latest_timestamp: int
    index_state: Literal["ok", "missing", "damaged"]
    active: bool


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction of one partition.

    ``last_offset`` is that of its abort marker; None if unknown (a fetch response): the marker ends it.
    """

    producer_id: int
    first_offset: int
    last_offset: int | None = None


class BatchHeader(NamedTuple):
    """The header fields that copies of a record batch share, named as in :class:`.codec.walk.Batches`.

    The base offset of a message set (v0, v1) is -1; ``records`` are those that the header claims.
    """

    magic: int
    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    crc: int
    base_timestamp: int
    max_timestamp: int
    size: int
    attributes: int
    records: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a buffer, for error messages: a file, and the position of buffer[0] in it."""

    file: str | None = None
    position: int = 0


class StoredBatch(NamedTuple):
    """A record batch of a log directory, and where it was found."""

    header: BatchHeader
    origin: Origin


class Decided(NamedTuple):
    """The ends, from the offset ``since`` on, of the transactions with data in ``offsets``.

    All but the ``aborted`` ones are committed. The reader of ``offsets`` sees how others end before that.
    It holds for a log that has the batch ``proof``: the last that was looked at, so that all before it is the
    same in a log that has it.
    """

    offsets: OffsetRange
    aborted: tuple[AbortedTransaction, ...]
    proof: StoredBatch
    since: int


class Seen(NamedTuple):
    """A partition as a plan saw it; those who carry the plan out rely on it.

    ``topic_id`` is empty and ``leader_epoch`` -1 if unknown. The records below ``end`` existed.
    ``decided`` has the ends of its transactions, None if the plan knows none.
    """

    topic_id: str = ""
    leader_epoch: int = -1
    end: int = 0
    decided: Decided | None = None


NOTHING_SEEN = Seen()


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive whole record batches of one partition, as stored.

    ``buffer`` may hold batches below and above the requested range; the decoder drops those records.
    ``headers`` are those of its batches, parsed when the slice was cut: the table of
    :class:`.codec.walk.Batches`. ``aborted`` are the aborted transactions that overlap the slice, empty
    for read_uncommitted.
    """

    buffer: pa.Buffer
    headers: np.ndarray
    origin: Origin
    aborted: tuple[AbortedTransaction, ...] = ()


class QueryBatch(NamedTuple):
    """A micro-batch of a streaming query, or a batch job, as the writer of records.

    Spark keeps a query's id in its checkpoint, and may run a micro-batch again under the same
    ``batch_id``. A batch job has its own id, and no ``batch_id``.
    """

    query_id: str
    batch_id: int | None = None

    @property
    def job(self) -> str:
        """The name of the batch in staged files."""
        return self.query_id if self.batch_id is None else f"{self.query_id}-{self.batch_id}"

    def __str__(self) -> str:
        return "A batch" if self.batch_id is None else f"Micro-batch {self.batch_id}"


class TaskAttempt(NamedTuple):
    """An attempt at a task of a batch; ``stage`` differs each time that Spark creates the tasks."""

    stage: int
    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class EncodeSettings:
    """The settings of the encoder of record batches; names and defaults are Kafka's.

    ``level`` is that of the compression, one that Kafka allows for it (KIP-390); None: its default there.
    ``batch_size`` bounds a batch before compression, in bytes, unless it holds a single record;
    ``max_message_bytes`` bounds it as stored, and ``limit`` names what sets that bound, for errors.
    In a topic that ``is_compacted`` no message is split. With ``needs_keys``, where no broker sees to it that
    such a topic has no record without a key, one is refused; so is a timestamp outside of ``timestamps``, the
    least and the greatest (ms) that a topic takes. Without ``checksums`` batches have 0 for theirs:
    :mod:`.codec.stamp` adds it.
    """

    compression: str = "none"
    batch_size: int = 16384
    max_message_bytes: int = 1048588
    limit: str = "the option max.message.bytes"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    is_compacted: bool = False
    needs_keys: bool = False
    checksums: bool = True
    level: int | None = None
    timestamps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """Consecutive record batches: their bytes, and the number of records.

    Of each batch its position in ``data``, its size in bytes, how many records it has, and its size in bytes
    without compression; None if nothing tells that.
    """

    data: np.ndarray
    records: int
    positions: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray
    plain_sizes: np.ndarray | None = None

    def sizes_without_compression(self) -> list[int]:
        """The size in bytes of each record batch without compression; as it is stored, if that is unknown."""
        known: list[int] = (self.sizes if self.plain_sizes is None else self.plain_sizes).tolist()
        return known


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of a log's segments; names and defaults are those of Kafka's topic configurations."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    log_append_time: bool = False


OnCorrupt = Callable[[CorruptRecordError | DataLossError], None]
"""Called with an error for each stretch of bytes or segment that is left out. Without it, it is raised."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch of one partition: the record batches that cover ``offsets``.

    ``topic_id`` is that of the planned topic, empty if unknown: if another takes its place, that is a data
    loss. With ``confirm``, the place checks, before it gives anything, that this topic still exists with all
    of ``offsets``, which may be empty. ``on_corrupt`` does not count where two are compared.
    """

    partition: TopicPartition
    offsets: OffsetRange
    read_committed: bool = False
    topic_id: str = ""
    confirm: bool = False
    on_corrupt: OnCorrupt | None = field(default=None, compare=False)


class Place(Protocol):
    """A place with records: a log directory, or the brokers of a cluster."""

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
        """Every topic, internal ones too, with its partition numbers in order; or those of ``names``."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The id of each of ``topics`` that exists: 22 characters, or empty if the place knows none.

        A topic that is deleted and created again gets another id (KIP-516).
        """

    def watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Watermarks]:
        """Bounds of those partitions that exist.

        Without ``read_committed`` the last stable offset may equal the high watermark, as finding it is
        expensive.
        """

    def try_watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = False
    ) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, KafkaLogError]]:
        """Like :meth:`watermarks`, for a report: asked once, with the error of each partition that has none
        to give.
        """

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """The end of each partition that exists, sorted: the first offset that may not be read yet."""

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The newest known leader epochs of these partitions; those without one are left out.

        All earlier answers of the place came from these epochs or older ones.
        """

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The node id of the last known leader of each partition; those without one are left out.

        It is advice for a plan: nothing is looked up.
        """

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """The largest leader epoch in each partition's log up to the given one, and the offset after its last
        record (OffsetForLeaderEpoch); left out where the place does not know.

        Of a cluster both are -1 if the leader has never had such an epoch.
        """

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
        """The record batch that holds the given offset of each partition; left out where there is none.

        A broker also leaves out what does not come at once, see :mod:`.broker.fetch.batches_at`.
        """

    def expect(self, partition: TopicPartition, seen: Seen) -> None:
        """Treat answers that contradict what a plan has seen as out of date.

        Believe them only on evidence: from the leader, in an epoch that is not older, and if the log
        ends before ``seen.end``, after kafkaConsumer.pollTimeoutMs. What was seen last counts.
        """

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record with timestamp >= the given ms, or None.

        A broker looks into one segment only, so None does not prove that there is no such record.
        """

    def newest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """A bound in ms that no record's timestamp exceeds, -1 without records; left out if there is none."""

    def oldest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The timestamp (ms) of the first record that has one, -1 if none has. Later ones may be older."""

    def stored_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredSize]:
        """The stored size of each partition that the place knows."""

    def mean_record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """Stored bytes per offset, on average over each partition that the place knows."""

    def prefetch(self, wanted: Collection[Fetch], *, max_bytes: int) -> None:
        """Make several fetches at once, or their beginnings, before :meth:`fetch` is called for each.

        It only saves time: what does not come now, :meth:`fetch` gets.

        :param max_bytes: about how much to fetch at most.
        """

    def fetch(self, wanted: Fetch) -> Iterator[Slice]:
        """The record batches that are ``wanted``, in order, in slices of a bounded size.

        :raises UnconfirmedError: if what ``wanted.confirm`` asks for can't be confirmed.
        :raises CorruptRecordError: where no batch can be framed, except at the torn tail of the log; unless
            ``wanted.on_corrupt`` is given: then this is called, and the next valid batch is sought.
        :raises DataLossError: where a segment is missing, unless ``wanted.on_corrupt`` is given.
        """

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The configs of a topic, including those set for all topics; empty if unknown."""

    def offsets_after_bytes(
        self, ranges: Mapping[TopicPartition, OffsetRange], max_bytes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """A new end for each of ``ranges`` in (start, end], so that the batches before it, at least one, take
        about ``max_bytes`` at most. Partitions that do not exist are left out.
        """


@runtime_checkable
class Files(Protocol):
    """The files of a place, if it shows them: a log directory does, brokers don't."""

    def segments(self, partition: TopicPartition) -> list[StoredSegment]:
        """The live segments of a partition, in order."""

    def file_faults(self, partition: TopicPartition) -> list[KafkaLogError]:
        """Faults of a partition's files besides its record batches."""

    def decided(
        self, partition: TopicPartition, offsets: OffsetRange, *, look: bool = True
    ) -> Decided | None:
        """The ends of the transactions with data in ``offsets``, for tasks; None leaves it to them to look.

        :param offsets: those of a split, which may begin with EARLIEST and end with LATEST.
        :param look: whether others will need what follows, too, so that it may be worth reading here.
        """

    def gaps(self, partition: TopicPartition) -> tuple[OffsetRange, ...]:
        """The offsets that a backup lacks, in order: its source had deleted them before they were copied."""

    def misplaced(self) -> list[str]:
        """A sentence about each folder that has no place in a log directory."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A consumer group's commit for one partition: ``offset`` is the next one that it will read.

    Timestamps are ms, -1 if unknown (brokers don't give them); without its own
    ``expire_timestamp`` a commit lives as long as its group (KIP-211).
    ``leader_epoch`` is that of the last record read, -1 if unknown (KIP-320).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1

    @property
    def said(self) -> tuple[int, str]:
        """The offset and the metadata that the committer has given, without what the place adds."""
        return self.offset, self.metadata


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A live member of a group, and its assigned partitions; a static one has an ``instance_id``."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    instance_id: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Assigned:
    """The assignment of a group to a member. Each assignment is another object, even of equal partitions:
    in between, others may have read them.
    """

    partitions: frozenset[TopicPartition]


class MemberOfGroup(NamedTuple):
    """The member that commits: its id, its generation or epoch, and its name if it is a static one."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


NO_MEMBER = MemberOfGroup()
"""The member that commits for a group without members."""


_STATE = Kind("string", value=lambda state: state or None)
_BROKER = Kind("int", value=lambda node_id: node_id if node_id >= 0 else None)
_MEMBERS = COUNT._replace(
    sql="array<struct<memberId:string,clientId:string,host:string,"
    "partitions:array<struct<topic:string,partition:int>>,instanceId:string>>"
)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group. ``state`` is Kafka's (Empty, Stable, PreparingRebalance, Dead, ...).

    ``state`` is empty and ``members`` None if the place does not tell them, or the group can't be read: then
    ``note`` says why. Groups that the place can't list have a row whose ``group`` is empty. ``protocol_type``
    is ``consumer`` for consumers and empty for a group that only commits, ``protocol`` is the assignor's
    name, ``coordinator`` a broker's id, -1 in a directory.
    """

    group: str = field(metadata=column(STRING, "GROUP"))
    state: str = field(metadata=column(_STATE, "STATE"))
    protocol_type: str = field(default="", metadata=column(NOTE, "TYPE"))
    protocol: str = field(default="", metadata=column(NOTE, "PROTOCOL", wide=True))
    members: tuple[GroupMember, ...] | None = field(default=(), metadata=column(_MEMBERS, "MEMBERS"))
    coordinator: int = field(default=-1, metadata=column(_BROKER, "COORDINATOR"))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker, where it listens for this client, and whether it answers; if not, ``note`` says why.

    ``version`` is the Kafka whose APIs it has, even if it is other software. Nothing more is known of a
    broker that has replicas, but that the cluster does not list. ``is_controller`` is None if no broker says
    who it is; the controller of KRaft may be a node that is not a broker.
    """

    id: int = field(metadata=column(INT, "ID"))
    host: str | None = field(metadata=column(STRING, "HOST"))
    port: int | None = field(metadata=column(INT, "PORT"))
    rack: str | None = field(metadata=column(STRING, "RACK", if_any=True))
    version: str | None = field(metadata=column(STRING, "VERSION"))
    is_controller: bool | None = field(metadata=column(BOOLEAN, "CONTROLLER"))
    leads: int = field(metadata=column(INT, "LEADS"))
    replicas: int = field(metadata=column(INT, "REPLICAS"))
    answers: bool = field(metadata=column(BOOLEAN, "ANSWERS"))
    note: str = ""


class Plan(NamedTuple):
    """The plan of a micro-batch in a checkpoint, and the offsets that a ``group`` commits with its rows.

    ``digest`` is one of Spark's plan of it: None if unknown, empty for a query that can't be resumed and
    for a job that names its batches. ``before`` is that of the micro-batch before, empty if unknown, and
    ``offsets_before`` what the group committed with it.
    """

    digest: str | None = ""
    group: str | None = None
    offsets: Mapping[TopicPartition, CommittedOffset] = {}
    before: str = ""
    offsets_before: Mapping[TopicPartition, CommittedOffset] = {}
