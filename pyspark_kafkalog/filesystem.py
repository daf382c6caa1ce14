"""Folders and files of a log directory, on any file system that pyarrow or fsspec opens.

A :class:`Folder` lists and opens only what lies in it: regular files, and no
symbolic link that leads out of the place that the user named. Files are read by
ranges, never whole and never mapped into memory.

A listing takes a while, on every file system. A name that others give to a file
meanwhile may be missing from it although the file was there all the time: see
:func:`settled`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)(?P<rest>:.*)\Z", re.DOTALL)
_ARROW_SCHEMES = frozenset({"file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
_ALIASES = {"s3a": "s3", "s3n": "s3"}
"""Names that Hadoop gives to file systems of pyarrow."""
_SECRETS = re.compile(r"(?<=://)[^/@]*@|[?].*", re.DOTALL)
"""What a URI may hold of credentials."""
_MAX_TEXT_FILE = 64 << 20
_FIRST_READ = 64 << 10
_LOOKS = 60
"""How often one looks again at what changes under one's eyes, over 4 seconds in all."""
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_FIFO = getattr(os, "O_NONBLOCK", 0)
"""Opening a FIFO would wait for a writer."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_HINTS = {
    errno.EIO: "The disk cannot read it: see the system's log, and take the file from a replica or a backup.",
    errno.EACCES: "Let the user that runs Spark's driver and workers read it.",
    errno.EPERM: "Let the user that runs Spark's driver and workers read it.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n) of Spark's processes.",
    errno.ENFILE: "Raise the system's limit of open files.",
    errno.ENOMEM: "Give the process more memory, or let fewer tasks run at once.",
    errno.ENOTCONN: "Mount the file system again.",
    errno.ETIMEDOUT: "See whether the file system is reachable, then run the query again.",
}
_Seen = TypeVar("_Seen")


class Entry(NamedTuple):
    """What a listing says of one name."""

    type: fs.FileType
    size: int = 0
    """Bytes of a file."""
    mtime_ns: int = 0


_NOT_FOUND = Entry(fs.FileType.NotFound)


class InputFile:
    """A file opened for reads by range. Use it as a context manager."""

    def __init__(
        self, stream: pa.NativeFile | io.FileIO, name: str, size: int, mtime_ns: int | None = None
    ) -> None:
        self._stream = stream
        self.name = name
        """Path or URI, for error messages."""
        self.size = size
        """Bytes of the file when it was opened."""
        self.mtime_ns = mtime_ns
        """When it had been written to last when it was opened; None if the file system doesn't tell."""

    def read(self, position: int, size: int) -> pa.Buffer:
        """The bytes from ``position``: ``size`` of them, fewer at the end of the file.

        :raises FileNotFoundError: if a file server has deleted the file.
        """
        with _named(self.name):
            self._stream.seek(position)
            if isinstance(self._stream, io.FileIO):
                return _read(self._stream, size)
            return self._stream.read_buffer(size)

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file system. Missing ones show when they are used: FileNotFoundError."""

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

    def child(self, name: str) -> Folder:
        """The folder ``name`` in this one, which a listing of this one has shown."""
        return replace(self, path=self._join(name))

    def parent(self) -> Folder:
        """The folder that holds this one."""
        path = self.path.rpartition("/")[0] or ("/" if self.path.startswith("/") else "")
        return replace(self, path=path, top=os.path.realpath(path) if self._is_local else path)

    def label(self, name: str = "") -> str:
        """This folder, or the file ``name`` in it, as error messages give it."""
        return self.prefix + (self._join(name) if name else self.path)

    def list(
        self,
        wanted: Callable[[str], object] = bool,
        key: Callable[[Collection[str]], Set[Any]] = frozenset,
    ) -> dict[str, Entry]:
        """The names in the folder, with the type, size and time of what they lead to, :func:`settled`.

        The type is NotFound where that was gone when it was looked at.

        :param wanted: whether a name is to be looked at.
        :param key: what must not be missing, made of the wanted names; by default all of them.
        :raises FileNotFoundError: if the folder is gone.
        :raises LogDirectoryError: if it keeps changing.
        """
        names = [name for name in self._names() if wanted(name)]
        return settled(key(names), lambda: self._entries(wanted), key, self.label())

    def look(self, name: str) -> Entry:
        """What :meth:`list` says of ``name``; its type is NotFound if there is none."""
        with _named(self.label(name)):
            if self._is_local:
                return _local_entry(self._join(name))
            self._forget()
            return _entry(self.filesystem.get_file_info(self._join(name)))

    def exists(self) -> bool:
        """Whether the folder is there."""
        with _named(self.label()):
            self._forget()
            return bool(self.filesystem.get_file_info(self.path).type == fs.FileType.Directory)

    def changed(self) -> tuple[int, ...] | None:
        """What becomes another when a name in the folder comes or goes; None where nothing tells.

        Two changes within the clock's resolution, some milliseconds on local disks, may leave it the same.
        """
        if not self._is_local:
            return None
        with _named(self.label()):
            now = os.stat(self.path)
        return now.st_dev, now.st_ino, now.st_mtime_ns

    def open(self, name: str) -> InputFile:
        """Open the file ``name``.

        :raises FileNotFoundError: if there is none any more.
        :raises LogDirectoryError: if it is no regular file, or a link that leads out of ``top``.
        """
        path, label = self._join(name), self.label(name)
        with _named(label):
            if not self._is_local:
                stream = self.filesystem.open_input_file(path)
                return InputFile(stream, label, stream.size())
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

    def read(self, name: str, *, before: bytes | None = None) -> bytes | None:
        """The bytes of the small file ``name``; None if there is none.

        :param before: they end where this begins; the file may be large, then.
        """
        try:
            with self.open(name) as file:
                size = file.size if before is None else _FIRST_READ
                while size <= _MAX_TEXT_FILE:
                    data: bytes = file.read(0, min(size, file.size)).to_pybytes()
                    if before is not None and before in data:
                        return data[: data.index(before)]
                    if size >= file.size:
                        return data
                    size *= 4
                raise LogDirectoryError(f"A file of {file.size} bytes is no checkpoint", file=file.name)
        except FileNotFoundError:
            return None

    def check_inside(self, name: str) -> None:
        """:class:`LogDirectoryError` if ``name`` is a link that leads out of ``top`` (local file systems)."""
        path = self._join(name)
        if not self._is_local or not os.path.islink(path):
            return
        target = os.path.realpath(path)
        if os.path.commonpath([self.top, target]) != self.top:
            raise LogDirectoryError(
                "A symbolic link that leads out of the log directory",
                file=self.label(name),
                hint="Name the directory that it leads to as a path of its own.",
            )

    @property
    def _is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def _names(self) -> Iterable[str]:
        """The names in the folder as one listing has them."""
        if not self._is_local:
            return self._entries(bool)
        with _named(self.label()):
            return os.listdir(self.path)

    def _entries(self, wanted: Callable[[str], object]) -> dict[str, Entry]:
        """The wanted names as one listing has them, and what each leads to just after it."""
        with _named(self.label()):
            if self._is_local:
                with os.scandir(self.path) as listed:
                    found = [one for one in listed if wanted(one.name)]
                return {one.name: _local_entry(one.path, one) for one in found}
            self._forget()
            infos = self.filesystem.get_file_info(fs.FileSelector(self.path))
        return {info.base_name: _entry(info) for info in infos if wanted(info.base_name)}

    def _forget(self) -> None:
        """Some file systems of fsspec show what they listed once for ever."""
        handler = getattr(self.filesystem, "handler", None)
        if isinstance(handler, fs.FSSpecHandler):
            handler.fs.invalidate_cache(self.path)

    def _join(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path and not self.path.endswith("/") else self.path + name


def settled(
    before: Set[Any], look: Callable[[], _Seen], key: Callable[[_Seen], Set[Any]], file: str
) -> _Seen:
    """What ``look`` sees, once it misses nothing that was seen the time before.

    A listing lacks a file that goes by two names in turn if it looks for each at the wrong moment. The next
    one has it, unless the same happens once more to the very same file, for which the cleaner
    would have to come back to it between the two.

    :param before: what was seen first.
    :param key: what must not be missing of what ``look`` sees.
    :raises LogDirectoryError: that names ``file``, if there is always something missing.
    """
    attempt = 0
    while True:
        seen = look()
        now = key(seen)
        if now >= before:
            return seen
        before = now
        wait(attempt, file)
        attempt += 1


def wait(attempt: int, file: str, change: object = "names come and go") -> None:
    """Wait for a moment, longer at each attempt, before looking again at files that have changed.

    :param change: what was seen to change, for the error.
    :raises LogDirectoryError: that names ``file``, if this was the last attempt.
    """
    if attempt + 1 >= _LOOKS:
        raise LogDirectoryError(
            f"The folder keeps changing while it is read: {change}",
            file=file,
            hint="Run the query again when less of it is moved, compacted or deleted.",
        )
    if attempt:
        time.sleep(min(0.001 * 1.2**attempt, 0.1))


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Turn what the system or a store refuses, such as permission, into an error that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        if e.errno == errno.ESTALE:
            raise FileNotFoundError(e.errno, "The file server has deleted it", file) from None
        hint = _HINTS.get(e.errno or 0)
        raise LogDirectoryError(f"Cannot read: {e}", file=file, hint=hint) from None


def _entry(info: fs.FileInfo) -> Entry:
    return Entry(info.type, info.size or 0, info.mtime_ns or 0)


def _local_entry(path: str, listed: os.DirEntry[str] | None = None) -> Entry:
    """What a path leads to. Of folders a listing itself tells all that matters."""
    if listed is not None and listed.is_dir():
        return Entry(fs.FileType.Directory)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _NOT_FOUND
    if stat.S_ISREG(status.st_mode):
        return Entry(fs.FileType.File, status.st_size, status.st_mtime_ns)
    return Entry(fs.FileType.Directory if stat.S_ISDIR(status.st_mode) else fs.FileType.Unknown)


def _read(file: io.FileIO, size: int) -> pa.Buffer:
    """The next ``size`` bytes, fewer at the end of the file, in memory of Arrow's pool."""
    buffer = pa.allocate_buffer(size, resizable=True)
    view, got = memoryview(buffer), 0
    while got < size:
        count = file.readinto(view[got:])
        if not count:
            return buffer.slice(0, got)
        got += count
    return buffer


