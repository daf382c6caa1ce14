"""Restores topics of any place into a cluster: their records, their configurations, and groups' offsets.

Records get new offsets there, as only a broker gives them. So that a restore can be killed at any time and
run again, and appends nothing twice, this holds:

1. The plan fixes the source's topics by their ids, the offsets of their partitions, and which open
   transactions are left out. Each record has a number, 0, 1, 2 ... in its partition. Which source offset has
   which number is on disk before the record is sent (:mod:`.restore_state`), and holds for all runs. A run
   that does not find such a record in the source any more, as compaction has removed it, is refused unless
   the target has it. Records that are deleted before they are in the map have no number.
2. The plan and a producer id are on disk before the first record is sent. All record batches of all runs have
   this id and epoch, and as their sequence numbers the numbers of their records.
3. A leader appends a producer's batch only if its first sequence number follows that of the producer's last
   record in the partition; it answers a batch that it has with the offset of that, and refuses any other
   (KIP-98). So the producer's records in a partition are always the first n of the plan, each once and in
   order, even if a request of a killed run arrives late.
   A run may be refused for such a request, or for records that the leader has and does not show yet; the
   next one goes on.
4. No other producer writes to the partition, which was empty, with its log's end at ``base``. So the target's
   log ends at ``base + n``, and a run goes on with record n. A run checks this when it begins and when it
   ends: the last batch must be ours, with ``base_offset == base + base_sequence``, which records of other
   producers before it would change.
5. A leader that does not know the producer, as it forgets those that are silent for
   producer.id.expiration.ms (a day), takes any first sequence number. No request is late by that much, and
   the first batch of a run is number n by rule 4.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import BrokerError, OptionError, UnsupportedVersionError
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.model import Files, OffsetRange, TopicPartition, Watermarks
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.model.rows import BIGINT, INT, SIZE, STRING, Kind, column
from pyspark_kafkalog.model.topics import ClusterTopics, NewTopic, Topics, check_writable
from pyspark_kafkalog.options.settings import PlaceOptions, Selection, WriteOptions
from pyspark_kafkalog.options.user_options import names_like, partitions_like
from pyspark_kafkalog.places import (
    check_usable,
    open_cluster_topics,
    open_groups,
    open_place,
    open_topics,
)
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.read.times import offsets_at
from pyspark_kafkalog.tools.backup.groups import RestoredOffset, check_groups_exist, restore_groups
from pyspark_kafkalog.tools.backup.plan import Source
from pyspark_kafkalog.tools.backup.restore_producer import new_producer_id
from pyspark_kafkalog.tools.backup.restore_records import Progress, SourceRecords, TargetRecords, begin_anew
from pyspark_kafkalog.tools.backup.restore_state import (
    PlannedPartition,
    RestoredOffsets,
    RestorePlan,
    RestoreState,
    restore_lock,
)

_KEPT = Kind("boolean", text=lambda keeps_offsets: "kept" if keeps_offsets else "mapped")
_WHILE_RESTORING = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.difference.max.ms": str(2**63 - 1),
    "max.message.bytes": str(2**31 - 1),
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Configurations with which a topic takes all that a log may hold, also records without a key that are older
than its compaction, and keeps it with its timestamps."""


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """The options of a restore.

    ``ends`` are offsets before which to end, ``until`` a time in ms: before the first record of each
    partition with this timestamp or a later one. ``rename`` gives topics another name. With
    ``read_committed`` the records of aborted transactions are left out, and those of transactions that are
    open at the end of a directory, which can't be committed any more. ``configs`` take precedence over the
    source's; an empty value leaves one out. ``rate`` is in bytes a second.
    """

    topics: Collection[str] | None = None
    """The topics to restore; None for all that are not internal."""
    rename: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    until: int | None = None
    ends: Mapping[TopicPartition, int] | None = None
    read_committed: bool = True
    groups: Collection[str] | None = None
    """The groups whose offsets to translate and commit; None for all groups."""
    state: str | None = None
    """The file for what must be remembered; None for one beside the source's partitions."""
    rate: float | None = None
    exclude: Collection[str] = ()
    """The topics to leave out: see :class:`.Selection`."""

    def lasting(self) -> dict[str, object]:
        """The options that a second run must have in common with the first."""
        ends = {str(partition): end for partition, end in sorted((self.ends or {}).items())}
        excluded = {"exclude": sorted(self.exclude)} if self.exclude else {}
        return excluded | {
            "topics": None if self.topics is None else sorted(self.topics),
            "rename": dict(sorted(self.rename.items())),
            "until": self.until,
            "ends": ends,
            "readCommitted": self.read_committed,
        }


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A partition of the source, and what of it is, or would be, in the target.

    Source offsets ``start`` to ``end`` have ``records`` to restore. They get the offsets ``target_start`` to
    ``target_end``; ``keeps_offsets`` says that these are the same. ``stored_bytes`` are those of the whole
    partition in the source, None if it does not say. ``gaps`` are those of a backup between ``start`` and
    ``end``: what its own source had deleted before it was copied.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    start: int = field(metadata=column(BIGINT, "START", wide=True))
    end: int = field(metadata=column(BIGINT, "END", wide=True))
    records: int = field(metadata=column(BIGINT, "RECORDS"))
    stored_bytes: int | None = field(metadata=column(SIZE, "SIZE"))
    target_topic: str = field(metadata=column(STRING, "TARGET"))
    target_start: int = field(metadata=column(BIGINT, "FROM", wide=True))
    target_end: int = field(metadata=column(BIGINT, "TO", wide=True))
    keeps_offsets: bool = field(metadata=column(_KEPT, "OFFSETS"))
    gaps: Sequence[OffsetRange] = ()


