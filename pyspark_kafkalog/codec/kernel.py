"""Kernels: functions that run as machine code, written once in Python.

They follow lengths in hostile bytes, so each one checks every length against its buffer and returns a
status code. None raises, because an exception raised in compiled code leaks its arrays. Callers allocate.

A kernel is taken from the compiled library of this platform (:mod:`.library`) if that was made from the very
source that is here, and else compiled by numba (:mod:`.jit`). Either happens at its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pyspark_kafkalog.codec import library
from pyspark_kafkalog.codec.signature import Parameter, Signature

Integer: TypeAlias = Any
Integers: TypeAlias = Any
"""A compiled int64, and a tuple of them."""
Function = TypeVar("Function", bound=Callable[..., Any])

MODULES = (
    "codec.key_kernels",
    "codec.read_kernels",
    "codec.write_kernels",
    "codec.text_kernels",
    "extensions.large_messages.kernels",
    "log.segment.append_kernels",
    "extensions.typed_values.column_kernels",
    "extensions.typed_values.avro.kernels",
    "extensions.typed_values.json.kernels",
    "extensions.typed_values.json.respelling_kernels",
    "extensions.typed_values.protobuf.kernels",
)
"""The modules that have kernels."""


def kernel(*parameters: Parameter, results: int = 0) -> Callable[[Function], Kernel]:
    """Make a kernel of a function with these parameters, which gives as many int64.

    Its module, with what it and its inlined parts do, has to be in :data:`MODULES`.
    """
    return lambda function: Kernel(function, Signature(parameters, results))


class Kernel:
    """A function as machine code. ``function`` is the Python that it was made from.

    :raises TypeError: if called with other arguments than those of its signature.
    """

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        update_wrapper(self, function)
        self.function = function
        self.signature = signature

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """The compiled function, from the library or from numba."""
        found = library.find(self.function, self.signature)
        if found is None:
            from pyspark_kafkalog.codec import jit

            others = [(other.function, other.signature) for other in _kernels_in(self.function.__globals__)]
            found = jit.compiled(self.function, self.signature, others)
        return found

    def __call__(self, *arguments: Any) -> Any:
        return self.machine_code(*arguments)


def kernels() -> list[Kernel]:
    """All kernels of the package; those of an extension only if it is there."""
    modules = [import_module(f"pyspark_kafkalog.{module}") for module in MODULES if _is_there(module)]
    return [found for module in modules for found in _kernels_in(vars(module))]


def _is_there(module: str) -> bool:
    shelf, folder = module.split(".")[:2]
    return shelf != "extensions" or find_spec(f"pyspark_kafkalog.{shelf}.{folder}") is not None


def _kernels_in(names: Mapping[str, Any]) -> list[Kernel]:
    return [value for value in names.values() if isinstance(value, Kernel)]


class _Inlined:
    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    @cached_property
    def _numba_type_(self) -> Any:
        """The kernel's type, which numba asks for when it compiles a caller."""
        from pyspark_kafkalog.codec import jit

        return jit.type_of_inlined(self._function)


def inlined(function: Function) -> Function:
    """A part of kernels, compiled into each caller of its module, since the cache follows one file."""
    return _Inlined(function)  # type: ignore[return-value]


class _CopyBytes(_Inlined):
    @cached_property
    def _numba_type_(self) -> Any:
        from pyspark_kafkalog.codec import jit

        return jit.type_of_memcpy()


@_CopyBytes
def copy_bytes(to: np.ndarray, to_at: Integer, data: np.ndarray, at: Integer, size: Integer) -> None:
    """``to[to_at:to_at + size] = data[at:at + size]`` as one memcpy, 10 to 25 times as fast as numba's own.

    Checks nothing, not even under NUMBA_BOUNDSCHECK.
    """
    to[to_at : to_at + size] = data[at : at + size]
