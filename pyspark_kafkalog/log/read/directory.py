"""Kafka's log directories as a place to read from: see :class:`pyspark_kafkalog.model.Place`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import (
    CorruptRecordError,
    DataLossError,
    KafkaLogError,
    LogDirectoryError,
    UnconfirmedError,
    UnknownTopicOrPartitionError,
    no_such_partition,
)
from pyspark_kafkalog.filesystem.folder import Folder, wait
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.log.layout import CLEANER_CHECKPOINT, PARTITION_METADATA_FILE, parse_offset_checkpoint
from pyspark_kafkalog.log.read.partition import FolderGoneError, Partition
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.log.read.transactions import StableOffset, has_batch, with_aborted
from pyspark_kafkalog.log.segment.missing import REPAIR, missing_in_backup
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import (
    BatchHeader,
    Decided,
    Fetch,
    OffsetRange,
    Seen,
    Slice,
    StoredSegment,
    StoredSize,
    TopicPartition,
    Watermarks,
    lost,
    not_here,
)
from pyspark_kafkalog.model.topics import cleanup_policies

_Answer = TypeVar("_Answer")

_ATTEMPTS = 5
"""The most looks at roots in which one publish follows another."""

_MOVING = 5.0
"""Seconds for which a partition may be in two roots. A broker that moves it to another disk gives the new
folder its name before it renames the old one (LogManager.replaceCurrentWithFutureLog)."""
_PAUSE = 0.02
"""Seconds between two looks at a partition that is moved."""
_LOOKS = 5
"""The most looks for a partition in several roots: a look that meets a move may find it in none."""

_log = logging.getLogger("pyspark_kafkalog")
_warned_of: dict[str, int] = {}
"""The position of each reported torn tail, by file."""
_begin_elsewhere: set[str] = set()
"""The folders of partitions of which it was reported that they lack the beginning of the log."""


class LogDirectory:
    """A log directory: one or several roots, or one partition's folder, read without a broker or any change.

    Remembers the end of each partition, so that asking again is cheap. Bounds come from
    the files: the high watermark is the log end, since its checkpoint may be out of date.
    An unfinished publish of this package is hidden.
    """

    def __init__(self, roots: Sequence[LogRoot], *, slice_bytes: int = 8 << 20, checked: bool = True) -> None:
        self._roots = roots
        self._checked = checked
        """Whether the roots are known to be such; else this is seen to before a partition is missed."""
        self._slice_bytes = slice_bytes
        self._partitions: dict[TopicPartition, Partition] = {}
        self._stable: dict[TopicPartition, StableOffset] = {}
        self._seen_ends: dict[TopicPartition, int] = {}
        """The ends of logs that plans have seen."""
        self._planned: dict[TopicPartition, Decided | None] = {}
        """The ends of transactions that plans have found."""

    @classmethod
    def open(
        cls, path: str | Sequence[str], *, slice_bytes: int = 8 << 20, check: bool = True
    ) -> LogDirectory:
        """Open local paths or URIs.

        :param check: whether to check now that they are log roots, or only where a partition is not found;
            see :func:`.root.open_root`.
        :raises LogDirectoryError: if one does not exist, is a file, or holds neither partitions nor segments.
        """
        paths = [path] if isinstance(path, str) else path
        roots = [open_root(location, check=check) for location in paths]
        return cls(roots, slice_bytes=slice_bytes, checked=check)

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
        """Every topic, internal ones too, with its partition numbers in order; or those of ``names``.

        :raises LogDirectoryError: if two roots hold the same partition, and it is not being moved.
        """
        live, unpublished = self._at_one_moment(self._live_partitions)
        created = {partition for partition, end in unpublished.items() if end is None}
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(live - created):
            if names is None or topic in names:
                topics.setdefault(topic, []).append(number)
        return {topic: tuple(numbers) for topic, numbers in topics.items()}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """See :meth:`pyspark_kafkalog.model.Place.topic_ids`: the one in the first partition's folder.

        If partition 0 is here, no other folder is read.
        """
        created = {partition for partition, end in self._unpublished().items() if end is None}
        firsts = [TopicPartition(topic, 0) for topic in topics]
        found = [first for first in firsts if first not in created and self._is_readable(first)]
        known = {
            first.topic: topic_id for first, topic_id in self._ask_each(found, Partition.topic_id).items()
        }
        others = self.topics(set(topics) - set(known)) if len(known) < len(topics) else {}
        of_topics = [[TopicPartition(topic, n) for n in numbers] for topic, numbers in others.items()]
        firsts = [next(filter(self._is_readable, partitions), partitions[0]) for partitions in of_topics]
        ids = self._ask_each([*filter(self._is_readable, firsts)], Partition.topic_id)
        return known | {first.topic: ids.get(first, "") for first in firsts}

    def _is_readable(self, partition: TopicPartition) -> bool:
        """Whether the partition is here, and no link that leads out of its root."""
        with suppress(LogDirectoryError):
            return self._find(partition, fresh=True) is not None
        return False

    def watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Watermarks]:
        """Bounds of those partitions that exist. See :meth:`pyspark_kafkalog.model.Place.watermarks`."""
        found, unpublished = self._at_one_moment(
            lambda: self._ask_each(partitions, lambda p: self._bounds(p, read_committed))
        )
        result = {}
        for partition, bounds in found.items():
            if bounds.elsewhere is not None:
                self._warn_of_elsewhere(partition, bounds.elsewhere)
            if partition not in unpublished:
                self._warn_if_torn(partition)
                result[partition] = bounds
                continue
            end = unpublished[partition]
            if end is not None:
                high_watermark = min(bounds.high_watermark, end)
                last_stable_offset = min(bounds.last_stable_offset, high_watermark)
                result[partition] = replace(
                    bounds, high_watermark=high_watermark, last_stable_offset=last_stable_offset
                )
        return result

    def try_watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = False
    ) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, KafkaLogError]]:
        """See :meth:`pyspark_kafkalog.model.Place.try_watermarks`. Too few offsets are an error, too: a
        backup knows how far it was on disk.
        """
        bounds: dict[TopicPartition, Watermarks] = {}
        failures: dict[TopicPartition, KafkaLogError] = {}
        try:
            bounds = self.watermarks(partitions, read_committed=read_committed)
        except KafkaLogError:
            for partition in partitions:
                try:
                    bounds |= self.watermarks([partition], read_committed=read_committed)
                except KafkaLogError as e:
                    failures[partition] = e
        lost = {partition: error for partition in bounds if (error := self._lost_end(partition)) is not None}
        return {p: found for p, found in bounds.items() if p not in lost}, failures | lost

    def _lost_end(self, partition: TopicPartition) -> DataLossError | None:
        """The error of a backup that lacks the last segments of a partition."""
        root = next((r for r in self._roots if r.knows_start_of(partition) and r.find_live(partition)), None)
        if root is None or (lost := self._ask(partition, lambda p: root.lost_end(partition, p.end))) is None:
            return None
        file = self._existing(partition).folder.label()
        return DataLossError(
            missing_in_backup(lost), topic_partition=partition, offset=lost.start, file=file, hint=REPAIR
        )

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.end_offsets`."""
        bounds = self.watermarks(partitions, read_committed=read_committed)
        return {p: bounds[p].end(read_committed=read_committed) for p in sorted(bounds)}

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.leader_epochs`: a directory has no leader."""
        return {}

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.leaders`: a directory has none."""
        return {}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """The largest epoch in each partition's log that is not above the given one, and the offset after its
        last record. A partition without leader epochs is left out.
        """
        return {
            partition: end
            for partition, epoch in epochs.items()
            if (end := self._ask(partition, partial(Partition.epoch_end, epoch=epoch))) is not None
        }

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
        """See :meth:`pyspark_kafkalog.model.Place.batches_at`."""
        found = {}
        for partition, offset in offsets.items():
            with suppress(UnknownTopicOrPartitionError, DataLossError, CorruptRecordError):
                for piece in self.fetch(Fetch(partition, OffsetRange(offset, offset + 1))):
                    header = header_of(batches_of(piece))
                    if header.base_offset <= offset:
                        found[partition] = header
                    break
        return found

    def expect(self, partition: TopicPartition, seen: Seen) -> None:
        """See :meth:`pyspark_kafkalog.model.Place.expect`.

        A mount may show an older state, so a log that seems to end sooner is listed once more. There is no
        other evidence than the directory itself.
        """
        self._seen_ends[partition] = seen.end
        self._planned[partition] = seen.decided

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record with timestamp >= the given ms, or None.

        Such an offset may belong to a transaction's marker, as on a broker.

        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        found = self._first_records(times)
        return {partition: None if first is None else first[0] for partition, first in found.items()}

    def newest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.newest_timestamps`."""
        from pyspark_kafkalog.log.read.times import newest_timestamp

        return self._ask_each(partitions, newest_timestamp)

    def oldest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.oldest_timestamps`."""
        found = self._first_records(dict.fromkeys(filter(self._find, partitions), 0))
        return {partition: -1 if first is None else first[1] for partition, first in found.items()}

    def stored_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredSize]:
        """See :meth:`pyspark_kafkalog.model.Place.stored_sizes`: live segments, up to the log's end."""
        return self._ask_each(partitions, Partition.stored_size)

    def segments(self, partition: TopicPartition) -> list[StoredSegment]:
        """See :meth:`pyspark_kafkalog.model.Files.segments`.

        :raises UnknownTopicOrPartitionError: if the partition does not exist.
        """
        from pyspark_kafkalog.log.read.times import stored_segments

        return self._ask(partition, stored_segments)

    def mean_record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """See :meth:`pyspark_kafkalog.model.Place.mean_record_bytes`: size by offsets."""
        sizes = self._ask_each(partitions, Partition.mean_record_bytes)
        return {partition: size for partition, size in sizes.items() if size is not None}

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """See :meth:`pyspark_kafkalog.model.Place.topic_config`: those that were set in this directory."""
        found: dict[str, str] = {}
        for root in self._roots:
            found |= read_topic_configs(root.folder).get(topic, {})
        return found

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """The configs that were set for this topic alone: all that a directory knows."""
        return self.topic_config(topic)

    def cluster_id(self) -> str | None:
        """The id of the cluster that the directory belongs to, if a broker's file in it says so."""
        return next(filter(None, (root.cluster_id() for root in self._roots)), None)

    def file_faults(self, partition: TopicPartition) -> list[KafkaLogError]:
        """See :meth:`pyspark_kafkalog.model.Files.file_faults`: in indexes, a torn tail, missing segments."""

        def found(p: Partition) -> list[KafkaLogError]:
            return p.file_faults(partial(self._is_compacted, p), partial(self.gaps, partition))

        faults = [*self._ask(partition, found), *self._faults_around(partition)]
        lost = None if faults else self._lost_end(partition)
        return faults if lost is None else [lost]

    def _faults_around(self, partition: TopicPartition) -> Iterator[KafkaLogError]:
        """The faults of a partition beside others, and of the files of its root."""
        own = self._ask(partition, Partition.topic_id)
        of_topic = self.topic_ids([partition.topic]).get(partition.topic)
        if own and of_topic and own != of_topic:
            yield CorruptRecordError(
                f"The topic's id here is {own}, that of its first partition {of_topic}",
                topic_partition=partition,
                file=self._existing(partition).folder.label(PARTITION_METADATA_FILE),
                hint="One is of another topic, or damaged: a broker does not take both for the same topic.",
            )
        for root in self._roots:
            if root.find_live(partition) is not None:
                yield from root.malformed_checkpoints()

    def gaps(self, partition: TopicPartition) -> tuple[OffsetRange, ...]:
        """See :meth:`pyspark_kafkalog.model.Files.gaps`."""
        root = next((root for root in self._roots if root.find_live(partition)), None)
        return () if root is None else root.gaps(partition)

    def misplaced(self) -> list[str]:
        """See :meth:`pyspark_kafkalog.model.Files.misplaced`."""
        return [
            f"{name if len(self._roots) == 1 else root.folder.label(name)} {why}"
            for root in self._roots
            for name, why in root.misplaced().items()
        ]

    def _is_compacted(self, partition: Partition) -> bool:
        """Whether the topic is compacted by its configuration, or a cleaner has been at the partition."""
        topic = partition.topic_partition.topic
        if topic.startswith("__") or "compact" in cleanup_policies(self.topic_config(topic)):
            return True
        root = partition.folder.parent()
        cleaned = parse_offset_checkpoint(
            root.read(CLEANER_CHECKPOINT) or b"", root.label(CLEANER_CHECKPOINT)
        )
        return partition.topic_partition in cleaned

    def prefetch(self, wanted: Collection[Fetch], *, max_bytes: int) -> None:
        """See :meth:`pyspark_kafkalog.model.Place.prefetch`: files are at hand."""

    def fetch(self, wanted: Fetch) -> Iterator[Slice]:
        """See :meth:`pyspark_kafkalog.model.Place.fetch`.

        A slice has at most ``slice_bytes``, or one larger batch. A topic id is compared with that of the
        partition's own folder only, before each listing.

        :raises UnconfirmedError: if that folder has another id, or not all offsets are published.
        :raises DataLossError: if the log begins after the start of the offsets, or ends before their end; if
            a segment is missing in between.
        :raises UnknownTopicOrPartitionError: if the partition does not exist.
        """
        needs_id = bool(wanted.topic_id) or len(self._roots) > 1
        ask = partial(self._ask, wanted.partition)
        source, own_id = ask(lambda p: (p, p.topic_id() if needs_id else ""))
        if wanted.confirm and not (own_id == wanted.topic_id and self._is_published(wanted)):
            raise UnconfirmedError(
                "The folder may not be the one that was planned for", topic_partition=wanted.partition
            )
        slices = self._read(source, replace(wanted, topic_id=own_id))
        if not wanted.read_committed:
            return slices
        return with_aborted(slices, wanted.offsets, ask, partial(self._known, wanted))

    def decided(
        self, partition: TopicPartition, offsets: OffsetRange, *, look: bool = True
    ) -> Decided | None:
        """See :meth:`pyspark_kafkalog.model.Files.decided`.

        It is asked after :meth:`watermarks`. From an object store tasks read sooner, each for itself.
        """

        def found(p: Partition) -> Decided | None:
            stable = self._stable.setdefault(partition, StableOffset(p))
            wanted = offsets._replace(end=stable.end) if offsets.end < 0 else offsets
            known = stable.decided(wanted) if wanted.start >= 0 else None
            if known is not None or not look or p.folder.is_store:
                return known
            segments = p.segments()
            wanted = wanted._replace(start=max(wanted.start, p.log_start_offset(segments)))
            if wanted.start >= wanted.end:
                return None
            return stable.decided(wanted) or stable.look_ahead(wanted, p.log_end_offset(segments))

        with suppress(KafkaLogError):
            return self._ask(partition, found)
        return None

    def _known(self, wanted: Fetch) -> Decided | None:
        """The ends of transactions that a plan, or this place, has found, if that was in this log."""
        stable = self._stable.get(wanted.partition)
        planned = self._planned.get(wanted.partition)
        for known in (planned, None if stable is None else stable.decided(wanted.offsets)):
            if known is not None and self._ask(wanted.partition, partial(has_batch, batch=known.proof)):
                return known
        return None

    def _read(self, source: Partition, wanted: Fetch) -> Iterator[Slice]:
        """The slices of ``source``, and of the folders in other roots that it is moved to meanwhile."""
        while True:
            try:
                yield from source.read(wanted, max_bytes=self._slice_bytes)
                return
            except FolderGoneError as gone:
                wanted = replace(wanted, offsets=gone.left)
                found = self._find(wanted.partition, fresh=True)
                if found is None:
                    raise lost(wanted.partition, gone.left, str(gone.strerror)) from None
                source = found
                with suppress(FileNotFoundError):  # then it is moved on, and gone again
                    if wanted.topic_id and source.topic_id() not in ("", wanted.topic_id):
                        why = "the topic was deleted and recreated"
                        raise lost(wanted.partition, gone.left, why) from None

    def offsets_after_bytes(
        self, ranges: Mapping[TopicPartition, OffsetRange], max_bytes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.offsets_after_bytes`."""

        def end_of(partition: Partition) -> int:
            wanted = partition.topic_partition
            return partition.offset_after_bytes(ranges[wanted], max_bytes[wanted])

        return self._ask_each(ranges, end_of)

    def _is_published(self, wanted: Fetch) -> bool:
        """Whether no unfinished publish has made the partition, or appended what is ``wanted``."""
        end = wanted.offsets.end
        published = self._unpublished().get(wanted.partition, end)
        return published is not None and published >= end

    def _bounds(self, partition: Partition, read_committed: bool) -> Watermarks:
        segments = partition.segments()
        log_end_offset = partition.log_end_offset(segments)
        if log_end_offset < self._seen_ends.get(partition.topic_partition, 0):
            segments = partition.segments(fresh=True)
            log_end_offset = partition.log_end_offset(segments)
        log_start_offset = partition.log_start_offset(segments)
        high_watermark = max(log_end_offset, log_start_offset)
        last_stable_offset = high_watermark
        if read_committed:
            stable = self._stable.setdefault(partition.topic_partition, StableOffset(partition))
            log = OffsetRange(log_start_offset, high_watermark)
            last_stable_offset = stable.last_stable_offset(log, segments[-1] if segments else None)
        elsewhere = partition.elsewhere(segments)
        return Watermarks(log_start_offset, high_watermark, last_stable_offset, elsewhere)

    def _first_records(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """The offset and timestamp of the first record that is late enough, if it is published."""
        from pyspark_kafkalog.log.read.times import first_at

        found, unpublished = self._at_one_moment(
            lambda: {
                partition: self._ask(partition, partial(first_at, timestamp=timestamp))
                for partition, timestamp in times.items()
            }
        )
        for partition, end in unpublished.items():
            first = found.get(partition)
            if first is not None and (end is None or first[0] >= end):
                found[partition] = None
        return found

    def _ask_each(
        self, partitions: Collection[TopicPartition], question: Callable[[Partition], _Answer]
    ) -> dict[TopicPartition, _Answer]:
        """The answers of those partitions that exist."""
        answers = {}
        with ExitStack() as looks:
            for root in self._roots:
                looks.enter_context(root.one_look())
            for partition in partitions:
                with suppress(UnknownTopicOrPartitionError):
                    answers[partition] = self._ask(partition, question)
        return answers

    def _ask(self, topic_partition: TopicPartition, question: Callable[[Partition], _Answer]) -> _Answer:
        """Ask, and ask again if segments vanish meanwhile: they roll, are compacted or deleted."""
        attempt = 0
        while True:
            partition = self._existing(topic_partition)
            try:
                return question(partition)
            except (FileNotFoundError, DataLossError) as e:
                self._partitions.pop(topic_partition, None)
                self._stable.pop(topic_partition, None)
                wait(attempt, partition.folder.label(), e)
            attempt += 1

    def _find(self, topic_partition: TopicPartition, *, fresh: bool = False) -> Partition | None:
        """The partition if it exists; a known one is only looked up again if ``fresh``."""
        known = self._partitions.get(topic_partition)
        if known is not None and not (fresh and not known.folder.exists()):
            return known
        self._partitions.pop(topic_partition, None)
        root = self._holder(topic_partition)
        known = None
        if root is not None and (folder := root.find_live(topic_partition)) is not None:
            known = self._partitions[topic_partition] = Partition(
                topic_partition, folder, root.log_start_offset, root.listings, root.start_in_checkpoint
            )
        elif not self._checked:
            for root in self._roots:
                root.check()
            self._checked = True
        return known

    def _holder(self, topic_partition: TopicPartition) -> LogRoot | None:
        """The root that has the partition. While a broker moves it to another disk, two may have it.

        :raises LogDirectoryError: if two roots still have it after a while, or have it with other topic ids.
        """
        until = time.monotonic() + _MOVING
        looks = 0
        while True:
            folders = {root: folder for root in self._roots if (folder := root.find_live(topic_partition))}
            looks += 1
            if len(folders) == 1 or (not folders and (looks == _LOOKS or len(self._roots) == 1)):
                return next(iter(folders), None)
            if folders:
                first, second = list(folders)[:2]
                if time.monotonic() > until or _are_of_other_topics(topic_partition, folders.values()):
                    raise _in_two_roots(topic_partition, first, second)
                time.sleep(_PAUSE)

    def _existing(self, topic_partition: TopicPartition) -> Partition:
        partition = self._find(topic_partition)
        if partition is None:
            raise no_such_partition(
                [topic_partition], file=", ".join(root.folder.label() for root in self._roots)
            )
        return partition

    def _live_partitions(self) -> set[TopicPartition]:
        """The partitions whose live folders the roots have."""
        live: set[TopicPartition] = set()
        # Listed once, several roots don't show what is moved meanwhile from a later one to an earlier one.
        for _ in self._roots[:2]:
            in_this_look: set[TopicPartition] = set()
            for root in self._roots:
                found = root.live_partitions()
                for partition in found & in_this_look:
                    self._holder(partition)
                in_this_look |= found
            live |= in_this_look
        return live

    def _at_one_moment(self, look: Callable[[], _Answer]) -> tuple[_Answer, dict[TopicPartition, int | None]]:
        """The result of ``look``, and the ends of partitions in it that are unpublished.

        A publish may begin, be committed or be undone meanwhile. One that both begins and ends meanwhile
        shows only in the root's time of change: then this looks again, until nothing changes.
        """
        last: _Answer | None = None
        for _ in range(_ATTEMPTS):
            changed, before = self._changed(), self._unpublished()
            seen = look()
            unpublished = self._unpublished() | before
            if seen == last or changed == self._changed():
                break
            last = seen
        return seen, unpublished

    def _changed(self) -> list[object]:
        """A value that changes when a publish begins or ends."""
        return [root.changed() for root in self._roots]

    def _unpublished(self) -> dict[TopicPartition, int | None]:
        return {partition: end for root in self._roots for partition, end in root.unpublished().items()}

    def _warn_if_torn(self, topic_partition: TopicPartition) -> None:
        torn = self._partitions[topic_partition].torn_tail
        if torn is not None and _warned_of.get(torn[0]) != torn[1]:
            _warned_of[torn[0]] = torn[1]
            _log.warning(
                "%s: no whole record batch in %s from byte %d on; the log ends there", topic_partition, *torn
            )

    def _warn_of_elsewhere(self, topic_partition: TopicPartition, offsets: OffsetRange) -> None:
        folder = self._partitions[topic_partition].folder.label()
        if folder not in _begin_elsewhere:
            _begin_elsewhere.add(folder)
            _log.warning("%s: %s", topic_partition, not_here(offsets))


def _are_of_other_topics(partition: TopicPartition, folders: Iterable[Folder]) -> bool:
    """Whether these folders of a partition have topic ids that differ: none is a copy of another."""
    ids = set()
    for folder in folders:
        with suppress(FileNotFoundError):
            ids.add(Partition(partition, folder, lambda _, first: first).topic_id())
    return len(ids - {""}) > 1


def _in_two_roots(partition: TopicPartition, first: LogRoot, second: LogRoot) -> LogDirectoryError:
    return LogDirectoryError(
        f"The partition is in two log roots, {first.folder.label()} and {second.folder.label()}",
        topic_partition=partition,
        hint="Give roots of one broker only, or read each by itself.",
    )


def resolved(paths: Iterable[str]) -> list[str]:
    """The folders at local paths or URIs, sorted: the same however they are spelled, also by a link."""
    folders = map(locate, paths)
    return sorted(folder.top if folder.is_local else folder.label() for folder in folders)
