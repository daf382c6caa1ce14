"""Folders and files of a log directory, on any file system that pyarrow or fsspec opens.

A :class:`Folder` lists and opens only regular files in it, and no symbolic link that
leads out of the place that the user named. Log files are read by ranges, never whole
and never mapped into memory.

A listing takes a while on every file system. If a file is renamed meanwhile, the
listing may miss it although it was there all the time: see :func:`wait`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem import durable

if TYPE_CHECKING:
    from pyspark_kafkalog.filesystem.ahead import PieceReader

_STORES = frozenset({"s3", "gcs", "abfs"})
"""Object stores: a file appears whole when its stream is closed."""
NEW_SUFFIX = ".new"
"""Ends the name of a whole file that is about to replace the one it is named after."""
_MAX_TEXT_FILE = 64 << 20
_FIRST_READ = 64 << 10
_ZEROS_WINDOW = 1 << 20
_SEEK_DATA = getattr(os, "SEEK_DATA", None)
_ATTEMPTS = 60
"""The most looks at files that keep changing, over 4 seconds in all."""
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_FIFO = getattr(os, "O_NONBLOCK", 0)
"""Opening a FIFO would wait for a writer."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_HINTS = {
    errno.ENOTDIR: "A file is in the place of a folder: give a folder.",
    errno.EIO: "The disk cannot read it: see the system's log, and restore it from a replica or a backup.",
    errno.EACCES: "Let the user of this process (with Spark, of driver and workers) read it.",
    errno.EPERM: "Let the user of this process (with Spark, of driver and workers) read it.",
    errno.EMFILE: "Raise the process's limit of open files (ulimit -n).",
    errno.ENFILE: "Raise the system's limit of open files.",
    errno.ENOMEM: "Give the process more memory, or let fewer tasks run at once.",
    errno.ENOTCONN: "Mount the file system again.",
    errno.ETIMEDOUT: "Check whether the file system is reachable, then try again.",
}


class Entry(NamedTuple):
    """A name in a listing."""

    type: fs.FileType
    size: int = 0
    """Bytes of a file."""
    mtime_ns: int = 0


_NOT_FOUND = Entry(fs.FileType.NotFound)


