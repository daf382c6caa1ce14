"""Compact one partition: the last record of each key stays, with its offset.

What may be compacted are whole segments before the active one, below the last stable offset and the high
watermark, and older than ``min.compaction.lag.ms``. In their dirty part a map finds the last offset of each
key, for as many keys as memory allows. Then all segments up to the map's end are written again without what
it outdates. If that is not the end of what may be compacted, this is done again from there.

Nothing is trusted but the batches: they are verified first, and again before anything is written.

Sources: Kafka's ``LogCleanerManager.cleanableOffsets``, ``grabFilthiestCompactedLog``, ``Cleaner.doClean``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from pyspark_kafkalog.codec.indexing import MAX_RECORD_BYTES, DamageError, DecodeLimits, Indexer
from pyspark_kafkalog.codec.offset_map import OffsetMap
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.tools.care.cleaned_transactions import CleanedTransactions
from pyspark_kafkalog.tools.care.cleaning import Pass
from pyspark_kafkalog.tools.care.history import History, in_groups, naming, read, read_history

DEDUPE_BUFFER_SIZE = 128 << 20
"""Kafka's default of log.cleaner.dedupe.buffer.size."""


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


def compact(
    folder: str,
    partition: TopicPartition,
    settings: CompactionSettings,
    bounds: LogBounds,
    *,
    now_ms: int,
    execute: bool,
    progress: Callable[[int], object] = lambda size: None,
) -> Compacted:
    """Compact what may be compacted of a partition. Without ``execute`` count what one pass would remove.

    The caller holds the directory's lock, has called :func:`.leftovers.clear_leftovers`, and writes
    :attr:`Compacted.first_dirty_offset` to ``cleaner-offset-checkpoint``.

    :param progress: called with the bytes of each stretch that was read: some three times those of the log.
    :raises OversizedRecordError: at a record that is larger than the settings allow. Likewise.
    :raises CorruptRecordError: if a batch is damaged; segments that were replaced before that are compacted.
    """
    history = read_history(folder, partition, progress)
    dirty, end, note = _cleanable(history, settings, bounds, now_ms)
    done = Compacted(dirty, note)
    while dirty < end:
        offset_map = _offset_map(history, partition, dirty, end, settings, progress)
        cleaning = Pass(
            folder,
            partition,
            history,
            offset_map,
            first_dirty_offset=dirty,
            end=end,
            delete_retention_ms=settings.delete_retention_ms,
            index_interval_bytes=settings.index_interval_bytes,
            max_record_bytes=settings.max_record_bytes,
            now_ms=now_ms,
            progress=progress,
        )
        segments = [segment for segment in history.closed if segment.base_offset < offset_map.end]
        for group in in_groups(segments, end, settings.segment_bytes, settings.segment_index_bytes):
            cleaning.clean(group, execute=execute)
        totals = cleaning.totals
        if not done.passes:
            done.records, done.stored_bytes = totals.records, totals.stored_bytes
        done.passes += 1
        done.removed_records += totals.records - totals.retained_records
        done.removed_bytes += totals.stored_bytes - totals.retained_bytes
        dirty = offset_map.end
        if not execute:
            done.note = done.note if dirty == end else "one pass of several"
            return done
        done.first_dirty_offset = dirty
        if dirty < end:
            history = read_history(folder, partition, progress)
    return done


def _cleanable(
    history: History, settings: CompactionSettings, bounds: LogBounds, now_ms: int
) -> tuple[int, int, str]:
    """The first dirty offset, the end of what is to be compacted from there, and why that is not more."""
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
    reaching = history.reaching(end)
    end = max(dirty, reaching[0].base_offset if reaching else history.active_base)
    if end == dirty:
        return dirty, end, note or "nothing new before the active segment"
    segments = [segment for segment in history.reaching(dirty) if segment.base_offset < end]
    dirty_bytes = sum(segment.size for segment in segments)
    all_bytes = dirty_bytes + sum(s.size for s in history.closed if s.base_offset < dirty)
    ratio = dirty_bytes / max(all_bytes, 1)
    oldest = min((s.first_timestamp for s in segments if s.first_timestamp > 0), default=now_ms)
    is_overdue = dirty_bytes > 0 and oldest < now_ms - settings.max_compaction_lag_ms
    if ratio <= settings.min_cleanable_dirty_ratio and not is_overdue:
        bound = settings.min_cleanable_dirty_ratio
        return dirty, dirty, f"{ratio:.2f} is dirty, min.cleanable.dirty.ratio is {bound:g}"
    return dirty, end, note


def _offset_map(
    history: History,
    partition: TopicPartition,
    start: int,
    end: int,
    settings: CompactionSettings,
    progress: Callable[[int], object],
) -> OffsetMap:
    """The last offset of each key from ``start`` on, up to ``end`` or as far as there is memory for.

    Checksums were verified for the ``history``, and are again before anything is written.
    """
    segments = [segment for segment in history.reaching(start) if segment.base_offset < end]
    keys = sum(segment.most_records for segment in segments)
    offset_map = OffsetMap(settings.dedupe_buffer_size, keys, secrets.randbits(128))
    limits = DecodeLimits(check_crcs=False, max_record_bytes=settings.max_record_bytes)
    transactions = CleanedTransactions(history.aborted[history.aborted["last_offset"] >= start])
    for segment in segments:
        for piece in read(partition, segment, progress, check_crcs=False):
            batches = piece.batches
            with naming(partition, segment, piece):
                hidden, *_ = transactions.add(piece.data, batches)
                wanted = ~hidden & ~batches.is_control & (batches.last_offset >= start)
                try:
                    indexer = Indexer(piece.data, batches, limits)
                    for indexed in indexer.index(0, len(batches), wanted, OffsetRange(start, MAX_OFFSET)):
                        if not offset_map.put(indexed):
                            return offset_map
                except DamageError as e:
                    raise CorruptRecordError(e.damage.message, position=e.damage.position) from None
    offset_map.end = end
    return offset_map
