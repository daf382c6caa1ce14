"""Streams from a broker to ``noop``, against Spark's ``kafka``: large and small micro-batches, the first row.

The first row is that of a query in a new process, whose JVM and workers have done nothing before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.benchmarks.measure import (
    PARTITIONS,
    arguments,
    print_rate,
    print_ratio,
    rows,
    seconds_by_turns,
    warm_ups,
)
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now
from tests.benchmarks.trivial import Trivial
from tests.kafka import Broker

COUNT, SIZE = 2_000_000, 100
TRIGGERS = {100_000: 1.0, 1_000_000: 2.0}
"""Rows of a micro-batch, and the bar against Spark's connector."""
SMALL, SMALL_BATCHES, SMALL_BAR = 1000, 30, 1.6
FIRST_ROW_BAR = 1.3
_PEER = "Spark's kafka"
_FLOOR = "trivial"
"""The part of PySpark: a Python source that has its rows at hand."""


def main() -> None:
    args = arguments(__doc__)
    count = int(COUNT * args.scale)
    with scratch_folder(args.folder) as folder:
        broker = Broker(folder / "broker")
        broker.start()
        try:
            with benchmark_session(folder) as spark:
                _fill(spark, broker, count)
                for limit, bar in TRIGGERS.items():
                    limit = max(int(limit * args.scale), 1)
                    runs = {
                        name: _available_now(spark, kind, broker, folder, limit)
                        for name, kind in FORMATS.items()
                    }
                    seconds = seconds_by_turns(runs, args.rounds)
                    print_rate(f"stream, {limit:,} rows a trigger", count, seconds, _PEER, bar)
                _small_batches(spark, broker, folder, args.rounds)
            _first_row(broker, folder, args.rounds)
        finally:
            broker.stop()


def _fill(spark: SparkSession, broker: Broker, count: int) -> None:
    """``count`` rows in the topic ``large``, and just enough for the small micro-batches in ``small``."""
    for topic, number in (("large", count), ("small", SMALL * SMALL_BATCHES)):
        broker.create_topic(topic, PARTITIONS)
        writer = rows(spark, number, SIZE).write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


def _available_now(
    spark: SparkSession, kind: str, broker: Broker, folder: Path, limit: int, topic: str = "large"
) -> Callable[[], list[dict]]:
    """Reads all of a topic; see :func:`tests.benchmarks.streams.available_now`."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "maxOffsetsPerTrigger": str(limit),
    }
    return available_now(spark, kind, options, folder / f"checkpoints-{kind}-{topic}-{limit}")


def _small_batches(spark: SparkSession, broker: Broker, folder: Path, rounds: int) -> None:
    medians = {}
    runs = {
        name: _available_now(spark, kind, broker, folder, SMALL, "small") for name, kind in FORMATS.items()
    }
    for name, run in [*runs.items()] * (warm_ups(rounds) + 1):
        times = [progress["durationMs"]["triggerExecution"] for progress in run()[1:]]
        medians[name] = statistics.median(times)
    ours, theirs = medians["ours"], medians[_PEER]
    print_ratio(
        f"micro-batch of {SMALL:,} rows: {ours:.0f} ms, {_PEER} {theirs:.0f}",
        ours / theirs,
        at_most=SMALL_BAR,
    )


def _first_row(broker: Broker, folder: Path, rounds: int) -> None:
    formats = {**FORMATS, _FLOOR: _FLOOR}
    taken: dict[str, list[float]] = {name: [] for name in formats}
    for name, kind in [*formats.items()] * min(rounds, 5):
        command = [sys.executable, "-m", "tests.benchmarks.broker_stream", "--first-row"]
        command += [kind, broker.bootstrap, str(folder)]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
        )
        taken[name].append(float(done.stdout.split()[-1]))
    ours, theirs, floor = (statistics.median(taken[name]) for name in ("ours", _PEER, _FLOOR))
    print_ratio(
        f"first row of a cold query: {ours:.2f} s, {_PEER} {theirs:.2f}, a trivial Python source {floor:.2f}",
        ours / theirs,
        at_most=FIRST_ROW_BAR,
    )


def _time_first_row(kind: str, bootstrap: str, folder: str) -> None:
    """In a new session, the seconds from the start of a query until its sink has its first micro-batch."""
    with scratch_folder(Path(folder)) as scratch, benchmark_session(scratch) as spark:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "small", "startingOffsets": "earliest"}
        start = time.perf_counter()
        if kind == _FLOOR:
            spark.dataSource.register(Trivial)
            options = {"rows": str(SMALL * SMALL_BATCHES), "size": str(SIZE), "partitions": str(PARTITIONS)}
        query = (
            spark.readStream.format(kind)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        print(time.perf_counter() - start)
        query.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first-row"]:
        _time_first_row(*sys.argv[2:])
    else:
        main()
