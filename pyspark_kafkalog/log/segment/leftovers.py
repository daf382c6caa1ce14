"""Files that a crash left in a partition's folder, finished or undone as Kafka's LogLoader does.

Segments that :mod:`~pyspark_kafkalog.log.segment.loading` does not count as live are removed, files that end
in ``.swap`` get their names, and indexes of segments that were replaced go.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain

from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_segment_file,
)
from pyspark_kafkalog.log.segment.loading import live_segments
from pyspark_kafkalog.log.segment.missing import bases_without_log
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.log.segment.steps import RepairStep


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The live segments of a folder, and the steps that leave only these.

    ``missing`` are the indexes of missing segments: nothing else proves that these are lost. Each of the
    ``rounds`` is on disk before the next one begins.
    """

    folder: str
    segments: list[Segment]
    missing: list[RepairStep]
    rounds: list[list[RepairStep]]

    @property
    def steps(self) -> list[RepairStep]:
        """The steps, in order."""
        return [*self.missing, *chain(*self.rounds)]

    def run(self, *, forget_missing: bool = False) -> None:
        """Take the steps, but keep the indexes of missing segments unless told to ``forget_missing``.

        If this is interrupted, the rest can be planned and taken again.
        """
        for steps in filter(None, [self.missing if forget_missing else [], *self.rounds]):
            for step in steps:
                if step.action == "rename":
                    os.replace(step.file, step.file.removesuffix(SWAP_SUFFIX))
                else:
                    os.unlink(step.file)
            sync_folder(self.folder)


def clear_leftovers(folder: str) -> list[str]:
    """Finish or undo what a crash interrupted in a partition, and list its files; the caller holds the lock.

    Until then its ``.log`` files need not be the segments that readers see, so each writer calls this before
    it changes a partition. If only ``.deleted`` files are left, they stay: they do no harm.

    :raises LogDirectoryError: if a segment is not a regular file.
    """
    names = os.listdir(folder)
    marks = SWAP_SUFFIX, CLEANED_SUFFIX
    joined = "/".join(names)  # searched first, as there may be thousands
    if any(mark in joined for mark in marks) and any(
        name.endswith(marks) and parse_segment_file(name) for name in names
    ):
        plan_leftovers(open_folder(folder)).run()
        names = os.listdir(folder)
    return names


def plan_leftovers(folder: Folder) -> Leftovers:
    """The steps that clear the files that a crash has left in the folder; changes nothing.

    :raises LogDirectoryError: if a segment is not a regular file.
    """
    segments = live_segments(folder)
    live = {segment.base_offset: segment.suffix for segment in segments}
    names = folder.names()
    files = sorted((found, name) for name in names if (found := parse_segment_file(name)) is not None)
    least_cleaned = min(
        (base for (base, suffix), _ in files if suffix.endswith(CLEANED_SUFFIX)), default=1 << 63
    )
    lost = bases_without_log(names)
    # Which swaps count depends on the cleaned files, so these go later. Indexes of a segment go before what
    # was its log: alone they would prove that it is lost.
    missing, undone, stray, covered, old, renamed = (list[RepairStep]() for _ in range(6))
    for (base, suffix), name in files:
        path = folder.label(name)
        if suffix.endswith(SWAP_SUFFIX):
            if base < least_cleaned and base in live:
                # The log first: what has its name already is not covered.
                at = 0 if suffix == LOG_SUFFIX + SWAP_SUFFIX else len(renamed)
                renamed.insert(at, RepairStep("rename", path, "its replacement was interrupted at the end"))
            else:
                undone.append(RepairStep("remove", path, "its replacement was interrupted at the beginning"))
        elif suffix.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)):
            old.append(RepairStep("remove", path, "the cleaner or a deletion left it"))
        elif suffix == LOG_SUFFIX and live.get(base) != "":
            covered.append(RepairStep("remove", path, "a finished replacement has its records"))
        elif suffix in INDEX_SUFFIXES and base in lost:
            missing.append(RepairStep("remove", path, "its segment is missing", offset=base))
        elif suffix in INDEX_SUFFIXES and live.get(base) != "":
            stray.append(RepairStep("remove", path, "its segment was replaced or deleted"))
    return Leftovers(folder.label(), segments, missing, [undone, stray, covered, old, renamed])
