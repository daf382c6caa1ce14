"""The one way in which this package compiles: numba, explicit signatures, cached on disk.

Compiled functions follow lengths in hostile bytes, so each one checks every length
against its buffer and returns a status code. None raises, because an exception
raised in compiled code leaks its arrays. Callers allocate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

njit: Any = partial(numba.njit, _nrt=False)
"""Without numba's runtime, whose reference counts of arrays took three quarters of an encoder's time."""
config: Any = numba.config
Function = TypeVar("Function", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""Bytes to read: a mapped file, an Arrow buffer or an array of ours alike, compiled once."""
OUT_BYTES = types.Array(types.uint8, 1, "C")
OUT_INT32 = types.Array(types.int32, 1, "C")
OUT_INT64 = types.Array(types.int64, 1, "C")
INT32S = types.Array(types.int32, 1, "C", readonly=True)
INT64S = types.Array(types.int64, 1, "C", readonly=True)
OUT_TABLE = types.Array(types.int64, 2, "C")
"""Rows of int64 columns: ``table[column, row]``."""
TABLE = types.Array(types.int64, 2, "C", readonly=True)

Integer: TypeAlias = Any
Integers: TypeAlias = Any
"""A compiled int64, and a tuple of them."""


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compile a function for ``signature`` when its module is imported, and keep the machine code on disk.

    Where the cache cannot be written (numba #7883) it is compiled anew.
    The cache does not tell checked code from unchecked, so NUMBA_BOUNDSCHECK turns it off.
    """

    def compile_now(function: Function) -> Any:
        if not config.BOUNDSCHECK:
            try:
                return njit(signature, cache=True, nogil=True)(function)
            except (RuntimeError, OSError):
                pass
        return njit(signature, nogil=True)(function)

    return compile_now


def inlined(function: Function) -> Function:
    """A part of kernels, compiled into each caller of its module, since the cache follows one file."""
    compiled: Function = njit(forceinline=True)(function)
    return compiled


@intrinsic
def _copy_bytes(_context: Any, to: Any, to_at: Any, data: Any, at: Any, size: Any) -> Any:
    """``to[to_at:to_at + size] = data[at:at + size]`` as one memcpy, 10 to 25 times as fast as numba's own.

    Checks nothing, not even under NUMBA_BOUNDSCHECK.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_at, source, source_at, count = arguments
        target = context.make_array(signature.args[0])(context, builder, target).data
        source = context.make_array(signature.args[2])(context, builder, source).data
        cgutils.raw_memcpy(
            builder, builder.gep(target, [target_at]), builder.gep(source, [source_at]), count, 1
        )
        return context.get_dummy_value()

    return types.void(to, to_at, data, at, size), generate


copy_bytes: Any = _copy_bytes
