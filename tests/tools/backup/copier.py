"""Copies a log that grows, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog import BackupRules, connect
from tests.faults.steps import count_steps, serve

RULES = BackupRules(threads=1, truncate=True, allow_gaps=True)
STAGES = ("first", "longer", "truncated")


def run(folder: Path, kill_at: int) -> None:
    """Bring the copy in ``folder`` up to each stage of the source that there is."""
    count_steps(folder / "steps", kill_at)
    for stage in filter(lambda stage: (folder.parent / stage).exists(), STAGES):
        connect(folder.parent / stage).logs.backup(str(folder / "copy"), RULES)


if __name__ == "__main__":
    serve(run)
