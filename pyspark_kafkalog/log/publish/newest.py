"""The last segment in a partition's folder, which a write finds without listing thousands of others.

A write that lists a folder of many names notes in ``.kafkalog-newest``, a file in it that brokers ignore,
what it has found, with the folder's device, inode and times of change. While these are the same, no name has
come or gone: no broker, cleaner or retention has begun, replaced or removed a segment. Appends change none.

A folder's time shows each later change only when it is 2 s old, and some file systems keep none. So nothing
is noted of a folder that has changed more recently, by the clock that dates its files; and a note counts only
if the folder's time has moved since before the note's own file was made in it. The file is then overwritten
in place. It has a checksum, and is never flushed: it counts on the machine that has written it, until that
is started again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import NamedTuple

from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.errors import UNREADABLE, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import write_all
from pyspark_kafkalog.filesystem.machine import machine_id
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.checkpoints import read_if_there
from pyspark_kafkalog.log.layout import LOG_SUFFIX, parse_segment_file, segment_file
from pyspark_kafkalog.log.read.listings import was_at_rest
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers

NEWEST_FILE = ".kafkalog-newest"
_MANY = 500
"""Names in a folder, up to which a listing costs less than a note."""
_DIGITS = 20
"""Digits of a base offset in a name."""


class Newest(NamedTuple):
    """The end of a partition's folder."""

    segment: int | None
    """Base offset of the last segment; None without one."""
    others: tuple[str, ...]
    """Names of files for higher base offsets, such as snapshots."""

    def is_in(self, folder: str) -> bool:
        """Whether the folder has that segment, if any."""
        return self.segment is None or os.path.lexists(
            os.path.join(folder, segment_file(self.segment, LOG_SUFFIX))
        )


class _State(NamedTuple):
    """A folder, and when names in it have last come or gone (``st_mtime``), or its mode (``st_ctime``)."""

    device: int
    inode: int
    modified_ns: int
    changed_ns: int


class _Note(NamedTuple):
    """The content of the file."""

    before: _State
    """The folder before the file was made in it."""
    listed: _State | None = None
    """The folder as it was when it was listed."""
    machine: str = ""
    """The machine where that was."""
    newest: Newest = Newest(None, ())

    def is_of(self, folder: str, state: _State) -> bool:
        """Whether it tells of the folder in this state, on a file system that keeps the times of folders."""
        is_kept = self.listed == state and state.modified_ns != self.before.modified_ns
        return is_kept and self.machine == machine_id() and self.newest.is_in(folder)

    def is_in(self, state: _State) -> bool:
        """Whether its file was made in the folder: not in another one, of which this is a copy."""
        return self.before[:2] == state[:2]


def find_newest(folder: str) -> Newest:
    """The last segment in a partition's folder; the caller holds the directory's lock.

    What a crash left of a replacement of segments is put in order first.

    :raises LogDirectoryError: if a segment is not a regular file.
    """
    note, state = _read(folder), _state(folder)
    if note is not None and note.is_of(folder, state):
        return note.newest
    clear_leftovers(folder)
    if note is None or not note.is_in(state):
        newest, count = _listed(folder)
        if count > _MANY:
            with suppress(OSError):  # a note saves time, no more
                _make(folder)
        return newest
    now_ns = None
    with suppress(OSError):
        now_ns = _write(folder, _Note(note.before))
    state = _state(folder)
    newest, _ = _listed(folder)
    if now_ns is not None and state == _state(folder) and was_at_rest((max(state[2:]),), now_ns):
        with suppress(OSError):
            _write(folder, _Note(note.before, state, machine_id(), newest))
    return newest


def _listed(folder: str) -> tuple[Newest, int]:
    """The end of a folder as it is, and how many names it has."""
    names = os.listdir(folder)
    logs = sorted((name for name in names if name.endswith(LOG_SUFFIX)), reverse=True)
    last = next(filter(parse_segment_file, logs), "")
    newest = parse_segment_file(last)
    base_offset = None if newest is None else newest[0]
    # As all names of segments begin with as many digits, those that may be behind it sort behind it.
    found = ((name, parse_segment_file(name)) for name in names if name >= last[:_DIGITS])
    others = (name for name, file in found if file and (base_offset is None or file[0] > base_offset))
    return Newest(base_offset, tuple(others)), len(names)


def _state(folder: str) -> _State:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # a mounted folder shows its present times
    try:
        now = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return _State(now.st_dev, now.st_ino, now.st_mtime_ns, now.st_ctime_ns)


def _make(folder: str) -> None:
    """Make the file, with what tells later whether this has moved the folder's time."""
    path = os.path.join(folder, NEWEST_FILE)
    with suppress(FileNotFoundError):
        os.unlink(path)
    note = _Note(_state(folder))
    os.close(open_new(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW))
    _write(folder, note)


def _write(folder: str, note: _Note) -> int:
    """Write the note over the old one; the time (ns), by the clock that dates files there."""
    text = json.dumps(note).encode()
    descriptor = os.open(os.path.join(folder, NEWEST_FILE), os.O_WRONLY | os.O_NOFOLLOW)
    try:
        write_all(descriptor, b"%08x %s\n" % (crc32c(text), text), 0)
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def _read(folder: str) -> _Note | None:
    """The note, if it is whole."""
    try:
        crc, _, text = read_if_there(os.path.join(folder, NEWEST_FILE)).partition(b"\n")[0].partition(b" ")
        if int(crc, 16) != crc32c(text):
            return None
        before, listed, machine, (segment, others) = json.loads(text)
        return _Note(_State(*before), listed and _State(*listed), machine, Newest(segment, tuple(others)))
    except (LogDirectoryError, *UNREADABLE):
        return None
