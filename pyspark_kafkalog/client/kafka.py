"""One object for a log directory or a cluster: its topics, groups, records, and the care of its logs."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pyspark_kafkalog.client import partitions
from pyspark_kafkalog.client.partitions import EVERY_TOPIC, PartitionState, SegmentState, bounds_of
from pyspark_kafkalog.errors import BrokerError, OptionError
from pyspark_kafkalog.extensions.large_messages.options import assembler_settings
from pyspark_kafkalog.extensions.typed_values.options import ID_COLUMNS
from pyspark_kafkalog.model import (
    AssemblerSettings,
    BrokerState,
    CommittedOffset,
    Group,
    OffsetRange,
    OnCorrupt,
    Place,
    TopicPartition,
)
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.model.topics import NewTopic, TopicDescription, Topics
from pyspark_kafkalog.options.settings import (
    PlaceOptions,
    Selection,
    local_root,
    place_options,
    read_options,
    write_options,
)
from pyspark_kafkalog.options.table import SERVERS, ZOOKEEPER, Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import check_usable, open_groups, open_place, open_report, open_topics
from pyspark_kafkalog.tools.groups import consumer_groups, reset
from pyspark_kafkalog.tools.groups.consumer_groups import GroupLag, GroupOffset
from pyspark_kafkalog.tools.groups.reset import ResetStep, ResetTo
from pyspark_kafkalog.tools.topics import topic_changes
from pyspark_kafkalog.tools.topics.topic_changes import CreatedTopic, TopicChange, TopicToDelete

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.client.read import Changes, Filters, RecordSplit
    from pyspark_kafkalog.codec.decode import DecodeLimits
    from pyspark_kafkalog.tools.backup.copies.adopt import AdoptedPartition
    from pyspark_kafkalog.tools.backup.plan import BackedUpPartition, BackupRules
    from pyspark_kafkalog.tools.backup.restore import Restored, RestoreSettings
    from pyspark_kafkalog.tools.backup.restore_records import Progress
    from pyspark_kafkalog.tools.care.compact import CompactedPartition
    from pyspark_kafkalog.tools.care.repair import RepairedDirectory
    from pyspark_kafkalog.tools.care.retain import DeletedRecords
    from pyspark_kafkalog.tools.care.verify import VerifiedPartition
    from pyspark_kafkalog.tools.records.dump import DumpedBatch
    from pyspark_kafkalog.tools.records.select import RecordSelection
    from pyspark_kafkalog.tools.redrive.redrive import Redriven

_log = logging.getLogger("pyspark_kafkalog")

_LISTENER = r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?"
_HOST = rf"(?:(?:https?|kafka)://|{_LISTENER})" + r"(?:\[[0-9a-fA-F:.%\w-]+\]|[\w.-]+):[0-9]{1,5}"
_BROKERS = re.compile(rf"{_HOST}(?:,{_HOST})*", re.ASCII)
_PORTLESS = re.compile(
    _LISTENER + r"(?:localhost|\[[0-9a-fA-F:.]+\]|[0-9]+(?:\.[0-9]+){3}|[\w-]+(?:\.[\w-]+)+\.[a-z]{2,})",
    re.ASCII,
)
"""What can hardly be a folder's name: a host without the port."""
_ZOOKEEPER_SCHEME = "zk://"
_LOGIN = re.compile(rf"{_LISTENER}(?![/.~]|\w+://).*@{_HOST}(?:,.*)?", re.ASCII | re.DOTALL)
"""Brokers with a login before one of them, which no client of Kafka takes."""


def connect(place: str | os.PathLike[str] | Mapping[str, str]) -> Kafka:
    """A log directory, or a cluster.

    ::

        from pyspark_kafkalog import NewTopic, connect

        with connect("host:9092") as kafka:  # or a log directory: connect("/data/kafka-logs")
            kafka.topics.create([NewTopic("orders", partitions=3)])
            print(kafka.groups.lags())

    :param place: the path or URI of a log directory; brokers as ``host:port[,host:port]``; ZooKeeper as
        ``zk://host:port[,host:port]/chroot``, which has only groups; or options of a reader, such as
        ``{"kafka.bootstrap.servers": "host:9093", "kafka.security.protocol": "SSL"}``.
    :raises OptionError: for invalid options. Whether the place is there shows when it is first asked.
    """
    return Kafka(place if isinstance(place, Mapping) else options_of(os.fspath(place)))


