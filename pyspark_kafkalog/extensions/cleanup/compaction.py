"""Compact one partition: the last record of each key stays, with its offset.

What may be compacted are whole segments before the active one, below the last stable offset and the high
watermark, and older than ``min.compaction.lag.ms``. In their dirty part a map finds the last offset of each
key, for as many keys as memory allows. Then all segments up to the map's end are written again without what
it outdates. If that is not the end of what may be compacted, this is done again from there.

Nothing is trusted but the batches: they are verified first, and again before anything is written.

With a limit of time each of the three steps ends early, at the end of a segment, and :mod:`.unfinished` keeps
what the next call needs: the first what is walked; the second makes a map of fewer segments; the third keeps
the pass. Its map is made again then, from the segments that the first one was made of, cleaned or not: both
have the last record of each key that a later segment may outdate.

Sources: Kafka's ``LogCleanerManager.cleanableOffsets``, ``grabFilthiestCompactedLog``, ``Cleaner.doClean``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pyspark_kafkalog.codec.indexing import MAX_RECORD_BYTES, DamageError, DecodeLimits, Indexer
from pyspark_kafkalog.codec.offset_map import OffsetMap
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.extensions.cleanup import unfinished
from pyspark_kafkalog.extensions.cleanup.cleaned_transactions import CleanedTransactions
from pyspark_kafkalog.extensions.cleanup.cleaning import Pass
from pyspark_kafkalog.extensions.cleanup.history import (
    History,
    StoredBatches,
    Walked,
    in_groups,
    naming,
    reaching,
    read,
    read_history,
    stored_batches,
)
from pyspark_kafkalog.extensions.cleanup.unfinished import BegunPass, TimeLimit, Unfinished
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.options.topic_configs import check_topic_configs

DEDUPE_BUFFER_SIZE = 128 << 20
"""Kafka's default of log.cleaner.dedupe.buffer.size."""
_DIRTY_RATIO = "min.cleanable.dirty.ratio"
_MAP_SHARE = 0.5
"""The share of the time after which a map gets no more segments: the rest is for writing."""
_NO_TIME = "the rest follows with the next commit"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Names and defaults are Kafka's: of topic configurations, and of ``log.cleaner.dedupe.buffer.size``.

    A compressed record may be as large as the option ``maxRecordBytes`` says.
    """

    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_OFFSET
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    dedupe_buffer_size: int = DEDUPE_BUFFER_SIZE
    max_record_bytes: int = MAX_RECORD_BYTES

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> CompactionSettings:
        """The settings in a topic's configurations; Kafka's defaults for the rest.

        :raises OptionError: if a value is invalid.
        """
        own = {name: configs[name] for name in _CONFIGS if name in configs}
        check_topic_configs(own)
        values: dict[str, Any] = {
            _CONFIGS[name]: float(text) if name == _DIRTY_RATIO else int(text) for name, text in own.items()
        }
        return cls(**values)


_CONFIGS = {
    field.name.replace("_", "."): field.name
    for field in fields(CompactionSettings)
    if field.name not in ("dedupe_buffer_size", "max_record_bytes")
}
"""The fields by Kafka's names of topic configurations."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The entry of a partition in the root's checkpoints; None without one."""

    log_start_offset: int = 0
    high_watermark: int | None = None
    first_dirty_offset: int | None = None


@dataclass(slots=True)
class Compacted:
    """The result of a compaction of a partition, done or planned."""

    first_dirty_offset: int
    """The offset before which all is compacted now."""
    note: str = ""
    """The reason why nothing, or not all, was compacted."""
    passes: int = 0
    records: int = 0
    """Records in the segments of the first pass, those of transaction markers too."""
    removed_records: int = 0
    stored_bytes: int = 0
    """Bytes of these segments before."""
    removed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The part of a log that may be compacted, and whether it is to be."""

    first_dirty_offset: int
    end: int
    """The end of what may be compacted."""
    ratio: float
    """The share of the bytes below it that are dirty."""
    is_due: bool
    """Whether the ratio, or ``max.compaction.lag.ms``, asks for it."""
    is_overdue: bool
    """Whether ``max.compaction.lag.ms`` does."""
    note: str
    """The reason why it is not due, or why the end is not that of the closed segments."""


