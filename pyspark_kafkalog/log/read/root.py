"""One log root (an entry of Kafka's ``log.dirs``): its partitions, and its own files about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.folder import Entry, Folder
from pyspark_kafkalog.filesystem.locate import no_such_directory, open_folder
from pyspark_kafkalog.log.backup_file import BackupFile, read_backup_file
from pyspark_kafkalog.log.layout import (
    BACKUP_FILE,
    JOURNAL_FILE,
    JOURNAL_SEPARATOR,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    OF_FILE_SYSTEMS,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_CHECKPOINT,
    is_beside_partitions,
    may_be_there,
    new_copy,
    parse_offset_checkpoint,
    parse_partition_folder,
    parse_segment_file,
)
from pyspark_kafkalog.log.read.listings import Listings, was_at_rest
from pyspark_kafkalog.log.segment.missing import behind_gaps
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC

_LOOKED_INTO = 50
"""The most subfolders that are searched for partitions if the folder itself isn't a root."""
_NAMED = 3


class _Listing(NamedTuple):
    """The partitions of a root that was at rest, as listed at a time."""

    partitions: set[TopicPartition]
    changed: tuple[int, ...] | None
    at: float
    """Seconds of the monotonic clock."""


class LogRoot:
    """A folder of partitions; or one partition's folder, as a root that shows no other.

    :param folder: the root.
    :param only: the partition to show and its folder; None for all.
    """

    def __init__(self, folder: Folder, only: tuple[TopicPartition, Folder] | None = None) -> None:
        self.folder = folder
        self._only = only
        self._checkpoints: dict[str, tuple[Entry, dict[TopicPartition, int]]] = {}
        self._backup: bool | None = None
        self._known_backup: tuple[Entry, BackupFile | None] | None = None
        self._looked: Entry | None = None
        self._looked_at_backup: Entry | None = None
        self._listing: _Listing | None = None
        self.listings = Listings()
        """The listings of the root and of its partitions' folders."""

    def check(self) -> None:
        """See that this is a log root; an empty folder is one with no partition yet.

        :raises LogDirectoryError: if it holds something else, or is gone.
        """
        if self._only is not None:
            return
        try:
            names = {*self.folder.names()}
        except FileNotFoundError:
            raise no_such_directory(self.folder) from None
        if _is_partition(names):
            if parse_partition_folder(self.folder.name) is not None:
                raise LogDirectoryError(
                    "The folder is a partition's, not a log directory",
                    file=self.folder.label(),
                    hint="Give the folder above it.",
                )
            raise LogDirectoryError(
                "The folder holds segments but is not named after a partition",
                file=self.folder.label(),
                hint="Rename it to <topic>-<partition>, such as orders-0; to write, give the folder above.",
            )
        if names <= OF_FILE_SYSTEMS or any(map(is_beside_partitions, names)):
            return
        folders = [name for name, entry in self.folder.list().items() if entry.type == fs.FileType.Directory]
        if not any(parse_partition_folder(name) and self._may_be_partition(name) for name in folders):
            below = [name for name in sorted(folders)[:_LOOKED_INTO] if self._has_partitions(name)]
            raise LogDirectoryError(
                f"The folder holds no partitions, but {', '.join(sorted(names)[:_NAMED])}",
                file=self.folder.label(),
                hint=f"Partitions are below it: give {' or '.join(map(self.folder.label, below[:_NAMED]))}."
                if below
                else "Give a folder of Kafka's log.dirs, with <topic>-<partition> folders, or one of these;"
                " to write, an empty or a new folder does, too.",
            )

    def _may_be_partition(self, name: str) -> bool:
        """Whether the folder ``name``, which is named like a partition, holds nothing else."""
        names = self._names_in(name)
        return not names or _is_partition(names) or any(map(parse_segment_file, names))

    def _has_partitions(self, name: str) -> bool:
        return any(parse_partition_folder(below) is not None for below in self._names_in(name))

    def _names_in(self, name: str) -> Collection[str]:
        """The names in a folder of this one; none if it can't be read."""
        try:
            return [*self.folder.child(name).names()]
        except (OSError, LogDirectoryError):
            return []

    def partitions(self) -> set[TopicPartition]:
        """The partitions whose live data is here, and links out of the root, which :meth:`find` refuses."""
        if self._only is not None:
            return {self._only[0]}
        changed = self.changed()
        known = self._listing
        if known is not None and known.changed == changed and self.listings.is_believed(known.at):
            return set(known.partitions)
        started, started_ns = time.monotonic(), time.time_ns()
        found = set()
        for name, entry in self.folder.list(parse_partition_folder).items():
            partition = parse_partition_folder(name)
            if partition is not None and entry.type == fs.FileType.Directory:
                found.add(partition)
        now = time.monotonic()
        self.listings.made(None, now - started)
        self._listing = _Listing(found, changed, now) if was_at_rest(changed, started_ns) else None
        return set(found)

    def misplaced(self) -> dict[str, str]:
        """The folders that have no place in a log directory, by name, and what is wrong with each."""
        if self._only is not None:
            return {}
        found = {}
        created = [partition for partition, end in self.unpublished().items() if end is None]
        for name, entry in sorted(self.folder.list().items()):
            if entry.type != fs.FileType.Directory:
                continue
            partition = parse_partition_folder(name)
            if not may_be_there(name):
                found[name] = "is not TOPIC-PARTITION: a broker will not start here"
            elif partition is not None and partition not in created and not self._has_kafkas_files(name):
                found[name] = "has no file of Kafka, and yet readers and brokers take it for a partition"
        return found

    def _has_kafkas_files(self, name: str) -> bool:
        """Whether a folder holds any file of a partition, or can't be looked into."""
        try:
            names = [*self.folder.child(name).names()]
        except (OSError, LogDirectoryError):
            return True
        return _is_partition(names) or any(map(parse_segment_file, names))

    def find(self, partition: TopicPartition) -> Folder | None:
        """The folder with the partition's live data, if it is here.

        :raises LogDirectoryError: if it is a link that leads out of the root; if it is what the user has
            named, and gone.
        """
        if self._only is not None:
            only, folder = self._only
            if partition == only and not folder.exists():
                raise no_such_directory(folder)
            return folder if partition == only else None
        name = str(partition)
        if parse_partition_folder(name) != partition:
            return None
        return self._child(name)

    def live_partitions(self) -> set[TopicPartition]:
        """The :meth:`partitions`, and those whose new copies are not in their places yet."""
        return self.partitions() | {partition for partition in self.renewed() if self._copy(partition)}

    def find_live(self, partition: TopicPartition) -> Folder | None:
        """The partition's folder, as :meth:`find`; a backup's new copy, if it is not in its place yet."""
        copy = self._copy(partition) if partition in self.renewed() else None
        return copy or self.find(partition)

    def _copy(self, partition: TopicPartition) -> Folder | None:
        return self._child(new_copy(partition))

    def _child(self, name: str) -> Folder | None:
        """A folder in the root, if it is there; a link may only lead to another place in the root."""
        if self.folder.look(name).type != fs.FileType.Directory:
            return None
        self.folder.check_inside(name)
        return self.folder.child(name)

    def renewed(self) -> Mapping[TopicPartition, int]:
        """The log start offsets of the partitions whose new copies count by now; see :mod:`.backup_file`."""
        if self._only is not None or not self._is_backup():
            return {}
        file = self._backup_file()
        return {} if file is None else file.renewed

    def _backup_file(self) -> BackupFile | None:
        """The content of the backup's file now; it is parsed only when the file has changed."""
        entry = self._looked_at_backup or self.folder.look(BACKUP_FILE)
        if self._known_backup is None or self._known_backup[0] != entry:
            self._known_backup = entry, read_backup_file(self.folder)
        return self._known_backup[1]

    def log_start_offset(self, partition: TopicPartition, first: int = 0) -> int:
        """The log start offset of a partition: ``first``, the base offset of its first segment, or later.

        A backup knows where it began: if that is before ``first``, its first segment is missing.
        """
        renewed_at = self.renewed().get(partition)
        start = renewed_at if renewed_at is not None else self.start_in_checkpoint(partition) or 0
        return start if start >= first or self.knows_start_of(partition) else first

    def knows_start_of(self, partition: TopicPartition) -> bool:
        """Whether the checkpoint says where the partition begins, as in a backup where no broker works."""
        return self._is_backup() and partition.topic != OFFSETS_TOPIC

    def _is_backup(self) -> bool:
        if self._backup is None:
            file = read_backup_file(self.folder)
            is_brokers = self.folder.look(META_PROPERTIES_FILE).type == fs.FileType.File
            self._backup = file is not None and not is_brokers
        return self._backup

    def start_in_checkpoint(self, partition: TopicPartition) -> int | None:
        """The entry of ``log-start-offset-checkpoint`` now; None without one."""
        return self._checkpoint(LOG_START_OFFSET_CHECKPOINT, self._looked).get(partition)

    def lost_end(self, partition: TopicPartition, end: Callable[[], int]) -> OffsetRange | None:
        """The offsets behind the ``end`` of a partition's log that a backup had on disk, and has lost."""
        if not self.knows_start_of(partition):
            return None
        known = self._checkpoint(RECOVERY_POINT_CHECKPOINT).get(partition, 0)  # first: the log may grow
        found = end()
        if found < known:
            found = behind_gaps(self.gaps(partition), found)
        return OffsetRange(found, known) if found < known else None

    def gaps(self, partition: TopicPartition) -> tuple[OffsetRange, ...]:
        """The offsets that a backup could not copy, in order; see :mod:`.backup_file`."""
        file = self._backup_file()
        return () if file is None else tuple(sorted(file.gaps.get(partition, ())))

    def malformed_checkpoints(self) -> Iterator[LogDirectoryError]:
        """The errors of checkpoints of offsets that can't be read; beside some a broker does not start."""
        for name in OFFSET_CHECKPOINTS:
            try:
                self._checkpoint(name)
            except LogDirectoryError as e:
                yield e

    def _checkpoint(self, name: str, entry: Entry | None = None) -> dict[TopicPartition, int]:
        entry = entry or self.folder.look(name)
        known = self._checkpoints.get(name)
        if known is None or known[0] != entry:
            found = parse_offset_checkpoint(self.folder.read(name) or b"", self.folder.label(name))
            self._checkpoints[name] = known = entry, found
        return known[1]

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Keep the log start offsets as they are within the context: one look serves all partitions."""
        self._looked = self.folder.look(LOG_START_OFFSET_CHECKPOINT)
        self._looked_at_backup = self.folder.look(BACKUP_FILE) if self._is_backup() else None
        try:
            yield
        finally:
            self._looked = self._looked_at_backup = None

    def cluster_id(self) -> str | None:
        """The cluster's id in ``meta.properties``; None without one."""
        data = self.folder.read(META_PROPERTIES_FILE) or b""
        lines = data.decode(errors="replace").splitlines()
        return next((line[11:].strip() for line in lines if line.startswith("cluster.id=")), None)

    def changed(self) -> tuple[int, ...] | None:
        """A value that changes when a publish begins or ends; None if the file system has none."""
        try:
            return self.folder.changed()
        except FileNotFoundError:
            return None

    def unpublished(self) -> dict[TopicPartition, int | None]:
        """The ends of partitions before an unfinished publish; None for a partition that it creates.

        Readers must not see what it has appended.
        """
        data = self.folder.read(JOURNAL_FILE, before=JOURNAL_SEPARATOR.encode())
        if data is None:
            return {}
        from pyspark_kafkalog.log.journal_file import MalformedError, parse_ends

        try:
            return parse_ends(data)
        except MalformedError:
            raise LogDirectoryError(
                "Cannot understand the journal of an unfinished write",
                file=self.folder.label(JOURNAL_FILE),
                hint="Write once with the version of the package that left it: this undoes it.",
            ) from None


def open_root(location: str, *, check: bool = True) -> LogRoot:
    """The log root, or the single partition, at a path or URI.

    :param check: whether to check now that it is one, for which the folder is listed. Else that is left to
        :meth:`LogRoot.check`, unless the folder is named after a partition.
    :raises LogDirectoryError: if it is neither.
    """
    folder = open_folder(location)
    partition = parse_partition_folder(folder.name)
    if partition is not None and _is_partition(folder.list()):
        return LogRoot(folder.parent(), (partition, folder))
    root = LogRoot(folder)
    if check:
        root.check()
    return root


def _is_partition(names: Collection[str]) -> bool:
    """Whether a folder with these names in it is a partition's."""
    own = {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA_FILE}
    return any(_is_log(name) for name in names) or not own.isdisjoint(names)


def _is_log(name: str) -> bool:
    parsed = parse_segment_file(name)
    return parsed is not None and parsed[1] == LOG_SUFFIX
