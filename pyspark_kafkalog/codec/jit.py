"""The one way in which this package compiles: numba, explicit signatures, cached on disk.

A compiled function reads what hostile bytes tell it to, so each one checks
every length against its buffer and returns a status code; none raises, because
an exception raised in compiled code leaks its arrays. Callers allocate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba import types

njit: Any = numba.njit
config: Any = numba.config
Function = TypeVar("Function", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""Bytes to read: a mapped file, an Arrow buffer or an array of ours alike, compiled once."""
OUT_BYTES = types.Array(types.uint8, 1, "C")
OUT_INT32 = types.Array(types.int32, 1, "C")
OUT_INT64 = types.Array(types.int64, 1, "C")
INT64S = types.Array(types.int64, 1, "C", readonly=True)
OUT_TABLE = types.Array(types.int64, 2, "C")
"""Rows of int64 columns: ``table[column, row]``."""
TABLE = types.Array(types.int64, 2, "C", readonly=True)


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compile a function for ``signature`` when its module is imported, and keep the machine code on disk.

    Where no place for the cache can be written (numba #7883) it is compiled anew.
    The cache does not tell checked code from unchecked, so NUMBA_BOUNDSCHECK turns it off.
    """

    def compile_now(function: Function) -> Function:
        if not config.BOUNDSCHECK:
            try:
                return njit(signature, cache=True, nogil=True)(function)
            except (RuntimeError, OSError):
                pass
        return njit(signature, nogil=True)(function)

    return compile_now


def inlined(function: Function) -> Function:
    """A part of kernels, compiled into each that calls it; in the same module, as the cache follows one file."""
    return njit(forceinline=True)(function)
