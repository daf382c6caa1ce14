"""The heads of record batches: all that a search for transactions needs of a ``.log`` on a local disk.

It goes from header to header, and leaves out the records of large batches.
"""

from __future__ import annotations

import os
from enum import Enum
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.format import CONTROL_BIT, LOG_OVERHEAD, RECORDS_V2, SIZE
from pyspark_kafkalog.codec.walk import Batches, walk

HEAD_BYTES = 128
"""A header, and all of the marker that ends a transaction, which has 78 bytes."""
LARGE = 4 << 10
"""Bytes of the least batch whose records are left out: a disk reads pages of this size anyway."""
_FRAME = Struct(">qi4xb4xhi")
"""Base offset, size, magic, attributes and last offset delta of a batch of magic 2."""
_HEAD_SIZE = Struct(">i").pack(HEAD_BYTES - LOG_OVERHEAD)


class Next(Enum):
    """The bytes behind the heads that were read."""

    HEAD = "maybe another head"
    BATCH = "a batch that has to be read whole"
    FAULT = "bytes that begin no batch of this log"


class Heads(NamedTuple):
    """The heads of consecutive batches, of which those of markers are whole.

    They begin in ``buffer`` where ``batches`` says; the sizes are those of the batches in the file, where the
    last one ends at ``end``.
    """

    buffer: pa.Buffer
    batches: Batches
    end: int
    next: Next


def read_heads(
    descriptor: int, position: int, size: int, *, next_offset: int, stop: int, below: int, most: int
) -> Heads:
    """The heads of the batches from ``position`` in a file of ``size`` bytes on.

    :param next_offset: no batch may begin before it.
    :param stop: the first batch that ends with this offset or a later one is the last.
    :param below: no record may have this offset or a later one.
    :param most: the most heads that are read, at least 2.
    """
    found: list[bytes] = []
    sizes: list[int] = []
    following = Next.HEAD
    while len(found) < most and position < size:
        head = os.pread(descriptor, HEAD_BYTES, position)
        if len(head) < RECORDS_V2:
            following = Next.FAULT  # or a short message of magic 0 or 1, which is read all the same
            break
        base_offset, rest, magic, attributes, delta = _FRAME.unpack_from(head)
        whole = rest + LOG_OVERHEAD
        last_offset = base_offset + delta if magic == 2 else base_offset
        is_framed = magic in (0, 1) or (magic == 2 and RECORDS_V2 <= whole <= size - position)
        if not (is_framed and next_offset <= base_offset <= last_offset < below):
            following = Next.FAULT
            break
        if next_offset > stop:
            break
        # A small batch among large ones may be here as a whole. Many small ones are read together.
        is_left_out = magic == 2 and whole >= LARGE and not attributes & CONTROL_BIT
        is_here = magic == 2 and whole <= HEAD_BYTES and bool(sizes) and sizes[-1] >= LARGE
        if not is_left_out and not is_here:
            following = Next.BATCH
            break
        found.append(
            head[:SIZE] + _HEAD_SIZE + head[SIZE + len(_HEAD_SIZE) :].ljust(HEAD_BYTES - LOG_OVERHEAD)
        )
        sizes.append(whole)
        position += whole
        next_offset = last_offset + 1
    is_cut_off = len(found) == most and position < size
    if found and (following is Next.FAULT or is_cut_off):
        # The size or an offset of the last one may be wrong: what follows shows it.
        del found[-1]
        position -= sizes.pop()
    buffer = pa.py_buffer(b"".join(found))
    batches = walk(buffer)
    batches.table[kernels.WHOLE_SIZE] = sizes
    return Heads(buffer, batches, position, following)
