"""Applies retention and deletes records, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog.extensions.cleanup.deleting import delete_records, retain
from pyspark_kafkalog.model import TopicPartition
from tests.faults.steps import count_steps, serve

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def apply(root: Path) -> None:
    """Of both partitions some segments go; then records of t-0, up to amid a segment; then the rest."""
    retain([str(root)], ["t"], {"retention.bytes": "1000"}, execute=True)
    delete_records([str(root)], {T0: 85}, execute=True)
    retain([str(root)], ["t"], {"retention.bytes": "0"}, execute=True)


def run(folder: Path, kill_at: int) -> None:
    count_steps(folder / "steps", kill_at)
    apply(folder / "log")


if __name__ == "__main__":
    serve(run)
