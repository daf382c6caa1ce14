"""Leader epochs: what ``leader-epoch-checkpoint`` may say beside the record batches of a partition.

A batch has the epoch of the leader that appended it, under no checksum. The checkpoint has the start offset
of each epoch: after the last batch of the epoch before, and not after its own first batch.

Sources: Kafka's ``LeaderEpochFileCache``, ``UnifiedLog.maybeAssignEpochStartOffset``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.walk import Batches

_LAST = 1 << 31
"""A leader epoch above all others."""


class EpochStart(NamedTuple):
    """The start of a leader epoch: its first batch is at ``offset``, the batch before ends at ``after``."""

    epoch: int
    offset: int
    after: int


def epoch_starts(batches: Batches, latest: int, end: int) -> list[EpochStart]:
    """The starts of the leader epochs above ``latest`` in ``batches``, which follow those up to ``end``."""
    epochs = np.where(batches.magic == 2, batches.leader_epoch, -1)
    rising = np.flatnonzero(epochs > np.maximum.accumulate(np.append(latest, epochs))[:-1])
    after = np.append(end, batches.last_offset + 1)[rising]
    columns = epochs[rising].tolist(), batches.base_offset[rising].tolist(), after.tolist()
    return [EpochStart(*entry) for entry in zip(*columns, strict=True)]


def epoch_fault(
    known: Sequence[tuple[int, int]], of_batches: Sequence[EpochStart], start: int, batches_end: int, end: int
) -> str | None:
    """The fault of the ``known`` epochs of a checkpoint, each with its start offset; None without one.

    :param of_batches: the leader epochs of the record batches.
    :param start: the log start offset: no epoch has to begin before it.
    :param batches_end: follows the last record batch.
    :param end: where the log ends, which may be behind a gap.
    """
    falls = any(epoch <= before or offset < other for (before, other), (epoch, offset) in pairwise(known))
    if falls or any(epoch < 0 or offset < 0 for epoch, offset in known):
        return "its leader epochs or their offsets fall"
    if known and known[-1][1] > max(end, start):
        return f"epoch {known[-1][0]} begins at offset {known[-1][1]}, behind the end of the log"
    # A deletion cuts the epochs at once, and the checkpoint of log start offsets up to a minute later.
    start = max([start, *(offset for _, offset in known[:1])])
    shown, has = _from(of_batches, start), {epoch for epoch, _ in known}
    lacking = next((entry for entry in shown if entry.epoch not in has), None)
    if lacking is not None:
        return f"it lacks epoch {lacking.epoch} of the record batch at offset {lacking.offset}"
    ends = [*shown, EpochStart(_LAST, max(batches_end, end, start), batches_end)] if shown else []
    for epoch, first in known if shown else ():
        next_one = ends[bisect_left(ends, epoch, key=lambda entry: entry.epoch)]
        if not next_one.after <= first <= next_one.offset:
            return f"epoch {epoch} begins at offset {first}, which does not fit the record batches"
    return None


def mended_epochs(of_batches: Sequence[EpochStart], start: int) -> list[tuple[int, int]]:
    """The entries that a checkpoint at fault should have: those that a broker's recovery finds."""
    return [(entry.epoch, max(entry.offset, start)) for entry in _from(of_batches, start)]


def _from(of_batches: Sequence[EpochStart], start: int) -> list[EpochStart]:
    """The epochs from the log start offset on; the one in which that lies may begin anywhere before it."""
    before = [entry for entry in of_batches if entry.offset <= start]
    shown = [*before[-1:], *(entry for entry in of_batches if entry.offset > start)]
    return [shown[0]._replace(offset=max(shown[0].offset, start), after=0), *shown[1:]] if shown else []