@dataclass(slots=True)
class Compaction:
    """A compaction of one partition.

    The caller holds the directory's lock, has called :func:`.leftovers.clear_leftovers`, and writes
    :attr:`Compacted.first_dirty_offset` to ``cleaner-offset-checkpoint``.

    :param progress: called with the bytes of each stretch that was read: some three times those of the log.
    """

    folder: str
    partition: TopicPartition
    settings: CompactionSettings
    bounds: LogBounds
    now_ms: int
    progress: Callable[[int], object] = lambda size: None

    def plan(self) -> Compacted:
        """Count what a first pass would remove; nothing changes.

        :raises CorruptRecordError: if a batch is damaged.
        :raises OversizedRecordError: at a record that is larger than the settings allow.
        """
        history = self._walk(Walked(), TimeLimit())
        assert history is not None  # there is no limit
        found = cleanable(history, self.settings, self.bounds, self.now_ms)
        done = Compacted(found.first_dirty_offset, found.note)
        if found.is_due:
            begun, offset_map = self._begin(history, done.first_dirty_offset, found.end, None, TimeLimit())
            self._clean(begun, offset_map, done, TimeLimit(), execute=False)
            done.passes = 1
            done.note = done.note if begun.map_end == found.end else "one pass of several"
        return done

    def run(self, limit: TimeLimit | None = None) -> tuple[Compacted, bool]:
        """Compact what may be compacted; what came of it, and whether that is all.

        :param limit: if it is over, what is left to do is stored for the next call with a limit. Of each step
            at least one segment is done, so that it comes to an end.
        :raises CorruptRecordError: if a batch is damaged; segments that were replaced before stay compacted.
        :raises OversizedRecordError: at a record that is larger than the settings allow. Likewise.
        """
        if limit is None:
            unfinished.forget(self.folder)
            return self._run(Unfinished(), TimeLimit())
        return self._run(unfinished.load(self.folder), limit)

    def _run(self, stored: Unfinished, limit: TimeLimit) -> tuple[Compacted, bool]:
        closed, _ = stored_batches(self.folder)
        bounds, begun, walked = self.bounds, stored.begun, stored.walked
        if begun is not None and not begun.fits(closed, bounds.first_dirty_offset, bounds.high_watermark):
            begun = None
        checkpoint, end = bounds.first_dirty_offset, 0
        done: Compacted | None = None
        while True:
            if begun is not None:
                done, end = Compacted(begun.first_dirty_offset), begun.end
                offset_map = self._map_again(closed, begun)
                if offset_map.end != begun.map_end:  # there is less memory now
                    begun, done, walked = None, None, Walked()
                    continue
            else:
                count = len(walked.segments)
                history = self._walk(walked, limit)
                if history is None:
                    unfinished.store(self.folder, Unfinished(walked))
                    done = done or Compacted(checkpoint or 0)
                    done.note = _NO_TIME
                    return done, False
                if done is None:
                    found = cleanable(history, self.settings, bounds, self.now_ms)
                    done, end = Compacted(found.first_dirty_offset, found.note), found.end
                    if not found.is_due:
                        if limit.seconds is not None and len(walked.segments) != count:
                            unfinished.store(self.folder, Unfinished(walked))  # not to walk them again
                        return done, True
                begun, offset_map = self._begin(history, done.first_dirty_offset, end, checkpoint, limit)
            rest = self._clean(begun, offset_map, done, limit)
            if rest is not None:
                unfinished.store(self.folder, Unfinished(begun=rest))
                done.note = _NO_TIME
                return done, False
            unfinished.forget(self.folder)
            done.passes += 1
            done.first_dirty_offset = checkpoint = begun.map_end
            if begun.map_end == end:
                return done, True
            if limit.is_over():
                done.note = _NO_TIME
                return done, False
            begun, walked = None, Walked()

    def _walk(self, walked: Walked, limit: TimeLimit) -> History | None:
        return read_history(self.folder, self.partition, self.progress, walked, limit.is_over)

    def _begin(
        self, history: History, dirty: int, end: int, checkpoint: int | None, limit: TimeLimit
    ) -> tuple[BegunPass, OffsetMap]:
        """The pass from ``dirty`` on, up to ``end`` or as far as there is memory and time for a map."""
        segments = [segment for segment in history.reaching(dirty) if segment.base_offset < end]
        keys = sum(segment.most_records for segment in segments)
        offset_map = self._offset_map(segments, history.aborted, dirty, end, keys, limit)
        compacted = [segment for segment in history.closed if segment.base_offset < dirty]
        begun = BegunPass(
            checkpoint,
            dirty,
            offset_map.end,
            end,
            keys,
            compacted[-1].modified_ms if compacted else None,
            history.producers,
            history.aborted,
            CleanedTransactions(history.aborted).state(),
            [segment for segment in history.closed if segment.base_offset < offset_map.end],
        )
        return begun, offset_map

    def _map_again(self, closed: Sequence[StoredBatches], begun: BegunPass) -> OffsetMap:
        """The map of a pass that goes on."""
        segments = [s for s in reaching(closed, begun.first_dirty_offset) if s.base_offset < begun.map_end]
        return self._offset_map(
            segments, begun.aborted, begun.first_dirty_offset, begun.map_end, begun.keys, TimeLimit()
        )

    def _offset_map(
        self,
        segments: Sequence[StoredBatches],
        aborted: np.ndarray,
        start: int,
        end: int,
        keys: int,
        limit: TimeLimit,
    ) -> OffsetMap:
        """The last offset of each key from ``start`` on, up to ``end`` or as far as there is memory and time.

        Checksums were verified before, and are again before anything is written.
        """
        offset_map = OffsetMap(self.settings.dedupe_buffer_size, keys, secrets.randbits(128))
        limits = DecodeLimits(check_crcs=False, max_record_bytes=self.settings.max_record_bytes)
        transactions = CleanedTransactions(aborted[aborted["last_offset"] >= start])
        offset_map.end = end
        for number, segment in enumerate(segments):
            if number and limit.is_over(_MAP_SHARE):
                offset_map.end = segment.base_offset
                return offset_map
            for piece in read(self.partition, segment, self.progress, check_crcs=False):
                batches = piece.batches
                with naming(self.partition, segment, piece):
                    hidden, *_ = transactions.add(piece.data, batches)
                    wanted = ~hidden & ~batches.is_control & (batches.last_offset >= start)
                    try:
                        indexer = Indexer(piece.data, batches, limits)
                        for indexed in indexer.index(0, len(batches), wanted, OffsetRange(start, end)):
                            if not offset_map.put(indexed):
                                return offset_map
                    except DamageError as e:
                        raise CorruptRecordError(e.damage.message, position=e.damage.position) from None
        return offset_map

    def _clean(
        self,
        begun: BegunPass,
        offset_map: OffsetMap,
        done: Compacted,
        limit: TimeLimit,
        *,
        execute: bool = True,
    ) -> BegunPass | None:
        """Write the segments of a pass again; if there is no time for all, what is left of it."""
        transactions = CleanedTransactions.from_state(begun.transactions)
        cleaning = Pass(
            self.folder,
            self.partition,
            transactions,
            begun.producers,
            offset_map,
            compacted_ms=begun.compacted_ms,
            end=begun.end,
            delete_retention_ms=self.settings.delete_retention_ms,
            index_interval_bytes=self.settings.index_interval_bytes,
            max_record_bytes=self.settings.max_record_bytes,
            now_ms=self.now_ms,
            progress=self.progress,
        )
        settings, left = self.settings, len(begun.rest)
        groups = in_groups(begun.rest, begun.end, settings.segment_bytes, settings.segment_index_bytes)
        for number, group in enumerate(groups):
            if number and limit.is_over():
                break
            cleaning.clean(group, execute=execute)
            left -= len(group)
        totals = cleaning.totals
        if not done.passes:
            done.records, done.stored_bytes = totals.records, totals.stored_bytes
        done.removed_records += totals.records - totals.retained_records
        done.removed_bytes += totals.stored_bytes - totals.retained_bytes
        if not left:
            return None
        return replace(begun, transactions=transactions.state(), rest=begun.rest[-left:])


