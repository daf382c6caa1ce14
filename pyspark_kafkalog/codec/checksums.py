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


def fastest_crc32c() -> Callable[[Any], int]:
    """CRC-32C by google-crc32c, with the processor's instructions, or by crcmod where that has no C build."""
    try:
        import google_crc32c
    except ImportError:
        pass
    else:
        if google_crc32c.implementation == "c":
            function: Callable[[Any], int] = google_crc32c.value
            return function
    return crcmod_crc32c()


crc32c = fastest_crc32c()
"""CRC-32C of bytes or a uint8 array."""
crc32: Callable[[Any], int] = zlib.crc32
"""CRC-32 of bytes or a uint8 array."""
