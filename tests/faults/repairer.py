"""Repairs a log directory, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog.tools.care.partition_repair import RepairMode
from pyspark_kafkalog.tools.care.repair import repair
from tests.faults.steps import count_steps, serve


def run(folder: Path, kill_at: int) -> None:
    count_steps(folder / "steps", kill_at)
    mode = RepairMode(
        execute=True, salvage=(folder / "salvage").exists(), discard=(folder / "discard").exists()
    )
    repair(str(folder / "log"), None, mode)


if __name__ == "__main__":
    serve(run)
