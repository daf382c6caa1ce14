"""What a crash has left in a partition's folder, finished or undone as a broker does on loading (LogLoader).

:mod:`pyspark_kafkalog.log.read.loading` says which segments are live. All other segments are removed, files
that end in ``.swap`` get their names, and indexes without a segment go.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.care.steps import RepairStep
from pyspark_kafkalog.log.durable import sync_folder
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_segment_file,
)
from pyspark_kafkalog.log.read.loading import live_segments
from pyspark_kafkalog.log.read.segment import Segment


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The live segments of a folder, and the steps that leave only these, in their order."""

    segments: list[Segment]
    steps: list[RepairStep]

    def run(self, folder: str) -> None:
        """Take the steps. If this is interrupted, the rest can be planned and taken again."""
        for step in self.steps:
            if step.action == "rename":
                os.replace(step.file, step.file.removesuffix(SWAP_SUFFIX))
            else:
                os.unlink(step.file)
        if self.steps:
            sync_folder(folder)


def plan_leftovers(folder: Folder) -> Leftovers:
    """What to do with what a crash has left in the folder; changes nothing.

    :raises LogDirectoryError: if a segment is not a regular file.
    """
    segments = live_segments(folder)
    live = {segment.base_offset: segment.suffix for segment in segments}
    files = sorted(
        (found, name) for name in folder.names() if (found := parse_segment_file(name)) is not None
    )
    least_cleaned = min(
        (base for (base, suffix), _ in files if suffix.endswith(CLEANED_SUFFIX)), default=1 << 63
    )
    # Which swaps count depends on the cleaned files, so these go later. Indexes of a segment go before what
    # was its log: alone they would prove that it is lost.
    undone, covered, stray, old, renamed = (list[RepairStep]() for _ in range(5))
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
        elif suffix in INDEX_SUFFIXES and live.get(base) != "":
            why = "a finished replacement has its records" if base in live else "its segment is missing"
            stray.append(RepairStep("remove", path, why, offset=None if base in live else base))
    return Leftovers(segments, [*undone, *stray, *covered, *old, *renamed])
