"""The parameters of a kernel in words of our own, since the compiled library needs no numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class ArrayParameter:
    """An array of numpy's, aligned and C-contiguous."""

    elements: str
    """``uint8``, ``int32`` or ``int64``."""
    dimensions: int = 1
    writable: bool = False
    """Whether the kernel writes to the array. An array that it only reads may be read-only or not."""


@dataclass(frozen=True)
class IntegerParameter:
    """An int64."""


INT64 = IntegerParameter()
BYTES = ArrayParameter("uint8")
"""Bytes to read: a mapped file, an Arrow buffer or an array of ours alike."""
OUT_BYTES = ArrayParameter("uint8", writable=True)
INT32S = ArrayParameter("int32")
OUT_INT32 = ArrayParameter("int32", writable=True)
INT64S = ArrayParameter("int64")
OUT_INT64 = ArrayParameter("int64", writable=True)
TABLE = ArrayParameter("int64", dimensions=2)
"""Rows of int64 columns: ``table[column, row]``."""
OUT_TABLE = ArrayParameter("int64", dimensions=2, writable=True)

Parameter: TypeAlias = ArrayParameter | IntegerParameter | tuple[ArrayParameter, ...]
"""A tuple stands for one parameter: a tuple of exactly these arrays."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel, and how many int64 it returns."""

    parameters: tuple[Parameter, ...]
    results: int
    """0: None. 1: an int. More: a tuple of that many."""

    @property
    def flat(self) -> list[ArrayParameter | IntegerParameter]:
        """The parameters, with those of tuples in place of the tuples."""
        found: list[ArrayParameter | IntegerParameter] = []
        for parameter in self.parameters:
            found += parameter if isinstance(parameter, tuple) else (parameter,)
        return found
