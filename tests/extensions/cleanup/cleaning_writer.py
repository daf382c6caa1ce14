"""Commits keyed rows to a compacted topic, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog.extensions.cleanup import after_commit
from pyspark_kafkalog.extensions.cleanup.unfinished import TimeLimit
from pyspark_kafkalog.log.sink import DirectorySink
from pyspark_kafkalog.model import EncodeSettings, Plan, QueryBatch, TopicPartition
from tests.faults.steps import count_steps, serve
from tests.log.writing import stage

BATCHES = 8
PARTITION = TopicPartition("t", 0)


class FewSteps(TimeLimit):
    """Leaves time for some segments, and a whole map."""

    steps = 0

    def is_over(self, share: float = 1) -> bool:
        self.steps += share == 1
        return share == 1 and self.steps > 4


def rows(batch_id: int) -> list[bytes]:
    """The keys of a micro-batch, which are its values, too: some come again in all batches, some never."""
    return [b"%05d" % number for number in (*range(8), *range(100 + 4 * batch_id, 104 + 4 * batch_id))]


def commit(root: Path, batch_id: int) -> None:
    """Stage and commit a micro-batch as Spark does."""
    sink = DirectorySink.on_driver(
        str(root), 1, EncodeSettings(), {"segment.bytes": "1000"}, is_job=False, required=True
    )
    batch = QueryBatch("query", batch_id)
    staged = stage(root, batch.job, {PARTITION: rows(batch_id)}, keyed=True, batch_size=200)
    sink.commit(batch, staged, Plan())


def run(folder: Path, kill_at: int) -> None:
    """Commit the batches that are not in ``folder/committed``, each with time for a few segments."""
    count_steps(folder / "steps", kill_at)
    after_commit.TimeLimit = FewSteps  # type: ignore[misc]
    committed = folder / "committed"
    done = json.loads(committed.read_text()) if committed.exists() else -1
    for batch_id in range(done + 1, BATCHES):
        commit(folder / "log", batch_id)
        committed.write_text(json.dumps(batch_id))


if __name__ == "__main__":
    serve(run)
