"""The bytes that a repair cuts out of a partition, in one file in its folder, so that they can be put back.

``.kafkalog-cut``, which brokers and readers ignore, is a sequence of pieces. Each is a line of JSON, and
then the bytes::

    {"segment": "00000000000000000000.log", "position": 206, "length": 5153, "offset": 2, "why": "..."}

A piece was in its segment at ``position``. Many zeros at its end, as in a preallocated segment, are left out
and counted by ``zeros``. Those that are cut at once are written from the last to the first.
So pieces give the old files if they are put in again in reverse, the last one of the file first, whichever
repair has cut it. Indexes follow from the segments, and are not kept. With ``inserted``, so many bytes of
markers stand in the place of the piece.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np

from pyspark_kafkalog.filesystem.durable import naming, sync_folder, write_all
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.segment.scan import before_zeros, opened, read_at

ASIDE_FILE = ".kafkalog-cut"
_CHUNK = 8 << 20
_MAX_LINE = 64 << 10
_MAX_ZEROS = 4 << 10


def put_aside(
    folder: str, segment: str, position: int, length: int, *, offset: int, why: str, inserted: int = 0
) -> None:
    """Append a piece of a segment to the partition's file, and flush it, unless it is there already.

    A repair that was killed between this and the cut comes here again.
    """
    path = os.path.join(folder, ASIDE_FILE)
    header: dict[str, int | str] = {
        "segment": segment,
        "position": position,
        "length": length,
        "offset": offset,
        "why": why,
    }
    if inserted:
        header["inserted"] = inserted
    source = os.path.join(folder, segment)
    zeros = position + length - before_zeros(source, position, position + length)
    if zeros > _MAX_ZEROS:
        length -= zeros
        header |= {"length": length, "zeros": zeros}
    target = open_new(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        with naming(path):
            pieces = list(_pieces(target))
            for known, begin in pieces:
                if known == header and _same(source, position, path, begin, length):
                    return
            end = pieces[-1][1] + int(pieces[-1][0]["length"]) if pieces else 0
            os.ftruncate(target, end)  # what was interrupted
            line = json.dumps(header).encode() + b"\n"
            write_all(target, line, end)
            copy_range(source, position, length, target, end + len(line))
            os.fsync(target)
        sync_folder(folder)
    finally:
        os.close(target)


def copy_range(source: str, position: int, length: int, target: int, to: int) -> None:
    """Copy bytes from a file to an open one; errors name the file that can't be read."""
    for data in _chunks(source, position, length):
        write_all(target, data, to)
        to += data.size


def _pieces(descriptor: int) -> Iterator[tuple[dict[str, int | str], int]]:
    """The whole pieces of the file: header, and where the bytes begin."""
    size, position = os.fstat(descriptor).st_size, 0
    while position < size:
        line, newline, _ = os.pread(descriptor, _MAX_LINE, position).partition(b"\n")
        try:
            header = json.loads(line)
            begin = position + len(line) + 1
            end = begin + int(header["length"])
        except (ValueError, KeyError, TypeError):
            return
        if not newline or end > size:
            return
        yield header, begin
        position = end


def _same(source: str, position: int, target: str, begin: int, length: int) -> bool:
    pairs = zip(_chunks(source, position, length), _chunks(target, begin, length), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def _chunks(path: str, position: int, length: int) -> Iterator[np.ndarray]:
    end = position + length
    with opened(path) as descriptor:
        while position < end:
            room = np.empty(min(_CHUNK, end - position), np.uint8)
            data = room[: read_at(descriptor, room, position)]
            if not data.size:
                raise OSError(f"The file has become shorter than {end} bytes")
            yield data
            position += data.size
