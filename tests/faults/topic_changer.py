"""Deletes and creates topics of a log directory, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog.log.publish.topics import create_topics
from pyspark_kafkalog.log.topics import DirectoryTopics
from tests.faults.steps import count_steps, serve

NEW = {"fresh": (3, {"retention.ms": "7"}), "other": (1, {})}


def run(folder: Path, kill_at: int) -> None:
    """Delete topic ``t`` or, if that is gone, make two topics at once."""
    count_steps(folder / "steps", kill_at)
    root = folder / "log"
    if (root / "t-0").exists():
        DirectoryTopics([str(root)]).delete(["t"])
    else:
        create_topics(str(root), NEW)


if __name__ == "__main__":
    serve(run)
