"""The compiled library: the kernels as machine code for this platform, made by
:mod:`pyspark_kafkalog.make_library`.

It lies beside this module. The name of a function in it ends in a digest of all that its code was made
from, so what was made from another source is never found.

A function takes the address of int64 words: the addresses of ndarray and of the types of elements, then each
integer and the address of each array, then room for results. It reads the fields of CPython's objects and of
numpy's PyArrayObject where every extension does that was compiled with their headers, object.h and
ndarraytypes.h. To ask Python for them would take 3 µs for each array.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from pyspark_kafkalog.codec.signature import ArrayParameter, IntegerParameter, Parameter, Signature

JIT_VARIABLE = "PYSPARK_KAFKALOG_JIT"
"""An environment variable: set to anything but 0, it has numba compile what the library has, too."""
TYPE, DATA, NDIM, DIMENSIONS, STRIDES, DTYPE, FLAGS = 8, 16, 24, 32, 40, 56, 64
"""Positions of an array's fields: PyTypeObject *, char *, int, npy_intp *, npy_intp *, PyArray_Descr *,
int."""
ELEMENTS = ("uint8", "int32", "int64")
REFUSED, FAILED = 1, 2
"""The results of a function other than 0: an array is not as it must be, or the kernel raised an error."""

_COMPILERS = ("signature", "kernel", "library", "jit", "ahead_of_time")
"""The modules beside this one that decide, like a kernel's own, what machine code does."""
_SIZE_OF_OBJECT = 16
"""The size of PyObject in all builds of CPython but free-threaded ones."""
_ADDRESSES = [id(np.ndarray), *(id(np.dtype(elements)) for elements in ELEMENTS)]


def path(machine: str = "") -> str:
    """The path of the library for Linux on ``machine``, by default this one; the file may be missing."""
    return os.path.join(os.path.dirname(__file__), f"kernels-linux-{machine or os.uname().machine}.so")


def find(function: Callable[..., Any], signature: Signature) -> Callable[..., Any] | None:
    """``function`` as the library has it; None if it has not, or if another way is chosen.

    :data:`JIT_VARIABLE` chooses one, and so does NUMBA_BOUNDSCHECK: the library checks no bounds.
    """
    library = None if _is_set(JIT_VARIABLE) or _is_set("NUMBA_BOUNDSCHECK") else _library(path())
    if library is None:
        return None
    try:
        compiled = library[symbol(function, signature)]
    except AttributeError:
        return None
    compiled.argtypes = (ctypes.c_void_p,)
    return _caller(function.__name__, compiled, signature)


def symbol(function: Callable[..., Any], signature: Signature) -> str:
    """The name of ``function`` in the library.

    Its digest covers the source of its module, the constants that are there, wherever they are from, and the
    compilers.
    """
    names = function.__globals__
    constants = [
        (name, names[name]) for name in sorted(names) if name[:2] != "__" and _is_constant(names[name])
    ]
    made_from = (_source(function.__module__), _compilers(), constants, signature)
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]
    return f"{function.__module__.replace('.', '_')}_{function.__name__}_{digest}"


def _caller(name: str, compiled: Callable[[int], int], signature: Signature) -> Callable[..., Any]:
    parameters, results = signature.parameters, signature.results
    integers = [place for place, each in enumerate(signature.flat) if isinstance(each, IntegerParameter)]
    room = [0] * results

    def call(*arguments: Any) -> Any:
        values = _flat(name, parameters, arguments)
        words = array("q", [*_ADDRESSES, *map(id, values), *room])
        for place in integers:
            words[len(_ADDRESSES) + place] = values[place]
        status = compiled(words.buffer_info()[0])
        if status == REFUSED:
            return call(*_as_expected(name, parameters, arguments))
        if status == FAILED:
            raise RuntimeError(f"{name} failed")
        if results > 1:
            return tuple(words[-results:])
        return words[-1] if results else None

    return call


def _flat(name: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> list[Any]:
    if len(arguments) != len(parameters):
        raise TypeError(f"{name} expected {len(parameters)} arguments, got {len(arguments)}")
    values: list[Any] = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if type(parameter) is not tuple:
            values.append(argument)
        elif type(argument) is tuple and len(argument) == len(parameter):
            values += argument
        else:
            raise TypeError(f"{name} expected a tuple of {len(parameter)} arrays, got {argument!r}")
    return values


def _as_expected(name: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> list[Any]:
    """The arguments of a refused call with each array as the library takes it: of numpy's own classes.

    :raises TypeError: if one isn't an array, or has the wrong elements, dimensions or layout.
    """
    found = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(parameter, tuple):
            argument = tuple(_as_expected(name, parameter, argument))
        elif isinstance(parameter, ArrayParameter):
            if not isinstance(argument, np.ndarray):
                raise TypeError(f"{name} expected an array, got {type(argument).__name__}")
            if argument.dtype != parameter.elements or argument.ndim != parameter.dimensions:
                raise TypeError(
                    f"{name} expected {parameter.elements} in {parameter.dimensions} dimension(s), "
                    f"got {argument.dtype} in {argument.ndim}"
                )
            if not (argument.flags.c_contiguous and argument.flags.aligned):
                raise TypeError(f"{name} expected an array that is C-contiguous and aligned")
            if parameter.writable and not argument.flags.writeable:
                raise TypeError(f"{name} expected a writable array, got a read-only one")
            argument = argument.view(np.dtype(parameter.elements), np.ndarray)
        found.append(argument)
    return found


def _is_constant(value: Any) -> bool:
    return isinstance(value, int | str) or (isinstance(value, tuple) and all(map(_is_constant, value)))


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


@cache
def _source(module: str) -> str | None:
    """The source of a module; None, which the library has nothing of, if it is not there."""
    try:
        spec = find_spec(module)
    except ValueError:  # a script
        return None
    loader: Any = spec.loader if spec else None
    source: str | None = loader.get_source(module) if hasattr(loader, "get_source") else None
    return source


@cache
def _compilers() -> tuple[str | None, ...]:
    return tuple(_source(f"{__name__.rpartition('.')[0]}.{module}") for module in _COMPILERS)


@cache
def _library(path: str) -> ctypes.CDLL | None:
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return None
    if object.__basicsize__ != _SIZE_OF_OBJECT or not has_fields_in_place():
        return None
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def has_fields_in_place() -> bool:
    """Whether this numpy lays arrays out as the library reads them. Another layout would make it crash."""
    table = np.zeros((3, 5), np.int64)
    read_only = np.frombuffer(b"123456789", np.uint8)
    arrays = (table, read_only, table[1:], table.T, np.zeros(7, np.int32)[::2])
    return all(_is_in_place(array) for array in arrays)


def _is_in_place(array: np.ndarray) -> bool:
    found = ctypes.string_at(id(array), np.ndarray.__basicsize__)

    def field(offset: int, kind: str = "q") -> int:
        end = offset + struct.calcsize(kind)
        return struct.unpack(kind, found[offset:end])[0] if end <= len(found) else -1

    # numpy keeps strides right behind dimensions: the pointer is followed only if that holds.
    return (
        field(TYPE) == id(type(array))
        and field(DATA) == array.ctypes.data
        and field(NDIM, "i") == array.ndim
        and field(STRIDES) == field(DIMENSIONS) + array.ndim * struct.calcsize("q")
        and (ctypes.c_int64 * array.ndim).from_address(field(DIMENSIONS))[:] == [*array.shape]
        and field(DTYPE) == id(array.dtype)
        and field(FLAGS, "i") == array.flags.num
    )
