"""``kafka.logs``: backup, restore, repair, retention and compaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from numbers import Integral
from typing import TYPE_CHECKING

from pyspark_kafkalog.client.kafka import Kafka, names_brokers, options_of
from pyspark_kafkalog.client.partitions import bounds_of
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.arguments import check_kind, check_offsets, check_partitions
from pyspark_kafkalog.options.settings import (
    local_root,
    place_options,
    several,
    several_or_none,
    write_options,
)
from pyspark_kafkalog.places import check_usable

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.adopt import AdoptedPartition
    from pyspark_kafkalog.tools.backup.plan import BackedUpPartition, BackupRules
    from pyspark_kafkalog.tools.backup.restore import Restored, RestoreSettings
    from pyspark_kafkalog.tools.backup.restore_records import Progress
    from pyspark_kafkalog.tools.care.compact import CompactedPartition
    from pyspark_kafkalog.tools.care.forget import ForgottenQuery
    from pyspark_kafkalog.tools.care.repair import RepairedDirectory
    from pyspark_kafkalog.tools.care.retain import DeletedRecords

MEND = "Brokers mend theirs when they start."


class LogCare:
    """``kafka.logs``: backup, restore, repair, retention and compaction."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kafka.name})"

    def root(self, of_brokers: str = "") -> str:
        """The path of this log directory, if it is a single one.

        :param of_brokers: what brokers do about it, a sentence.
        :raises OptionError: if it is another place.
        """
        paths = self._kafka.place_options.paths
        if len(paths) == 1:
            return paths[0]
        if paths:
            raise OptionError(
                f"Expected one log directory, got {len(paths)} of them", hint="Do it for one after the other."
            )
        raise OptionError(
            "Expected one log directory, got brokers",
            hint=f"{of_brokers} Give a folder, such as /data/kafka-logs.".strip(),
        )

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

        A problem of one partition, in the source or in the directory, does not stop the others.

        :param directory: a local or mounted folder, which is made if it does not exist.
        :param rules: all topics that are not internal by default. Of a directory a range of time can be
            copied, which begins and ends with whole batches.
        :param follow_until: if given, go on until it is set. Partitions with a problem of the source are
            tried again; damage in the directory, or an error of its disk, ends it when the others are copied.
        :param progress: called, from any thread, with the number of bytes that were copied.
        :param failed: called, from any thread, with each partition whose problem is new.
        :return: the result of each partition, sorted, and a row about groups if there is anything to say.
            Look for ``problem``, ``gaps`` and ``truncated``. The backup is complete only if no row has a
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
        of a new topic. Offsets of groups for adopted partitions go into the broker's ``__consumer_offsets``,
        where the group has none. Interrupted, this can run again.

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
            several(topics or ()),
            exclude=several(exclude or ()),
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

        settings = RestoreSettings() if settings is None else settings
        check_kind(target, Kafka, 'kafka.logs.restore(connect("host:9092"))')
        check_kind(settings, RestoreSettings, 'RestoreSettings(topics=("orders",))')
        work = Restore(
            self._kafka.source_options,
            write_options(target.options),
            place_options(target.options),
            settings,
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

        check_partitions(partitions)
        mode = RepairMode(execute=execute, salvage=salvage, discard=discard)
        return repair(self.root(MEND), partitions, mode, progress=progress)

    def retain(
        self,
        topics: Collection[str] | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        exclude: Collection[str] | None = None,
        delete_policy: str | None = None,
        execute: bool = False,
        progress: Callable[[], None] = lambda: None,
    ) -> list[DeletedRecords]:
        """Delete the segments of a log directory that are due, and return what each partition loses.

        A partition whose folder or files can't be used loses nothing, and the ``note`` of its row says why.

        :param topics: None for all.
        :param configs: ``retention.ms``, ``retention.bytes`` and ``cleanup.policy``, which take precedence
            over what the directory says of its topics. What neither says is kept for ever.
        :param exclude: which topics to leave out: see :class:`.Selection`.
        :param delete_policy: the import path of a function that names segments, too, as the option
            ``deletePolicy`` of a write, or what :func:`.by_value` makes of one.
        :param execute: whether to do it; else nothing is changed.
        :param progress: called after each partition that has lost something.
        :raises OptionError: for brokers, for invalid configurations, and if the policy can't be imported.
        :raises LogDirectoryLockedError: if a broker or another writer holds the directory.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        from pyspark_kafkalog.tools.care.retain import retain

        if delete_policy is not None:
            check_kind(delete_policy, str, 'delete_policy="package.module:function", or by_value(function)')
        return retain(
            self._kafka.place_options,
            several_or_none(topics),
            configs or {},
            exclude=several(exclude or ()),
            delete_policy=delete_policy,
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

        check_offsets(offsets, Integral, "5000")
        return delete_records(self._kafka.place_options, offsets, execute=execute)

    def forget_queries(self, older_than_ms: int, *, execute: bool = False) -> list[ForgottenQuery]:
        """Remove the ledgers of queries, and of jobs with numbers of their own, that are gone from a log
        directory, and return these.

        A ledger says what its query has published. Without it, a query that comes back with its old
        checkpoint is refused: nothing is written twice unnoticed.

        :param older_than_ms: how long they have not written: give more than the longest pause of any query of
            yours.
        :param execute: whether to do it; else nothing is changed.
        :raises OptionError: if it is not a local log directory, or the time is negative.
        :raises LogDirectoryLockedError: if a broker or another writer holds the directory.
        """
        from pyspark_kafkalog.tools.care.forget import forget_queries

        check_kind(older_than_ms, Integral, "milliseconds: forget_queries(365 * 86_400_000)")
        return forget_queries(self.root(), older_than_ms, execute=execute)

    def offsets_before(
        self, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """The offset for :meth:`delete_records`: of the first record since ``timestamp`` (ms), or the end.

        The end is the end now: records that are appended later don't count.

        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        from pyspark_kafkalog.read.times import offsets_at

        check_partitions(partitions)
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
        :raises OversizedRecordError: at a record of more than ``maxRecordBytes``; likewise.
        """
        from pyspark_kafkalog.tools.care.compact import compact

        return compact(
            self._kafka.place_options,
            several(topics or ()),
            exclude=several(exclude or ()),
            execute=execute,
            configs=configs or {},
            any_policy=any_policy,
            dedupe_buffer_size=dedupe_buffer_size,
            lock_timeout=lock_timeout,
            progress=progress,
        )


def _folder_to_write(place: str) -> str:
    """The path of a log directory on this machine, which may not be there yet."""
    if "path" not in options_of(place):
        hint, to_brokers = "Give one on this machine, such as /data/backup.", names_brokers(place)
        raise OptionError(
            f"Expected a folder to write to, got {'brokers' if to_brokers else 'ZooKeeper'}",
            hint=f"{hint} Brokers are written to by kafkalog restore." if to_brokers else hint,
        )
    return local_root(place)
