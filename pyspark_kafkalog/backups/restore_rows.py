"""What came of a restore, or would come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark_kafkalog.backups.restore_groups import RestoredOffset
from pyspark_kafkalog.model import OffsetRange


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A partition of the source, and what of it is, or would be, in the target.

    Source offsets ``start`` to ``end`` have ``records`` to restore. They get the offsets ``target_start`` to
    ``target_end``; ``keeps_offsets`` says that these are those they had. ``stored_bytes`` are those of the
    whole partition in the source, None if it does not say. ``gaps`` are those of a backup between ``start``
    and ``end``: what its own source had deleted before it was copied.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int
    stored_bytes: int | None
    target_topic: str
    target_start: int
    target_end: int
    keeps_offsets: bool
    gaps: Sequence[OffsetRange] = ()


@dataclass(frozen=True, slots=True)
class UnplannedOffsets:
    """Offsets of a partition that the source has got since a first run, and which are not restored."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did, or would do. ``configs`` are those of the topics that it makes.

    ``unplanned`` is what the source has got since the first run.
    """

    partitions: Sequence[RestoredPartition]
    groups: Sequence[RestoredOffset]
    configs: Mapping[str, Mapping[str, str]]
    state: str
    unplanned: Sequence[UnplannedOffsets] = ()
