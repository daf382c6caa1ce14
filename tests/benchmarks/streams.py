"""Streams that benchmarks time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def available_now(
    spark: SparkSession,
    kind: str,
    options: Mapping[str, str],
    checkpoints: Path,
    *,
    with_checkpoint: bool = False,
    step: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> Callable[[], list[dict]]:
    """Reads all from the start, with a new checkpoint; gives the progress of micro-batches that had rows.

    :param with_checkpoint: whether the reader gets the checkpoint as an option, too.
    :param step: what is done with the rows.
    """
    numbers = itertools.count()

    def run() -> list[dict]:
        checkpoint = str(checkpoints / str(next(numbers)))
        knows = {"checkpointLocation": checkpoint} if with_checkpoint else {}
        reader = spark.readStream.format(kind)
        frame = reader.options(**{**options, "startingOffsets": "earliest", **knows}).load()
        query = (
            step(frame)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    return run
