"""The plan of a backup: partitions, topics and settings; and the result of each partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import (
    AuthorizationError,
    DataLossError,
    KafkaLogError,
    LogDirectoryError,
    OptionError,
)
from pyspark_kafkalog.log.topic_settings import log_settings
from pyspark_kafkalog.model import Fetch, LogSettings, OffsetRange, Place, TopicPartition, Watermarks
from pyspark_kafkalog.model.rows import BIGINT, INT, SIZE, STRING, Kind, column
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.read.times import offsets_at

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory

GONE = "The source no longer has the partition"


class Source(Place, Protocol):
    """The source of a backup: a cluster or a log directory."""

    def topic_overrides(self, topic: str) -> Mapping[str, str] | None:
        """The configs that were set for this topic alone; None if they can't be seen."""

    def cluster_id(self) -> str | None:
        """The cluster's id, if there is one."""


class CopyBounds(NamedTuple):
    """The bounds of a partition in the source, and what to copy: offsets from ``first``, if the partition
    is new, to before ``end``.
    """

    log_start_offset: int
    high_watermark: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class BackupRules:
    """The topics and groups to back up, and what to do about gaps; ``groups`` of None are all groups.

    ``topics`` of () are all topics that are not internal, except those that ``exclude`` covers (see
    :class:`.Selection`). ``rate`` is in bytes a second. ``renew_compacted`` copies a partition again if its
    copy may lack tombstones. Only batches with a timestamp from ``since`` on, and below ``until`` (ms), are
    copied into a new partition, each as a whole.
    """

    topics: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None
    rate: float | None = None
    threads: int = 4
    truncate: bool = False
    allow_gaps: bool = False
    renew_compacted: bool = False

    @property
    def selection(self) -> Selection:
        """The partitions to copy, if they exist."""
        return Selection(topics=self.topics or None, exclude=self.exclude)

    @property
    def is_whole(self) -> bool:
        """Whether all times are wanted."""
        return self.since is None and self.until is None

    def __post_init__(self) -> None:
        internal = INTERNAL_TOPICS.intersection(self.topics)
        if internal:
            raise OptionError(
                f"The topic {min(internal)} can't be backed up as it is",
                hint="The offsets of consumer groups are saved by themselves. Other internal topics only make"
                " sense to the cluster that wrote them.",
            )
        if self.threads < 1 or (self.rate is not None and self.rate <= 0):
            raise OptionError("Expected at least one thread, and a rate above 0")


_RANGES = Kind(text=lambda ranges: " ".join(f"{start}-{end - 1}" for start, end in ranges) or None)


