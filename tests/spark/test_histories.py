"""A query goes on only in a sink that shares its history, wherever its checkpoint is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.writing import shown
from tests.kafka import Broker
from tests.log.writing import T0, read, write
from tests.log.writing import values as values_to_write

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
DEFAULT_FS = "spark.hadoop.fs.defaultFS"

Run = Callable[..., None]


@pytest.fixture
def default(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder of all checkpoints that no query names."""
    spark.conf.set(CHECKPOINTS, f"file:{tmp_path}/checkpoints")
    yield tmp_path / "checkpoints"
    spark.conf.unset(CHECKPOINTS)


def numbers(spark: SparkSession) -> DataFrame:
    """One micro-batch of ten rows a run."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    return rows.selectExpr("CAST(value AS STRING) AS value")


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Run a query that writes into a directory."""

    def run(rows: DataFrame | None = None, root: str = "log", name: str = "", **options: object) -> None:
        writer = (rows or numbers(spark)).writeStream.format("kafkalog").option("topic", "t")
        writer = writer.option("path", str(tmp_path / root))
        finish(writer.queryName(name) if name else writer, **options)

    return run


def finish(writer: DataStreamWriter, **options: object) -> None:
    query = writer.options(**options).trigger(availableNow=True).start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()


def values(root: Path) -> list[int]:
    return sorted(int(value) for rows in read(root).values() for value in rows)


def forget(checkpoint: Path, number: int, *logs: str) -> None:
    """Remove what Spark has logged of a micro-batch."""
    for log in logs:
        (checkpoint / log / str(number)).unlink()
        (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)


@pytest.mark.long
@pytest.mark.parametrize("by", ["an option", "default"])
def test_a_micro_batch_that_is_planned_anew(run: Run, tmp_path: Path, default: Path, by: str) -> None:
    """As after a loss of power that took the plan, or with a checkpoint that is one micro-batch old."""
    name = "my query, älter"  # which no URI may have in it, but a path of Hadoop
    options = {"name": name} if by == "default" else {"checkpointLocation": f"file:{tmp_path}/{name}"}
    checkpoint = (default if by == "default" else tmp_path) / name
    run(**options)
    run(**options)
    forget(checkpoint, 1, "commits")
    run(**options)
    assert values(tmp_path / "log") == [*range(30)], "micro-batch 1 is skipped, 2 is written"
    forget(checkpoint, 2, "commits", "offsets")
    with pytest.raises(StreamingQueryException, match="other offsets of its sources"):
        run(**options)
    assert values(tmp_path / "log") == [*range(30)]


def test_a_query_whose_checkpoint_nobody_finds_again(run: Run, tmp_path: Path, default: Path) -> None:
    run()
    run()
    assert values(tmp_path / "log") == sorted([*range(10)] * 2), "each is a new query"
    assert len([*default.iterdir()]) == 2


def test_a_directory_that_is_older_or_gone(run: Run, tmp_path: Path) -> None:
    checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")}
    log, copy = tmp_path / "log", tmp_path / "copy"
    run(**checkpoint)
    shutil.copytree(log, copy)
    run(**checkpoint)
    shutil.rmtree(log)
    with pytest.raises(StreamingQueryException, match="none of the earlier ones"):
        run(**checkpoint)
    shutil.rmtree(log, ignore_errors=True)
    copy.rename(log)
    with pytest.raises(StreamingQueryException, match="Expected micro-batch 1 "):
        run(**checkpoint)
    run(**checkpoint, failOnMissingMarker="false")
    run(**checkpoint)
    assert values(log) == [*range(10), *range(20, 50)]


@pytest.mark.long
def test_a_reader_that_is_given_another_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """What it keeps there is for the query whose checkpoint it is, and no row is read by it for another."""
    root = tmp_path / "log"
    write(root, {T0: [b"a", b"b"]}, num_partitions=1)

    def run(checkpoint: str, given: str) -> None:
        options = {"startingOffsets": "earliest", "checkpointLocation": f"{tmp_path}/{given}"}
        source = spark.readStream.format("kafkalog").options(**options)
        writer = source.load(str(root)).selectExpr("CAST(value AS STRING) AS value").writeStream
        writer = writer.format("text").option("path", str(tmp_path / f"out-{checkpoint}"))
        finish(writer, checkpointLocation=f"{tmp_path}/{checkpoint}")

    run("first", "first")
    kept = {path: path.read_bytes() for path in (tmp_path / "first").rglob("kafkalog-*/*")}
    assert {path.parent.name for path in kept} == {
        f"kafkalog-{kind}" for kind in ("clusters", "shared", "start-offsets", "topic-ids")
    }
    with pytest.raises(StreamingQueryException, match="The reader's checkpointLocation is that of query"):
        run("second", "first")
    assert not [*(tmp_path / "out-second").glob("*.txt")]
    assert {path: path.read_bytes() for path in (tmp_path / "first").rglob("kafkalog-*/*")} == kept
    write(root, {T0: [b"c"]}, num_partitions=1)
    run("first", "first")
    assert sorted(row.value for row in spark.read.text(str(tmp_path / "out-first")).collect()) == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.long
