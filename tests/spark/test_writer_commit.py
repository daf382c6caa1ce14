"""What happens on the driver behind the moment at which rows become visible can't fail the write."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.extensions.audit import stores
from pyspark_kafkalog.model import QueryBatch
from pyspark_kafkalog.spark.running_query import RunningQuery
from pyspark_kafkalog.spark.writer import Written, batch_writer, stream_writer
from pyspark_kafkalog.write import completing
from pyspark_kafkalog.write.completing import TaskNews
from tests.log.writing import T0, read, stage, values

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "audit").touch()  # where a folder belongs
    return {"path": str(tmp_path / "log"), "topic": "t", "auditLocation": str(tmp_path / "audit")}


@pytest.mark.parametrize("error", [None, RuntimeError("planted"), OSError(5, "planted"), MemoryError()])
def test_audit_that_cannot_be_completed(
    tmp_path: Path,
    options: dict[str, str],
    error: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if error is not None:

        def fail(*_: object, **given: object) -> None:
            raise error

        monkeypatch.setattr(stores, "mark_committed", fail)
    job = batch_writer(options, SCHEMA, overwrite=False)
    (file,) = stage(tmp_path / "log", job._batch.job, {T0: values(3)})
    job.commit([Written(job._batch, TaskNews(file))])
    assert "was written, but its audit is incomplete" in caplog.text
    query = stream_writer(options, SCHEMA)
    (file,) = stage(tmp_path / "log", "query-0", {T0: values(3, start=3)})
    message = Written(QueryBatch("query", 0), TaskNews(file), RunningQuery("query", 0, name=""))
    query.commit([message], 0)
    query.commit([message], 0)
    assert read(tmp_path / "log")[T0] == values(6)


def test_the_default_checkpoint_beside_a_staging_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink keeps nothing there, so only Spark has to know which file system it is in."""
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://h:1</value></property></configuration>"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "query" / "offsets").mkdir(parents=True)
    (tmp_path / "query" / "metadata").write_text('{"id": "id"}')
    (tmp_path / "query" / "offsets" / "0").write_text("v1\n{}\n{}")
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery.guarantee": "exactly-once"}
    writer = stream_writer({**options, "stagingLocation": str(tmp_path / "staging")}, SCHEMA)
    query = RunningQuery("id", 0, "query", checkpoints=str(tmp_path), default_fs="file:///")
    assert writer._plan(QueryBatch("id", 0), query).digest


def test_commit_that_fails_before_says_so(
    tmp_path: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = batch_writer(options, SCHEMA, overwrite=False)
    (file,) = stage(tmp_path / "log", job._batch.job, {T0: values(3)})
    (tmp_path / "log" / file.name).unlink()
    monkeypatch.setattr(completing, "write_counting_of", None)
    with pytest.raises(LogDirectoryError, match="staged file is gone"):
        job.commit([Written(job._batch, TaskNews(file))])


def test_a_partitioner_that_can_not_be_imported_is_refused_where_a_write_is_planned(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "log"), "topic": "t", "partitioner": "com.acme.Partitioner"}
    for planned in partial(batch_writer, overwrite=False), stream_writer:
        with pytest.raises(OptionError, match=r"there is no such module\. A Java class can't run here"):
            planned(options, SCHEMA)
