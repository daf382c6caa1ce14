"""Modes of new files and folders: what is made in a folder whose group may write is the group's, too.

So Spark's driver and its workers may be two users of one group. A folder that all may write to names no
group, and what is made there is its owner's, as anywhere else.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def open_new(path: str, flags: int, mode: int = 0o666) -> int:
    """``os.open``, for a file that may be new: shared with the group of its folder if that is.

    :raises OSError: if it can't be opened.
    """
    descriptor = os.open(path, flags, mode)
    _share(descriptor, os.path.dirname(path), stat.S_IRGRP | stat.S_IWGRP)
    return descriptor


def new_folder(path: str, mode: int = 0o777) -> None:
    """``os.mkdir``, shared in the same way.

    :raises OSError: if it can't be made.
    """
    os.mkdir(path, mode)
    _share(path, os.path.dirname(path), stat.S_IRWXG | stat.S_ISGID)


def _share(made: int | str, folder: str, bits: int) -> None:
    """Give what this user has made the group of its folder, and then these bits; or leave it as it is."""
    with suppress(OSError):  # what only one user may use is of use to that user
        above = os.stat(folder or os.curdir)
        if above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) != stat.S_IWGRP:
            return
        now = os.stat(made)
        if now.st_uid != os.geteuid() or (now.st_gid == above.st_gid and now.st_mode & bits == bits):
            return
        os.chown(made, -1, above.st_gid)
        os.chmod(made, stat.S_IMODE(now.st_mode) | bits)
