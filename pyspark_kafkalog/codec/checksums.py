"""The checksums of record batches, by the fastest library that is there."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any


def crcmod_crc32c() -> Callable[[Any], int]:
    """CRC-32C by crcmod: a function from bytes-like to the checksum."""
    from crcmod.predefined import mkPredefinedCrcFun

    function: Callable[[Any], int] = mkPredefinedCrcFun("crc-32c")
    return function


def fastest_crc32c() -> tuple[Callable[[Any], int], Callable[[int, Any], int]]:
    """CRC-32C by google-crc32c, with the processor's instructions, or by crcmod where that has no C build.

    :returns: what computes a checksum, and what extends one by more data.
    """
    try:
        import google_crc32c
    except ImportError:
        pass
    else:
        if google_crc32c.implementation == "c":
            return google_crc32c.value, google_crc32c.extend
    function: Callable[..., int] = crcmod_crc32c()
    return function, lambda crc, data: function(data, crc)


crc32c, extend_crc32c = fastest_crc32c()
"""CRC-32C of bytes or a uint8 array; and of bytes whose checksum is known, with such data after them."""
crc32: Callable[[Any], int] = zlib.crc32
"""CRC-32 of bytes or a uint8 array."""
