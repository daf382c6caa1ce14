"""A log root whose partitions follow those of another place: a backup.

While it is open, ``.kafka_cleanshutdown`` is gone. It comes back when every partition is closed so that a
broker can start without recovery: on disk, with a producer snapshot at its end. What is wrong with one
partition hinders none of the others.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import disk_errors, replace, sync_folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.backup_file import BackupFile, Complete, read_backup_file, write_backup_file
from pyspark_kafkalog.log.checkpoints import read_offsets, write_offsets
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_CHECKPOINT,
    parse_partition_folder,
)
from pyspark_kafkalog.log.lock import (
    directory_lock,
    locked_partitions,
    partition_lock,
    partition_lock_file,
)
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.renewal import finish, new_folder, remove_leftovers
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.log.topic_configs import read_topic_configs, write_topic_configs
from pyspark_kafkalog.model import LogSettings, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copies.log import BackupLog, has_batches
from pyspark_kafkalog.tools.backup.copies.opening import lost_start, open_log, topic_id_in
from pyspark_kafkalog.tools.backup.copies.truncation import cut_unflushed, truncate

_LOCK_TIMEOUT = 10.0
_START_OVER = "Bring its files back, or start the copy over: move the partition's folder away."


class BackupDirectory:
    """The partitions of a log root, for appends of batches that have their offsets.

    Threads may work on different partitions at the same time. An append opens a log's files, and its caller
    closes them.
    """

    def __init__(self, root: str, progress: Callable[[], None], *, was_clean: bool) -> None:
        self.root = root
        self.was_clean = was_clean
        """Whether all was closed cleanly when the directory was opened."""
        self._folder = open_folder(root)
        self._progress = progress
        self._guard = threading.Lock()
        self._logs: dict[TopicPartition, BackupLog] = {}
        self._unclean: set[TopicPartition] = set()
        """Partitions to recover, although the directory was clean."""
        self._closed: set[TopicPartition] = set()
        """Partitions that tasks have closed cleanly."""
        self.broken: dict[TopicPartition, KafkaLogError] = {}
        """Partitions that are not to be opened, and why."""
        self.is_closed = False
        """Whether :meth:`close` was called."""
        self._recovery_points = read_offsets(root, RECOVERY_POINT_CHECKPOINT)
        self._starts = read_offsets(root, LOG_START_OFFSET_CHECKPOINT)
        self._file = read_backup_file(self._folder)

    # What is here

    @property
    def is_backup(self) -> bool:
        """Whether the directory is known to be a backup."""
        return self._file is not None

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that it is a backup of, if that is known."""
        return None if self._file is None else self._file.cluster_id

    def set_cluster_id(self, cluster_id: str | None) -> None:
        """Note of which cluster this is the backup."""
        with self._guard:
            self._change_file(cluster_id=cluster_id)

    def gaps(self, partition: TopicPartition) -> tuple[OffsetRange, ...]:
        """The ranges of offsets that were gone before they could be copied, in order."""
        return () if self._file is None else tuple(self._file.gaps.get(partition, ()))

    def add_gap(self, partition: TopicPartition, gap: OffsetRange, begin: int) -> None:
        """Note that a range could not be copied, and let the partition's log go on behind it.

        One that begins at the same offset is replaced. Transactions that are open there end as aborted, if
        there are offsets of which no batch is left.

        :param begin: the base offset of the next batch: before the gap's end, if that lies in the batch.
        :raises DataLossError: if there are more of them than offsets; nothing has changed then.
        """
        log = self._logs[partition]
        log.check_skip(begin)
        with self._guard:
            others = [known for known in self.gaps(partition) if known.start != gap.start]
            self._change_file(  # first of all: what is not on disk is not acted upon
                gaps={**self._known.gaps, partition: sorted([*others, gap])},
                next_batches={**self._known.next_batches, partition: begin},
            )
        self._pass_gaps(log)

    def _pass_gaps(self, log: BackupLog) -> None:
        """Go on behind a gap at the end of the log, which has at most markers to show for it."""
        for gap in self.gaps(log.partition):
            if gap.start <= log.next_offset < gap.end:
                log.skip_to(gap.end, min(gap.end, self._known.next_batches.get(log.partition, gap.end)))

    def _forget_gaps(self, partition: TopicPartition, offset: int) -> None:
        """Forget those from ``offset`` on, where another history begins."""
        with self._guard:
            known = self.gaps(partition)
            retained = [gap for gap in known if gap.start < offset]
            if len(retained) < len(known):
                next_batches = {p: base for p, base in self._known.next_batches.items() if p != partition}
                gaps = {**self._known.gaps, partition: retained}
                self._change_file(gaps=gaps, next_batches=next_batches)

    @property
    def _known(self) -> BackupFile:
        return self._file or BackupFile()

    def _change_file(self, **fields: Any) -> None:
        file = dataclasses.replace(self._known, **fields)
        write_backup_file(self.root, file)
        self._file = file

    def complete(self, partition: TopicPartition) -> Complete | None:
        """The time at which the copy was last complete, and up to which offset; None if never stored."""
        return self._known.complete.get(partition)

    def set_complete(self, found: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Store when copies were complete (ms), and up to where."""
        completed = {partition: Complete(*entry) for partition, entry in found.items()}
        with self._guard:
            if completed.items() - self._known.complete.items():
                self._change_file(complete={**self._known.complete, **completed})

    def partitions(self) -> set[TopicPartition]:
        """The partitions that are here, also those that nothing was appended to."""
        return LogRoot(self._folder).partitions()

    def topic_id(self, partition: TopicPartition) -> str | None:
        """The id of the partition's topic, empty if it has none; None if the partition is not here."""
        return topic_id_in(self._folder, partition)

    def is_empty(self, partition: TopicPartition) -> bool:
        """Whether no record of the partition is here."""
        return not has_batches(os.path.join(self.root, str(partition)))

    def log_start_offset(self, partition: TopicPartition) -> int:
        """The first offset of a partition, as far as the checkpoint says."""
        return self._starts.get(partition, 0)

    def log_end_offset(self, partition: TopicPartition) -> int:
        """The end of a partition, as far as it was flushed."""
        return self._recovery_points.get(partition, 0)

    def topic_configs(self) -> dict[str, dict[str, str]]:
        """The configurations of each topic that has some."""
        return read_topic_configs(self._folder)

    def set_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all configurations."""
        if configs != self.topic_configs():
            write_topic_configs(self.root, configs)

    # Its logs

    def open(
        self, partition: TopicPartition, settings: LogSettings, *, start: int, topic_id: str
    ) -> BackupLog:
        """The log of a partition: the same object at each call, unless it is empty and ``start`` differs.

        :param start: the first offset, if the partition is new or has no records.
        :param topic_id: its topic's id, which a log without records gets if it has none; empty if it is not
            known.
        :raises LogDirectoryError: if it is damaged, or if it has records but no topic id, although that is
            known.
        """
        log = self._logs.get(partition)
        if log is None or (log.is_empty and log.next_offset != start):
            if self.is_empty(partition):
                self._check_nothing_is_lost(partition)
                self.set_log_start_offset(partition, start)
            was_clean = self.was_clean and partition not in self._unclean
            with nullcontext() if was_clean else self._cutting_unflushed(partition):
                log = open_log(
                    self.root,
                    partition,
                    settings,
                    start=self.log_start_offset(partition),
                    topic_id=topic_id,
                    recovery_point=self.log_end_offset(partition),
                    was_clean=was_clean,
                )
            if log.next_offset > self.log_end_offset(partition) and was_clean:
                self.flushed(partition, log.next_offset)  # a writer that notes no ends has been there
            self._forget_written(partition, log.batches_end)
            self._pass_gaps(log)
            known = self.complete(partition)
            if known is not None and known.offset > log.next_offset:  # what was there may be compacted by now
                self.set_complete({partition: (0, log.next_offset)})
            with self._guard:
                self._logs[partition] = log
        return log

    def _check_nothing_is_lost(self, partition: TopicPartition) -> None:
        """See that a partition without records never had any, or knows that they are gone."""
        folder, known = os.path.join(self.root, str(partition)), self.log_start_offset(partition)
        known = max([known, *(gap.end for gap in self.gaps(partition))])
        if os.path.lexists(folder) and known < self.log_end_offset(partition):
            offsets = OffsetRange(known, self.log_end_offset(partition))
            raise lost_start(folder, partition, offsets, _START_OVER)

    def set_log_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """Store where a partition begins; it is on disk before records are.

        If the partition's folder is missing, the gaps and the end of an older one are forgotten.
        """
        if not os.path.lexists(os.path.join(self.root, str(partition))):
            self._forget_gaps(partition, 0)
            self._forget_written(partition, 0)
            self._forget_end(partition)
        elif offset < self.log_start_offset(partition):  # or records would seem to be missing there
            self._forget_end(partition)
        with self._guard:
            if self._starts.get(partition, 0) != offset:
                starts = {**self._starts, partition: offset}
                self._write_checkpoint(LOG_START_OFFSET_CHECKPOINT, starts)
                self._starts = starts

    def written_from(self, partition: TopicPartition) -> int | None:
        """The offset from which on the copy may have rows that its source never had; None if it has none."""
        return None if self._file is None else self._file.written.get(partition)

    def _forget_written(self, partition: TopicPartition, end: int) -> None:
        """Forget rows of others that begin at ``end`` or later: they never came, or are cut off."""
        with self._guard:
            known = self.written_from(partition)
            if known is not None and known >= end:
                self._change_file(written={p: at for p, at in self._known.written.items() if p != partition})

    def _forget_end(self, partition: TopicPartition) -> None:
        with self._guard:
            known = self._recovery_points.pop(partition, None)
        if known is not None:
            self.checkpoint()

    def truncate(self, partition: TopicPartition, settings: LogSettings, offset: int) -> BackupLog:
        """Cut a log back so that nothing at ``offset`` or later is left; its new state.

        What is cut is kept beside it. A gap in which the offset is goes as a whole: the source may have
        other records there now.
        """
        offset = next((gap.start for gap in self.gaps(partition) if gap.start < offset < gap.end), offset)
        known = self.complete(partition)
        self.discard(partition)
        self._recovery_points[partition] = min(self.log_end_offset(partition), offset)
        self.checkpoint()  # or the end would seem to be lost
        with self._cutting_unflushed(partition):
            truncate(os.path.join(self.root, str(partition)), offset, why="the source no longer has it")
        self.set_log_start_offset(partition, min(self.log_start_offset(partition), offset))
        self._forget_gaps(partition, offset)
        log = self.open(partition, settings, start=offset, topic_id="")
        if known is not None and known.offset > log.next_offset:  # the source's other records are newer
            self.set_complete({partition: (known.time, log.next_offset)})
        self.flushed(partition, log.next_offset)
        return log

    def begin_anew(
        self, partition: TopicPartition, settings: LogSettings, *, start: int, topic_id: str
    ) -> BackupLog:
        """The log of a new copy, which :meth:`exchange` puts in the place of the old one."""
        remove_leftovers(self.root, partition)
        return BackupLog.create(new_folder(self.root, partition), partition, settings, start, topic_id)

    def exchange(self, partition: TopicPartition, log: BackupLog, start: int, time: int) -> None:
        """Replace a partition's copy by the new one, which begins at ``start``; begun at ``time`` (ms)."""
        log.close()
        self.discard(partition)
        with self._guard:
            retained = self._known.without({partition})
            self._change_file(
                gaps=retained.gaps,
                next_batches=retained.next_batches,
                written=retained.written,
                complete={**retained.complete, partition: Complete(time, start)},
                renewed={**retained.renewed, partition: start},
            )
            self._recovery_points.pop(partition, None)
            self._file = finish(self.root)
            self._starts = read_offsets(self.root, LOG_START_OFFSET_CHECKPOINT)
        self.flushed(partition, log.next_offset)

    def remove_empty(self, partition: TopicPartition) -> None:
        """Remove a log without records."""
        self._logs.pop(partition, None)
        self._unclean.discard(partition)
        shutil.rmtree(os.path.join(self.root, str(partition)))

    def discard(self, partition: TopicPartition) -> None:
        """Forget a log whose state is not certain: the next :meth:`open` recovers it.

        If a write or a flush of it has failed, what was not flushed is cut off.
        """
        self._unclean.add(partition)
        log = self._logs.pop(partition, None)
        if log is not None:
            with suppress(OSError):  # noted by the log
                log.close(cleanly=False)
            if log.has_failed:
                self._cut_unflushed(partition)

    def _cut_unflushed(self, partition: TopicPartition) -> None:
        """Cut off what may not be on disk; if that fails, the partition is broken."""
        try:
            with self.disk_errors(partition):
                cut_unflushed(os.path.join(self.root, str(partition)), self.log_end_offset(partition))
        except KafkaLogError as e:
            self.broken[partition] = e

    @contextmanager
    def _cutting_unflushed(self, partition: TopicPartition) -> Iterator[None]:
        """A context in which an error of the disk cuts off what an earlier run has not flushed."""
        try:
            yield
        except OSError as e:
            if e.errno == errno.EIO:
                self._cut_unflushed(partition)
            raise

    def disk_errors(self, partition: TopicPartition) -> AbstractContextManager[None]:
        """A context in which errors of the system are LogDirectoryErrors that name the partition's files."""
        return disk_errors("Could not write the backup", os.path.join(self.root, str(partition)))

    def flushed(self, partition: TopicPartition, offset: int) -> None:
        """Note that all below ``offset`` is on disk."""
        with self._guard:
            self._recovery_points[partition] = offset
        self._progress()

    def checkpoint(self) -> None:
        """Write down how far each log is on disk."""
        with self._guard:
            for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
                self._write_checkpoint(name, self._recovery_points)

    def closed(self, partition: TopicPartition, offset: int) -> None:
        """Note that a task has closed the partition cleanly, which ends at ``offset``."""
        self._closed.add(partition)
        self.flushed(partition, offset)

    def close(self) -> dict[TopicPartition, KafkaLogError]:
        """Close all logs; if none fails, a broker can start on the directory without recovery.

        :return: the partitions that can't be closed cleanly, and why; opening the directory the next time
            then recovers all.
        """
        self.is_closed = True
        failures = dict(self.broken)
        doubtful = self._unclean if self.was_clean else self.partitions()
        unfinished = self._logs.keys() | (doubtful - self._closed) | _task_locks(self.root)
        for partition in sorted(unfinished - failures.keys()):
            try:
                with self.disk_errors(partition):
                    self._close(partition)
            except KafkaLogError as e:
                self.discard(partition)
                failures[partition] = e
        self.checkpoint()
        if not failures:
            replace(os.path.join(self.root, CLEAN_SHUTDOWN_FILE), CLEAN_SHUTDOWN)
        return failures

    def _close(self, partition: TopicPartition) -> None:
        if partition in self._logs:
            self._close_log(partition)
            return
        with partition_lock(self.root, str(partition), _LOCK_TIMEOUT):
            try:
                if partition not in self._closed:
                    self._unclean.add(partition)  # a task may have been killed
                    self.open(partition, LogSettings(), start=self.log_start_offset(partition), topic_id="")
                    self._close_log(partition)
            finally:
                os.unlink(partition_lock_file(self.root, str(partition)))

    def _close_log(self, partition: TopicPartition) -> None:
        log = self._logs[partition]
        log.close()
        self.flushed(partition, log.next_offset)

    def abandon(self) -> None:
        """Close the files, if they are open; the next one to open the directory recovers those."""
        for log in self._logs.values():
            log.close(cleanly=False)

    def _write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        shown = {partition: offsets[partition] for partition in sorted(offsets)}
        if name == LOG_START_OFFSET_CHECKPOINT:
            shown = {partition: start for partition, start in shown.items() if start > 0}
        write_offsets(self.root, name, shown)


def check_backup(root: str) -> None:
    """:raises LogDirectoryError: if the root is a broker's own, or no log directory."""
    if os.path.exists(os.path.join(root, META_PROPERTIES_FILE)):
        raise LogDirectoryError(
            "The directory belongs to a broker",
            file=os.path.join(root, META_PROPERTIES_FILE),
            hint="Give another one: a backup has the topic ids of its cluster, not of this one.",
        )
    LogRoot(open_folder(root)).check()


@contextmanager
def open_backup(root: str) -> Iterator[BackupDirectory]:
    """Hold a log root, which is made if it does not exist, and close it cleanly if nothing fails.

    Opening a partition raises its error, and :meth:`BackupDirectory.close` returns those of all; if it is
    not called, an error is raised at the end.

    :raises LogDirectoryLockedError: if a broker or a writer holds it.
    :raises LogDirectoryError: if it is a broker's own, is damaged, or can't be written to.
    """
    with disk_errors("Could not write the backup", root):
        os.makedirs(root, exist_ok=True)
        with directory_lock(root, _LOCK_TIMEOUT) as progress:
            check_backup(root)
            journal.recover(root)
            path = os.path.join(root, CLEAN_SHUTDOWN_FILE)
            was_clean = os.path.exists(path)
            directory = BackupDirectory(root, progress, was_clean=was_clean)
            for partition in directory.partitions():
                remove_leftovers(root, partition)
                try:
                    with directory.disk_errors(partition):
                        open_folder(root).check_inside(str(partition))
                        clear_leftovers(os.path.join(root, str(partition)))
                except KafkaLogError as e:
                    directory.broken[partition] = e
            if was_clean:
                os.unlink(path)
                sync_folder(root)
            try:
                try:
                    yield directory
                except (KafkaLogError, KeyboardInterrupt) as e:
                    if not isinstance(e, LogDirectoryError):
                        directory.close()
                    raise
                for error in () if directory.is_closed else directory.close().values():
                    raise error
            finally:
                directory.abandon()


def _task_locks(root: str) -> set[TopicPartition]:
    """The partitions with a lock file of a task, whether it is held or not."""
    found = map(parse_partition_folder, locked_partitions(root))
    return {partition for partition in found if partition is not None}