@dataclass(frozen=True, slots=True)
class UnplannedOffsets:
    """Offsets of a partition that the source has got since a first run, and which are not restored."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore, done or planned. ``configs`` are those of the topics that it makes.

    ``unplanned`` is what was added to the source since the first run. ``was_complete`` says that an earlier
    run had written all records, so that this one wrote none.
    """

    partitions: Sequence[RestoredPartition]
    groups: Sequence[RestoredOffset]
    configs: Mapping[str, Mapping[str, str]]
    state: str
    unplanned: Sequence[UnplannedOffsets] = ()
    was_complete: bool = False


class Restore:
    """A restore of ``source`` to the cluster of ``target``."""

    def __init__(
        self, source: PlaceOptions, target: WriteOptions, to: PlaceOptions, settings: RestoreSettings
    ):
        if target.brokers is None:
            raise OptionError(
                "Expected brokers to restore to, got a log directory",
                hint="Directories are copied by kafkalog copy."
                if source.brokers is None
                else "The backup comes first, and the brokers behind it. kafkalog backup copies brokers into"
                " a directory.",
            )
        if target.produce is not None and not target.produce.enable_idempotence:
            raise OptionError("A restore must be idempotent", hint="Leave out kafka.acks and kafka.retries.")
        self._settings = settings
        self._options = target
        self._source_options, self._target_options = source, to
        self._source: Source = open_place(source)
        self._source_topics: Topics = open_topics(source)
        self._source_groups: GroupOffsets = open_groups(source)
        self._source_is_cluster = source.brokers is not None
        self._target: Source = open_place(to)
        self._topics: ClusterTopics = open_cluster_topics(to)
        self._groups: GroupOffsets = open_groups(to)
        self._paths = source.paths
        self._records = SourceRecords(
            self._source,
            read_committed=settings.read_committed,
            limits=DecodeLimits(max_record_bytes=source.max_record_bytes),
        )

    def run(self, *, execute: bool, progress: Progress = lambda done, total=None: None) -> Restored:
        """Restore; or without ``execute`` read the source, and say what would be restored.

        :raises OptionError: for settings that don't fit each other, the source, the target or the first run.
        :raises GroupError: if the source has no group of a name that was given.
        :raises KafkaLogError: if another restore uses the file of this one, before anything is written; or if
            something can't be read or written: run it again to go on.
        """
        path = self._state_path()
        with restore_lock(path) if execute else nullcontext():
            return self._run(path, execute, progress)

    def _run(self, path: str, execute: bool, progress: Progress) -> Restored:
        check_groups_exist(self._source_groups, self._settings.groups or ())
        check_usable(self._source_options, self._selected())
        state = RestoreState.find(path)
        partitions: Sequence[PlannedPartition]
        new: Sequence[NewTopic] = ()
        unplanned: Sequence[UnplannedOffsets] = ()
        if state is None:
            self._check_target()
            partitions = self._planned()
            new = self._new_topics(partitions)
            partitions = self._at_ends(partitions, {topic.topic for topic in new})
            if new:
                self._check_new(new)
            if execute:
                state = self._begin(path, partitions, new)
        else:
            self._check_same(state)
            unplanned = self._unplanned(state.plan.partitions)
        if state is None:
            offsets = {planned.source: RestoredOffsets(planned.base, planned.start) for planned in partitions}
        else:
            partitions, offsets = state.plan.partitions, state.maps
        if state is None or not (execute or state.is_done):
            self._read(partitions, offsets, progress)
        elif not state.is_done:
            self._write(state, progress)
        was_complete = state is not None and state.is_done
        rows = restore_groups(
            self._source_groups,
            self._groups,
            self._settings.groups,
            partitions,
            offsets,
            execute=execute,
            missing=() if execute else {topic.topic for topic in new},
        )
        if execute and state is not None and not state.is_done:
            state.finish()
        restored = self._restored(partitions, offsets, rows, new, path)
        return replace(restored, unplanned=unplanned, was_complete=was_complete)

    def _read(
        self,
        partitions: Sequence[PlannedPartition],
        offsets: Mapping[TopicPartition, RestoredOffsets],
        progress: Progress,
    ) -> None:
        """Bring maps up to the planned ends, and write nothing."""
        progress(0, self._records.stored_bytes({p: offsets[p.source].read_to for p in partitions}))
        for planned in partitions:
            known = offsets[planned.source]
            for found in self._records.unread(planned, known):
                known.add(known.count, found.spans)
                progress(found.data.size)

    def _write(self, state: RestoreState, progress: Progress) -> None:
        """Write all records, while topics take whatever a log may hold."""
        configs = state.plan.configs
        meanwhile = {
            topic: {name: _WHILE_RESTORING[name] for name in after} for topic, after in configs.items()
        }
        for topic, values in meanwhile.items():
            self._topics.alter_configs(topic, values)
        self._topics.leader_configs(meanwhile)  # one that is behind would stamp records with its own clock
        TargetRecords(self._target, self._options, state, self._settings.rate).write(self._records, progress)
        for topic, after in configs.items():
            self._topics.alter_configs(topic, after)

    # The plan

    def _planned(self) -> list[PlannedPartition]:
        settings, found = self._settings, self._selected()
        topics = {partition.topic for partition in found}
        for before in settings.rename:
            if before not in topics:
                raise OptionError(
                    f"Topic {before} is renamed, but is not among those to restore",
                    hint=names_like([before], topics, "topic"),
                )
        targets = {topic: check_writable(settings.rename.get(topic, topic)) for topic in topics}
        if len(set(targets.values())) < len(targets):
            raise OptionError("Two topics would get the same name", hint="Rename one of them.")
        ids = self._source.topic_ids(topics)
        bounds = self._source.watermarks(found, read_committed=settings.read_committed)
        if not self._source_is_cluster:
            for error in self._source.try_watermarks(found)[1].values():
                raise error
        ends = self._ends(bounds)
        planned = []
        for partition, watermarks in sorted(bounds.items()):
            start, end = watermarks.log_start_offset, ends[partition]
            opened = self._records.open_transactions(partition, watermarks, end)
            planned.append(
                PlannedPartition(
                    *partition,
                    start,
                    max(start, end),
                    targets[partition.topic],
                    source_id=ids.get(partition.topic, ""),
                    open_transactions=opened,
                )
            )
        unknown = sorted(set(settings.ends or ()) - bounds.keys())
        if unknown:
            raise OptionError(
                "An end is given for a partition that is not restored",
                topic_partition=unknown[0],
                hint=partitions_like(unknown, bounds),
            )
        return planned

    def _selected(self) -> tuple[TopicPartition, ...]:
        """The source's partitions that are to be restored."""
        names = None if self._settings.topics is None else tuple(dict.fromkeys(self._settings.topics))
        selection = Selection(topics=names, exclude=tuple(self._settings.exclude))
        return look_up_partitions(self._source, selection)

    def _ends(self, bounds: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        """The end offset of each partition."""
        settings, ends = self._settings, {}
        late = {} if settings.until is None else offsets_at(self._source, bounds, settings.until)
        for partition, watermarks in bounds.items():
            end = watermarks.high_watermark
            if self._source_is_cluster:  # read_committed leaves out what may still be aborted
                end = watermarks.end(read_committed=settings.read_committed)
            for given in (late.get(partition), (settings.ends or {}).get(partition)):
                end = end if given is None else min(end, given)
            ends[partition] = end
        return ends

    def _unplanned(self, planned: Sequence[PlannedPartition]) -> list[UnplannedOffsets]:
        """The partitions that the source has got since the plan was made.

        It can't be added to the plan: when a restore has ended, others may write to the target.
        """
        known = {partition.source: partition.end for partition in planned}
        bounds = self._source.watermarks(self._selected(), read_committed=self._settings.read_committed)
        found = []
        for partition, end in sorted(self._ends(bounds).items()):
            start = known.get(partition, bounds[partition].log_start_offset)
            if end > start:
                found.append(UnplannedOffsets(*partition, start, end))
        return found

    def _new_topics(self, partitions: Sequence[PlannedPartition]) -> list[NewTopic]:
        """The topics to create.

        :raises OptionError: if one that exists has too few partitions.
        """
        counts: dict[str, int] = {}
        for planned in partitions:
            counts[planned.target] = max(counts.get(planned.target, 0), planned.partition + 1)
        existing = {topic: len(numbers) for topic, numbers in self._target.topics(list(counts)).items()}
        for topic, count in existing.items():
            if count < counts[topic]:
                raise OptionError(
                    f"Topic {topic} exists with {count} partitions, expected {counts[topic]}",
                    hint="Add partitions by kafkalog topics alter, or give it another name by --rename.",
                )
        origins = {planned.target: planned.topic for planned in partitions}
        missing = sorted(counts.keys() - existing.keys())
        own = self._source_topics.configs([origins[topic] for topic in missing]) if missing else {}
        new = []
        for topic in missing:
            configs = {**own.get(origins[topic], {}), **self._settings.configs}
            configs = {name: value for name, value in configs.items() if value}
            new.append(NewTopic(topic, counts[topic], self._settings.replication_factor, configs))
        return new

    def _at_ends(
        self, partitions: Sequence[PlannedPartition], new: Collection[str] = ()
    ) -> list[PlannedPartition]:
        """The partitions, with ``base`` where the target's log ends; those of ``new`` topics as they are.

        :raises OptionError: if the target has records, or no such partition.
        """
        targets = [planned.destination for planned in partitions if planned.target not in new]
        check_usable(self._target_options, targets)
        bounds = self._target.watermarks(targets, read_committed=False) if targets else {}
        for partition in targets:
            if partition not in bounds:
                raise OptionError("The partition does not exist in the target", topic_partition=partition)
            if bounds[partition].high_watermark > bounds[partition].log_start_offset:
                raise OptionError(
                    "The partition has records already, which this restore did not write",
                    topic_partition=partition,
                    hint="Give the topic another name by --rename, or the file of the restore by --state.",
                )
        return [
            planned
            if planned.target in new
            else replace(planned, base=bounds[planned.destination].high_watermark)
            for planned in partitions
        ]

    def _check_target(self) -> None:
        """:raises UnsupportedVersionError: if topics there can't take whatever a log may hold."""
        try:
            self._topics.check_configs_alterable()
        except UnsupportedVersionError as e:
            hint = (
                "While it writes, a restore lets topics keep all records with their times. Without that,"
                " write what is read: connect(target).write(connect(source).read(topic))."
            )
            raise UnsupportedVersionError(e.message, broker=e.broker, hint=hint) from None

    def _check_new(self, new: Sequence[NewTopic]) -> None:
        """See that all topics can be made, before the first one is.

        :raises OptionError: for what the target refuses, such as a configuration.
        """
        try:
            self._topics.create(new, validate_only=True)
        except OptionError as e:
            names = sorted({name for topic in new for name in topic.configs})
            tiered = next((name for name in names if name == "remote.storage.enable"), "NAME")
            hint = f"A configuration that the target does not take is left out by --set {tiered}=."
            raise e.with_hint(" ".join(filter(None, [e.hint, hint]))) from None

    def _state_path(self) -> str:
        if self._settings.state is not None:
            if "://" in self._settings.state:  # it may have credentials, and is not quoted
                raise OptionError(
                    "Expected a local file for what a restore must remember, got a URI",
                    hint="Name a new file of this machine by --state.",
                )
            return self._settings.state
        folder = locate(self._paths[0]) if len(self._paths) == 1 else None
        if folder is None or not folder.is_local:
            raise OptionError(
                "A restore needs a file for what it must remember", hint="Name a new file by --state."
            )
        assert self._options.brokers is not None
        name = json.dumps(
            [sorted(map(str, self._options.brokers.bootstrap_servers)), self._settings.lasting()]
        )
        return f"{folder.path}/.kafkalog-restore-{hashlib.sha256(name.encode()).hexdigest()[:16]}.jsonl"

    def _source_name(self) -> str:
        """The source's cluster, or its folders."""
        if self._source_is_cluster:
            return self._source.cluster_id() or ""
        from pyspark_kafkalog.log.read.directory import resolved

        return ", ".join(resolved(self._paths))

    def _check_same(self, state: RestoreState) -> None:
        hint = f"Give the same options as before, or another file by --state; the file is {state.path}."
        if state.plan.settings != self._settings.lasting():
            raise OptionError("The restore was begun with other topics, names or ends", hint=hint)
        self._records.check_topics(state.plan.partitions)
        has_ids = all(planned.source_id for planned in state.plan.partitions)
        if not has_ids and state.plan.source != self._source_name():
            raise OptionError(
                f"The restore was begun from another source: expected {state.plan.source},"
                f" got {self._source_name()}",
                hint=hint,
            )
        cluster_id = self._target.cluster_id()
        if cluster_id != state.plan.cluster_id:
            raise OptionError(
                f"The restore was begun to another cluster: expected cluster id {state.plan.cluster_id},"
                f" got {cluster_id}",
                hint=hint,
            )
        ids = self._target.topic_ids({planned.target for planned in state.plan.partitions})
        for planned in state.plan.partitions:
            if ids.get(planned.target, "") != planned.target_id:
                raise OptionError(
                    f"Topic {planned.target} is not the one to which this restore has written",
                    hint="It was deleted, or is in another cluster. To have all again,"
                    f" {begin_anew(state.path)}.",
                )
        if state.is_done:
            self._check_ends(state)

    def _check_ends(self, state: RestoreState) -> None:
        """See that the target's logs still end behind what was restored: groups go on there."""
        ends = {p.destination: p.base + state.maps[p.source].count for p in state.plan.partitions}
        bounds = self._target.watermarks(ends, read_committed=False)
        for partition, end in ends.items():
            if partition not in bounds or bounds[partition].high_watermark < end:
                raise BrokerError(
                    f"The target lost records of a restore that had ended: expected its log to end at {end}",
                    topic_partition=partition,
                    hint=f"Start over: {begin_anew(state.path)}.",
                )

    def _begin(
        self, path: str, partitions: Sequence[PlannedPartition], new: Sequence[NewTopic]
    ) -> RestoreState:
        """Create topics, and put the plan on disk."""
        if new:
            self._topics.create(new)
            partitions = self._at_ends(partitions)
        topics = {planned.target for planned in partitions}
        ids = self._target.topic_ids(topics)
        own = self._topics.leader_configs({topic: {} for topic in topics})
        for topic, known in sorted(own.items()):
            if not known.keys() & _WHILE_RESTORING.keys():
                raise BrokerError(f"The brokers name no configurations of topic {topic}")
        producer_id, epoch, cluster_id = new_producer_id(self._options)
        plan = RestorePlan(
            self._source_name(),
            cluster_id,
            producer_id,
            epoch,
            self._settings.lasting(),
            {
                topic: {name: known[name] for name in sorted(known.keys() & _WHILE_RESTORING.keys())}
                for topic, known in sorted(own.items())
            },
            [replace(planned, target_id=ids.get(planned.target, "")) for planned in partitions],
        )
        return RestoreState.begin(path, plan)

    def _restored(
        self,
        partitions: Sequence[PlannedPartition],
        offsets: Mapping[TopicPartition, RestoredOffsets],
        groups: Sequence[RestoredOffset],
        new: Sequence[NewTopic],
        state: str,
    ) -> Restored:
        sizes = self._source.stored_sizes([planned.source for planned in partitions])
        rows = []
        for planned in partitions:
            gaps = self._source.gaps(planned.source) if isinstance(self._source, Files) else ()
            known, size = offsets[planned.source], sizes.get(planned.source)
            rows.append(
                RestoredPartition(
                    topic=planned.topic,
                    partition=planned.partition,
                    start=planned.start,
                    end=planned.end,
                    records=known.count,
                    stored_bytes=None if size is None else size.stored_bytes,
                    target_topic=planned.target,
                    target_start=planned.base,
                    target_end=planned.base + known.count,
                    keeps_offsets=known.keeps_offsets,
                    gaps=[
                        gap.within(OffsetRange(planned.start, planned.end))
                        for gap in gaps
                        if gap.start < planned.end and planned.start < gap.end
                    ],
                )
            )
        return Restored(rows, groups, {topic.topic: topic.configs for topic in new}, state)
