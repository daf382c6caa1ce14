"""Cut a partition's log back to an offset, as a follower does whose leader has another history.

Source: Kafka's ``UnifiedLog.truncateTo``, ``LocalLog.truncateTo``.
"""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np

from pyspark_kafkalog.filesystem.durable import cut, sync_folder
from pyspark_kafkalog.log.checkpoints import read_epochs, write_epochs
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment.aside import put_aside
from pyspark_kafkalog.log.segment.recovery import check_tail, offsets_of, remove_segment
from pyspark_kafkalog.log.segment.scan import Scan


def truncate(folder: str, offset: int, *, why: str = "") -> None:
    """Remove every record batch that has ``offset`` or a later one, and what is kept about them.

    The log may then end before ``offset``, as a batch goes as a whole. The last segment is left without
    indexes: recover it. Interrupted, this can run again. The caller holds the directory's lock.

    :param why: if given, what is removed is kept, with this reason; see :mod:`.aside`.
    :raises LogDirectoryError: if a batch that stays is damaged; nothing has changed then.
    """
    files = [(*found, name) for name in os.listdir(folder) if (found := parse_segment_file(name))]
    bases = sorted(base for base, suffix, _ in files if suffix == LOG_SUFFIX)
    gone = {base for base in bases if base >= offset}
    retained = [base for base in bases if base not in gone]
    position = _position_of(folder, retained[-1], offset) if retained else 0
    if why:
        pieces = [(retained[-1], position)] if retained else []
        for base, begin in reversed([*pieces, *((base, 0) for base in sorted(gone))]):
            name = segment_file(base, LOG_SUFFIX)
            if length := os.path.getsize(os.path.join(folder, name)) - begin:
                put_aside(folder, name, begin, length, offset=max(base, offset), why=why)
    _cut_epochs(folder, offset)
    for base, suffix, name in files:
        if suffix == SNAPSHOT_SUFFIX and base > offset:
            os.unlink(os.path.join(folder, name))
    for base in sorted(gone, reverse=True):
        remove_segment(folder, base)
        sync_folder(folder)  # the last segment goes first, so that no gap is left
    if retained:
        for suffix in INDEX_SUFFIXES:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, segment_file(retained[-1], suffix)))
        cut(os.path.join(folder, segment_file(retained[-1], LOG_SUFFIX)), position)
    sync_folder(folder)


def cut_unflushed(folder: str, recovery_point: int) -> None:
    """Remove what may not be on disk after a failed write or flush, although it can still be read.

    Linux reports a failed flush once, and takes the bytes for written then. Segments before the last one were
    flushed when they ended.

    :param recovery_point: the offset below which all is on disk.
    :raises LogDirectoryError: if a batch that stays is damaged; nothing has changed then.
    """
    truncate(folder, max([recovery_point, *offsets_of(folder, LOG_SUFFIX)]))


def _cut_epochs(folder: str, offset: int) -> None:
    epochs = read_epochs(folder)
    retained = [entry for entry in epochs if entry[1] < offset]
    if retained != epochs:
        write_epochs(folder, retained)


def _position_of(folder: str, base_offset: int, offset: int) -> int:
    """The position of the first batch with ``offset`` or a later one; else the end of the valid batches."""
    scan = Scan(os.path.join(folder, segment_file(base_offset, LOG_SUFFIX)), base_offset)
    for piece in scan:
        beyond = np.flatnonzero(piece.batches.last_offset >= offset)
        if beyond.size:
            return piece.position + int(piece.batches.position[beyond[0]])
    if scan.fault is not None:
        check_tail(scan.path, scan.end, scan.next_offset)
    return scan.end
