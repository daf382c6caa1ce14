"""Files of tokens and keys, which platforms replace while this process runs."""

from __future__ import annotations

import os
import stat
import time

_LARGEST_FILE = 1 << 20
_ATTEMPTS = 5
_PAUSE = 0.1
"""Seconds before the second attempt, and twice the last pause before each other one."""


def content_of(path: str) -> bytes:
    """The content of a regular file of up to 1 MiB, without white space around it.

    One that is missing or empty is read again for a moment: it may be about to be replaced.

    :raises ValueError: if it can't be read, is of another kind, larger or still empty. It says why, and not
        the path.
    """
    reason = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        try:
            if content := _read(path).strip():
                return content
            reason = "the file is empty"
        except FileNotFoundError as e:
            reason = str(e.strerror)
        except OSError as e:
            raise ValueError(e.strerror or type(e).__name__) from None
    raise ValueError(reason)


def _read(path: str) -> bytes:
    # Opening a pipe would wait for its writer.
    without_waiting = getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | without_waiting)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("expected a regular file")
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"the file has more than {_LARGEST_FILE} bytes")
    return content
