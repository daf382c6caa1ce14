"""A file system that renames to new names only, as HDFS does; local files under the scheme ``newnames:``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem


class NewNamesFileSystem(LocalFileSystem):
    """Calls ``before_step`` before each call that changes the file system."""

    protocol = "newnames"
    cachable = False
    before_step: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return os.fspath(path).removeprefix("newnames://").rstrip("/") or "/"

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        type(self).before_step()
        if self.exists(path2):
            raise FileExistsError(path2)
        super().mv(path1, path2, **kwargs)

    def rm(self, path: str, *args: Any, **kwargs: Any) -> None:
        type(self).before_step()
        super().rm(path, *args, **kwargs)

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            type(self).before_step()
        return super().open(path, mode, **kwargs)


fsspec.register_implementation("newnames", NewNamesFileSystem, clobber=True)
