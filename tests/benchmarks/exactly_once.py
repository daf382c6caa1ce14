"""Streams to a broker, exactly once and at least once, against Spark's ``kafka``, which writes at least once.

All have the same source, of Spark's own. What a run takes is the sum of its micro-batches' times. The JVM is
warmed: five runs are thrown away.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, print_ratio
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.kafka import Broker

COUNT, SIZE, MICRO_BATCHES = 2_000_000, 100, 10
BAR = 1.2
SMALL_MICRO_BATCHES = 30
MORE_MS = 60
"""The most milliseconds that a small micro-batch may take more than at least once."""
_PEER = "Spark's kafka"
_ONCE, _AT_LEAST_ONCE = "ours", "at least once"
SINKS = {
    _ONCE: ("kafkalog", {"delivery.guarantee": "exactly-once"}),
    _AT_LEAST_ONCE: ("kafkalog", {}),
    _PEER: ("kafka", {}),
}
_WARM_UPS = 5


class Sinks:
    """Runs streams to one broker, each to a topic and with a checkpoint of its own."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._numbers = itertools.count()

    def run(self, sink: str, rows: int, micro_batches: int, where: str = "true") -> list[float]:
        """The seconds of each micro-batch of so many rows, of which ``where`` says what is written."""
        number = next(self._numbers)
        topic, checkpoint = f"rows-{number}", self._folder / f"checkpoint-{number}"
        self._broker.create_topic(topic, PARTITIONS)
        kind, options = SINKS[sink]
        query = (
            self._rows(rows, where)
            .writeStream.format(kind)
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(checkpoint))
            .options(**options)
            .start()
        )
        while query.lastProgress is None or query.lastProgress.batchId < micro_batches:
            time.sleep(0.01)
            assert query.isActive, query.exception()
        progress = [json.loads(each.json) for each in query.recentProgress]
        query.stop()
        self._broker.delete_topic(topic)
        shutil.rmtree(checkpoint)
        times = {each["batchId"]: each["durationMs"]["triggerExecution"] / 1000 for each in progress}
        return [times[batch] for batch in range(micro_batches)]

    def _rows(self, count: int, where: str) -> DataFrame:
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(count))
        rows = source.option("numPartitions", "2").load()
        return rows.where(where).selectExpr(f"lpad(CAST(value AS STRING), {SIZE}, 'x') AS value")


def main() -> None:
    args = arguments(__doc__)
    rows = max(int(COUNT * args.scale) // MICRO_BATCHES, 1)
    with scratch_folder(args.folder) as folder:
        broker = Broker(folder / "broker", {"log.segment.delete.delay.ms": 0})
        broker.start()
        try:
            with benchmark_session(folder) as spark:
                sinks = Sinks(spark, broker, folder)
                warm_ups = _WARM_UPS if args.rounds > 1 else 0
                seconds = _by_turns(
                    lambda sink: sum(sinks.run(sink, rows, MICRO_BATCHES)), args.rounds, warm_ups
                )
                what = f"exactly-once stream, {MICRO_BATCHES} micro-batches of {rows:,} rows"
                print_rate(what, rows * MICRO_BATCHES, seconds, _AT_LEAST_ONCE)
                print_rate(what, rows * MICRO_BATCHES, seconds, _PEER, BAR)
                for name, count, where in (("empty", 1000, "value < 0"), ("1,000 rows", 1000, "true")):
                    _print_small(sinks, name, count, where, args.rounds)
        finally:
            broker.stop()


def _by_turns(run: Callable[[str], float], rounds: int, warm_ups: int) -> dict[str, float]:
    """The median of each sink's runs."""
    for sink in [*SINKS] * warm_ups:
        run(sink)
    seconds: dict[str, list[float]] = {sink: [] for sink in SINKS}
    for sink in [*SINKS] * rounds:
        seconds[sink].append(run(sink))
    return {sink: statistics.median(found) for sink, found in seconds.items()}


def _print_small(sinks: Sinks, name: str, count: int, where: str, rounds: int) -> None:
    """The median micro-batch; the first few of a run start processes."""
    seconds = _by_turns(
        lambda sink: statistics.median(sinks.run(sink, count, SMALL_MICRO_BATCHES, where)[3:]), rounds, 0
    )
    ms = {sink: 1000 * found for sink, found in seconds.items()}
    more = ms[_ONCE] - ms[_AT_LEAST_ONCE]
    print_ratio(
        f"micro-batch, {name}: exactly once {ms[_ONCE]:.0f} ms, at least once {ms[_AT_LEAST_ONCE]:.0f},"
        f" {_PEER} {ms[_PEER]:.0f}; {more:+.0f} ms of {MORE_MS}",
        more / MORE_MS,
        at_most=1.0,
    )


if __name__ == "__main__":
    main()
