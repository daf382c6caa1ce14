"""What a broker finds when it loads a partition: the live segments, and where the last one ends."""

from __future__ import annotations

from typing import NamedTuple

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.filesystem import Folder
from pyspark_kafkalog.log.layout import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, parse_segment_file
from pyspark_kafkalog.log.segment import FramingError, OpenSegment, Segment


class LogEnd(NamedTuple):
    """The end of the last segment, as far as batches can be framed."""

    segment: Segment
    log_end_offset: int
    last_batch: int
    """Position of the last batch."""
    torn_at: int | None
    """Position from which on no batch begins; None if the last batch ends with the file."""


def live_segments(folder: Folder) -> list[Segment]:
    """Kafka's choice on loading (LogLoader), which finishes or undoes what the cleaner had begun.

    ``.deleted`` and ``.cleaned`` files don't count. A ``.swap`` file with a base
    offset from the least ``.cleaned`` one on is of an unfinished split, and
    doesn't count either. Other ``.swap`` files replace the segments whose base
    offset is in the range of offsets that they span.
    """
    plain: dict[int, Segment] = {}
    swaps: dict[int, Segment] = {}
    least_cleaned = 2**63
    for name, entry in folder.list().items():
        parsed = parse_segment_file(name)
        if parsed is None or entry.type == fs.FileType.NotFound:
            continue
        base_offset, suffix = parsed
        if suffix.endswith(CLEANED_SUFFIX):
            least_cleaned = min(least_cleaned, base_offset)
        elif suffix in (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX):
            if entry.type != fs.FileType.File:
                raise LogDirectoryError("Not a regular file", file=folder.label(name))
            found = Segment(folder, base_offset, suffix[len(LOG_SUFFIX) :], entry.size, entry.mtime_ns)
            (swaps if found.suffix else plain)[base_offset] = found
    swaps = {base_offset: swap for base_offset, swap in swaps.items() if base_offset < least_cleaned}
    if swaps:
        end = 0
        for swap in swaps.values():
            with swap.open() as opened:
                end = max(end, find_end(opened, None).log_end_offset)
        plain = {base: segment for base, segment in plain.items() if not min(swaps) <= base < end} | swaps
    return [plain[base_offset] for base_offset in sorted(plain)]


def find_end(opened: OpenSegment, known: LogEnd | None) -> LogEnd:
    """Walk to the end of a segment: on from what was ``known``, or from its last index entry."""
    segment = opened.segment
    if known is None or not _continues(opened, known):
        known = LogEnd(segment, segment.base_offset, opened.last_known_batch(), None)
    _, log_end_offset, last_batch, torn_at = known
    position = last_batch
    while True:
        try:
            for window in opened.windows(position):
                last_batch = window.position + int(window.batches.position[-1])
                log_end_offset = int(window.batches.last_offset[-1]) + 1
            return LogEnd(segment, log_end_offset, last_batch, None)
        except FramingError as e:
            # A preallocated file ends in zeros, which need to be searched but once.
            searched = torn_at is not None and torn_at <= e.position and known.segment.size == segment.size
            found = None if searched else opened.next_batch(e.position + 1, e.next_offset)
            if found is None:
                return LogEnd(segment, log_end_offset, last_batch, e.position)
            position = found


def _continues(opened: OpenSegment, known: LogEnd) -> bool:
    """Whether the file still has the last batch that was known, so that it only grew."""
    now, then = opened.segment, known.segment
    if (now.base_offset, now.suffix) != (then.base_offset, then.suffix):
        return False
    window = opened.window_at(known.last_batch)
    return window is not None and int(window.batches.last_offset[0]) + 1 == known.log_end_offset
