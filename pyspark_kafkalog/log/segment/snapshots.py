"""The producer snapshots of a partition's folder, and the producers at an offset between two of them."""

from __future__ import annotations

import os
from collections.abc import Callable

from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.layout import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.scan import Scan
from pyspark_kafkalog.log.snapshot import ProducerEntry, parse_snapshot


def read_snapshot(folder: str, offset: int) -> list[ProducerEntry] | None:
    """The producers in a partition's snapshot for an offset; None without one that is valid.

    :raises LogDirectoryError: if it is too large for one, or a link that leads out of the folder.
    """
    data = local_folder(folder).read(segment_file(offset, SNAPSHOT_SUFFIX))
    return None if data is None else parse_snapshot(data)


def producers_at(folder: str, bases: list[int], progress: Callable[[], None] = lambda: None) -> ProducerState:
    """The producers at the last base offset: by a snapshot, and the segments between.

    :param progress: called after each piece that was read.
    """
    for at in range(len(bases) - 1, -1, -1):
        entries = read_snapshot(folder, bases[at])
        if entries is not None or at == 0:
            producers = ProducerState(entries or ())
            for base_offset in bases[at:-1]:
                for piece in Scan(os.path.join(folder, segment_file(base_offset, LOG_SUFFIX)), base_offset):
                    producers.add(piece.data, piece.batches)
                    progress()
            return producers
    return ProducerState()
