"""Streams of small micro-batches, against Spark's ``kafka`` and beside sources and sinks that do nothing.

From a broker to ``noop``, to a broker and to a directory; of JSON, against ``from_json``; and how long after
its producer a row arrives.

Spark talks to its Python processes over TCP, as it does unless somebody configures Unix sockets.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json

from tests.benchmarks.json import FLAT, values_of
from tests.benchmarks.measure import PARTITIONS, arguments, print_ratio, results_by_turns, rows
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now
from tests.benchmarks.trivial import Trivial
from tests.kafka import Broker
from tests.kafka_service import running

SIZE = 100
_MOST_TASKS = 200
"""Of a source that has one for each partition: with ten times as many, Spark's kafka takes ten minutes."""
_OURS, _PEER = "ours", "Spark's kafka"
_TRIVIAL, _SIMPLE = "a trivial source", "a trivial source whose rows come with the plan"


class Shape(NamedTuple):
    """A topic, the rows of a micro-batch of it, how many there are, and the bar, if any."""

    topic: str
    partitions: int
    rows: int
    micro_batches: int
    bar: float | None

    def scaled(self, scale: float) -> Shape:
        """With a share of the micro-batches, and of more partitions than usual."""
        share = min(scale, 1) if self.partitions > PARTITIONS else 1
        return self._replace(
            partitions=max(int(self.partitions * share), PARTITIONS),
            rows=max(int(self.rows * share), PARTITIONS),
            micro_batches=max(int(self.micro_batches * scale), 3),
        )


SHAPES = (
    Shape("small", PARTITIONS, 1000, 30, 1.05),
    Shape("hundred", PARTITIONS, 100, 30, 1.05),
    Shape("wide", 200, 200, 5, 0.35),
    Shape("wider", 2000, 2000, 3, None),
)
SINK_BARS = {"at least once": 1.1, "exactly once": 1.3}
RATE, SECONDS = 100, 30
"""Records a second, and how long they come, where the latency is measured."""


def main() -> None:
    args = arguments(__doc__)
    conf = {"spark.python.unix.domain.socket.enabled": "false"}
    shapes = [shape.scaled(args.scale) for shape in SHAPES]
    with (
        scratch_folder(args.folder) as folder,
        running(Broker(folder / "broker")) as broker,
        benchmark_session(folder, conf) as spark,
    ):
        spark.dataSource.register(Trivial)
        for shape in shapes:
            fill(spark, broker, shape)
        for shape in shapes:
            _to_noop(spark, broker, folder, shape, args.rounds)
        _to_sinks(spark, broker, folder, shapes[0], args.rounds)
        _of_json(spark, broker, folder, shapes[0]._replace(topic="json"), args.rounds)
        _latency(spark, broker, folder, max(SECONDS * args.scale, 1), args.rounds)


def fill(spark: SparkSession, broker: Broker, shape: Shape) -> None:
    """Make the topic, with the records of all micro-batches."""
    broker.create_topic(shape.topic, shape.partitions)
    data = rows(spark, shape.rows * shape.micro_batches, SIZE)
    spread = data.selectExpr("*", f"int(monotonically_increasing_id() % {shape.partitions}) AS partition")
    writer = spread.write.format("kafka").option("topic", shape.topic)
    writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


def _sources(broker: Broker, shape: Shape) -> dict[str, tuple[str, dict[str, str]]]:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": shape.topic,
        "maxOffsetsPerTrigger": str(shape.rows),
    }
    trivial = {
        "rows": str(shape.rows),
        "size": str(SIZE),
        "partitions": str(shape.partitions),
        "micro_batches": str(shape.micro_batches),
    }
    sources = {
        _OURS: ("kafkalog", options),
        _PEER: ("kafka", options),
        _TRIVIAL: ("trivial", trivial),
        _SIMPLE: ("trivial", {**trivial, "partitions": "1", "simple": "true"}),
    }
    if shape.partitions > _MOST_TASKS:
        del sources[_TRIVIAL], sources[_PEER]
    return sources


def _medians(runs: Mapping[str, Callable[[], list[dict]]], rounds: int) -> dict[str, float]:
    """Milliseconds of each contestant's median micro-batch, by turns; the first of a run does not count."""
    return {
        name: statistics.median(
            progress["durationMs"]["triggerExecution"] for run in found for progress in run[1:]
        )
        for name, found in results_by_turns(runs, rounds).items()
    }


def _to_noop(spark: SparkSession, broker: Broker, folder: Path, shape: Shape, rounds: int) -> None:
    runs = {
        name: available_now(spark, kind, options, folder / f"checkpoints-{shape.topic}-{number}")
        for number, (name, (kind, options)) in enumerate(_sources(broker, shape).items())
    }
    taken = _medians(runs, rounds)
    what = f"micro-batch of {shape.rows:,} rows over {shape.partitions:,} partitions"
    _print(what, taken, {_OURS: shape.bar})


