"""Puts the partitions of a backup into a stopped broker's log directory, as its own.

The broker's topics exist and are empty: their folders hold the topic ids that the cluster gave them, and
a broker accepts no others. It gets a copy with three changes:

A new topic's leader epochs begin at 0, and a log's never go back (KIP-101), so those in its batches become
0. No checksum covers them. Each cluster numbers its producers from 0, and a broker or replica that knows
producers of both clusters would take new records for repeated old ones: so producer ids in batches get a bit
that no cluster's ids have. No producer is left to end open transactions, so markers at the end abort them.

Its indexes are written from the batches, as nothing proves the old ones.

A copy is made in a folder named like those that a broker is about to delete, and so removes. Then it is
exchanged for the empty folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from pyspark_kafkalog.codec import write_kernels as kernels
from pyspark_kafkalog.codec.encode import put_checksums
from pyspark_kafkalog.codec.format import LEADER_EPOCH_V2, PRODUCER_ID_V2
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import disk_errors, naming, sync_folder, write_all, write_new
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.checkpoints import read_if_there, read_offsets, write_offsets
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    format_leader_epoch_checkpoint,
    partition_of,
    segment_file,
    set_aside,
)
from pyspark_kafkalog.log.lock import directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.segment.missing import GIVE_UP, behind_gaps, missing_in_backup
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.recovery import (
    Rebuilt,
    begin_segment,
    check_tail,
    offsets_of,
    write_indexes,
)
from pyspark_kafkalog.log.segment.scan import Scan, Stretch, ends_in_zeros
from pyspark_kafkalog.log.segment.snapshots import read_snapshot
from pyspark_kafkalog.log.snapshot import ProducerEntry
from pyspark_kafkalog.model import AbortedTransaction, LogSettings, OffsetRange, TopicPartition
from pyspark_kafkalog.model.rows import BIGINT, INT, STRING, Kind, column
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.user_options import names_like
from pyspark_kafkalog.tools.backup.copies.directory import check_backup, open_backup

_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_LOCK_TIMEOUT = 10.0
_INTERVAL = LogSettings().index_interval_bytes
_OTHER_CLUSTER = 1 << 62
"""Set in the ids of producers of the backup: a cluster counts its own up from 0."""


_HAS_RECORDS = "The broker's partition has records already"


_ABORTED = Kind(
    text=lambda aborted: (
        ", ".join(f"producer {one.producer_id} from {one.first_offset}" for one in aborted) or None
    )
)


@dataclass(frozen=True, slots=True)
class AdoptedPartition:
    """A partition of a backup, and what keeps a broker's log directory from adopting it, if anything does.

    ``aborted`` are the transactions that are open at the end of the backup, with the producer's id in it and
    the offset of the marker that aborts them. ``note`` says that the broker's topic has more partitions.
    ``adopted_before``: the broker's log begins with these record batches already, so it is left alone.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    log_start_offset: int = field(metadata=column(BIGINT, "START"))
    log_end_offset: int = field(metadata=column(BIGINT, "END"))
    aborted: tuple[AbortedTransaction, ...] = field(default=(), metadata=column(_ABORTED, "ABORTED"))
    problem: str | None = field(default=None, metadata=column(STRING, "PROBLEM"))
    note: str | None = None
    adopted_before: bool = False


def adopt(
    backup: str,
    log_dir: str,
    topics: Collection[str] = (),
    *,
    execute: bool,
    before: Callable[[list[TopicPartition]], None] = lambda partitions: None,
) -> list[AdoptedPartition]:
    """Copy the partitions of ``backup`` into the folders that a stopped broker has for them in ``log_dir``.

    Interrupted, this can run again: partitions that it has adopted before are left alone, and so are those
    with other records, which are a problem.

    :param topics: only these; () for all that are not internal.
    :param execute: False to only say what would be done, and change nothing.
    :param before: called with the partitions to adopt, and those adopted before, before anything is changed;
        both directories are held.
    :raises LogDirectoryLockedError: if the broker runs, or a writer holds the backup.
    :raises LogDirectoryError: if ``log_dir`` is not a broker's, or the disk fails.
    """
    if not os.path.exists(os.path.join(log_dir, META_PROPERTIES_FILE)):
        raise LogDirectoryError(
            "The directory is not a broker's",
            file=os.path.join(log_dir, META_PROPERTIES_FILE),
            hint="Give a folder of the log.dirs of a stopped broker.",
        )
    with disk_errors("Could not adopt the backup", log_dir):
        check_backup(backup)
        refused: Mapping[TopicPartition, KafkaLogError] | None = None
        if execute:
            with open_backup(backup) as directory:
                refused = directory.close()  # recovers it, if need be
        with directory_lock(backup, _LOCK_TIMEOUT), directory_lock(log_dir, _LOCK_TIMEOUT) as progress:
            if execute:
                journal.recover(backup)  # a writer may have been killed since
                journal.recover(log_dir)
            found = _plan(backup, log_dir, topics, progress, refused)
            sound = [step for step in found if step.problem is None]
            before([TopicPartition(step.topic, step.partition) for step in sound])
            if not execute:
                return found
            with journal.unclean(log_dir):
                root = LogRoot(open_folder(backup))
                for step in sound:
                    if not step.adopted_before:
                        _adopt(root, log_dir, step, progress)
            return found


