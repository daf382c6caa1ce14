"""A short demo: ``python -m pyspark_kafkalog.tools.try_out.demo [DIRECTORY]``.

Writes a small stream of sensor readings to a log directory, then reads it back
as a stream and as a batch. Without DIRECTORY it uses a temporary one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from pyspark.sql import SparkSession
from pyspark.sql.functions import count
from pyspark.sql.functions import max as max_

from pyspark_kafkalog.spark.features import UNIX_SOCKETS
from pyspark_kafkalog.spark.worker_python import worker_python

TOPIC = "readings"
_RUNS = 3
"""Each run of the stream finds 1000 more readings."""
_OURS = b"pyspark-kafkalog: "
"""Begins the lines in which this package says what it does."""
_STDERR = 2


def main() -> None:
    """Run the demo with the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_kafkalog.tools.try_out.demo", description=__doc__
    )
    parser.add_argument("directory", nargs="?", type=Path, help="where to create and keep the log directory")
    directory: Path | None = parser.parse_args().directory
    with tempfile.TemporaryDirectory(prefix="kafkalog-demo-") as scratch, without_sparks_noise():
        log_directory = (directory or Path(scratch, "kafka-logs")).resolve()
        spark = _session()
        try:
            _write_stream(spark, log_directory, Path(scratch))
            _read_stream(spark, log_directory, Path(scratch))
            _read_batch(spark, log_directory)
        finally:
            spark.stop()


@contextmanager
def without_sparks_noise() -> Iterator[None]:
    """Hold back what this process and Spark's print to stderr, except our lines; show it if this fails.

    At its start Spark warns of its own settings, and its daemon shows a BrokenPipeError whenever it
    ends a worker that was idle for a minute, if JVM and Python talk over Unix sockets.
    """
    terminal = os.dup(_STDERR)
    reader, writer = os.pipe()
    os.dup2(writer, _STDERR)
    os.close(writer)
    buffered: deque[bytes] = deque(maxlen=1000)
    # It ends with this process: until then Spark's processes may write.
    Thread(target=_sort_lines, args=(reader, terminal, buffered), daemon=True).start()
    try:
        yield
    except BaseException:
        os.write(terminal, b"".join(buffered))
        raise
    finally:
        os.dup2(terminal, _STDERR)


def _sort_lines(reader: int, terminal: int, buffered: deque[bytes]) -> None:
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if line.startswith(_OURS):
                os.write(terminal, line)
            else:
                buffered.append(line)


def _session() -> SparkSession:
    # Without it Spark's workers run the python3 on PATH, which may be another one.
    os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kafkalog demo")
        .config("spark.log.level", "ERROR")
        .config(map=UNIX_SOCKETS)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _write_stream(spark: SparkSession, log_directory: Path, scratch: Path) -> None:
    print(f"Writing a stream to the topic {TOPIC!r} in {log_directory}:")
    readings = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1000)
        .load()
        .selectExpr(
            "concat('sensor-', value % 5) AS key",
            "to_json(struct(value AS reading, pmod(value * 37, 101) / 10 AS celsius)) AS value",
        )
    )
    stream = (
        readings.writeStream.format("kafkalog")
        .option("topic", TOPIC)
        .option("numPartitions", 2)
        .option("compression.type", "lz4")
        .option("checkpointLocation", str(scratch / "write-checkpoint"))
        .trigger(availableNow=True)
    )
    for _ in range(_RUNS):
        stream.start(str(log_directory)).awaitTermination()
    for segment in sorted(log_directory.glob("*/*.log")):
        print(f"  {segment.relative_to(log_directory)}  {segment.stat().st_size} bytes")


def _read_stream(spark: SparkSession, log_directory: Path, scratch: Path) -> None:
    print("Reading it as a stream, counted by sensor:")
    counts = (
        spark.readStream.format("kafkalog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load(str(log_directory))
        .selectExpr(
            "CAST(key AS STRING) AS sensor",
            "from_json(CAST(value AS STRING), 'reading BIGINT, celsius DOUBLE') AS record",
        )
        .groupBy("sensor")
        .agg(count("record.reading").alias("readings"), max_("record.celsius").alias("max_celsius"))
    )
    query = (
        counts.writeStream.format("memory")
        .queryName("by_sensor")
        .outputMode("complete")
        .option("checkpointLocation", str(scratch / "read-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.table("by_sensor").orderBy("sensor").show()


def _read_batch(spark: SparkSession, log_directory: Path) -> None:
    print("Reading it as a batch:")
    rows = spark.read.format("kafkalog").option("subscribe", TOPIC).load(str(log_directory))
    columns = ["topic", "partition", "offset", "timestamp", "CAST(key AS STRING)", "CAST(value AS STRING)"]
    rows.selectExpr(*columns).orderBy("offset", "partition").show(10, truncate=False)
    print(f"{rows.count()} records in {log_directory}")


if __name__ == "__main__":
    main()
