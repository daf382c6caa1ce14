"""A stream reader that is given a checkpoint sees in its tasks whose it is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.stream.checkpoint import QueryLog
from tests.log.writing import T0, write
from tests.stream.spark_log import QUERY, begin

SCHEMA = StructType([StructField("value", BinaryType())])


def task_of(query_id: str | None, run_id: str = "") -> TaskContext:
    context = TaskContext()
    context._localProperties = (
        {}
        if query_id is None
        else {
            "sql.streaming.queryId": query_id,
            "streaming.sql.batchId": "0",
            "spark.jobGroup.id": run_id,
        }
    )
    return context


@pytest.mark.parametrize("given", [True, False])
def test_the_tasks_compare_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    write(tmp_path / "log", {T0: [b"a", b"b"]}, num_partitions=1)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "first"}))
    checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")} if given else {}
    source = {"path": str(tmp_path / "log"), **checkpoint}
    planner = DefaultSource(source).streamReader(SCHEMA)
    (split,) = planner.partitions({"t": {"0": 0}}, {"t": {"0": 2}})
    reader, split = pickle.loads(pickle.dumps((planner, split)))
    for context in (None, task_of(None), task_of("first"), task_of("second")):
        monkeypatch.setattr(TaskContext, "_taskContext", context)
        if given and context is not None and context.getLocalProperty("sql.streaming.queryId") == "second":
            with pytest.raises(KafkaLogError, match="that of query first, and it reads for query second"):
                next(reader.read(split))
        else:
            assert sum(rows.num_rows for rows in reader.read(split)) == 2


def test_the_first_task_notes_what_its_run_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rows there is a task for that alone; a worker that does not see the checkpoint reads on."""
    write(tmp_path / "log", {T0: [b"a", b"b"]}, num_partitions=1)
    checkpoint = begin(tmp_path / "checkpoint")
    log = QueryLog(str(checkpoint))
    source = {"path": str(tmp_path / "log"), "checkpointLocation": str(checkpoint)}
    planner = DefaultSource(source).streamReader(SCHEMA)
    for run_id, end, count in (("a", 0, 0), ("b", 2, 2)):
        (split,) = planner.partitions({"t": {"0": 0}}, {"t": {"0": end}})
        reader, split = pickle.loads(pickle.dumps((planner, split)))
        monkeypatch.setattr(TaskContext, "_taskContext", task_of(QUERY, run_id))
        with pytest.raises(KafkaLogError, match="Nothing tells"):
            log.source_cluster(run_id)
        assert sum(rows.num_rows for rows in reader.read(split)) == count
        with pytest.raises(KafkaLogError, match="The source is a log directory"):
            log.source_cluster(run_id)
    checkpoint.rename(tmp_path / "elsewhere")
    monkeypatch.setattr(TaskContext, "_taskContext", task_of(QUERY, "c"))
    assert sum(rows.num_rows for rows in reader.read(split)) == 2
    assert not checkpoint.exists()
