"""Publishes micro-batches, and dies at a chosen step: see :mod:`tests.faults.steps`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog.model import QueryBatch, TopicPartition
from tests.faults.steps import count_steps, serve
from tests.log.writing import Values, publish_staged, stage, values

BATCHES = 2
QUERY = "query"


def records(batch_id: int, tasks: int) -> list[Values]:
    """The rows of each task of a micro-batch; together the same rows, whatever the number of tasks.

    The first makes topic ``t``, the second makes ``new`` and appends to ``t``; segments roll.
    """
    numbered = values(60, 50, 1000 * batch_id)
    topics = ("t", "new")[: batch_id + 1]
    split: list[dict[TopicPartition, list[bytes]]] = [{} for _ in range(tasks)]
    for i, value in enumerate(numbered):
        # With more tasks neither the task nor the partition of a row is the same.
        partition = TopicPartition(topics[value[-1] % len(topics)], i // tasks % 2)
        split[i % tasks].setdefault(partition, []).append(value)
    return split  # type: ignore[return-value]


def publish_batch(root: Path, batch_id: int, tasks: int) -> None:
    """Stage and publish a micro-batch like Spark."""
    batch = QueryBatch(QUERY, batch_id)
    staged = [
        file for task in records(batch_id, tasks) for file in stage(root, batch.job, task, batch_size=300)
    ]
    publish_staged(root, staged, batch, segment_bytes=2000)


def run(folder: Path, kill_at: int) -> None:
    """Publish the batches that are not in ``folder/committed``, which stands for Spark's own commit log."""
    count_steps(folder / "steps", kill_at)
    committed = folder / "committed"
    done = json.loads(committed.read_text()) if committed.exists() else -1
    for batch_id in range(done + 1, BATCHES):
        publish_batch(folder / "log", batch_id, tasks=2)
        committed.write_text(json.dumps(batch_id))


if __name__ == "__main__":
    serve(run)
