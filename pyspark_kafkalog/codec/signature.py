"""The parameters of a kernel in words of our own, since the compiled library needs no numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Array:
    """An array of numpy's, aligned and C-contiguous."""

    elements: str
    """``uint8``, ``int32`` or ``int64``."""
    dimensions: int = 1
    writable: bool = False
    """Whether the kernel writes to it. What it only reads may be read-only or not."""


@dataclass(frozen=True)
class Integer:
    """An int64."""


INT64 = Integer()
BYTES = Array("uint8")
"""Bytes to read: a mapped file, an Arrow buffer or an array of ours alike."""
OUT_BYTES = Array("uint8", writable=True)
INT32S = Array("int32")
OUT_INT32 = Array("int32", writable=True)
INT64S = Array("int64")
OUT_INT64 = Array("int64", writable=True)
TABLE = Array("int64", dimensions=2)
"""Rows of int64 columns: ``table[column, row]``."""
OUT_TABLE = Array("int64", dimensions=2, writable=True)

Parameter: TypeAlias = Array | Integer | tuple[Array, ...]
"""A tuple is one of just these arrays."""


@dataclass(frozen=True)
class Signature:
    """What a kernel takes and gives."""

    parameters: tuple[Parameter, ...]
    results: int
    """0: None. 1: an int. More: a tuple of that many."""

    @property
    def flat(self) -> list[Array | Integer]:
        """The parameters, with those of tuples in place of the tuples."""
        found: list[Array | Integer] = []
        for parameter in self.parameters:
            found += parameter if isinstance(parameter, tuple) else (parameter,)
        return found