@dataclass(slots=True)
class BackedUpPartition:
    """The state of one partition in a backup, after the last attempt to copy the rest.

    ``log_end_offset`` is the next offset to copy; ``high_watermark`` is the source's, None if it does not
    have the partition. ``copied_bytes`` are those of this run. ``gaps`` are the ranges of offsets that the
    source had deleted before they could be copied, each with its first offset and the one after its last;
    ``truncated`` are the ranges that this run has cut off, as the source had; ``renewed`` says that it has
    copied the partition again. A row of ``__consumer_offsets`` with the partition -1 is about groups: its
    ``note`` does not mean a problem. ``problem`` says, with the place, why the rest could not be copied, or
    what is wrong with the copy.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    log_start_offset: int = field(default=0, metadata=column(BIGINT, "START"))
    log_end_offset: int = field(default=0, metadata=column(BIGINT, "END"))
    high_watermark: int | None = field(default=None, metadata=column(BIGINT, "SOURCE'S END"))
    copied_bytes: int = field(default=0, metadata=column(SIZE, "COPIED"))
    gaps: list[OffsetRange] = field(default_factory=list, metadata=column(_RANGES, "GAPS"))
    truncated: list[OffsetRange] = field(default_factory=list)
    renewed: bool = False
    note: str | None = None
    problem: str | None = None

    def describe(self, target: BackupDirectory) -> None:
        """Update what is said of the directory."""
        partition = TopicPartition(self.topic, self.partition)
        self.log_start_offset = target.log_start_offset(partition)
        self.log_end_offset = target.log_end_offset(partition)
        self.gaps = list(target.gaps(partition))


def close(
    target: BackupDirectory, rows: dict[TopicPartition, BackedUpPartition]
) -> Collection[TopicPartition]:
    """Close the directory, and bring the rows up to date; what is wrong with a partition then is its problem.

    :return: the partitions that can't be closed cleanly.
    """
    failures = target.close()
    for partition, error in failures.items():
        row = rows.setdefault(partition, BackedUpPartition(*partition))
        row.problem = row.problem or str(error)
    for row in rows.values():
        row.describe(target)
    return failures.keys()


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """The partitions to copy now, and the ids and settings of their topics."""

    bounds: dict[TopicPartition, CopyBounds]
    topic_ids: dict[str, str]
    settings: dict[str, LogSettings]
    problems: dict[str, str]
    """Topics that are not copied, and why."""
    failures: dict[TopicPartition, KafkaLogError]
    """Partitions of which nothing can be copied now, and why."""
    leader_epochs: dict[TopicPartition, int]
    """The epochs of the leaders that gave the bounds, or of later ones."""


def check_source(source: Source, target: BackupDirectory) -> None:
    """See that the directory is a backup of this very cluster, or can become one.

    :raises LogDirectoryError: if it is one of another cluster, or has partitions that no backup has made.
    """
    if not target.is_backup and (there := target.partitions()):
        raise LogDirectoryError(
            f"Expected a backup or an empty folder, got a log directory with partition {min(there)}",
            file=target.root,
            hint="Name a new folder: only backups write to a backup.",
        )
    cluster_id, known = source.cluster_id(), target.cluster_id
    if None not in (cluster_id, known) and cluster_id != known:
        raise LogDirectoryError(
            f"The directory is a backup of cluster {known}, but this is cluster {cluster_id}",
            file=target.root,
            hint="Give each cluster a directory of its own.",
        )
    if not target.is_backup or (known is None and cluster_id is not None):
        target.set_cluster_id(cluster_id)


def plan(
    source: Source, target: BackupDirectory, rules: BackupRules, later: Collection[TopicPartition] = ()
) -> BackupPlan:
    """The partitions to copy now, but ``later``. Also saves the configurations of the topics.

    :raises KafkaLogError: if a named topic can't be looked up, or does not exist, of which the directory has
        nothing.
    """
    found, problems = _look_up(source, rules, {partition.topic for partition in target.partitions()})
    partitions = [p for p in found if rules.selection.covers(p.topic)]
    topic_ids = source.topic_ids({partition.topic for partition in partitions})
    failures: dict[TopicPartition, KafkaLogError] = {}
    for partition in (p for p in partitions if p.topic in topic_ids):
        try:
            with target.disk_errors(partition):
                problem = _other_topic(target, partition, topic_ids[partition.topic])
        except KafkaLogError as e:
            failures[partition] = e
            continue
        if problem:
            problems[partition.topic] = problem
    failures |= {p: target.broken[p] for p in partitions if p in target.broken}
    chosen = [p for p in partitions if p.topic in topic_ids and p.topic not in problems]
    saved = target.topic_configs()
    configs = {topic: _configs(source, topic, saved) for topic in {p.topic for p in chosen}}
    target.set_topic_configs({topic: own for topic, own in (saved | configs).items() if own})
    bounds, unknown = bounds_to_copy(
        source, [p for p in chosen if p not in failures and p not in later], rules
    )
    settings = {topic: log_settings(topic, own) for topic, own in configs.items()}
    return BackupPlan(bounds, topic_ids, settings, problems, failures | unknown, source.leader_epochs(bounds))


def _look_up(
    source: Source, rules: BackupRules, saved: Collection[str]
) -> tuple[list[TopicPartition], dict[str, str]]:
    """The partitions of the topics to copy; and of topics that the directory has already, those that the
    source refuses to describe, and why.

    A listing leaves out what ACLs hide. So what the directory has besides is asked for by name.
    """
    new = tuple(name for name in rules.topics if name not in saved)
    found = []
    if new or not rules.topics:
        found = list(look_up_partitions(source, replace(rules.selection, topics=new or None)))
    listed = {partition.topic for partition in found}
    known = {topic for topic in set(saved) - listed if rules.selection.covers(topic)}
    problems = {}
    try:
        found += _look_up_known(source, known)
    except AuthorizationError:  # of which one, it does not say
        for name in sorted(known):
            try:
                found += _look_up_known(source, [name])
            except AuthorizationError as e:
                problems[name] = str(e)
    return found, problems


def _look_up_known(source: Source, names: Collection[str]) -> list[TopicPartition]:
    selection = Selection(topics=tuple(sorted(names)))
    return list(look_up_partitions(source, selection, must_exist=False)) if names else []


def _configs(source: Source, topic: str, saved: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """The configs of a topic; the saved ones if the source does not show its own."""
    found = source.topic_overrides(topic)
    return saved.get(topic, {}) if found is None else dict(found)


def bounds_to_copy(
    source: Source, partitions: Collection[TopicPartition], rules: BackupRules
) -> tuple[dict[TopicPartition, CopyBounds], dict[TopicPartition, KafkaLogError]]:
    """The bounds of each partition that exists, and what lies within the times that are wanted; and the error
    of each that has none to give.
    """
    found, failures = source.try_watermarks(partitions)
    bounds = {}
    for partition, marks in found.items():
        try:
            first = _at(source, partition, marks, rules.since, marks.log_start_offset)
            end = _at(source, partition, marks, rules.until, marks.high_watermark)
        except KafkaLogError as e:
            failures[partition] = e
        else:
            bounds[partition] = CopyBounds(
                marks.log_start_offset, marks.high_watermark, first, max(first, end)
            )
    return bounds, failures


def _at(source: Source, partition: TopicPartition, marks: Watermarks, time: int | None, default: int) -> int:
    """The first offset at or after a time; the high watermark if none is, the default without a time."""
    if time is None:
        return default
    return offsets_at(source, {partition: marks}, time)[partition]


def whole_batch(source: Source, partition: TopicPartition, offset: int) -> int:
    """The base offset of the record batch that ``offset`` lies in; itself, if it lies in none.

    :raises DataLossError: if the source has just deleted it.
    """
    pieces = source.fetch(Fetch(partition, OffsetRange(offset, offset + 1)))
    try:
        for piece in pieces:
            batches = batches_of(piece)
            return min(offset, int(batches.base_offset[0])) if batches.magic[0] == 2 else offset
    except DataLossError:
        marks = source.watermarks([partition], read_committed=False).get(partition)
        if marks is None or offset < marks.log_start_offset:
            raise
    return offset  # there are no records after it


def _other_topic(target: BackupDirectory, partition: TopicPartition, topic_id: str) -> str | None:
    """The problem if the directory has another topic of this name."""
    known = target.topic_id(partition)
    return _made_anew(known, topic_id) if known and topic_id and known != topic_id else None


def changed_topic(source: Source, topic: str, topic_id: str) -> str | None:
    """The problem if the source no longer has the topic that was planned, but another one, or none.

    Most answers of a cluster are about whatever topic has the name: ask this before they are acted on.
    """
    now = source.topic_ids({topic}).get(topic)
    if now is None:
        return GONE
    return _made_anew(topic_id, now) if topic_id and now and now != topic_id else None


def _made_anew(before: str, now: str) -> str:
    return (
        f"The topic was deleted and recreated since it was backed up: its id was {before}, and is now {now}."
        " Leave it out, back it up into another directory, or move the folders of the old one away"
    )
