"""The last segment in a partition's folder, for a write."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafkalog.log.layout import LOG_SUFFIX, parse_segment_file
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers

_DIGITS = 20
"""Digits of a base offset in a name."""


class Newest(NamedTuple):
    """The end of a partition's folder."""

    segment: int | None
    """Base offset of the last segment; None without one."""
    others: tuple[str, ...]
    """Names of files for higher base offsets, such as snapshots."""


def find_newest(folder: str) -> Newest:
    """The last segment in a partition's folder; the caller holds the directory's lock.

    What a crash left of a replacement of segments is put in order first. Of thousands of names only those
    at the end are read.

    :raises LogDirectoryError: if a segment is not a regular file.
    """
    names = clear_leftovers(folder)
    logs = sorted((name for name in names if name.endswith(LOG_SUFFIX)), reverse=True)
    files = ((name, parse_segment_file(name)) for name in logs)
    last, base_offset = next(
        ((name, file[0]) for name, file in files if file and file[1] == LOG_SUFFIX), ("", None)
    )
    # As all names of segments begin with as many digits, those that may be behind it sort behind it.
    found = ((name, parse_segment_file(name)) for name in names if name >= last[:_DIGITS])
    others = (name for name, file in found if file and (base_offset is None or file[0] > base_offset))
    return Newest(base_offset, tuple(others))
