"""Folders and files of a log directory, on any file system that pyarrow or fsspec opens.

A :class:`Folder` lists and opens only what lies in it: regular files, and no
symbolic link that leads out of the place that the user named. Files are read by
ranges, never whole and never mapped into memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple

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


class Entry(NamedTuple):
    """What a listing says of one name."""

    type: fs.FileType
    size: int
    mtime_ns: int


class InputFile:
    """A file opened for reads by range. Use it as a context manager."""

    def __init__(self, stream: pa.NativeFile, name: str) -> None:
        self._stream = stream
        self.name = name
        """Path or URI, for error messages."""
        self.size: int = stream.size()
        """Bytes of the file when it was opened."""

    def read(self, position: int, size: int) -> pa.Buffer:
        """The bytes from ``position``: ``size`` of them, fewer at the end of the file."""
        with _named(self.name):
            self._stream.seek(position)
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

    def list(self) -> dict[str, Entry]:
        """Every name in the folder, with the type, size and time of what it leads to."""
        with _named(self.label()):
            infos = self.filesystem.get_file_info(fs.FileSelector(self.path))
        return {info.base_name: _entry(info) for info in infos}

    def look(self, name: str) -> Entry:
        """What :meth:`list` says of ``name``; its type is NotFound if there is none."""
        with _named(self.label(name)):
            return _entry(self.filesystem.get_file_info(self._join(name)))

    def open(self, name: str) -> InputFile:
        """Open the file ``name``.

        :raises FileNotFoundError: if there is none any more.
        :raises LogDirectoryError: if it is no regular file, or a link that leads out of ``top``.
        """
        path = self._join(name)
        self.check_inside(name)
        # Opening a FIFO would wait for a writer.
        if self._is_local and self.look(name).type not in (fs.FileType.File, fs.FileType.NotFound):
            raise LogDirectoryError("Not a regular file", file=self.label(name))
        with _named(self.label(name)):
            return InputFile(self.filesystem.open_input_file(path), self.label(name))

    def read(self, name: str) -> bytes | None:
        """The bytes of the small file ``name``; None if there is none."""
        try:
            with self.open(name) as file:
                if file.size > _MAX_TEXT_FILE:
                    raise LogDirectoryError(f"A file of {file.size} bytes is no checkpoint", file=file.name)
                return file.read(0, file.size).to_pybytes()
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

    def _join(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path and not self.path.endswith("/") else self.path + name


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Turn what the system or a store refuses, such as permission, into an error that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        raise LogDirectoryError(f"Cannot read: {e}", file=file) from None


def _entry(info: fs.FileInfo) -> Entry:
    return Entry(info.type, info.size or 0, info.mtime_ns or 0)


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
