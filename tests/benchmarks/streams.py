"""Streams that benchmarks time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def available_now(
    spark: SparkSession, kind: str, options: Mapping[str, str], checkpoints: Path, *, told: bool = False
) -> Callable[[], list[dict]]:
    """Reads all from the start, with a new checkpoint; gives the progress of micro-batches that had rows.

    :param told: whether the reader is told the checkpoint, too.
    """
    numbers = itertools.count()

    def run() -> list[dict]:
        checkpoint = str(checkpoints / str(next(numbers)))
        knows = {"checkpointLocation": checkpoint} if told else {}
        query = (
            spark.readStream.format(kind)
            .options(**{**options, "startingOffsets": "earliest", **knows})
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    return run