def _plan(
    backup: str,
    log_dir: str,
    topics: Collection[str],
    progress: Callable[[], None],
    refused: Mapping[TopicPartition, KafkaLogError] | None,
) -> list[AdoptedPartition]:
    """The plan for each partition. All batches are read: damage in one hinders none of the others.

    :param refused: what can't be recovered, and why; None if nothing was recovered.
    """
    root = LogRoot(open_folder(backup))
    torn = refused is None and not os.path.exists(os.path.join(backup, CLEAN_SHUTDOWN_FILE))
    flushed = read_offsets(backup, RECOVERY_POINT_CHECKPOINT)
    partitions = root.live_partitions()
    missing = set(topics) - {partition.topic for partition in partitions}
    if missing:
        raise LogDirectoryError(
            f"The backup has no topic {min(missing)}",
            file=backup,
            hint=names_like(sorted(missing), {partition.topic for partition in partitions}, "topic"),
        )
    starts = read_offsets(backup, LOG_START_OFFSET_CHECKPOINT)
    chosen = [p for p in partitions if (p.topic in topics if topics else p.topic not in INTERNAL_TOPICS)]
    found, brokers = [], LogRoot(open_folder(log_dir)).partitions()
    # The ends are those of the record batches: checkpoints may be older.
    bounds, failures = LogDirectory([root]).try_watermarks(chosen)
    failures |= refused or {}
    for p in sorted(chosen):
        start = starts.get(p, 0)
        end = behind_gaps(root.gaps(p), bounds[p].high_watermark if p in bounds else start)
        source, producers = os.path.join(backup, str(p)), ProducerState()
        before = False
        try:
            with disk_errors("Could not read the partition", source):
                problem = _problem(log_dir, p, start)
                if problem == _HAS_RECORDS and _has_copy(source, os.path.join(log_dir, str(p)), progress):
                    problem, before = None, True
                if problem is None and p in root.renewed():
                    problem = (
                        "Its new copy is not in its place yet: run the backup again, which was interrupted"
                    )
                bases = offsets_of(source, LOG_SUFFIX) if problem is None else []
                if bases and bases[0] > start:
                    problem = f"{missing_in_backup(OffsetRange(start, bases[0]))}. {GIVE_UP}"
                if problem is None and p in failures:
                    problem = str(failures[p])
                if problem is None and not before:
                    unclean = flushed.get(p, 0) if torn else None
                    _, producers = _read_log(source, progress, recovery_point=unclean)
        except LogDirectoryError as e:
            problem = str(e)
        aborted = [
            AbortedTransaction(entry.producer_id, entry.first_offset, at)
            for at, entry in enumerate(producers.open, end)
        ]
        note = _more_partitions(p.topic, partitions, brokers)
        before = before and problem is None
        found.append(AdoptedPartition(*p, start, end, tuple(aborted), problem, note, before))
    return found


def _more_partitions(
    topic: str, saved: Collection[TopicPartition], brokers: Collection[TopicPartition]
) -> str | None:
    """The problem if the broker's topic has more partitions than the backup's."""
    ours, theirs = (
        1 + max((p.partition for p in partitions if p.topic == topic), default=-1)
        for partitions in (saved, brokers)
    )
    if theirs <= ours:
        return None
    return (
        f"the broker's topic has {theirs} partitions or more, the backup {ours}: the others stay empty,"
        " and keys will go to other partitions than before"
    )


