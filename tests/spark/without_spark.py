"""Runs the planner and the tasks of a stream reader as Spark's MicroBatchExecution does, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.spark.stream_reader import LogStreamReader
from tests.stream.spark_log import QUERY, begin, complete, planned

_SCHEMA = StructType([StructField("value", BinaryType())])


class DiedError(Exception):
    """The query has died in a micro-batch that was planned."""


class Query:
    """A query with Trigger.AvailableNow. Each of its readers is given its checkpoint."""

    def __init__(self, checkpoint: Path, query_id: str = QUERY) -> None:
        self.checkpoint = begin(checkpoint, query_id)

    def run(self, *readers: Mapping[str, str], dies: bool = False) -> list[int]:
        """Run the query once; how many rows each of its readers brings."""
        options = {"checkpointLocation": str(self.checkpoint)}
        sources = [DefaultSource({**options, **given}).streamReader(_SCHEMA) for given in readers]
        rows = [0] * len(sources)
        newest, offsets = self._newest(), [*map(self._logged, range(self._newest() + 1))]
        if newest >= 0 and not (self.checkpoint / "commits" / str(newest)).exists():
            starts = offsets[newest - 1] if newest else [source.initialOffset() for source in sources]
            self._run_batch(newest, sources, starts, offsets[newest], rows, dies=dies)
        while True:
            for source in sources:
                source.prepareForTriggerAvailableNow()
            starts = self._logged(newest) if newest >= 0 else [source.initialOffset() for source in sources]
            ends = [
                source.latestOffset(start, source.getDefaultReadLimit())
                for source, start in zip(sources, starts, strict=True)
            ]
            if ends == starts:
                return rows
            newest += 1
            planned(self.checkpoint, *map(json.dumps, ends), number=newest)
            self._run_batch(newest, sources, starts, ends, rows, dies=dies)

    def _run_batch(
        self,
        number: int,
        sources: list[LogStreamReader],
        starts: list[dict[str, dict[str, int]]],
        ends: list[dict[str, dict[str, int]]],
        rows: list[int],
        *,
        dies: bool,
    ) -> None:
        for place, (source, start, end) in enumerate(zip(sources, starts, ends, strict=True)):
            for split in source.partitions(start, end):
                rows[place] += sum(batch.num_rows for batch in source.read(split))
        if dies:
            raise DiedError
        complete(self.checkpoint, number)

    def _newest(self) -> int:
        return max((int(file.name) for file in (self.checkpoint / "offsets").iterdir()), default=-1)

    def _logged(self, number: int) -> list[dict[str, dict[str, int]]]:
        lines = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]
        return [json.loads(line) for line in lines]
