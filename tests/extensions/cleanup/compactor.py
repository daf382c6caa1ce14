"""Compacts a partition, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

from pathlib import Path

from pyspark_kafkalog.extensions.cleanup.compacting import compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import CompactionSettings
from pyspark_kafkalog.model import TopicPartition
from tests.faults.steps import count_steps, serve

PARTITION = TopicPartition("t", 0)
SETTINGS = CompactionSettings(
    min_cleanable_dirty_ratio=0, delete_retention_ms=0, segment_bytes=3000, dedupe_buffer_size=24 * 20
)
"""Several passes, and several groups of segments in each."""


def run(folder: Path, kill_at: int) -> None:
    count_steps(folder / "steps", kill_at)
    compact_partition(str(folder / "log"), PARTITION, SETTINGS, execute=True)


if __name__ == "__main__":
    serve(run)
