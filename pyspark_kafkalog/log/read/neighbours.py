"""Whether a segment follows another, or one between them is missing. Listings may be older than folders."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.segment.loading import find_end
from pyspark_kafkalog.log.segment.missing import bases_without_log
from pyspark_kafkalog.log.segment.segment import Segment

_RENAMING = 0.1
"""Seconds in which a broker renames the indexes of a segment that it deletes, after its ``.log``."""


class Neighbours:
    """The check that segments follow one another, by a listing younger than their own.

    :param segments: lists the live segments again.
    """

    def __init__(self, folder: Folder, segments: Callable[[], list[Segment]]) -> None:
        self._folder = folder
        self._segments = segments
        self._confirmed: set[tuple[Segment, tuple[int, str] | None]] = set()
        self._without_log: set[int] = set()

    def check(self, segment: Segment, following: Segment | None, *, fresh: bool = False) -> None:
        """FileNotFoundError unless ``following`` (None for nothing) still follows ``segment``.

        :param fresh: whether earlier listings do not count, as the segment may have been replaced since by
            one that has its size and time of change.
        """
        pair = _identity(segment), None if following is None else (following.base_offset, following.suffix)
        if pair in self._confirmed and not fresh:
            return
        segments = self._segments()
        self._without_log = bases_without_log(self._folder.names())
        self._confirmed = {
            (first, (second.base_offset, second.suffix)) for first, second in pairwise(segments)
        } | {(_identity(segment), None) for segment in segments[-1:]}
        if pair not in self._confirmed:
            raise FileNotFoundError(errno.ENOENT, "The segments have changed", segment.file)

    def missing(self, segment: Segment, following: Segment) -> int | None:
        """The base offset of the first segment that is missing between two; None without proof of one.

        :raises FileNotFoundError: if ``following`` does not follow ``segment`` any more.
        """
        seen = self._between(segment, following)
        if not seen:
            return None
        time.sleep(_RENAMING)
        self.check(segment, following, fresh=True)
        seen &= self._between(segment, following)
        with segment.open() as opened:  # what reaches beyond a base offset has replaced it
            end = find_end(opened, None).log_end_offset
        return min((base for base in seen if base >= end), default=None)

    def _between(self, segment: Segment, following: Segment) -> set[int]:
        return {base for base in self._without_log if segment.base_offset < base < following.base_offset}


def _identity(segment: Segment) -> Segment:
    """The part of a segment that stays the same: an active one grows."""
    return replace(segment, size=0, mtime_ns=0) if segment.is_active else segment
