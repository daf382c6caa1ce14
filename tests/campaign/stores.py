"""Earlier states of stores: copies of folders, made while nothing writes to them, to be brought back."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path


class Stores:
    """Older copies of folders, kept below a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: dict[Path, list[Path]] = defaultdict(list)

    def keep(self, store: Path) -> None:
        """Copy a store, if there is one."""
        if store.is_dir():
            copy = self._named(store, str(len(self._copies[store])))
            shutil.copytree(store, copy)
            self._copies[store].append(copy)

    def has(self, store: Path) -> bool:
        """Whether there is an older copy."""
        return bool(self._copies[store])

    def set_back(self, store: Path, choice: float) -> None:
        """Bring back an older copy, and put the newer state aside."""
        copies = self._copies[store]
        shutil.copytree(store, self._named(store, "aside"))
        _replace(store, copies[int(choice * len(copies))])

    def put_forward(self, store: Path) -> None:
        """Bring back what was put aside."""
        _replace(store, self._named(store, "aside"))
        self.forget(store)

    def forget(self, store: Path) -> None:
        """Let what was put aside go: the older copy has gone on."""
        shutil.rmtree(self._named(store, "aside"))

    def _named(self, store: Path, name: str) -> Path:
        return self._folder / store.parent.name / store.name / name


def _replace(store: Path, other: Path) -> None:
    shutil.rmtree(store)
    shutil.copytree(other, store)
