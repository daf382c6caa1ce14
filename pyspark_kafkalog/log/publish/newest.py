"""The last segment in a partition's folder, for a write.

A folder with thousands of files takes longer to list than a small write does. So a writer that has listed
one notes the last segment in ``.kafkalog-newest`` there, which brokers ignore, with the folder's identity and
the time of its last change. As long as both are the same no name has come or gone, and the note counts.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import NamedTuple

from pyspark_kafkalog.errors import UNREADABLE
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.layout import LOG_SUFFIX, parse_segment_file
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers

_DIGITS = 20
"""Digits of a base offset in a name."""
_NOTE_FILE = ".kafkalog-newest"
_MANY = 300
"""The least number of names that are worth a note."""
_TICK_NS = 1_000_000_000
"""The time after a change in which another one may leave the folder's times as they are; milliseconds on
most file systems."""


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
    state = _state(folder)
    noted = _read_note(folder, state)
    if noted is not None:
        return noted
    names = clear_leftovers(folder)
    logs = sorted((name for name in names if name.endswith(LOG_SUFFIX)), reverse=True)
    files = ((name, parse_segment_file(name)) for name in logs)
    last, base_offset = next(
        ((name, file[0]) for name, file in files if file and file[1] == LOG_SUFFIX), ("", None)
    )
    # As all names of segments begin with as many digits, those that may be behind it sort behind it.
    found = ((name, parse_segment_file(name)) for name in names if name >= last[:_DIGITS])
    others = (name for name, file in found if file and (base_offset is None or file[0] > base_offset))
    newest = Newest(base_offset, tuple(others))
    if len(names) >= _MANY:
        _write_note(folder, state, newest, is_first=_NOTE_FILE not in names)
    return newest


def _state(folder: str) -> tuple[int, int, int, int]:
    """Values of which one changes when a name in the folder comes or goes, or when it is another folder.

    No program can set the last one, the time in ns at which its inode was changed.
    """
    descriptor = os.open(folder, os.O_RDONLY)  # a file server is asked when a folder is opened
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _read_note(folder: str, state: tuple[int, int, int, int]) -> Newest | None:
    """The end of the folder by its note; None without one that counts."""
    try:
        descriptor = os.open(os.path.join(folder, _NOTE_FILE), os.O_RDONLY | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            if os.fstat(descriptor).st_mtime_ns - state[3] < _TICK_NS:
                return None
            content = json.load(file)
        segment, others = content["segment"], content["others"]
        if tuple(content["state"]) != state:
            return None
        return Newest(None if segment is None else int(segment), tuple(map(str, others)))
    except (OSError, *UNREADABLE):
        return None


def _write_note(folder: str, state: tuple[int, int, int, int], newest: Newest, *, is_first: bool) -> None:
    """Note the end of the folder in place, which changes no name in it unless it ``is_first``."""
    path = os.path.join(folder, _NOTE_FILE)
    content = {"state": state, "segment": newest.segment, "others": newest.others}
    with suppress(OSError):
        descriptor = open_new(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
        with open(descriptor, "wb") as file:
            file.write(json.dumps(content).encode())
        if is_first and _state(folder) == state:  # a file system that does not tell changes
            os.unlink(path)
