"""What came of a restore, or would come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_kafkalog.backups.restore_groups import RestoredOffset
from pyspark_kafkalog.model import OffsetRange
from pyspark_kafkalog.rows import BIGINT, INT, SIZE, STRING, Kind, column

_KEPT = Kind("boolean", text=lambda keeps_offsets: "kept" if keeps_offsets else "mapped")


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A partition of the source, and what of it is, or would be, in the target.

    Source offsets ``start`` to ``end`` have ``records`` to restore. They get the offsets ``target_start`` to
    ``target_end``; ``keeps_offsets`` says that these are those they had. ``stored_bytes`` are those of the
    whole partition in the source, None if it does not say. ``gaps`` are those of a backup between ``start``
    and ``end``: what its own source had deleted before it was copied.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    start: int = field(metadata=column(BIGINT, "START", wide=True))
    end: int = field(metadata=column(BIGINT, "END", wide=True))
    records: int = field(metadata=column(BIGINT, "RECORDS"))
    stored_bytes: int | None = field(metadata=column(SIZE, "SIZE"))
    target_topic: str = field(metadata=column(STRING, "TARGET"))
    target_start: int = field(metadata=column(BIGINT, "FROM", wide=True))
    target_end: int = field(metadata=column(BIGINT, "TO", wide=True))
    keeps_offsets: bool = field(metadata=column(_KEPT, "OFFSETS"))
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
