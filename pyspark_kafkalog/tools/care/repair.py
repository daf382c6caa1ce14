"""Repairs a log directory, as a broker's start after a crash does; see :mod:`.partition_repair`.

Afterwards a broker starts on it without a recovery: the recovery points are the ends of the logs, which are
on disk, there are producer snapshots, and ``.kafka_cleanshutdown`` says that all this can be trusted. It is
not there while files change, and comes back only if the whole directory is known to be sound.

Sources: Kafka's ``LogManager.loadLogs``, ``CleanShutdownFileHandler``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from pyspark_kafkalog.errors import (
    KafkaLogError,
    LogDirectoryError,
    OptionError,
    no_such_partition,
)
from pyspark_kafkalog.filesystem.durable import disk_errors, replace, sync_folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_FILE,
    JOURNAL_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    format_offset_checkpoint,
    is_unused_folder,
    may_be_there,
    parse_offset_checkpoint,
)
from pyspark_kafkalog.log.lock import CHECK_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.log.segment.recovery import offsets_of
from pyspark_kafkalog.log.segment.steps import RepairStep
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import LogSettings, TopicPartition
from pyspark_kafkalog.options.user_options import partitions_like
from pyspark_kafkalog.tools.care.partition_repair import PartitionRepair, RepairedPartition, RepairMode

_INDEX_INTERVAL = "index.interval.bytes"
_LOOK = RepairMode()


@dataclass(frozen=True, slots=True)
class RepairedDirectory:
    """A log directory after its repair, or as it would be.

    ``steps`` concern the directory itself. ``clean_shutdown`` says whether a broker starts on it without a
    recovery; always False for a dry run.
    """

    path: str
    partitions: tuple[RepairedPartition, ...]
    steps: tuple[RepairStep, ...]
    clean_shutdown: bool

    @property
    def is_sound(self) -> bool:
        """Whether a repair mends all damage."""
        return all(partition.is_sound for partition in self.partitions)


def repair(
    path: str,
    partitions: Collection[TopicPartition] | None = None,
    mode: RepairMode = _LOOK,
    *,
    progress: Callable[[int], None] = lambda size: None,
) -> RepairedDirectory:
    """Repair a log directory, or only say what that would do.

    If it is killed, it can be run again, and comes to the same result.

    :param path: a log root.
    :param partitions: those to repair; None for all.
    :param progress: called with the number of bytes that were read.
    :raises LogDirectoryLockedError: if a broker or a writer holds the directory.
    :raises LogDirectoryError: if there is no such directory, or a publish can't be undone.
    :raises OptionError: if it is not a local folder.
    :raises UnknownTopicOrPartitionError: if one of ``partitions`` is not there.
    """
    folder = open_folder(path)
    if not folder.is_local:
        raise OptionError(
            f"Expected a folder on a disk or a mount of this machine, got {folder.label()}. "
            "Copy it to a disk to repair it."
        )
    root = open_root(path)
    if root.folder.path != folder.path:
        raise OptionError(
            f"Expected a log directory, got the folder of a partition, {path}. Give the folder above, "
            f"{root.folder.path}, and name the partition, {folder.name}."
        )
    if missing := set(partitions or ()) - (existing := root.live_partitions()):
        hint = partitions_like(missing, existing)
        raise no_such_partition(missing, hint=hint, file=root.folder.label())
    with disk_errors("Could not repair", root.folder.path), _locked(root.folder.path, mode) as alive:

        def read(size: int) -> None:
            alive()
            progress(size)

        return _Repair(root, mode, read).run(partitions)


@contextmanager
def _locked(root: str, mode: RepairMode) -> Iterator[Callable[[], None]]:
    """Hold the directory. A dry run creates no lock files, and does not lock where this user can't write."""
    if mode.execute or os.access(root, os.W_OK):
        with directory_lock(root, CHECK_SECONDS, create=mode.execute) as alive:
            yield alive
    else:
        yield lambda: None