def cleanable(history: History, settings: CompactionSettings, bounds: LogBounds, now_ms: int) -> Cleanable:
    """The part of a log that may be compacted, whether it is to be, and why it is not larger."""
    first_base = history.closed[0].base_offset if history.closed else history.active_base
    start = max(bounds.log_start_offset, first_base)
    dirty = start if bounds.first_dirty_offset is None else bounds.first_dirty_offset
    if not start <= dirty <= history.log_end_offset:
        dirty = start
    limits = [(history.active_base, "")]
    limits.append(
        (history.last_stable_offset, f"a transaction is open at offset {history.last_stable_offset}")
    )
    if bounds.high_watermark is not None:
        limits.append((bounds.high_watermark, f"the high watermark is {bounds.high_watermark}"))
    if settings.min_compaction_lag_ms > 0:
        newest = now_ms - settings.min_compaction_lag_ms
        limits += [
            (segment.base_offset, "the rest is within min.compaction.lag.ms")
            for segment in history.reaching(dirty)
            if (segment.latest_timestamp if segment.latest_timestamp >= 0 else segment.modified_ms) > newest
        ][:1]
    end, note = min(limits, key=lambda limit: limit[0])
    beyond = history.reaching(end)
    end = max(dirty, beyond[0].base_offset if beyond else history.active_base)
    if end == dirty:
        return Cleanable(dirty, end, 0, False, False, note or "nothing new before the active segment")
    segments = [segment for segment in history.reaching(dirty) if segment.base_offset < end]
    dirty_bytes = sum(segment.size for segment in segments)
    all_bytes = dirty_bytes + sum(s.size for s in history.closed if s.base_offset < dirty)
    ratio = dirty_bytes / max(all_bytes, 1)
    oldest = min((s.first_timestamp for s in segments if s.first_timestamp > 0), default=now_ms)
    is_overdue = dirty_bytes > 0 and oldest < now_ms - settings.max_compaction_lag_ms
    if ratio <= settings.min_cleanable_dirty_ratio and not is_overdue:
        bound = settings.min_cleanable_dirty_ratio
        note = f"{ratio:.2f} is dirty, min.cleanable.dirty.ratio is {bound:g}"
        return Cleanable(dirty, dirty, ratio, False, False, note)
    return Cleanable(dirty, end, ratio, True, is_overdue, note)