def test_a_source_directory_that_went_back_and_has_grown_again(spark: SparkSession, tmp_path: Path) -> None:
    root, older, checkpoint = tmp_path / "log", tmp_path / "older", str(tmp_path / "checkpoint")
    write(root, {T0: values_to_write(10)}, num_partitions=1)

    def run(path: str = str(root), **options: str) -> int:
        options |= {"startingOffsets": "earliest", "checkpointLocation": checkpoint}
        source = spark.readStream.format("kafkalog").options(**options)
        writer = source.load(path).selectExpr("CAST(value AS STRING) AS value").writeStream
        finish(writer.format("text").option("path", str(tmp_path / "out")), checkpointLocation=checkpoint)
        return spark.read.text(str(tmp_path / "out")).count()

    assert run() == 10
    shutil.copytree(root, older)
    write(root, {T0: values_to_write(20)}, num_partitions=1)
    assert run(failOnDataLoss="true") == 30
    shutil.rmtree(root)
    older.rename(root)
    write(root, {T0: values_to_write(50, start=500)}, num_partitions=1)
    with pytest.raises(StreamingQueryException, match=r"LOG_WENT_BACK.*below offset 30 .*t-0"):
        run(f"{root}/", subscribe="t")
    assert run(failOnDataLoss="false") == 60, "what is there from offset 30 on"
    write(root, {T0: values_to_write(5)}, num_partitions=1)
    assert run() == 65


def test_micro_batches_without_rows(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")}
    run(numbers(spark).where("value >= 20"), **checkpoint)
    run(numbers(spark).where("value >= 20"), **checkpoint)
    run(**checkpoint)
    run(numbers(spark).where("value < 0"), **checkpoint)
    run(**checkpoint)
    assert values(tmp_path / "log") == [*range(20, 30), *range(40, 50)]


def test_a_checkpoint_in_another_file_system(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    """Spark and this package look in the same place for a path; what only one can open is an error."""
    settings = {
        "fs.defaultFS": "viewfs://c/",
        DEFAULT_FS: "viewfs://c/",
        "fs.viewfs.mounttable.c.link./mount": f"file:{tmp_path}",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        with pytest.raises(StreamingQueryException, match=r"viewfs://c/mount/checkpoint"):
            run(checkpointLocation="/mount/checkpoint")
        assert (tmp_path / "checkpoint" / "offsets" / "0").exists()
        assert not (tmp_path / "log" / "t-0").exists()
        run(checkpointLocation="/mount/checkpoint", failOnMissingMarker="false")
        run(checkpointLocation=f"file:{tmp_path}/other")
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert values(tmp_path / "log") == sorted([*range(20), *range(10)])


def test_a_job_within_foreach_batch(spark: SparkSession, tmp_path: Path, default: Path) -> None:
    def write(rows: DataFrame, number: int) -> None:
        job = rows.write.format("kafkalog").option("topic", "t").mode("append")
        job.options(txnAppId="job", txnVersion=number).save(str(tmp_path / "log"))

    for _ in range(2):
        finish(numbers(spark).writeStream.foreachBatch(write).queryName("query"))
    forget(default / "query", 1, "commits")
    finish(numbers(spark).writeStream.foreachBatch(write).queryName("query"))
    assert values(tmp_path / "log") == [*range(30)]
    forget(default / "query", 2, "commits", "offsets")
    with pytest.raises(StreamingQueryException, match="other offsets of its sources"):
        finish(numbers(spark).writeStream.foreachBatch(write).queryName("query"))


@pytest.mark.broker
@pytest.mark.slow
class TestBrokers:
    @pytest.fixture
    def write(self, spark: SparkSession, broker: Broker, tmp_path: Path) -> Run:
        topic = unused_topic()
        broker.create_topic(topic, 3)

        def write(name: str = "", **options: object) -> None:
            writer = (
                numbers(spark)
                .writeStream.format("kafkalog")
                .option("kafka.bootstrap.servers", broker.bootstrap)
                .option("topic", topic)
                .option("delivery.guarantee", "exactly-once")
            )
            finish(writer.queryName(name) if name else writer, **options)

        write.values = lambda: sorted(int(value) for value in shown(broker.bootstrap, topic))  # type: ignore[attr-defined]
        return write

    @pytest.mark.long
    def test_staging_elsewhere_and_the_default_checkpoint(
        self, write: Run, tmp_path: Path, default: Path
    ) -> None:
        options = {"name": "query", "stagingLocation": str(tmp_path / "staging")}
        for _ in range(2):
            write(**options)
        forget(default / "query", 1, "commits", "offsets")
        with pytest.raises(StreamingQueryException, match="other offsets of its sources"):
            write(**options)
        assert write.values() == [*range(20)]  # type: ignore[attr-defined]
        write(stagingLocation=str(tmp_path / "staging"))
        assert write.values() == sorted([*range(20), *range(10)])  # type: ignore[attr-defined]

    def test_a_path_that_belongs_to_another_file_system(
        self, spark: SparkSession, write: Run, tmp_path: Path
    ) -> None:
        spark.conf.set(DEFAULT_FS, "viewfs://c/")
        try:
            with pytest.raises(StreamingQueryException, match=f"as a URI: viewfs://c{tmp_path}/checkpoint"):
                write(checkpointLocation=str(tmp_path / "checkpoint"))
            write(checkpointLocation=f"file:{tmp_path}/an other")
        finally:
            spark.conf.unset(DEFAULT_FS)
        assert write.values() == [*range(10)]  # type: ignore[attr-defined]

    def test_the_checkpoint_of_another_query(self, write: Run, tmp_path: Path) -> None:
        checkpoint = tmp_path / "checkpoint"
        write(checkpointLocation=str(checkpoint))
        metadata = json.loads((checkpoint / "metadata").read_text())
        assert metadata["id"]
        write(checkpointLocation=str(checkpoint))
        assert write.values() == [*range(20)]  # type: ignore[attr-defined]