class _Repair:
    """The repair of one log root."""

    def __init__(self, root: LogRoot, mode: RepairMode, progress: Callable[[int], None]) -> None:
        self._root = root
        self._folder = root.folder
        self._mode = mode
        self._progress = progress
        self._steps: list[RepairStep] = []

    def run(self, partitions: Collection[TopicPartition] | None) -> RepairedDirectory:
        self._undo_publish()
        created = {partition for partition, end in self._root.unpublished().items() if end is None}
        before = self._take_clean_shutdown()
        self._mention_unused()
        misplaced = self._root.misplaced()
        for name, why in misplaced.items():
            self._steps.append(RepairStep("skip", self._folder.label(name), f"it {why}"))
        checkpoints = {name: self._checkpoint(name) for name in OFFSET_CHECKPOINTS}
        starts = checkpoints[LOG_START_OFFSET_CHECKPOINT]
        configs = read_topic_configs(self._folder)
        repaired = []
        if partitions is None:  # a log in a folder of something else would hide it
            live = self._root.live_partitions() - created
            partitions_to_repair = {each for each in live if str(each) not in misplaced}
        else:
            partitions_to_repair = set(partitions)
        for partition in sorted(partitions_to_repair):
            interval = configs.get(partition.topic, {}).get(_INDEX_INTERVAL, "")
            repaired.append(self._repair(partition, starts.get(partition, 0), interval))
        is_clean = self._mode.execute and all(partition.is_sound for partition in repaired)
        if self._mode.execute:
            self._write_recovery_points(checkpoints[RECOVERY_POINT_CHECKPOINT], repaired)
        is_clean = is_clean and (partitions is None or before is not None)
        if is_clean:
            # The broker's epoch in it says that the broker has lost nothing.
            is_cut = any(partition.cut_bytes for partition in repaired)
            self._replace(CLEAN_SHUTDOWN_FILE, CLEAN_SHUTDOWN if before is None or is_cut else before)
        starts_broker = is_clean and all(map(may_be_there, misplaced))
        return RepairedDirectory(self._folder.path, tuple(repaired), tuple(self._steps), starts_broker)

    def _repair(self, partition: TopicPartition, log_start_offset: int, interval: str) -> RepairedPartition:
        folder = self._folder.child(str(partition))
        bytes_between = int(interval) if interval.isdecimal() else LogSettings().index_interval_bytes
        try:
            folder = self._root.find_live(partition) or folder
            with disk_errors("Could not repair the partition", folder.path):
                found = PartitionRepair(
                    folder, partition, log_start_offset, self._mode, bytes_between, self._progress
                ).run()
                return self._without_lost_end(partition, found)
        except KafkaLogError as e:
            step = RepairStep("leave", e.file or folder.path, str(e))
            return RepairedPartition(*partition, log_start_offset, log_start_offset, 0, 0, (step,))

    def _without_lost_end(self, partition: TopicPartition, found: RepairedPartition) -> RepairedPartition:
        """The repair with a step that names the offsets that a backup gives up: no segment has them."""
        behind = found.log_end_offset if found.dropped is None else found.dropped.end
        lost = self._root.lost_end(partition, lambda: behind)
        if lost is None:
            return found
        count = lost.end - lost.start
        why = (
            f"offsets {lost.start} to {lost.end - 1} ({count} of them) were on disk in this backup,"
            " and are gone. The next backup copies again what its source still has of them"
        )
        step = RepairStep("forget", self._folder.label(str(partition)), why, offset=lost.start)
        return replace_fields(found, steps=(*found.steps, step))

    def _undo_publish(self) -> None:
        path = self._folder.label(JOURNAL_FILE)
        if os.path.exists(path):
            self._steps.append(RepairStep("undo", path, "a publish was interrupted"))
        if self._mode.execute:
            journal.recover(self._folder.path)

    def _take_clean_shutdown(self) -> bytes | None:
        """Remove ``.kafka_cleanshutdown`` before anything changes, and return what it held."""
        before = self._folder.read(CLEAN_SHUTDOWN_FILE)
        if before is not None and self._mode.execute:
            os.unlink(self._folder.label(CLEAN_SHUTDOWN_FILE))
            sync_folder(self._folder.path)
        return before

    def _mention_unused(self) -> None:
        for name in sorted(self._folder.names()):
            if is_unused_folder(name) and "." in name:
                self._steps.append(
                    RepairStep(
                        "skip", self._folder.label(name), "a broker deletes it, moves it or found it stray"
                    )
                )

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint of the root; for one that is malformed a broker begins with an empty one, or fails."""
        path = self._folder.label(name)
        try:
            return parse_offset_checkpoint(self._folder.read(name) or b"", path)
        except LogDirectoryError as e:
            self._steps.append(RepairStep("rebuild", path, e.message))
            found = self._known_starts() if name == LOG_START_OFFSET_CHECKPOINT else {}
            if self._mode.execute:
                self._replace(name, format_offset_checkpoint(found))
            return found

    def _known_starts(self) -> dict[TopicPartition, int]:
        """A backup has to know where its partitions begin: if that was lost, with their segments."""
        partitions = sorted(filter(self._root.knows_start_of, self._root.partitions()))
        bases = {p: offsets_of(self._folder.label(str(p)), LOG_SUFFIX) for p in partitions}
        return {partition: found[0] for partition, found in bases.items() if found and found[0]}

    def _write_recovery_points(
        self, before: Mapping[TopicPartition, int], repaired: Collection[RepairedPartition]
    ) -> None:
        ends = {
            TopicPartition(partition.topic, partition.partition): partition.log_end_offset
            for partition in repaired
            if partition.is_sound
        }
        if {**before, **ends} != before:
            self._replace(RECOVERY_POINT_CHECKPOINT, format_offset_checkpoint({**before, **ends}))

    def _replace(self, name: str, data: bytes) -> None:
        replace(self._folder.label(name), data)
