"""Reads, writes and streams on a PySpark that lacks what later releases brought, without a JVM.

Usage: ``python -m tests.spark.older_spark 4.0|4.1 FOLDER``. It hides the API from its own process before
anything of the package is imported, and calls readers and writers as the JVM of these releases does.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

_FILTERS = (
    "EqualTo",
    "EqualNullSafe",
    "LessThan",
    "LessThanOrEqual",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
)

Offsets = dict[str, dict[str, int]]


def hide(release: str) -> None:
    """Leave of PySpark's API what that release has, as far as this package uses it."""
    sys.modules["pyspark.sql.streaming.datasource"] = None  # type: ignore[assignment]
    for method in "reportLatestOffset", "getDefaultReadLimit":
        delattr(datasource.DataSourceStreamReader, method)
    todays = types.to_arrow_schema
    types.to_arrow_schema = lambda schema: todays(schema, timezone="UTC")
    if release == "4.0":
        for name in (*_FILTERS, "Filter", "DataSourceStreamArrowWriter"):
            delattr(datasource, name)
        del datasource.DataSourceReader.pushFilters


class Stream:
    """One run of a query, called as ``MicroBatchExecution`` calls the source of such a release."""

    def __init__(self, path: Path, seen: Offsets | None = None, **options: str) -> None:
        from pyspark_kafkalog import DefaultSource

        given = {"path": str(path), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", **options}
        self.reader = DefaultSource(given).streamReader(columns(offset="long"))
        self.at = seen
        checkpoint = options.get("checkpointLocation")
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        if seen is not None:
            assert not any(task.splits for task in self.reader.partitions(seen, seen))

    def batch(self) -> int:
        """The rows of the next micro-batch."""
        return self.run(self.reader.latestOffset())  # type: ignore[call-arg]

    def run(self, end: Offsets) -> int:
        start = self.reader.initialOffset() if self.at is None else self.at
        if start == end:
            return 0
        if self.checkpoint is not None:
            plans, commits = self.checkpoint / "offsets", self.checkpoint / "commits"
            number = str(max((int(plan.name) for plan in plans.iterdir()), default=-1) + 1)
            (plans / number).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        rows = sum(rows_of(self.reader, split) for split in self.reader.partitions(start, end))
        if self.checkpoint is not None:
            commits.mkdir(exist_ok=True)
            (commits / number).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self.at = end
        return rows


def columns(**kinds: str) -> StructType:
    schema = StructType()
    for name, kind in kinds.items():
        schema.add(name, kind)
    return schema


def rows_of(reader: Any, split: Any) -> int:
    return sum(batch.num_rows for batch in reader.read(split))


class Warnings(logging.Handler):
    """The warnings so far."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def check_limits(root: Path, warnings: Warnings) -> None:
    from tests.log.writing import T0, values, write

    write(root, {T0: values(35)}, num_partitions=1)
    stream = Stream(root)
    assert [stream.batch(), stream.batch()] == [35, 0], "the only call of AvailableNow gets everything"
    write(root, {T0: values(25)}, num_partitions=1)
    assert [stream.batch() for _ in range(4)] == [10, 10, 5, 0], "other triggers are limited from then on"
    assert len(warnings.lines) == 1
    assert "limitFirstTrigger" in warnings.lines[0]

    write(root, {T0: values(30)}, num_partitions=1)
    again = Stream(root, stream.at)
    assert again.batch() == 30, "after a restart AvailableNow gets everything, too"
    assert len(warnings.lines) == 2

    write(root, {T0: values(30)}, num_partitions=1)
    repeated = Stream(root, {"t": {"0": 95}})
    repeated.at = again.at
    assert repeated.run({"t": {"0": 95}}) == 5
    assert [repeated.batch() for _ in range(4)] == [10, 10, 5, 0], "what repeats a micro-batch calls again"

    asked = Stream(root, limitFirstTrigger="true", minOffsetsPerTrigger="7")
    assert [asked.batch() for _ in range(3)] == [10, 10, 10]
    assert "ends after one limited" in warnings.lines[-1]
    waiting = Stream(root, {"t": {"0": 117}}, minOffsetsPerTrigger="7", maxTriggerDelay="1h")
    assert waiting.batch() == 3, "nor does the only call wait for more"

    wrapped = Stream(root)
    frozen = wrapped.reader.latestOffset()  # type: ignore[call-arg]
    assert wrapped.reader.partitions({"t": {"0": 100}}, {"t": {"0": 100}}) == []
    wrapped.at = {"t": {"0": 100}}
    assert wrapped.run(frozen) == 20, "triggerAvailableNowWrapper looks up before it shows the last offsets"


def check_recreated(root: Path, checkpoint: Path) -> None:
    """What Spark shows after a restart does not pass for offsets of the topic that is there now."""
    from tests.log.writing import T0, values, write

    write(root, {T0: values(5)}, num_partitions=1)
    stream = Stream(root, checkpointLocation=str(checkpoint))
    assert [stream.batch(), stream.batch()] == [5, 0]
    shutil.rmtree(root / "t-0")
    write(root, {T0: values(9)}, num_partitions=1)
    again = Stream(root, stream.at, checkpointLocation=str(checkpoint), failOnDataLoss="false")
    assert again.batch() == 9, "all of the new topic"


def check_batch(root: Path) -> None:
    from pyspark_kafkalog import DefaultSource

    schema = columns(value="binary", timestamp="timestamp")
    reader = DefaultSource({"path": str(root)}).reader(schema)
    (split,) = reader.partitions()
    (batch,) = reader.read(split)
    assert batch.num_rows == 120
    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    view = DefaultSource({"path": str(root), "view": "topics"})
    (table,) = view.reader(columns(topic="string", highWatermark="long")).read(None)
    assert table.to_pylist() == [{"topic": "t", "highWatermark": 120}]


def check_writer(root: Path, release: str) -> None:
    from pyspark_kafkalog import DefaultSource

    context = TaskContext._getOrCreate()
    context._stageId = context._partitionId = context._attemptNumber = context._taskAttemptId = 0
    context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    schema = columns(value="string")

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a", "b"]})

    checkpoint = root.parent / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"q"}')
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1}\n{}')
    options = {"path": str(root), "topic": "w", "checkpointLocation": str(checkpoint)}
    for _ in range(2):
        writer = DefaultSource(options).streamWriter(schema, overwrite=False)
        assert isinstance(writer, datasource.DataSourceStreamWriter)
        assert isinstance(writer, datasource.DataSourceArrowWriter) == (release == "4.0")
        writer.commit([writer.write(rows())], 0)  # type: ignore[arg-type]
    reader = DefaultSource({"path": str(root), "subscribe": "w"}).reader(columns(value="binary"))
    assert sum(rows_of(reader, split) for split in reader.partitions()) == 2, "exactly once"


def main(release: str, folder: str) -> None:
    hide(release)
    from pyspark_kafkalog.spark.features import UNIX_SOCKETS, features

    assert UNIX_SOCKETS == {}
    warnings = Warnings()
    logging.getLogger("pyspark_kafkalog").addHandler(warnings)
    root = Path(folder, "log")
    check_limits(root, warnings)
    check_batch(root)
    check_writer(root, release)
    check_recreated(Path(folder, "recreated"), Path(folder, "checkpoint"))
    print(json.dumps({feature.name: feature.found for feature in features()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
