"""A micro-batch that a sink has, and that Spark has not logged as complete, is written once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_kafkalog import Kafka, connect
from pyspark_kafkalog.tools.checkpoint import change
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from tests.kafka import Broker
from tests.tools.checkpoint.test_restart import LONG, Job, on, run_into
from tests.tools.checkpoint.test_restart import job as job
from tests.tools.cli.running import run

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.fixture(params=["files", *(pytest.param(sink, marks=LONG) for sink in ("directory", "brokers"))])
def sink(request: pytest.FixtureRequest, job: Job, broker: Broker, tmp_path: Path) -> Kafka | None:
    """The place of this package that the job writes to; None for Spark's sink of files."""
    if "path" in job.place:
        pytest.skip("about brokers")
    if request.param == "files":
        job.sink = {"path": str(tmp_path / "files")}
        return None
    if job.format == "kafka":
        pytest.skip("a sink of this package has the reader of this package")
    place, topic = {"path": str(tmp_path / "out")}, f"{job.topic}-out"
    job.sink = {**place, "topic": topic}
    if request.param == "brokers":
        broker.create_topic(topic, 1)
        place = {"kafka.bootstrap.servers": broker.bootstrap}
        job.sink = {**place, "topic": topic, "delivery.guarantee": "exactly-once"}
    return connect(place)


def carry_on(job: Job, sink: Kafka | None) -> None:
    if sink is None:
        job.run()
    else:
        run_into(job)


def values(job: Job, sink: Kafka | None) -> Sequence[int]:
    if sink is None:
        rows = job.spark.read.parquet(job.sink["path"]).collect()
        return sorted(int(row.value) for row in rows)
    read = sink.read(job.sink["topic"], options={"kafka.isolation.level": "read_committed"}).read_all()
    return sorted(int(value) for value in read["value"].to_pylist())


def begin(job: Job, sink: Kafka | None) -> None:
    """Two micro-batches, of which the sink has both; the second was killed before its commit."""
    for _ in range(2):
        job.write(10)
        carry_on(job, sink)
    job.forget_last_commit()
    assert values(job, sink) == list(range(20))


def test_a_move(job: Job, sink: Kafka | None, broker: Broker, tmp_path: Path) -> None:
    begin(job, sink)
    job.write(6)
    backup, new = tmp_path / "backup", f"{job.topic}-new"
    assert run("backup", broker.bootstrap, backup, job.topic, "--no-groups").code == 0
    broker.create_topic(new, 2)
    other = Job(job.spark, job.format, job.place, new, job.folder, sink=job.sink)
    other.write(6)  # so that no offset stays what it is
    assert run("delete-records", broker.bootstrap, f"{new}=3", "--execute").code == 0
    restore = ("restore", backup, broker.bootstrap, job.topic, "--rename", f"{job.topic}={new}")
    assert run(*restore, "--no-groups", "--state", tmp_path / "map", "--execute").code == 0
    words = ("checkpoint", "move", job.checkpoint, broker.bootstrap, "--map", tmp_path / "map")
    if sink is not None:
        words = (*words, "--with-sink", job.sink.get("path", broker.bootstrap))
    done = run(*words, "--stopped", "--execute")
    assert done.code == 0, done.err
    carry_on(other, sink)
    assert values(other, sink) == list(range(26))


def test_the_current_position(job: Job, sink: Kafka | None) -> None:
    begin(job, sink)
    job.write(6)
    more = {} if sink is None else {"with_sink": sink}
    job.rewind(RewindTo.CURRENT, **more)
    carry_on(job, sink)
    assert values(job, sink) == list(range(26))


@pytest.mark.parametrize("version", ["v1", pytest.param("v2", marks=LONG)])
def test_spark_refuses_a_change_that_was_interrupted(
    job: Job, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == "v2":
        job.use_v2()
    for _ in range(3):
        job.write(10)
        job.run()
    job.forget_last_commit()
    replace, calls = change._replace, []

    def interrupted(*given: object, **more: object) -> None:
        calls.append(given)
        if len(calls) == 3:
            raise OSError("as if killed")
        replace(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(change, "_replace", interrupted)
    with pytest.raises(Exception, match="as if killed"):
        job.rewind(RewindTo.OFFSETS, job.at(2, 3))
    monkeypatch.undo()
    assert run("checkpoint", "show", job.checkpoint).out.count("begun and not ended") == 1
    with pytest.raises(StreamingQueryException, match="kafkalog checkpoint was interrupted, run it again"):
        job.run()
    job.rewind(RewindTo.CURRENT)
    assert job.run() == list(range(20, 30))


@on("directory")
def test_the_second_micro_batch_of_version_2(job: Job) -> None:
    """Spark 4.2.0 does not start: it has left something out of the first plan."""
    job.use_v2()
    for _ in range(2):
        job.write(10)
        job.run()
    shown = run("checkpoint", "show", job.checkpoint)
    assert shown.code == 0, shown.out
    job.forget_last_commit()
    if (shown := run("checkpoint", "show", job.checkpoint)).code == 0:
        pytest.skip("this Spark has its shuffle partitions in each plan")
    assert "can't repeat micro-batch 1" in shown.out
    job.rewind(RewindTo.CURRENT)
    assert run("checkpoint", "show", job.checkpoint).code == 0
    assert job.run() == list(range(10, 20))


@on("kafka")
def test_the_other_reader_goes_on(job: Job, spark: SparkSession) -> None:
    """A query of Spark's own source becomes one of this package, and back."""
    other = Job(job.spark, "kafkalog", job.place, job.topic, job.folder)
    job.write(10)
    assert job.run() == job.expected(0, 0)
    other.written = 10
    for ends in (2, 3), (1, 4):
        for each in other, job:
            job.rewind(RewindTo.OFFSETS, job.at(*ends))
            assert each.run() == job.expected(*ends)
