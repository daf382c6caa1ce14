"""Many streaming queries in one driver, each of a topic of its own: what one more costs.

CPU is that of the driver, its JVM and all Python processes, for a start with the first micro-batch of each
query and for a later one; the exponent is that of all sizes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_kafkalog import connect
from tests.benchmarks.measure import arguments, cpu_seconds, exponent, verdict
from tests.benchmarks.session import benchmark_session, scratch_folder

SIZES = (5, 20, 100)
RECORDS = 100
BAR = 1.05
_ROWS = pa.table({"value": [b"%0100d" % number for number in range(RECORDS)]})
_SECONDS = 600


def main() -> None:
    args = arguments(__doc__)
    figures: dict[str, dict[int, float]] = {"start": {}, "later micro-batch": {}}
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        _measure(spark, folder / "warm", 1)
        for size in SIZES:
            count = max(int(size * args.scale), 1)
            started, later, mb = _measure(spark, folder / str(size), count)
            figures["start"][count], figures["later micro-batch"][count] = started, later
            print(f"{count} queries: {mb:.0f} MB (PSS) of Python for each", flush=True)
    for what, seconds in figures.items():
        found = exponent(seconds)
        costs = ", ".join(f"{count}: {spent / count * 1000:.0f} ms" for count, spent in seconds.items())
        print(f"CPU of each query, {what}: {costs}; exponent {found:.2f}{verdict(found, at_most=BAR)}")


def _measure(spark: SparkSession, folder: Path, count: int) -> tuple[float, float, float]:
    """Seconds of CPU until all have their first micro-batch, and for a later one; MB (PSS) of each query."""
    kafka = connect(folder / "log")
    topics = [f"topic-{number}" for number in range(count)]
    for topic in topics:
        kafka.write(_ROWS, topic)
    before = cpu_seconds()
    queries = []
    for topic in topics:
        source = spark.readStream.format("kafkalog").options(path=str(folder / "log"), subscribe=topic)
        rows = source.option("startingOffsets", "earliest").load()
        sink = rows.writeStream.format("noop").trigger(processingTime="1 second")
        queries.append(sink.option("checkpointLocation", str(folder / "checkpoints" / topic)).start())
    _wait(queries, RECORDS)
    started = cpu_seconds() - before
    memory = _python_memory() / count
    before = cpu_seconds()
    for topic in topics:
        kafka.write(_ROWS, topic)
    _wait(queries, 2 * RECORDS)
    later = cpu_seconds() - before
    for query in queries:
        query.stop()
    return started, later, memory


def _wait(queries: Sequence[StreamingQuery], records: int) -> None:
    """Until each query has read so many records."""
    end = time.monotonic() + _SECONDS
    for query in queries:
        while sum(each.numInputRows for each in query.recentProgress) < records:
            assert query.exception() is None
            assert time.monotonic() < end
            time.sleep(0.1)


def _python_memory() -> float:
    """MB (PSS) of the Python processes below this one."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if "python" in process.name():
                found += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return found / 1e6


if __name__ == "__main__":
    main()
