"""CRC-32C of record batches (magic 2) and CRC-32 of messages (magic 0 and 1).

google-crc32c uses the processor's instructions. Where it is missing or is
itself pure Python, crcmod's extension (which defines the polynomial by name)
takes its place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

CRC32C_NAME = "crc-32c"
"""The polynomial's name in crcmod."""


def crcmod_crc32c() -> Callable[[Any], int]:
    """CRC-32C by crcmod: a function from bytes-like to the checksum."""
    from crcmod.predefined import mkPredefinedCrcFun

    function: Callable[[Any], int] = mkPredefinedCrcFun(CRC32C_NAME)
    return function


def _fastest_crc32c() -> Callable[[Any], int]:
    try:
        import google_crc32c
    except ImportError:
        return crcmod_crc32c()
    if google_crc32c.implementation == "c":
        function: Callable[[Any], int] = google_crc32c.value
        return function
    return crcmod_crc32c()


crc32c: Callable[[Any], int] = _fastest_crc32c()
"""CRC-32C of bytes or a uint8 array."""
crc32: Callable[[Any], int] = zlib.crc32
"""CRC-32 of bytes or a uint8 array."""