class InputFile:
    """A file opened for reads by range. Use it as a context manager."""

    def __init__(
        self,
        stream: pa.NativeFile | io.FileIO,
        name: str,
        size: int,
        mtime_ns: int | None = None,
        pieces: PieceReader | None = None,
    ) -> None:
        self._stream = stream
        self._pieces = pieces
        """Reads a file of an object store."""
        self.name = name
        """Path or URI, for error messages."""
        self.size = size
        """Bytes of the file when it was opened."""
        self.mtime_ns = mtime_ns
        """Time of its last change when it was opened; None if the file system has none."""

    @property
    def descriptor(self) -> int | None:
        """The descriptor for ``os.pread`` of a local file; None if it is elsewhere, or there is no pread."""
        is_local = isinstance(self._stream, io.FileIO) and hasattr(os, "pread")
        return self._stream.fileno() if is_local else None

    def named(self) -> AbstractContextManager[None]:
        """Turn errors of the system, as :meth:`read` does, into ones that name the file."""
        return _named(self.name)

    def expect(self, until: int) -> None:
        """Say that the following reads go on to the position ``until``; a store is then read ahead."""
        if self._pieces is not None:
            self._pieces.expect(until)

    def begin(self, until: int) -> None:
        """Let a store send the first bytes already, as reads from the start to ``until`` follow soon."""
        if self._pieces is not None:
            self._pieces.begin(until)

    def read(self, position: int, size: int, room: pa.Buffer | None = None) -> pa.Buffer:
        """The bytes from ``position``: ``size`` of them, fewer at the end of the file.

        :param room: memory, large enough, to read a local file into; new memory costs as much as the read.
        :raises FileNotFoundError: if a file server has deleted the file.
        """
        with _named(self.name):
            if self._pieces is not None:
                return self._pieces.read(position, size)
            self._stream.seek(position)
            if isinstance(self._stream, io.FileIO):
                return _read(self._stream, size, room)
            return self._stream.read_buffer(size)

    def skip_zeros(self, position: int) -> int:
        """The first position from ``position`` on with a byte that is not zero; the file's size without one.

        :raises FileNotFoundError: if a file server has deleted the file.
        """
        zeros, room = _zeros(), None
        while (position := self._skip_hole(position)) < self.size:
            size = min(_ZEROS_WINDOW, self.size - position)
            room = pa.allocate_buffer(size) if room is None else room
            data = self.read(position, size, room)
            if not data.equals(zeros.slice(0, data.size)):
                return position + int(np.flatnonzero(np.frombuffer(data, np.uint8))[0])
            if not data.size:  # it has become shorter
                break
            position += data.size
        return self.size

    def end_before_zeros(self, position: int) -> int:
        """The position at which the zeros at the end of the file begin, ``position`` at least.

        :raises FileNotFoundError: if a file server has deleted the file.
        """
        end = position
        while (position := self.skip_zeros(position)) < self.size:
            data = np.frombuffer(self.read(position, min(_ZEROS_WINDOW, self.size - position)), np.uint8)
            end = position + int(np.flatnonzero(data).max(initial=-1)) + 1
            position += max(data.size, 1)
        return end

    def _skip_hole(self, position: int) -> int:
        """``position``, or the end of the hole that it is in: there a local disk keeps nothing."""
        if isinstance(self._stream, io.FileIO) and _SEEK_DATA is not None:
            try:
                return os.lseek(self._stream.fileno(), position, _SEEK_DATA)
            except OSError as e:
                if e.errno == errno.ENXIO:
                    return self.size
        return position

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pieces is not None:
            self._pieces.close()
        self._stream.close()


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file system. If it is missing, using it raises FileNotFoundError."""

    filesystem: fs.FileSystem
    path: str
    """Path in ``filesystem``, with no slash at its end unless it is the root of the file system."""
    top: str
    """Real path of the folder that no link may lead out of."""
    prefix: str = ""
    """Stands before paths in error messages, such as ``s3://``."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk or a mount of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def is_store(self) -> bool:
        """Whether it is in an object store, where each request takes long."""
        return self.filesystem.type_name in _STORES

    def child(self, name: str) -> Folder:
        """The folder ``name`` in this one."""
        return replace(self, path=self._join(name))

    def parent(self) -> Folder:
        """The folder that holds this one."""
        path = self.path.rpartition("/")[0] or ("/" if self.path.startswith("/") else "")
        return replace(self, path=path, top=os.path.realpath(path) if self.is_local else path)

    def label(self, name: str = "") -> str:
        """The name of this folder, or of the file ``name`` in it, for error messages."""
        return self.prefix + (self._join(name) if name else self.path)

    def list(
        self,
        wanted: Callable[[str], object] = bool,
        key: Callable[[Collection[str]], Set[Any]] = frozenset,
    ) -> dict[str, Entry]:
        """The names in the folder, with the type, size and time of their targets.

        The type is NotFound where the target had vanished after the listing.

        A listing misses a renamed file if it looks for each of its names at the wrong moment. A broker
        that replaces a segment renames three times (``.cleaned`` to ``.swap``, ``.log`` to ``.deleted``,
        ``.swap`` to ``.log``), which hides the segment from two listings in a row, but not from three. So a
        listing counts if it misses nothing that the two before it saw; in a store, where nothing is renamed,
        the one before it.

        :param wanted: says whether to include a name.
        :param key: makes of the wanted names what must not be missing; by default all of them.
        :raises FileNotFoundError: if the folder is gone.
        :raises LogDirectoryError: if it keeps changing.
        """
        names = [*self.names()]
        before = [key([name for name in names if wanted(name)])]
        if not self.is_store:
            again = [*self.names()]
            before += before if again == names else [key([name for name in again if wanted(name)])]
        attempt = 0
        while True:
            entries = self._entries(wanted)
            now = key(entries)
            if all(now >= seen for seen in before):
                return entries
            before = [*before[1:], now]
            wait(attempt, self.label())
            attempt += 1

    def look(self, name: str) -> Entry:
        """The entry of ``name`` as in :meth:`list`; its type is NotFound if there is none."""
        try:
            if self.is_local:
                return _local_entry(self._join(name))
            self._forget()
            return _entry(self.filesystem.get_file_info(self._join(name)))
        except OSError as e:
            raise _named_error(e, self.label(name)) from None

    def exists(self) -> bool:
        """Whether the folder is there."""
        with _named(self.label()):
            self._forget()
            return bool(self.filesystem.get_file_info(self.path).type == fs.FileType.Directory)

    def changed(self) -> tuple[int, ...] | None:
        """A value that changes when a name in the folder comes or goes; None if the file system has none.

        A second change within the clock's resolution, some milliseconds on local disks, may not change it.
        """
        if not self.is_local:
            return None
        try:
            now = os.stat(self.path)
        except OSError as e:
            raise _named_error(e, self.label()) from None
        return now.st_dev, now.st_ino, now.st_mtime_ns

    def open(self, name: str) -> InputFile:
        """Open the file ``name``.

        :raises FileNotFoundError: if it is gone.
        :raises LogDirectoryError: if it is not a regular file, or is a link that leads out of ``top``.
        """
        path, label = self._join(name), self.label(name)
        with _named(label):
            if not self.is_local:
                stream = self.filesystem.open_input_file(path)
                size = stream.size()
                if not self.is_store:
                    return InputFile(stream, label, size)
                from pyspark_kafkalog.filesystem.ahead import PieceReader

                return InputFile(stream, label, size, pieces=PieceReader(stream.read_at, size))
            try:
                descriptor = os.open(path, _OPEN_FLAGS | _NO_FIFO | _NO_LINK)
            except OSError as e:
                if e.errno != errno.ELOOP:
                    raise
                self.check_inside(name)
                descriptor = os.open(path, _OPEN_FLAGS | _NO_FIFO)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                os.close(descriptor)
                raise LogDirectoryError("Not a regular file", file=label)
            return InputFile(io.FileIO(descriptor), label, status.st_size, status.st_mtime_ns)

    def read(self, name: str, *, before: bytes | None = None, most: int | None = None) -> bytes | None:
        """The bytes of the small file ``name``; None if there is none.

        :param before: read only up to these bytes; the file may be large then.
        :param most: the bytes that it may have; 64 MiB by default.
        :raises LogDirectoryError: if it has more, or if :meth:`open` refuses it.
        """
        most = most or _MAX_TEXT_FILE
        try:
            with self.open(name) as file:
                size = file.size if before is None else _FIRST_READ
                while size <= most:
                    data: bytes = file.read(0, min(size, file.size)).to_pybytes()
                    if before is not None and before in data:
                        return data[: data.index(before)]
                    if size >= file.size:
                        return data
                    size *= 4
                raise LogDirectoryError(f"Expected a small file, got {file.size} bytes", file=file.name)
        except FileNotFoundError:
            return None

    def make(self) -> None:
        """Make the folder, and those above it, if they are missing.

        :raises OSError: if it cannot be made.
        """
        self.filesystem.create_dir(self.path, recursive=True)

    def replace(self, name: str, data: bytes, *, flush: bool = False) -> None:
        """Put a whole new file ``name`` in place of the old one, if any; the folder is made if it is missing.

        HDFS and some file systems of fsspec rename to new names only. There the old file is deleted once
        the new one is whole under a name of its own, where :meth:`read_replaced` finds it after a kill.

        :param flush: whether it must outlast a loss of power. Other file systems than local ones see to that.
        :raises OSError: if it cannot be written.
        """
        self.make()
        path, new = self._join(name), self._join(name + NEW_SUFFIX)
        if self.is_store:
            self._write(path, data)
            return
        temporary = self._join(f".{name}.{uuid.uuid4().hex}")
        if flush and self.is_local:
            durable.replace(path, data, temporary)
            durable.sync_parents(self.path)
            return
        self._write(temporary, data)
        try:
            self.filesystem.move(temporary, path)
        except OSError:
            if not self._is_file(path):
                raise
            if self._is_file(new):  # left by a kill, and the file itself is good
                self.filesystem.delete_file(new)
            self.filesystem.move(temporary, new)
            self.filesystem.delete_file(path)
            self.filesystem.move(new, path)

    def read_replaced(self, name: str) -> bytes | None:
        """The content of the file ``name`` that :meth:`replace` has written; None if there is none.

        :raises OSError: if it cannot be read.
        """
        for candidate in (name, name + NEW_SUFFIX, name):  # renamed between the first look and the second
            data = self.read(candidate)
            if data is not None:
                return data
        return None

    def replaced_files(self) -> Sequence[str]:
        """The paths from here, in order, of the files at any depth as :meth:`replace` wrote them.

        Other files are among them. There are none if the folder is missing.
        """
        infos = self.filesystem.get_file_info(
            fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        )
        start = len(self._join(""))
        paths = (info.path[start:] for info in infos if info.type == fs.FileType.File)
        return sorted({path.removesuffix(NEW_SUFFIX) for path in paths})

    def replaced_files_of(self, option: str, form: re.Pattern[str]) -> Sequence[str]:
        """The files of :meth:`replaced_files` that have the form of those in the folder that an option names.

        :raises LogDirectoryError: if the folder is missing, or has files, but none of these.
        """
        files = self.replaced_files()
        found = [path for path in files if form.fullmatch(path)]
        if not found and (files or not self.exists()):
            what = "holds other files" if files else "does not exist"
            raise LogDirectoryError(
                f"Expected a folder of {option}, got one that {what}",
                file=self.label(),
                hint=f"Give the folder that the option {option} has named. It is made with its first file.",
            )
        return found

    def _write(self, path: str, data: bytes) -> None:
        with self.filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def _is_file(self, path: str) -> bool:
        self._forget()
        return bool(self.filesystem.get_file_info(path).type == fs.FileType.File)

    def check_inside(self, name: str) -> None:
        """:class:`LogDirectoryError` if ``name`` is a link that leads out of ``top`` (local file systems)."""
        path = self._join(name)
        if not self.is_local or not os.path.islink(path):
            return
        target = os.path.realpath(path)
        if os.path.commonpath([self.top, target]) != self.top:
            raise LogDirectoryError(
                "A symbolic link leads out of the log directory",
                file=self.label(name),
                hint="Give its target as a path of its own.",
            )

    def names(self) -> Iterable[str]:
        """The names in the folder, in one listing."""
        if not self.is_local:
            return self._entries(bool)
        with _named(self.label()):
            return os.listdir(self.path)

    def _entries(self, wanted: Callable[[str], object]) -> dict[str, Entry]:
        """The wanted names in one listing, each with its target just after the listing."""
        with _named(self.label()):
            if self.is_local:
                with os.scandir(self.path) as listed:
                    entries = [entry for entry in listed if wanted(entry.name)]
                return {entry.name: _local_entry(entry.path, entry) for entry in entries}
            self._forget()
            infos = self.filesystem.get_file_info(fs.FileSelector(self.path))
        return {info.base_name: _entry(info) for info in infos if wanted(info.base_name)}

    def _forget(self) -> None:
        """Drop cached listings, which some file systems of fsspec keep for ever."""
        handler = getattr(self.filesystem, "handler", None)
        if isinstance(handler, fs.FSSpecHandler):
            handler.fs.invalidate_cache(self.path)

    def _join(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path and not self.path.endswith("/") else self.path + name


def wait(attempt: int, file: str, change: object = "names come and go") -> None:
    """Wait a moment, longer at each attempt, before looking again at files that have changed.

    :param change: what has changed, for the error.
    :raises LogDirectoryError: naming ``file``, if this was the last attempt.
    """
    if attempt + 1 >= _ATTEMPTS:
        raise LogDirectoryError(
            f"The folder keeps changing while it is read: {change}",
            file=file,
            hint="Run the query again when fewer of its files are moved, compacted or deleted.",
        )
    if attempt:
        time.sleep(min(0.001 * 1.2**attempt, 0.1))


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Turn errors of the system or a store, such as a missing permission, into ones that name the file."""
    try:
        yield
    except OSError as e:
        raise _named_error(e, file) from None


def _named_error(error: OSError, file: str) -> OSError | LogDirectoryError:
    """The error that :func:`_named` raises for another: the same one if the file is not there."""
    if isinstance(error, FileNotFoundError):
        return error
    if error.errno == errno.ESTALE:
        return FileNotFoundError(error.errno, "The file server has deleted it", file)
    return LogDirectoryError(
        f"Cannot read: {error.strerror or error}", file=file, hint=_HINTS.get(error.errno or 0)
    )


def _entry(info: fs.FileInfo) -> Entry:
    return Entry(info.type, info.size or 0, info.mtime_ns or 0)


def _local_entry(path: str, listed: os.DirEntry[str] | None = None) -> Entry:
    """The target of a path. For folders the listing itself has all that matters."""
    if listed is not None and listed.is_dir():
        return Entry(fs.FileType.Directory)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _NOT_FOUND
    if stat.S_ISREG(status.st_mode):
        return Entry(fs.FileType.File, status.st_size, status.st_mtime_ns)
    return Entry(fs.FileType.Directory if stat.S_ISDIR(status.st_mode) else fs.FileType.Unknown)


@cache
def _zeros() -> pa.Buffer:
    return pa.py_buffer(np.zeros(_ZEROS_WINDOW, np.uint8))


def _read(file: io.FileIO, size: int, room: pa.Buffer | None = None) -> pa.Buffer:
    """The next ``size`` bytes, fewer at the end of the file, in ``room`` or new memory of Arrow's pool."""
    buffer = pa.allocate_buffer(size, resizable=True) if room is None else room
    view, filled = memoryview(buffer)[:size], 0
    while filled < size:
        count = file.readinto(view[filled:])
        if not count:
            break
        filled += count
    return buffer if filled == buffer.size else buffer.slice(0, filled)