def _read_log(
    source: str, progress: Callable[[], None], *, copy: str | None = None, recovery_point: int | None = None
) -> tuple[int, ProducerState]:
    """The end of a partition's batches, and the producers there.

    :param copy: the folder to copy the segments to; the producers have the ids that they have there.
    :param recovery_point: where what was flushed ends, if a torn tail may follow, which is to be cut off.
    :raises LogDirectoryError: if a batch can't be read.
    """
    producers, end = ProducerState(), 0
    bases = offsets_of(source, LOG_SUFFIX)
    for base_offset in bases:
        path = os.path.join(source, segment_file(base_offset, LOG_SUFFIX))
        if base_offset < end:
            raise LogDirectoryError(
                f"The segment begins before offset {end}, where the one before it ends",
                file=path,
                hint="Find out what is left with kafkalog verify.",
            )
        if (known := read_snapshot(source, base_offset)) is not None:
            producers = ProducerState(known) if copy is None else _of_another_cluster(known)
        rebuilt, scan = Rebuilt(base_offset, producers, _INTERVAL), Scan(path, base_offset)
        for _ in rebuilt.read(scan) if copy is None else _copied(scan, copy, rebuilt):
            progress()
        end = rebuilt.segment.next_offset
        if scan.fault is not None and recovery_point is not None and base_offset == bases[-1]:
            if end < recovery_point:
                check_tail(path, scan.end, end)
        elif rebuilt.fault is not None:
            raise LogDirectoryError(
                f"A record batch can't be read: {rebuilt.fault}",
                offset=end,
                file=path,
                position=rebuilt.segment.sizes()[LOG_SUFFIX],
                hint="Find out what is left with kafkalog verify.",
            )
    return end, producers


def _problem(log_dir: str, partition: TopicPartition, start: int) -> str | None:
    folder = os.path.join(log_dir, str(partition))
    if not os.path.exists(folder):
        if os.path.exists(_emptied(folder)):
            return None  # the exchange of the folders was interrupted
        return "The broker has no such partition: create its topic first"
    if not os.path.exists(os.path.join(folder, PARTITION_METADATA_FILE)):
        return "The broker has not given its topic an id yet: start the broker once, and stop it"
    logs = [name for name in os.listdir(folder) if LOG_SUFFIX in name]  # a .log.swap has records, too
    if not all(ends_in_zeros(os.path.join(folder, name), 0) for name in logs):  # zeros are room of the file
        return _HAS_RECORDS
    # One at ``start`` is of a broker that was started when :func:`_adopt` had entered the bounds.
    began = max((base for base in offsets_of(folder, LOG_SUFFIX) if base != start), default=0)
    if began > 0:
        return f"The broker's partition has had records below offset {began}: delete its topic, and create it"
    return None


def _has_copy(source: str, folder: str, progress: Callable[[], None]) -> bool:
    """Whether a broker's partition begins with what :func:`_adopt` makes of the backup's."""
    bases = offsets_of(source, LOG_SUFFIX)
    for base_offset in bases:
        scan, position = Scan(os.path.join(source, segment_file(base_offset, LOG_SUFFIX)), base_offset), 0
        try:
            with open(os.path.join(folder, os.path.basename(scan.path)), "rb") as copy:
                for piece in scan:
                    _take_over(piece)
                    if copy.read(scan.end - position) != piece.data[: scan.end - position].tobytes():
                        return False
                    position = scan.end
                    progress()
        except FileNotFoundError:
            return False
    return bool(bases)


def _staged(folder: str) -> str:
    """The folder in which a partition's copy is made: a broker that starts deletes it."""
    return _beside(folder, "staged")


def _emptied(folder: str) -> str:
    """The name that the broker's empty folder gets; a broker that starts deletes it, too."""
    return _beside(folder, "emptied")


def _beside(folder: str, role: str) -> str:
    parent, name = os.path.split(folder)
    return os.path.join(parent, set_aside(partition_of(name), role))


def _stage(root: LogRoot, folder: str, step: AdoptedPartition, progress: Callable[[], None]) -> str:
    """Make the copy of a partition, beside the broker's folder; its path.

    :raises LogDirectoryError: if it does not end where the plan has seen it end, or can't be read any more.
    """
    partition = TopicPartition(step.topic, step.partition)
    source, staged = root.folder.label(str(partition)), _staged(folder)
    shutil.rmtree(staged, ignore_errors=True)
    os.mkdir(staged)
    end, producers = _read_log(source, progress, copy=staged)
    end = behind_gaps(root.gaps(partition), max(end, step.log_start_offset))
    if end != step.log_end_offset:
        raise LogDirectoryError(
            f"Expected a log that ends at offset {step.log_end_offset}, got one that ends at {end}",
            topic_partition=partition,
            file=source,
            hint="The backup has changed meanwhile. Try again.",
        )
    _end_log(staged, end, producers)
    epochs = format_leader_epoch_checkpoint([(0, step.log_start_offset)])
    write_new(os.path.join(staged, LEADER_EPOCH_CHECKPOINT), epochs)
    metadata = read_if_there(os.path.join(folder, PARTITION_METADATA_FILE))
    write_new(os.path.join(staged, PARTITION_METADATA_FILE), metadata)
    sync_folder(staged)
    return staged


