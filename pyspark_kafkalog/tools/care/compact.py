"""Compacts the topics of a log directory, as a broker's log cleaner does with ``cleanup.policy=compact``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from pyspark_kafkalog.errors import LogDirectoryError, OptionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.cleanup.compacting import compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import CompactionSettings
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.rows import BIGINT, INT, SIZE, STRING, column
from pyspark_kafkalog.model.topics import CLEANUP_POLICY, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, cleanup_policies
from pyspark_kafkalog.options.settings import PlaceOptions, Selection
from pyspark_kafkalog.options.topic_configs import check_topic_configs
from pyspark_kafkalog.options.user_options import names_like

COMPACT = "compact"
_COMPACTED = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
"""Internal topics that brokers compact."""
_READS = 3
"""The number of times that a compaction reads a log, about."""


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """The result of compaction for a partition, done or planned.

    ``records`` and ``stored_bytes`` are those of the compacted segments as they were before. The partition is
    compacted up to ``first_dirty_offset``. ``note`` says why nothing, or not all, was compacted.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    records: int = field(metadata=column(BIGINT, "RECORDS"))
    removed_records: int = field(metadata=column(BIGINT, "REMOVED"))
    stored_bytes: int = field(metadata=column(SIZE, "SIZE"))
    removed_bytes: int = field(metadata=column(SIZE, "FREED"))
    passes: int = field(metadata=column(INT, "PASSES"))
    first_dirty_offset: int
    note: str = field(metadata=column(STRING, "NOTE"))


def compact(
    place: PlaceOptions,
    topics: Collection[str],
    *,
    exclude: Collection[str],
    execute: bool,
    configs: Mapping[str, str],
    any_policy: bool,
    dedupe_buffer_size: int,
    lock_timeout: float,
    progress: Callable[..., object],
) -> list[CompactedPartition]:
    """Compact topics of a log directory, one partition after the other.

    See :meth:`.kafka.LogCare.compact`.
    """
    if place.brokers is not None:
        raise OptionError("Brokers compact by themselves", hint="Set cleanup.policy=compact on the topics.")
    check_topic_configs(configs)
    roots = _roots(place.paths)
    directory = LogDirectory(roots)
    settings = _chosen(directory, topics, exclude, configs, any_policy, dedupe_buffer_size)
    total = _READS * sum(size.stored_bytes for size in directory.stored_sizes(settings).values())
    compacted = []
    for partition, chosen in settings.items():
        (root,) = (root for root in roots if root.find_live(partition) is not None)
        done = compact_partition(
            root.folder.path,
            partition,
            replace(chosen, max_record_bytes=place.max_record_bytes),
            execute=execute,
            lock_timeout=lock_timeout,
            progress=partial(progress, total=total),
        )
        compacted.append(CompactedPartition(**partition._asdict(), **asdict(done)))
    return compacted


def _chosen(
    place: LogDirectory,
    topics: Collection[str],
    exclude: Collection[str],
    configs: Mapping[str, str],
    any_policy: bool,
    dedupe_buffer_size: int,
) -> dict[TopicPartition, CompactionSettings]:
    """The partitions to compact, and how."""
    found = place.topics(topics or None)
    for topic in topics:
        if topic not in found:
            hint = names_like([topic], place.topics(), "topic")
            raise UnknownTopicOrPartitionError(f"No such topic: {topic}", hint=hint)
    selection = Selection(exclude=tuple(exclude))
    chosen = {}
    for topic, numbers in found.items():
        if not selection.covers(topic, internal=True):
            continue
        default = {CLEANUP_POLICY: COMPACT} if topic in _COMPACTED else {}
        of_topic = {**default, **place.topic_config(topic), **configs}
        if any_policy or COMPACT in cleanup_policies(of_topic):
            settings = replace(CompactionSettings.of(of_topic), dedupe_buffer_size=dedupe_buffer_size)
            chosen.update(dict.fromkeys((TopicPartition(topic, number) for number in numbers), settings))
        elif topics:
            policy = of_topic.get(CLEANUP_POLICY)
            reason = (
                f"its {CLEANUP_POLICY} is unknown, as the directory has none, and a broker keeps it elsewhere"
                if policy is None
                else f"its {CLEANUP_POLICY} is {policy!r}"
            )
            raise OptionError(
                f"Topic {topic!r} is not to be compacted: {reason}",
                hint="Set cleanup.policy=compact, or compact it whatever its policy says (--any-policy).",
            )
    return chosen


def _roots(paths: Sequence[str]) -> list[LogRoot]:
    roots = [open_root(path) for path in paths]
    for root in roots:
        if not root.folder.is_local:
            raise LogDirectoryError(
                "Only a local or mounted directory can be compacted", file=root.folder.label()
            )
    return roots
