"""The live segments of a partition, and the end of the last one, as a broker loads them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.layout import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, parse_segment_file
from pyspark_kafkalog.log.segment.segment import GONE, FramingError, OpenSegment, Segment


class LogEnd(NamedTuple):
    """The end of the last segment, as far as batches can be framed."""

    segment: Segment
    log_end_offset: int
    last_batch: int
    """Position of the last batch."""
    torn_at: int | None
    """Position after which no batch begins; None if the last batch ends with the file."""
    is_room: bool = False
    """Whether only zeros are there: the file is preallocated (``preallocate``), and nothing is torn."""


def live_segments(folder: Folder) -> list[Segment]:
    """The segments that Kafka keeps on loading (LogLoader), which finishes or undoes the cleaner's work.

    ``.deleted`` and ``.cleaned`` files don't count. A ``.swap`` file with a base
    offset at or above the least ``.cleaned`` one belongs to an unfinished replacement,
    and doesn't count either. Other ``.swap`` files replace the segments whose base
    offset is in the range of offsets that they span.

    A segment that was renamed after the listing is among them; opening it fails then.

    :raises FileNotFoundError: if the folder, or a ``.swap`` file just now, is gone.
    :raises LogDirectoryError: if the folder keeps changing.
    """
    plain: dict[int, Segment] = {}
    swaps: dict[int, Segment] = {}
    entries = folder.list(_is_of_a_log, _base_offsets)
    for name in _live_names(entries):
        entry = entries[name]
        if entry.type not in (fs.FileType.File, fs.FileType.NotFound):
            raise LogDirectoryError("Not a regular file", file=folder.label(name))
        base_offset, suffix = _parsed(name)
        suffix = suffix[len(LOG_SUFFIX) :]
        size = entry.size if entry.type == fs.FileType.File else GONE
        segment = Segment(folder, base_offset, suffix, size, entry.mtime_ns, is_active=False)
        (swaps if suffix else plain)[base_offset] = segment
    if swaps:
        end = 0
        for swap in swaps.values():
            with swap.open() as opened:
                end = max(end, find_end(opened, None).log_end_offset)
        plain = {base: segment for base, segment in plain.items() if not min(swaps) <= base < end} | swaps
    segments = [plain[base_offset] for base_offset in sorted(plain)]
    return segments and [*segments[:-1], replace(segments[-1], is_active=True)]


def _is_of_a_log(name: str) -> bool:
    """Whether the file decides which segments are live."""
    return name.endswith((LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX, CLEANED_SUFFIX)) and _parsed(name)[1] != ""


def _parsed(name: str) -> tuple[int, str]:
    return parse_segment_file(name) or (0, "")


def _live_names(names: Collection[str]) -> list[str]:
    """The names of the ``.log`` files, and of the ``.swap`` files that a broker would keep."""
    parsed = [(name, *_parsed(name)) for name in names]
    cleaned = [base_offset for _, base_offset, suffix in parsed if suffix.endswith(CLEANED_SUFFIX)]
    least_cleaned = min(cleaned, default=2**63)
    return [
        name
        for name, base_offset, suffix in parsed
        if suffix == LOG_SUFFIX or (suffix == LOG_SUFFIX + SWAP_SUFFIX and base_offset < least_cleaned)
    ]


def _base_offsets(names: Collection[str]) -> frozenset[int]:
    """The base offsets of live segments, by any of their names: no listing may lack one."""
    return frozenset(_parsed(name)[0] for name in _live_names(names))


def find_end(opened: OpenSegment, known: LogEnd | None) -> LogEnd:
    """Walk to the end of a segment, from the ``known`` end or else from its last index entry."""
    segment = opened.segment
    if known is None or not _continues(opened, known):
        known = LogEnd(segment, segment.base_offset, opened.last_known_batch(), None)
    _, log_end_offset, last_batch, torn_at, is_room = known
    position = last_batch
    while True:
        try:
            for window in opened.windows(position):
                last_batch = window.position + int(window.batches.position[-1])
                log_end_offset = int(window.batches.last_offset[-1]) + 1
            return LogEnd(segment, log_end_offset, last_batch, None)
        except FramingError as e:
            # Zeros are searched only once, as a batch takes their place when it is appended.
            searched = torn_at is not None and torn_at <= e.position and known.segment.size == segment.size
            is_room = (searched and is_room) or opened.ends_in_zeros(e.position)
            found = None if searched or is_room else opened.next_batch(e.position + 1, e.next_offset)
            if found is None:
                return LogEnd(segment, log_end_offset, last_batch, e.position, is_room)
            position = found


def _continues(opened: OpenSegment, known: LogEnd) -> bool:
    """Whether the file still has the last known batch, and so has only grown."""
    now, then = opened.segment, known.segment
    if (now.base_offset, now.suffix) != (then.base_offset, then.suffix):
        return False
    window = opened.window_at(known.last_batch)
    return window is not None and int(window.batches.last_offset[0]) + 1 == known.log_end_offset