def _adopt(root: LogRoot, log_dir: str, step: AdoptedPartition, progress: Callable[[], None]) -> None:
    """Exchange a partition's empty folder for a copy of the backup's.

    Its bounds are entered first, so that its records never lack them. They don't harm an empty log, and
    the next run enters them again.
    """
    partition = TopicPartition(step.topic, step.partition)
    folder = os.path.join(log_dir, str(partition))
    emptied = _emptied(folder)
    if os.path.exists(folder):
        shutil.rmtree(emptied, ignore_errors=True)
    else:  # the exchange was interrupted
        os.rename(emptied, folder)
    staged = _stage(root, folder, step, progress)
    _enter(log_dir, partition, step)
    os.rename(folder, emptied)
    os.rename(staged, folder)
    sync_folder(log_dir)
    shutil.rmtree(emptied)


def _end_log(staged: str, end: int, producers: ProducerState) -> None:
    """Begin a segment at the log end that aborts open transactions, and after which no producer is known.

    Its first snapshot has the open transactions, for a broker that recovers the segment.
    """
    for base_offset in offsets_of(staged, LOG_SUFFIX):
        is_empty = os.path.getsize(os.path.join(staged, segment_file(base_offset, LOG_SUFFIX))) == 0
        assert base_offset < end or (base_offset == end and is_empty), f"{staged} goes on behind {end}"
    still_open = ProducerState(producers.open)
    begin_segment(staged, end)
    write_new(os.path.join(staged, segment_file(end, SNAPSHOT_SUFFIX)), still_open.snapshot())
    markers = still_open.abort_markers(end, leader_epoch=0)
    if markers.size:
        write_new(os.path.join(staged, segment_file(end, LOG_SUFFIX)), markers.tobytes())
        rebuilt = Rebuilt(end, still_open, _INTERVAL)
        rebuilt.add(markers, walk(markers))
        write_indexes(staged, end, rebuilt.indexes())
        new_end = segment_file(rebuilt.segment.next_offset, SNAPSHOT_SUFFIX)
        write_new(os.path.join(staged, new_end), ProducerState().snapshot())


def _of_another_cluster(entries: Iterable[ProducerEntry]) -> ProducerState:
    """Producers with the ids that they have in the copy."""
    return ProducerState(entry._replace(producer_id=entry.producer_id | _OTHER_CLUSTER) for entry in entries)


def _take_over(piece: Stretch) -> None:
    """Give record batches a leader epoch of 0, and ids of producers that no cluster gives."""
    batches = piece.batches.take(np.flatnonzero(piece.batches.magic == 2))
    at = batches.position[:, np.newaxis] + np.arange(LEADER_EPOCH_V2, LEADER_EPOCH_V2 + 4)
    piece.data[at] = 0
    batches = batches.take(np.flatnonzero(batches.producer_id >= 0))
    ids = batches.producer_id | _OTHER_CLUSTER
    kernels.put_ints(piece.data, batches.position + PRODUCER_ID_V2, ids, 8)
    put_checksums(piece.data, batches.position, batches.size)


def _copied(scan: Scan, staged: str, rebuilt: Rebuilt) -> Iterator[Stretch]:
    """Copy a segment's batches, and make its indexes. The pieces that were copied."""
    position = 0
    target = os.path.join(staged, os.path.basename(scan.path))
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        with naming(target):
            for piece in scan:
                _take_over(piece)
                data = piece.data[: scan.end - position]
                _, rebuilt.fault = rebuilt.add(data, walk(data))
                if rebuilt.fault is not None:
                    return
                write_all(descriptor, data, position)
                position = scan.end
                yield piece
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    rebuilt.fault = scan.fault
    if rebuilt.fault is None:
        write_indexes(staged, rebuilt.segment.base_offset, rebuilt.indexes())


def _enter(log_dir: str, partition: TopicPartition, step: AdoptedPartition) -> None:
    """Put the partition's bounds into the broker's checkpoints."""
    offsets = dict.fromkeys(_CHECKPOINTS, step.log_end_offset + len(step.aborted))
    offsets[LOG_START_OFFSET_CHECKPOINT] = step.log_start_offset
    for name, offset in offsets.items():
        write_offsets(log_dir, name, read_offsets(log_dir, name) | {partition: offset})