def options_of(place: str) -> dict[str, str]:
    """The option that names a place: ``path``, ``kafka.bootstrap.servers`` or ``zookeeper.connect``.

    :raises OptionError: for brokers without a port, and for those with a login, without quoting it.
    """
    if _is_folder(place):
        return {"path": json.dumps([place])}  # its name may have commas
    if place.lower().startswith(_ZOOKEEPER_SCHEME):
        return {ZOOKEEPER: place[len(_ZOOKEEPER_SCHEME) :]}
    if _LOGIN.fullmatch(place):
        raise OptionError(
            "Expected brokers as host:port, got something before an @, which may be a secret",
            hint="Give a login as client properties, such as sasl.jaas.config, in a file: --config FILE.",
        )
    if names_brokers(place):
        return {SERVERS: place}
    for host in place.split(","):
        if _PORTLESS.fullmatch(host):
            raise OptionError(
                f"Brokers need a port, got {host!r}", hint=f"Write {host}:9092. A folder would be ./{host}."
            )
    return {"path": place}


def names_brokers(place: str) -> bool:
    """Whether a place has the form of brokers: host:port[,host:port]."""
    return _BROKERS.fullmatch(place) is not None


def _folder_to_write(place: str) -> str:
    """The path of a log directory on this machine, which may not be there yet."""
    if "path" not in options_of(place):
        got = "brokers" if names_brokers(place) else "ZooKeeper"
        raise OptionError(f"Expected a folder to write to, got {got}")
    return local_root(place)


def _is_folder(place: str) -> bool:
    try:
        return os.path.isdir(place)
    except ValueError:
        return False


