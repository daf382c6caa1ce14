"""Record each call that changes a folder, and restore what a kill or a loss of power would leave of it.

A model of a disk, stricter than any real one: nothing lasts but what was flushed. A file's bytes last
when the file was flushed, its name when its folder was, and each by itself. Of all else any part may have
reached the disk, a write also by half, as zeros, or half as zeros.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORDED = ("open", "close", "pwrite", "fsync", "ftruncate", "replace", "unlink", "mkdir", "rmdir")


@dataclass
class File:
    """Its bytes at the last flush, and each change since: position and bytes, or a size and None."""

    flushed: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self, keep: Callable[[tuple[int, bytes | None]], tuple[int, bytes | None] | None]) -> bytes:
        data = bytearray(self.flushed)
        for change in filter(None, map(keep, self.changes)):
            position, written = change
            if written is None:
                data[position:] = bytes(max(0, position - len(data)))
            else:
                data[len(data) :] = bytes(max(0, position - len(data)))
                data[position : position + len(written)] = written
        return bytes(data)


@dataclass
class Folder:
    """Its entries at the last flush and now, and each change since, as the entries that it sets."""

    flushed: dict[str, File | Folder] = field(default_factory=dict)
    entries: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, entries: dict[str, File | Folder | None]) -> None:
        self.changes.append(entries)
        _apply(self.entries, entries)


def _apply(to: dict[str, File | Folder], entries: dict[str, File | Folder | None]) -> None:
    for name, entry in entries.items():
        if entry is None:
            to.pop(name, None)
        else:
            to[name] = entry


class Disk:
    """A folder and its content as calls change it; its first state is flushed."""

    def __init__(self, top: Path) -> None:
        self._top = str(top)
        self.root = _load(top)
        self._opened: dict[int, File | Folder] = {}

    def replay(self, call: str, args: tuple[Any, ...], result: Any) -> None:
        """Repeat a system call."""
        getattr(self, f"_{call}")(*args, result)

    def after_kill(self, to: Path) -> None:
        """Write the state with all changes."""
        _store(self.root, to, lambda folder: folder.entries, lambda file: file.content(lambda change: change))

    def after_power_loss(self, to: Path, chance: random.Random) -> None:
        """Write the flushed state, and the other changes that ``chance`` keeps."""
        often = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])

        def entries(folder: Folder) -> dict[str, File | Folder]:
            kept = dict(folder.flushed)
            for change in folder.changes:
                if chance.random() < often:
                    _apply(kept, change)
            return kept

        def change(write: tuple[int, bytes | None]) -> tuple[int, bytes | None] | None:
            if chance.random() >= often:
                return None
            position, data = write
            if data is None or chance.random() < 0.6:
                return write
            half, zeros = data[: len(data) // 2], bytes(len(data))
            return position, chance.choice([half, zeros, half + zeros[len(half) :]])

        _store(self.root, to, entries, lambda file: file.content(change))

    def _find(self, path: Any) -> tuple[Folder, str] | None:
        path = os.path.abspath(path)
        if not path.startswith(self._top + os.sep):
            return None
        *parents, name = path[len(self._top) + 1 :].split(os.sep)
        folder = self.root
        for parent in parents:
            node = folder.entries[parent]
            assert isinstance(node, Folder)
            folder = node
        return folder, name

    def _open(self, path: Any, flags: int, *more: Any) -> None:
        descriptor = more[-1]
        if os.path.abspath(path) == self._top:
            self._opened[descriptor] = self.root
            return
        found = self._find(path)
        if found is None:
            return
        folder, name = found
        if name not in folder.entries:
            folder.change({name: File()})
        node = folder.entries[name]
        if isinstance(node, File) and flags & os.O_TRUNC:
            node.changes.append((0, None))
        self._opened[descriptor] = node

    def _close(self, descriptor: int, _: Any) -> None:
        self._opened.pop(descriptor, None)

    def _pwrite(self, descriptor: int, data: bytes, position: int, written: int) -> None:
        if (node := self._opened.get(descriptor)) is not None:
            assert isinstance(node, File)
            node.changes.append((position, data[:written]))

    def _ftruncate(self, descriptor: int, size: int, _: Any) -> None:
        if (node := self._opened.get(descriptor)) is not None:
            assert isinstance(node, File)
            node.changes.append((size, None))

    def _fsync(self, descriptor: int, _: Any) -> None:
        node = self._opened.get(descriptor)
        if isinstance(node, File):
            node.flushed = node.content(lambda change: change)
            node.changes.clear()
        elif node is not None:
            node.flushed = dict(node.entries)
            node.changes.clear()

    def _replace(self, source: Any, target: Any, _: Any) -> None:
        found, wanted = self._find(source), self._find(target)
        if found is None or wanted is None:
            return
        assert found[0] is wanted[0], "Of one folder"
        found[0].change({found[1]: None, wanted[1]: found[0].entries[found[1]]})

    def _unlink(self, path: Any, _: Any) -> None:
        if (found := self._find(path)) is not None:
            found[0].change({found[1]: None})

    _rmdir = _unlink

    def _mkdir(self, path: Any, *_: Any) -> None:
        if (found := self._find(path)) is not None:
            found[0].change({found[1]: Folder()})


def _load(path: Path) -> Folder:
    entries: dict[str, File | Folder] = {
        entry.name: _load(entry) if entry.is_dir() else File(entry.read_bytes()) for entry in path.iterdir()
    }
    return Folder(dict(entries), entries)


def _store(
    folder: Folder,
    to: Path,
    entries: Callable[[Folder], dict[str, File | Folder]],
    content: Callable[[File], bytes],
) -> None:
    to.mkdir()
    for name, entry in entries(folder).items():
        if isinstance(entry, Folder):
            _store(entry, to / name, entries, content)
        else:
            (to / name).write_bytes(content(entry))


Call = tuple[str, tuple[Any, ...], Any]


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """The calls of this process that change the disk, in order; nothing is flushed meanwhile."""
    calls: list[Call] = []
    guard = threading.RLock()
    real = {name: getattr(os, name) for name in RECORDED}

    def recording(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with guard:
                result = None if name == "fsync" else real[name](*args, **kwargs)
                calls.append(
                    (name, (args[0], bytes(args[1]), *args[2:]) if name == "pwrite" else args, result)
                )
                return result

        return call

    try:
        for name in RECORDED:
            setattr(os, name, recording(name))
        yield calls
    finally:
        for name, function in real.items():
            setattr(os, name, function)
