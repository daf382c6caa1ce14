"""Streams that benchmarks time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter


def to_sink(kind: str, options: Mapping[str, str]) -> Callable[[DataFrame], DataStreamWriter]:
    """Writes a stream to a sink."""
    return lambda frame: frame.writeStream.format(kind).options(**options)


def available_now(
    spark: SparkSession,
    kind: str,
    options: Mapping[str, str],
    checkpoints: Path,
    *,
    with_checkpoint: bool = False,
    step: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    write: Callable[[DataFrame], DataStreamWriter] = lambda frame: frame.writeStream.format("noop"),
) -> Callable[[], list[dict]]:
    """Reads all from the start, with a new checkpoint; gives the progress of micro-batches that had rows.

    :param with_checkpoint: whether the reader gets the checkpoint as an option, too.
    :param step: what is done with the rows, and ``write`` where they go.
    """
    numbers = itertools.count()

    def run() -> list[dict]:
        checkpoint = str(checkpoints / str(next(numbers)))
        knows = {"checkpointLocation": checkpoint} if with_checkpoint else {}
        reader = spark.readStream.format(kind)
        frame = reader.options(**{**options, "startingOffsets": "earliest", **knows}).load()
        query = write(step(frame)).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    return run