def open_folder(location: str) -> Folder:
    """The existing folder at a local path or URI; see :func:`locate`.

    :raises LogDirectoryError: if it can't be opened, does not exist or is not a folder.
    """
    folder = locate(location)
    kind = folder.filesystem.get_file_info(folder.path).type
    if kind == fs.FileType.NotFound:
        raise LogDirectoryError(
            "The log directory does not exist",
            file=folder.label(),
            hint="Give Kafka's log.dirs or one partition's folder; a worker must see it under the same path.",
        )
    if kind != fs.FileType.Directory:
        raise LogDirectoryError(
            "The log directory is not a folder",
            file=folder.label(),
            hint="Give the folder that holds the <topic>-<partition> folders, or one of those.",
        )
    return folder


def locate(location: str) -> Folder:
    """The folder at a local path or URI, whether it exists or not.

    ``file:``, ``s3:``, ``gs:``, ``hdfs:``, ``abfs:`` are pyarrow's; other schemes
    and chains of them (``zip://*::file:/x.zip``) are fsspec's, if it is installed.

    :raises LogDirectoryError: if there is no access to its file system.
    """
    match = _SCHEME.match(location)
    try:
        folder = (
            _local(location) if match is None else _remote(location, match["scheme"].lower(), match["rest"])
        )
        folder.filesystem.get_file_info(folder.path)
        return folder
    except Exception as e:
        # What stores and their clients raise is of every kind; the text names the cause.
        shown = _SECRETS.sub("", location)
        raise LogDirectoryError(
            f"Cannot open the folder: {str(e).replace(location, shown)}",
            file=shown,
            hint="Give a path, or a URI whose scheme pyarrow knows or fsspec has a package for.",
        ) from None


def _local(path: str) -> Folder:
    if not path:
        raise ValueError("the path is empty")
    return Folder(fs.LocalFileSystem(), os.path.abspath(path), os.path.realpath(path))


def _remote(location: str, scheme: str, rest: str) -> Folder:
    scheme = _ALIASES.get(scheme, scheme)
    if scheme in _ARROW_SCHEMES and "::" not in location:
        filesystem, path = fs.FileSystem.from_uri(scheme + rest)
        if scheme == "file":
            return _local(path)
        prefix = f"{scheme}://"
    else:
        import fsspec

        store, path = fsspec.core.url_to_fs(location)
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(store))
        prefix = f"{location.partition('://')[0]}://"
    path = path.rstrip("/")
    return Folder(filesystem, path, path, prefix)
