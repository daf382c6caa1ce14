"""Writes to a backup, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for
import pyarrow as pa

from pyspark_kafkalog import connect
from tests.faults.steps import count_steps, serve

WRITTEN = 7


def run(folder: Path, kill_at: int) -> None:
    count_steps(folder / "steps", kill_at)
    connect(folder / "backup").write(pa.table({"value": [b"written"] * WRITTEN}), "t")


if __name__ == "__main__":
    serve(run)
