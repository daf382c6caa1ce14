"""A local file of lines that only grows, and that a kill may leave with a part of a line at its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from pyspark_kafkalog.filesystem.durable import sync_folder

_FLAGS = os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def create_lines(path: str, first: str) -> None:
    """Make a file of one line, and flush it. A process that finds the file finds the whole line.

    :raises FileExistsError: if there is such a file.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o666)
    try:
        _write(descriptor, first + "\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(os.path.abspath(path)))


def read_lines(path: str) -> Iterator[str]:
    """The whole lines of a file, without their ends; none if there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                if line.endswith("\n"):
                    yield line[:-1]
    except FileNotFoundError:
        return


def append_lines(path: str, lines: Iterable[str]) -> None:
    """Add lines to a file, after an end for a line that a kill cut off. They are on disk then."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
    descriptor = os.open(path, os.O_RDWR | _FLAGS)
    try:
        size = os.fstat(descriptor).st_size
        is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        _write(descriptor, text if is_whole else "\n" + text)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, text: str) -> None:
    view = memoryview(text.encode())
    while view:
        view = view[os.write(descriptor, view) :]