class Kafka:
    """A log directory or a cluster, for one thread; :func:`connect` makes it. It opens what it needs.

    ``topics``, ``groups``, ``records`` and ``logs`` have what can be done with each of them.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        UserOptions(options, Use.ADMIN | Use.READ | Use.WRITE).check_names()
        self.options = dict(options)

    def __enter__(self) -> Kafka:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what was opened. A later call opens it again."""
        for name in ("place", "topics", "groups", "records", "logs"):
            self.__dict__.pop(name, None)

    @cached_property
    def place_options(self) -> PlaceOptions:
        """Where it is, and how to reach it.

        :raises OptionError: for options that are only for reading or writing records.
        """
        UserOptions(self.options, Use.ADMIN).check_names()
        return place_options(self.options)

    @property
    def source_options(self) -> PlaceOptions:
        """The same, to copy from: in a backup no offset of a group is too old, unless the user says so."""
        if "offsets.retention.minutes" in UserOptions(self.options, Use.ADMIN):
            return self.place_options
        return replace(self.place_options, offsets_retention_minutes=None)

    @property
    def assembler_settings(self) -> AssemblerSettings:
        """How large messages are put together: as readers do by default, or with a deserializer.

        :raises OptionError: for an import path that can't be one.
        """
        return assembler_settings(UserOptions(self.options, Use.ADMIN))

    @cached_property
    def place(self) -> Place:
        """What all readers ask: offsets, timestamps, leader epochs and record batches."""
        return open_place(self.place_options)

    @property
    def report_place(self) -> Place:
        """The same for one report, which asks once, and says of each partition why it did not answer."""
        return open_report(self.place_options)

    def brokers(self) -> list[BrokerState]:
        """The brokers of a cluster, sorted by id. Each is tried, to see whether it answers from here.

        :raises OptionError: for a log directory, which has none.
        :raises BrokerError: if no broker answers.
        """
        if self.place_options.brokers is None:
            raise OptionError("A log directory has no brokers", hint="Name brokers, as host:port.")
        from pyspark_kafkalog.tools.topics.brokers import describe_brokers

        return describe_brokers(self.place_options.brokers.of_report)

    def read(
        self,
        topic: str | None = None,
        *,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        options: Mapping[str, str] | None = None,
    ) -> pa.RecordBatchReader:
        """The records that are there now as Arrow, for pyarrow, DuckDB, Polars or pandas.

        ::

            import pyarrow as pa
            from pyspark_kafkalog import connect

            with connect("/tmp/kafka-logs") as kafka:
                kafka.write(pa.table({"value": [b"12.50"]}), "orders")
                print(kafka.read("orders", columns=["offset", "value"]).read_all())

        :param topic: the same as the option ``subscribe``.
        :param columns: those of a DataFrame; all but ``headers`` by default.
        :param filters: conditions that every row meets: column, one of ``= < <= > >= != in``, and a value.
            Times have a zone. Partitions and offsets that can't match are not read.
        :param options: those of ``spark.read``, such as ``startingOffsets``.
        :raises OptionError: for invalid options, columns and filters.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        :raises DataLossError: if offsets are gone, and :class:`CorruptRecordError` at damaged bytes, both
            unless ``failOnDataLoss`` is false.
        """
        from pyspark_kafkalog.client.read import read

        return read(self._with(options, subscribe=topic), _several_or_none(columns), filters)

    def plan(
        self,
        topic: str | None = None,
        *,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[RecordSplit]:
        """The same read in splits, which other processes carry out: they can be pickled.

        ``minPartitions`` and ``maxRecordsPerPartition`` say how many. Parameters and errors are those of
        :meth:`read`.
        """
        from pyspark_kafkalog.client.read import plan

        return plan(self._with(options, subscribe=topic), _several_or_none(columns), filters)

    def changes(
        self,
        topic: str | None = None,
        *,
        group: str,
        columns: Collection[str] | None = None,
        filters: Filters | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Changes:
        """What came since ``group`` has last committed; at the end of ``with`` it commits, at least once.

        ::

            from pyspark_kafkalog import connect

            with connect("/tmp/kafka-logs") as kafka, kafka.changes("orders", group="etl") as changes:
                print(changes.read().read_all())

        A group that has committed nothing begins at the start of the logs, or where
        ``startingOffsetsByCommittedStrategy`` says. Rows that ``filters`` leave out count as read, but in
        partitions that these rule out altogether. Other parameters and errors are those of :meth:`read`.

        :raises OptionError: for options that say where to start or end.
        :raises GroupError: if a commit does not belong to the log that is there, or the group has live
            members; at the end if nothing is committed, as :class:`.Changes` says.
        """
        from pyspark_kafkalog.client.read import Changes

        return Changes(self._with(options, subscribe=topic), group, _several_or_none(columns), filters)

    def write(
        self,
        rows: pa.RecordBatchReader | pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
        topic: str | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> int:
        """Write rows as records, and return how many.

        Each batch is sent on before the next one is asked for. A log directory shows all records at once,
        after the last one; brokers show them as they come, unless ``delivery.guarantee`` is ``exactly-once``.

        :param rows: a table, a reader or batches of Arrow, or a frame that gives them, with any columns that
            ``df.write`` takes. Times may have any unit, and partitions any kind of integer.
        :param topic: where all rows go; without it, where their column ``topic`` says.
        :param options: those of ``df.write``.
        :raises OptionError: for invalid options.
        :raises KafkaLogError: if the write fails; its hint says how many records are visible nevertheless.
        """
        from pyspark_kafkalog.client.write import write

        if not isinstance(topic, str | None):
            raise OptionError(
                f"Expected the name of a topic, got {type(topic).__name__}",
                hint="Rows come first: write(rows, topic).",
            )
        return write(self._with(options, topic=topic), rows)

    def _with(self, options: Mapping[str, str] | None, **more: str | None) -> dict[str, str]:
        """The options of the place, and those of one call.

        :raises OptionError: for those of the audit, and ``view``.
        """
        named = {name: value for name, value in more.items() if value is not None}
        found = {**self.options, **(options or {}), **named}
        names = {name.lower() for name in found}
        if {"auditor.class", "auditlocation"} & names:
            raise OptionError("Only Spark's queries are audited", hint="Leave out the options of the audit.")
        if "view" in names:
            raise OptionError(
                "Only Spark reads views",
                hint="Leave out the option 'view'. connect().topics, groups and records have the same rows.",
            )
        return found

    @cached_property
    def topics(self) -> TopicAdmin:
        """Topics and their partitions."""
        return TopicAdmin(self)

    @cached_property
    def groups(self) -> GroupAdmin:
        """Consumer groups and their offsets."""
        return GroupAdmin(self)

    @cached_property
    def records(self) -> Records:
        """Records and record batches."""
        return Records(self)

    @cached_property
    def logs(self) -> LogCare:
        """The care of logs: backup, restore, repair, retention and compaction."""
        return LogCare(self)


def _several(names: Collection[str]) -> Collection[str]:
    """Names; a text is one of them, and not its letters."""
    return (names,) if isinstance(names, str) else names


def _several_or_none(names: Collection[str] | None) -> Collection[str] | None:
    return None if names is None else _several(names)


class TopicAdmin:
    """``kafka.topics``: topics and their partitions (Kafka's TopicCommand, ConfigCommand, GetOffsetShell)."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    @cached_property
    def _topics(self) -> Topics:
        return open_topics(self._kafka.place_options)

    def partitions(
        self, selection: Selection = EVERY_TOPIC, *, internal: bool = False
    ) -> list[PartitionState]:
        """Every partition of ``selection``, sorted.

        :param internal: include internal topics, such as ``__consumer_offsets``, even if not named.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        return partitions.topics(self._kafka.report_place, selection, internal=internal)

    def segments(self, selection: Selection = EVERY_TOPIC, *, internal: bool = False) -> list[SegmentState]:
        """Every segment of these partitions, in order; none for brokers, which don't show theirs.

        Parameters and errors are those of :meth:`partitions`.
        """
        return partitions.segments(self._kafka.place, selection, internal=internal)

    def describe(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Topics, sorted: their configurations that are not Kafka's defaults, and where their partitions are.

        Brokers say who leads, and which replicas are in sync or offline; a directory, how many segments.

        :param names: by default all topics that are not internal.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        selection = EVERY_TOPIC if names is None else Selection(topics=tuple(_several(names)))
        topics = open_topics(self._kafka.place_options.of_report)
        return topics.describe(partitions.topics_of(self._kafka.report_place, selection))

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Each topic's own configurations, without those that it inherits; for topics that exist."""
        return self._topics.configs(_several(topics))

    def create(
        self, new: Sequence[NewTopic], *, if_not_exists: bool = False, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics, and return them as they are then.

        :param if_not_exists: leave topics that exist as they are.
        :param validate_only: check the request, and create nothing.
        :raises TopicExistsError: if one exists, unless ``if_not_exists``.
        :raises OptionError: for illegal names, those of internal topics, numbers and configurations; then
            nothing is created.
        """
        return topic_changes.create_topics(
            self._kafka.place, self._topics, new, if_not_exists=if_not_exists, validate_only=validate_only
        )

    def plan_alteration(
        self,
        names: Collection[str],
        *,
        partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        if_exists: bool = False,
    ) -> list[TopicChange]:
        """What :meth:`alter` would change; nothing is changed, but the place has checked it.

        :param partitions: the new number, which can only grow.
        :param configs: new values; None lets the topic inherit one.
        :param if_exists: leave out topics that don't exist.
        :raises OptionError: for fewer partitions, and for configurations that topics don't have.
        :raises UnknownTopicOrPartitionError: if a topic does not exist, unless ``if_exists``.
        """
        return topic_changes.plan_alteration(
            self._kafka.place,
            self._topics,
            _several(names),
            partitions=partitions,
            configs=configs,
            if_exists=if_exists,
        )

    def alter(self, changes: Sequence[TopicChange]) -> None:
        """Carry out what :meth:`plan_alteration` gave."""
        topic_changes.alter_topics(self._topics, changes)

    def plan_deletion(self, names: Collection[str], *, if_exists: bool = False) -> list[TopicToDelete]:
        """What :meth:`delete` would delete; nothing is changed.

        :param if_exists: leave out topics that don't exist.
        :raises OptionError: for an internal topic.
        :raises UnknownTopicOrPartitionError: if one does not exist, unless ``if_exists``.
        """
        return topic_changes.plan_deletion(self._kafka.report_place, _several(names), if_exists=if_exists)

    def delete(self, deletion: Sequence[TopicToDelete]) -> None:
        """Delete the topics of :meth:`plan_deletion` with all their records, and their committed offsets.

        :raises LogDirectoryLockedError: if a broker runs on the directory.
        """
        topic_changes.delete_topics(self._topics, deletion)


class GroupAdmin:
    """``kafka.groups``: consumer groups, what they have committed, and their lag (ConsumerGroupCommand)."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    @cached_property
    def _options(self) -> PlaceOptions:
        UserOptions(self._kafka.options, Use.ADMIN).check_names()
        return place_options(self._kafka.options, of_groups=True)

    @property
    def _are_in_zookeeper(self) -> bool:
        return self._options.offsets_storage == "zookeeper"

    @cached_property
    def _groups(self) -> GroupOffsets:
        return open_groups(self._options)

    @property
    def place(self) -> Place:
        """Whose logs the groups read, for one report: those of ZooKeeper read from the brokers that are
        registered there."""
        return open_report(self._options) if self._are_in_zookeeper else self._kafka.report_place

    @cached_property
    def _shown(self) -> GroupOffsets:
        """The groups for reports, which ask once."""
        return open_groups(self._options.of_report)

    def describe(self, names: Collection[str] | None = None) -> list[Group]:
        """All groups, or those in ``names``, sorted.

        The groups that hold the markers of exactly-once queries have ``marker`` as protocol type, and the
        query as protocol.

        :raises GroupError: if a named group does not exist.
        """
        return consumer_groups.groups(self._shown, _several_or_none(names))

    def offsets(
        self,
        names: Collection[str] | None = None,
        selection: Selection | None = None,
        *,
        read_committed: bool = False,
    ) -> list[GroupOffset]:
        """What all groups, or those in ``names``, have committed, sorted by group, topic and partition.

        The offsets in ZooKeeper are shown, without lags, also if none of its brokers can be asked.

        :param selection: which partitions to include; by default all, internal ones too.
        :param read_committed: count lags to the last stable offsets, as read_committed consumers do.
        :raises GroupError: if a named group has committed nothing and does not exist.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist, and none of the groups has
            committed offsets for it.
        :raises KafkaLogError: if no group at all can be read.
        """

        def found(place: Place | None) -> list[GroupOffset]:
            return consumer_groups.group_offsets(
                place, self._shown, _several_or_none(names), selection, read_committed=read_committed
            )

        try:
            return found(self.place)
        except BrokerError as e:
            if not self._are_in_zookeeper:
                raise
            _log.warning("Lags are unknown: %s", e)
            return found(None)

    def lags(
        self,
        names: Collection[str] | None = None,
        selection: Selection | None = None,
        *,
        read_committed: bool = False,
    ) -> list[GroupLag]:
        """The lag of each group; see :meth:`offsets`. A negative lag counts as 0."""
        return consumer_groups.lags(self.offsets(names, selection, read_committed=read_committed))

    def committed(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits of ``group`` for all or these partitions; those without a commit are left out."""
        return self._groups.committed(group, partitions)

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit as a group without members: all partitions, or those that the error does not name.

        :raises GroupError: if the group has live members, or can't be written to.
        """
        self._groups.commit(group, offsets)

    def plan_reset(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        to: ResetTo,
        value: int = 0,
        *,
        large_messages: bool = False,
    ) -> list[ResetStep]:
        """What a reset of ``group`` would do to each partition; nothing is changed.

        :param partitions: None means all existing partitions for which the group has committed.
        :param large_messages: for readers that reassemble large messages: go back to safe offsets, with the
            first wanted message in the metadata.
        :raises GroupError: if the group has live members, or a shift has no committed offset to start from.
        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        steps = reset.plan_reset(self.place, self._groups, group, partitions, to, value)
        return self._for_whole_messages(steps) if large_messages else steps

    def plan_import(
        self,
        wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
        *,
        large_messages: bool = False,
    ) -> list[ResetStep]:
        """What committing these offsets of each group would do; see :meth:`plan_reset`. Metadata is kept.

        A leader epoch is kept only if the log has it up to the offset. Offsets may come from another cluster,
        and consumers would refuse a leader whose epochs are lower (KIP-320).
        """
        steps = reset.plan_import(self.place, self._groups, wanted)
        return self._for_whole_messages(steps) if large_messages else steps

    def _for_whole_messages(self, steps: Collection[ResetStep]) -> list[ResetStep]:
        if self._are_in_zookeeper:
            raise OptionError("ZooKeeper keeps no metadata of commits, which groups of large messages need")
        return reset.for_whole_messages(self._kafka.place, steps, self._kafka.assembler_settings)

    def reset(self, steps: Collection[ResetStep]) -> None:
        """Commit the planned offsets, one group after the other.

        :raises GroupError: if a group has live members by now, or its offsets can't be written.
        """
        reset.execute(self._groups, steps)

    def plan_deletion(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits that :meth:`delete`, or :meth:`delete_offsets` of these partitions, would delete.

        :raises GroupError: if there is no such group, or it holds an exactly-once marker.
        """
        consumer_groups.groups(self._groups, [group])
        consumer_groups.check_no_marker(self._groups, group, "gone")
        return self._groups.committed(group, partitions)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete what ``group`` has committed for ``partitions``.

        :raises GroupError: if a live member is subscribed to their topics, or it is an exactly-once marker.
        """
        consumer_groups.delete_offsets(self._groups, group, partitions)

    def delete(self, group: str) -> None:
        """Delete ``group`` and all its offsets.

        :raises GroupError: if it has live members, does not exist, or holds an exactly-once marker.
        """
        consumer_groups.delete_group(self._groups, group)


class Records:
    """``kafka.records``: what is in topics, as it is stored and as rows."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    @property
    def _limits(self) -> DecodeLimits:
        from pyspark_kafkalog.codec.decode import DecodeLimits  # loads numpy and pyarrow

        return DecodeLimits(max_record_bytes=self._kafka.place_options.max_record_bytes)

    def select(
        self,
        topic: str,
        selection: RecordSelection | None = None,
        *,
        columns: Collection[str] | None = None,
        follow: bool = False,
        skip_damaged: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> pa.RecordBatchReader:
        """The selected records of ``topic``, as :meth:`Kafka.read` gives them; no batch is empty.

        They come partition by partition, each in the order of its offsets; with ``tail``, by timestamp over
        all partitions. With ``follow`` those that are written from then on follow for ever, as they arrive.
        Keys and values are decoded if the options of the place give them a format; what is selected by key
        or value is so by their bytes.

        :param selection: all records by default.
        :param columns: those of a DataFrame; all by default.
        :param skip_damaged: log damaged bytes and lost offsets and leave them out, instead of raising. A key
            or value that can't be decoded is a struct of nulls.
        :param progress: called with the offsets that were read since the last call, and those in all.
        :raises UnknownTopicOrPartitionError: if the topic, or a partition of the selection, does not exist.
        :raises CorruptRecordError: at damaged bytes, and at what can't be decoded.
        :raises OversizedRecordError: at a record of more than ``maxRecordBytes``, always.
        :raises DataLossError: if records are deleted while they are read.
        """
        from pyspark_kafkalog.tools.records.select import ALL_RECORDS, COLUMNS, read_records

        given = UserOptions(self._kafka.options, Use.ADMIN)
        given.check_names()
        formats = None
        if any(f"{column}.{part}" in given for column in ID_COLUMNS for part in ("format", "schema")):
            mode = "PERMISSIVE" if skip_damaged else "FAILFAST"
            formats = read_options({**self._kafka.options, "subscribe": topic, "mode": mode}, batch=True)
        return read_records(
            self._kafka.place,
            topic,
            selection or ALL_RECORDS,
            settings=self._kafka.assembler_settings,
            limits=self._limits,
            formats=formats,
            columns=COLUMNS if columns is None else columns,
            follow=follow,
            skip_damaged=skip_damaged,
            progress=progress,
            check=partial(check_usable, self._kafka.place_options),
        )

    def count(
        self, topic: str, selection: RecordSelection | None = None, *, skip_damaged: bool = False
    ) -> int:
        """How many records of ``topic`` are selected; see :meth:`select`."""
        found = self.select(topic, selection, columns=("offset",), skip_damaged=skip_damaged)
        return sum(rows.num_rows for rows in found)

    def batches(
        self,
        selection: Selection = EVERY_TOPIC,
        *,
        columns: Collection[str] | None = None,
        check_crcs: bool = True,
        measure_raw_bytes: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The record batches, a row each, in order of partition and offset.

        Reads headers only, at the speed of the disk. Bytes that are not a batch are skipped, with a warning
        in the log; :meth:`verify` tells more.

        :param columns: those of ``view=batches`` to make, in this order; all by default.
        :param check_crcs: whether to verify checksums for the column ``valid``, which is null without.
        :param measure_raw_bytes: whether to decompress batches that don't state their size before
            compression; ``rawBytes`` is null for them without, and where they can't be decompressed.
        :raises OptionError: for a column that does not exist.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        from pyspark_kafkalog.extensions.views.batch_headers import batches

        return batches(
            self._kafka.place,
            selection,
            columns=columns,
            check_crcs=check_crcs,
            measure_raw_bytes=measure_raw_bytes,
        )

    def dump(
        self,
        partition: TopicPartition,
        offsets: OffsetRange | None = None,
        *,
        records: bool = False,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[DumpedBatch]:
        """The batches that hold any of ``offsets``, in order; all batches by default (DumpLogSegments).

        :param records: whether to decode the records among ``offsets``, too.
        :param on_corrupt: called for bytes that are not a batch; they are skipped.
        :raises UnknownTopicOrPartitionError: if the partition does not exist.
        :raises CorruptRecordError: for such bytes, if ``on_corrupt`` is None.
        :raises OversizedRecordError: at a record of more than ``maxRecordBytes``, if ``records`` are decoded.
        :raises DataLossError: if some of the offsets were deleted meanwhile.
        """
        from pyspark_kafkalog.tools.records.dump import dump

        return dump(
            self._kafka.place, partition, offsets, limits=self._limits, records=records, on_corrupt=on_corrupt
        )

    def verify(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[VerifiedPartition]:
        """Read each partition from start to end, and check all that can be checked.

        Brokers are asked as for a report: what they do not give within seconds is the ``problem`` of its row.

        :param partitions: all by default, internal ones too; those deleted meanwhile are left out.
        :param progress: called with the size of each stretch of bytes that was read.
        """
        from pyspark_kafkalog.client.partitions import partitions_of
        from pyspark_kafkalog.tools.care.verify import verify

        place = self._kafka.report_place
        wanted = partitions_of(place, internal=True) if partitions is None else partitions
        return verify(place, wanted, limits=self._limits, progress=progress)

    def redrive(
        self, topic: str, *, group: str = "kafkalog-redrive", first: bool = False, execute: bool = False
    ) -> list[Redriven]:
        """Send the dead letters in ``topic`` back to the topics that they came from.

        Their headers ``__connect.errors.topic`` and ``__connect.errors.partition`` say where that is: those
        of Kafka Connect and of :func:`pyspark_kafkalog.dead_letters`. These headers are left out; key, value,
        timestamp and the others are as they were. Records without such a header stay.

        Each is sent once, also if a run is killed, or two run at once: to brokers in transactions, to a
        directory all of a batch at once.

        :param group: the consumer group that knows what has been sent. Brokers forget it some time after the
            last run (offsets.retention.minutes).
        :param first: that nothing was sent with this group yet, at least of partitions for which it has no
            commits. Without that they are refused: it may have been forgotten.
        :param execute: whether to do it; else nothing is changed.
        :return: what there was to send, of each partition and to each topic.
        :raises UnknownTopicOrPartitionError: if one of the topics does not exist; nothing is sent then.
        :raises GroupError: if the group has live members, its offsets are those of another log, it has none
            and this is not the first run, or another run goes on.
        """
        from pyspark_kafkalog.tools.redrive.redrive import redrive

        return redrive(self._kafka.options, topic, group=group, first=first, execute=execute)


class LogCare:
    """``kafka.logs``: backup, restore, repair, retention and compaction."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def root(self) -> str:
        """The path of the one log directory that this is.

        :raises OptionError: if it is another place.
        """
        paths = self._kafka.place_options.paths
        if len(paths) != 1:
            raise OptionError(
                f"Expected one log directory, got {f'{len(paths)} of them' if paths else 'brokers'}"
            )
        return paths[0]

    def backup(
        self,
        directory: str,
        rules: BackupRules | None = None,
        *,
        follow_until: threading.Event | None = None,
        progress: Callable[[int], None] = lambda size: None,
        failed: Callable[[BackedUpPartition], None] = lambda row: None,
    ) -> list[BackedUpPartition]:
        """Copy the record batches of topics into a log directory, as a follower would.

        Offsets, timestamps, producer ids, leader epochs, markers, compression and topic ids are those of the
        source, which may be a directory, too. It goes on where the last run ended, or was killed. Also saved
        are the configurations of topics and the offsets of consumer groups.

        What is wrong with one partition, in the source or in the directory, hinders none of the others.

        :param directory: a local or mounted folder, which is made if it does not exist.
        :param rules: all topics that are not internal by default. Of a directory a range of time can be
            copied, which begins and ends with whole batches.
        :param follow_until: if given, go on until it is set. Partitions with a problem of the source are
            tried again; damage in the directory, or an error of its disk, ends it when the others are copied.
        :param progress: called, from any thread, with the number of bytes that were copied.
        :param failed: called, from any thread, with each partition whose problem is new.
        :return: what came of groups, if something is to be said of them, and of each partition, sorted; look
            for ``problem``, ``gaps`` and ``truncated``. The backup is complete only if no row has a
            ``problem``.
        :raises OptionError: for rules that don't fit, if both are the same folder, and if ``directory`` is
            not on this machine.
        :raises LogDirectoryError: if the directory is a broker's own or a backup of another cluster, or can't
            be written to.
        :raises BrokerError: if no broker answers.
        :raises GroupError: if a group of ``rules`` is known nowhere.
        """
        from pyspark_kafkalog.tools.backup.backup import backup
        from pyspark_kafkalog.tools.backup.plan import BackupRules

        return backup(
            self._kafka.source_options,
            _folder_to_write(directory),
            rules or BackupRules(),
            follow_until=follow_until,
            progress=progress,
            failed=failed,
        )

    def adopt(
        self,
        log_dir: str,
        topics: Collection[str] | None = None,
        *,
        exclude: Collection[str] | None = None,
        groups: bool = True,
        execute: bool = False,
    ) -> list[AdoptedPartition]:
        """Put the partitions of this backup into the log directory of a stopped broker, as its own.

        The broker's topics exist, and are empty. Batches keep all but their leader epochs, which become those
        of a new topic. Offsets of groups go into the broker's ``__consumer_offsets``: of the partitions that
        are adopted, where the group has none. Interrupted, this can run again.

        :param topics: only these; None for all that are not internal.
        :param exclude: which of them to leave out: see :class:`.Selection`.
        :param groups: False to leave them out.
        :param execute: False to only say what would be done.
        :return: the partitions, sorted; those with a ``problem`` are left alone.
        :raises OptionError: if there are groups, but no ``__consumer_offsets``; nothing is adopted then.
        :raises LogDirectoryLockedError: if the broker runs.
        """
        from pyspark_kafkalog.tools.backup.backup import adopt

        return adopt(
            self.root(),
            _folder_to_write(log_dir),
            _several(topics or ()),
            exclude=_several(exclude or ()),
            groups=groups,
            execute=execute,
        )

    def restore(
        self,
        target: Kafka,
        settings: RestoreSettings | None = None,
        *,
        execute: bool = False,
        progress: Progress = lambda done, total=None: None,
    ) -> Restored:
        """Write these records to the cluster ``target``, and commit the offsets of groups there.

        It can be killed, and run again with the same arguments: nothing is written twice. Offsets of a
        directory's groups count at any age, unless ``offsets.retention.minutes`` is given.

        :param target: its options may be those of a writer, too.
        :param execute: without it the source is read, and the result says what would be restored.
        :param progress: called with the bytes read since the last call, and their total where it is known.
        :raises OptionError: for settings that don't fit, before anything is written.
        :raises KafkaLogError: if it fails; what was restored stays, and the next run goes on from there.
        """
        from pyspark_kafkalog.tools.backup.restore import Restore, RestoreSettings

        work = Restore(
            self._kafka.source_options,
            write_options(target.options),
            place_options(target.options),
            settings or RestoreSettings(),
        )
        return work.run(execute=execute, progress=progress)

    def repair(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        execute: bool = False,
        salvage: bool = False,
        discard: bool = False,
        progress: Callable[[int], None] = lambda size: None,
    ) -> RepairedDirectory:
        """Repair a local log directory as a broker that starts after a crash does.

        A broker then starts on it without recovery. Each log is cut at its first record batch that is not
        valid. What is cut is kept in the file ``.kafkalog-cut`` in the partition's folder.

        :param partitions: those to repair; None for all.
        :param execute: change files. Without it this only says what it would do.
        :param salvage: keep all valid record batches after damage, too. Offsets then have gaps.
        :param discard: don't keep what is cut.
        :param progress: called with the number of bytes that were read.
        :raises LogDirectoryLockedError: if a broker or a writer holds the directory.
        :raises LogDirectoryError: if there is no such directory, or an unfinished publish can't be undone.
        :raises OptionError: if it is not a local log directory.
        :raises UnknownTopicOrPartitionError: if one of ``partitions`` is not there.
        """
        from pyspark_kafkalog.tools.care.partition_repair import RepairMode
        from pyspark_kafkalog.tools.care.repair import repair

        mode = RepairMode(execute=execute, salvage=salvage, discard=discard)
        return repair(self.root(), partitions, mode, progress=progress)

    def retain(
        self,
        topics: Collection[str] | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        exclude: Collection[str] | None = None,
        execute: bool = False,
        progress: Callable[[], None] = lambda: None,
    ) -> list[DeletedRecords]:
        """Delete the segments of a log directory that are due, and return what each partition loses.

        A partition whose folder or files can't be used loses nothing, and the ``note`` of its row says why.

        :param topics: None for all.
        :param configs: ``retention.ms``, ``retention.bytes`` and ``cleanup.policy``, which take precedence
            over what the directory says of its topics. What neither says is kept for ever.
        :param exclude: which topics to leave out: see :class:`.Selection`.
        :param execute: whether to do it; else nothing is changed.
        :param progress: called after each partition that has lost something.
        :raises OptionError: for brokers, and for invalid configurations.
        :raises LogDirectoryLockedError: if a broker or another writer holds the directory.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        from pyspark_kafkalog.tools.care.retain import retain

        return retain(
            self._kafka.place_options,
            _several_or_none(topics),
            configs or {},
            exclude=_several(exclude or ()),
            execute=execute,
            progress=progress,
        )

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, execute: bool = False
    ) -> list[DeletedRecords]:
        """Delete the records below these offsets, and return what each partition loses.

        An offset below the log start offset changes nothing. The offsets of all partitions are checked before
        any is changed. A partition that can't be used or asked, or whose broker refuses, loses nothing, and
        the ``note`` of its row says why.

        :param offsets: -1 stands for the high watermark.
        :param execute: whether to do it; else nothing is changed.
        :raises OptionError: for an offset above the high watermark, and in a directory for an internal or
            compacted topic.
        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        from pyspark_kafkalog.tools.care.retain import delete_records

        return delete_records(self._kafka.place_options, offsets, execute=execute)

    def offsets_before(
        self, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """For :meth:`delete_records`: the first record at or after ``timestamp`` (ms), or the high watermark.

        It is that of now: what is appended later is not meant.

        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        from pyspark_kafkalog.read.times import offsets_at

        place = self._kafka.place
        check_usable(self._kafka.place_options, partitions)
        return offsets_at(place, bounds_of(place, partitions), timestamp)

    def compact(
        self,
        topics: Collection[str] | None = None,
        *,
        exclude: Collection[str] | None = None,
        execute: bool = False,
        configs: Mapping[str, str] | None = None,
        any_policy: bool = False,
        dedupe_buffer_size: int = 128 << 20,
        lock_timeout: float = 10,
        progress: Callable[..., object] = lambda size, *, total: None,
    ) -> list[CompactedPartition]:
        """Compact topics of a log directory, one partition after the other, as a broker's log cleaner does.

        Without ``execute`` nothing is changed: each partition shows what a first pass would remove.

        :param topics: by default all whose ``cleanup.policy`` says ``compact``.
        :param exclude: which topics to leave out: see :class:`.Selection`.
        :param configs: topic configurations that take precedence over those of the topics, such as
            ``min.cleanable.dirty.ratio``.
        :param any_policy: compact topics whatever their ``cleanup.policy`` says.
        :param dedupe_buffer_size: bytes of the map of keys, Kafka's ``log.cleaner.dedupe.buffer.size``. If
            there are more keys, it takes several passes.
        :param lock_timeout: seconds to wait for a broker or another writer, for each partition.
        :param progress: called with the bytes of each stretch that was read, and about how many there are in
            all.
        :raises OptionError: for brokers, an unknown or invalid configuration, or a topic with another policy.
        :raises UnknownTopicOrPartitionError: if there is no such topic.
        :raises LogDirectoryLockedError: if a broker or a writer holds the directory.
        :raises CorruptRecordError: if a batch is damaged. Partitions before that are compacted.
        :raises OversizedRecordError: at a record of more than ``maxRecordBytes``. Likewise.
        """
        from pyspark_kafkalog.tools.care.compact import compact

        return compact(
            self._kafka.place_options,
            _several(topics or ()),
            exclude=_several(exclude or ()),
            execute=execute,
            configs=configs or {},
            any_policy=any_policy,
            dedupe_buffer_size=dedupe_buffer_size,
            lock_timeout=lock_timeout,
            progress=progress,
        )
