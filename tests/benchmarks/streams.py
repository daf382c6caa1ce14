"""Streams that benchmarks time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession


def available_now(
    spark: SparkSession,
    kind: str,
    options: Mapping[str, str],
    checkpoints: Path,
    *,
    with_checkpoint: bool = False,
    step: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    sink: tuple[str, Mapping[str, str]] = ("noop", MappingProxyType({})),
) -> Callable[[], list[dict]]:
    """Reads all from the start, with a new checkpoint; gives the progress of micro-batches that had rows.

    :param with_checkpoint: whether the reader gets the checkpoint as an option, too.
    :param step: what is done with the rows, and ``sink`` where they go: a format, and its options.
    """
    numbers = itertools.count()

    def run() -> list[dict]:
        checkpoint = str(checkpoints / str(next(numbers)))
        knows = {"checkpointLocation": checkpoint} if with_checkpoint else {}
        reader = spark.readStream.format(kind)
        frame = reader.options(**{**options, "startingOffsets": "earliest", **knows}).load()
        kind_of_sink, its_options = sink
        writer = step(frame).writeStream.format(kind_of_sink).options(**its_options)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    return run