def _to_sinks(spark: SparkSession, broker: Broker, folder: Path, shape: Shape, rounds: int) -> None:
    """From our source, to Spark's sink from its own."""
    numbers = itertools.count()
    sources = _sources(broker, shape)
    to_broker = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "sink"}
    broker.create_topic("sink", PARTITIONS)
    sinks = {
        "at least once": ("kafkalog", to_broker),
        "exactly once": ("kafkalog", {**to_broker, "delivery.guarantee": "exactly-once"}),
        "to a directory": ("kafkalog", {"topic": "sink", "numPartitions": str(PARTITIONS)}),
        "a trivial sink": ("trivial", {}),
        _PEER: ("kafka", to_broker),
    }

    def run(name: str) -> Callable[[], list[dict]]:
        def once() -> list[dict]:
            kind, options = sinks[name]
            if name == "to a directory":
                options = {**options, "path": str(folder / f"sink-{next(numbers)}")}
            source = sources[_PEER if name == _PEER else _OURS]
            checkpoints = folder / f"checkpoints-to-{next(numbers)}"
            return available_now(spark, *source, checkpoints, sink=(kind, options))()

        return once

    taken = _medians({name: run(name) for name in sinks}, rounds)
    _print(f"micro-batch of {shape.rows:,} rows to a sink", taken, SINK_BARS)


def _of_json(spark: SparkSession, broker: Broker, folder: Path, shape: Shape, rounds: int) -> None:
    """JSON that our tasks decode, or Spark, from rows with our plan or from its own source."""
    broker.create_topic(shape.topic, shape.partitions)
    values = values_of(FLAT, shape.rows * shape.micro_batches).to_numpy(zero_copy_only=False)
    with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=50) as producer:
        for number, value in enumerate(values):
            producer.send(shape.topic, value, partition=number % shape.partitions)

    def in_spark(frame: DataFrame) -> DataFrame:
        return frame.select(from_json(frame.value.cast("string"), FLAT.fields).alias("value"))

    sources = _sources(broker, shape)
    kind, options = sources[_OURS]
    typed = {**options, "value.format": "json", "value.schema": FLAT.fields}
    runs = {
        _OURS: available_now(
            spark, kind, typed, folder / "checkpoints-json", step=lambda rows: rows.select("value")
        ),
        "ours and from_json": available_now(
            spark, kind, options, folder / "checkpoints-json-in-spark", step=in_spark
        ),
        _PEER: available_now(spark, *sources[_PEER], folder / "checkpoints-json-of-kafka", step=in_spark),
    }
    found = results_by_turns(runs, rounds)
    for which, part in (("the first ", slice(1)), ("", slice(1, None))):
        taken = {
            name: statistics.median(
                progress["durationMs"]["triggerExecution"] for run in each for progress in run[part]
            )
            for name, each in found.items()
        }
        _print(
            f"{which}micro-batch of {shape.rows:,} rows of JSON", taken, {_OURS: SINK_BARS["at least once"]}
        )


def _print(what: str, taken: Mapping[str, float], bars: Mapping[str, float | None]) -> None:
    """One line for each contestant but the one that the others are compared with."""
    peer = _PEER if _PEER in taken else _SIMPLE
    for name, ms in taken.items():
        if name != peer:
            text = f"{what}, {name}: {ms:.0f} ms, {peer} {taken[peer]:.0f}"
            print_ratio(text, ms / taken[peer], at_most=bars.get(name))


def _latency(spark: SparkSession, broker: Broker, folder: Path, seconds: float, rounds: int) -> None:
    found: dict[str, list[float]] = {"kafka": [], "kafkalog": []}
    for number in range(rounds + (rounds > 1)):
        for kind in found:
            topic = f"latency-{kind}-{number}"
            broker.create_topic(topic, PARTITIONS)
            delays = _delays(spark, broker, kind, topic, folder / topic, seconds)
            found[kind] += delays if number or rounds == 1 else []
    for share, name in ((50, "p50"), (99, "p99")):
        ours, theirs = (
            1000 * statistics.quantiles(found[kind], n=100)[share - 1] for kind in ("kafkalog", "kafka")
        )
        what = f"from the acknowledged record to foreachBatch, {RATE} a second, {name}"
        print_ratio(f"{what}: {ours:.0f} ms, {_PEER} {theirs:.0f}", ours / theirs, at_most=1.0)


def _delays(
    spark: SparkSession, broker: Broker, kind: str, topic: str, checkpoint: Path, seconds: float
) -> list[float]:
    """Seconds from the broker's acknowledgement of each record until foreachBatch has it."""
    arrived: dict[int, float] = {}
    acknowledged: dict[int, float] = {}
    all_there = threading.Event()
    count = int(RATE * seconds)

    def collect(frame: DataFrame, batch_id: int) -> None:
        values = [int(row.value) for row in frame.select("value").collect()]
        now = time.perf_counter()
        arrived.update((value, now) for value in values)
        if len(arrived) == count:
            all_there.set()

    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
    query = (
        reader.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=0)
    begun = time.perf_counter()
    for number in range(count):
        time.sleep(max(begun + number / RATE - time.perf_counter(), 0))
        sent = producer.send(topic, b"%d" % number)
        sent.add_callback(lambda _, number=number: acknowledged.update({number: time.perf_counter()}))
    producer.close()
    assert all_there.wait(60), f"{len(arrived)} of {count} records came"
    query.stop()
    first = int(RATE * min(seconds / 3, 5))  # the first micro-batches start processes
    return [arrived[number] - acknowledged[number] for number in range(first, count)]


if __name__ == "__main__":
    main()
