"""Kernels compiled where they run, by numba, and kept on disk.

numba's cache holds pickles, so anyone who can write to it can run code in this process. It is therefore
beside the package, like byte code, or in a private folder of the user, unless NUMBA_CACHE_DIR names another.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

from pyspark_kafkalog.codec.signature import ArrayParameter, Parameter, Signature
from pyspark_kafkalog.garbage import loading

try:
    with loading():
        import numba
        from numba import types
        from numba.core import cgutils
        from numba.core.event import Listener, install_listener
        from numba.core.registry import cpu_target
        from numba.extending import intrinsic
except ImportError as e:
    raise ImportError(
        "No compiled library of this package fits this platform or its source, and numba, which would "
        f"compile it here, cannot be imported: {e}. Run: pip install numba"
    ) from e

_FOLDER = "pyspark-kafkalog"
_SAID_VARIABLE = "PYSPARK_KAFKALOG_JIT_SAID"
"""Set in the environment of child processes once this one has said that it compiles."""

njit: Any = partial(numba.njit, _nrt=False)
"""numba.njit without numba's runtime, whose reference counts of arrays took three quarters of an encoding."""
config: Any = numba.config
_compiled: dict[Callable[..., Any], Any] = {}
_lock = threading.RLock()


def compiled(
    function: Callable[..., Any],
    signature: Signature,
    neighbours: Iterable[tuple[Callable[..., Any], Signature]] = (),
) -> Any:
    """``function``, loaded from the cache or compiled, and with it ``neighbours``, the kernels of its module.

    Without a cache, each process compiles it again. The cache does not tell checked code from unchecked, so
    NUMBA_BOUNDSCHECK turns it off.
    """
    with _lock:
        if function not in _compiled:
            with install_listener("numba:compile", _Announcement()) as announcement, _cache_folder(function):
                for each in [(function, signature), *neighbours]:
                    _compiled[each[0]] = _now(*each)
                announcement.end()
    return _compiled[function]


def _now(function: Callable[..., Any], signature: Signature) -> Any:
    if not config.BOUNDSCHECK:
        with suppress(RuntimeError, OSError):
            return njit(numba_signature(signature), cache=True, nogil=True)(function)
    return njit(numba_signature(signature), nogil=True)(function)


def cached(function: Callable[..., Any], signature: Signature) -> tuple[str | None, bool]:
    """The folder that ``function`` is cached in, and whether it is there; None: nowhere. Compiles nothing."""
    with _lock, _cache_folder(function):
        try:
            dispatcher = njit(cache=True, nogil=True)(function)
        except (RuntimeError, OSError):
            return None, False
        found = dispatcher._cache.load_overload(numba_signature(signature), dispatcher.targetctx)
        return dispatcher.stats.cache_path, found is not None


def numba_signature(signature: Signature) -> Any:
    """``signature`` in numba's types."""
    results = {0: types.void, 1: types.int64}.get(
        signature.results, types.UniTuple(types.int64, signature.results)
    )
    return results(*map(_numba_type, signature.parameters))


def _numba_type(parameter: Parameter) -> Any:
    if isinstance(parameter, tuple):
        return types.Tuple([_numba_type(part) for part in parameter])
    if isinstance(parameter, ArrayParameter):
        elements = getattr(types, parameter.elements)
        return types.Array(elements, parameter.dimensions, "C", readonly=not parameter.writable)
    return types.int64


def type_of_inlined(function: Callable[..., Any]) -> Any:
    """numba's type of an inlined part."""
    return numba.typeof(_inlined(function))


@cache
def _inlined(function: Callable[..., Any]) -> Any:
    return njit(forceinline=True)(function)


def type_of_memcpy() -> Any:
    """numba's type of ``copy_bytes``."""
    return cpu_target.typing_context.resolve_value_type(_memcpy)


@intrinsic
def _memcpy(_context: Any, to: Any, to_at: Any, data: Any, at: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_at, source, source_at, count = arguments
        target = context.make_array(signature.args[0])(context, builder, target).data
        source = context.make_array(signature.args[2])(context, builder, source).data
        cgutils.raw_memcpy(
            builder, builder.gep(target, [target_at]), builder.gep(source, [source_at]), count, 1
        )
        return context.get_dummy_value()

    return types.void(to, to_at, data, at, size), generate


class _Announcement(Listener):
    """Says on stderr that kernels are compiled, and for how long: once for a process and its children."""

    def __init__(self) -> None:
        self._started: float | None = None

    def on_start(self, event: Any) -> None:
        if self._started is None and _SAID_VARIABLE not in os.environ:
            os.environ[_SAID_VARIABLE] = "1"
            self._started = time.monotonic()
            print("pyspark-kafkalog: Compiling kernels for this CPU (once) …", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass

    def end(self) -> None:
        if self._started is not None:
            seconds = time.monotonic() - self._started
            print(f"pyspark-kafkalog: Compiled kernels in {seconds:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def _cache_folder(function: Callable[..., Any]) -> Iterator[None]:
    """Have numba keep code in a folder of the user's, if it can't keep it beside the module."""
    folder = os.path.join(os.path.dirname(function.__code__.co_filename), "__pycache__")
    named = config.CACHE_DIR
    if not (named or os.access(folder, os.W_OK)):
        config.CACHE_DIR = private_folder() or ""
    try:
        yield
    finally:
        config.CACHE_DIR = named


def private_folder() -> str | None:
    """A folder of mode 0700 that belongs to this user, in their cache or for temporary files.

    None if there is none: one of another user's, or a symbolic link, is not taken.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    temporary = os.path.join(tempfile.gettempdir(), f"{_FOLDER}-{os.geteuid()}")
    for folder in (os.path.join(cache, _FOLDER), temporary):
        with suppress(OSError):
            with suppress(FileExistsError):
                os.makedirs(os.path.dirname(folder), exist_ok=True)
                os.mkdir(folder, 0o700)
            found = os.lstat(folder)
            is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
            if stat.S_ISDIR(found.st_mode) and is_private and os.access(folder, os.W_OK):
                return folder
    return None
