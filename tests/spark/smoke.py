"""Every mode once, small, in whatever Spark runs it. The last line is JSON: how each mode went.

Usage: ``python -m tests.spark.smoke FOLDER BOOTSTRAP [sc://HOST:PORT]``. The folder must be empty, and so
must the brokers, which create topics by themselves. With the address of a Connect server all runs there.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

Place = dict[str, str]
Check = Callable[[], object]

LARGE = {"large.message.enabled": "true"}
SPLIT = {**LARGE, "max.message.segment.bytes": "1000"}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SECONDS = 120


class Smoke:
    """The checks; each raises if something is wrong, and uses topics of its own."""

    def __init__(self, spark: SparkSession, folder: Path, bootstrap: str) -> None:
        self.spark = spark
        self.folder = folder
        self.places = {
            "directory": {"path": str(folder / "log")},
            "brokers": {"kafka.bootstrap.servers": bootstrap},
        }

    def checks(self) -> Iterator[tuple[str, Check]]:
        """The modes, by name."""
        for name, place in self.places.items():
            yield f"{name}: batch write and read", partial(self.batch, place)
            yield f"{name}: headers, columns, filters", partial(self.columns, place)
            yield f"{name}: transform", partial(self.transformed, place)
            yield f"{name}: views", partial(self.views, place)
            yield f"{name}: stream, resumed", partial(self.stream, place, "copy")
            yield f"{name}: limits per trigger", partial(self.limits, place)
            yield f"{name}: group commits", partial(self.group, place)
            yield f"{name}: large messages", partial(self.large, place)
        exactly_once = {"delivery.guarantee": "exactly-once"}
        yield "brokers: exactly-once", partial(self.stream, self.places["brokers"], "once", **exactly_once)
        if find_spec("pyspark_kafkalog") is None:
            return  # a client of a Connect server that has the package
        yield "register", self.registered
        yield "checkpoint: rewound, moved", partial(self.moved, stateful=False)
        yield "checkpoint: rewound, moved, with state", partial(self.moved, stateful=True)
        yield "reassemble: batch", self.reassembled_batch
        yield "reassemble: stream", self.reassembled_stream
        yield "LagListener, AuditListener", self.listeners

    def batch(self, place: Place) -> None:
        self.write(place, "batch", 100)
        assert self.values(place, "batch") == list(range(100))

    def columns(self, place: Place) -> None:
        rows = self.spark.range(0, 20, 1, 1).selectExpr(
            "CAST(id AS STRING) AS value",
            "array(named_struct('key', 'k', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
            "timestamp_millis(id * 1000) AS timestamp",
        )
        rows.write.format("kafkalog").options(**place, topic="columns").mode("append").save()
        self.spark.conf.set(PUSHDOWN, "true")
        try:
            reader = self.spark.read.format("kafkalog").options(
                **place, subscribe="columns", includeHeaders="true"
            )
            chosen = reader.load().where("offset >= 5 AND timestamp >= timestamp_millis(7000)")
            found = [(row.headers[0].key, row.timestampType) for row in chosen.collect()]
            assert found == [("k", 0)] * 13, found
            narrow = self.spark.read.format("kafkalog").options(**place, subscribe="columns")
            assert narrow.schema("offset bigint").load().where("offset < 4").count() == 4
        finally:
            self.spark.conf.set(PUSHDOWN, "false")

    def transformed(self, place: Place) -> None:
        """By a function that every Python has, which gives the rows back."""
        transform = {"transform": "copy:copy"}
        self.write(place, "transformed", 10, **transform)
        assert self.values(place, "transformed", **transform) == list(range(10))

    def views(self, place: Place) -> None:
        self.write(place, "viewed", 7)
        topics = self.spark.read.format("kafkalog").options(**place, view="topics").load()
        (row,) = topics.where("topic = 'viewed'").collect()
        assert row.highWatermark == 7, row

    def stream(self, place: Place, topic: str, **options: str) -> None:
        """A copy of a topic, in two runs: each row is there once."""
        source, checkpoint = f"{topic}-source", str(self.folder / f"{topic}-{'path' in place}")
        read = {"kafka.isolation.level": "read_committed"}
        for run in range(2):
            self.write(place, source, 50, first=50 * run)
            self.copy(place, source, topic, checkpoint, **options)
            assert self.values(place, topic, **read) == list(range(50 * (run + 1)))

    def limits(self, place: Place) -> None:
        """With a processing-time trigger: what comes after the first micro-batch is limited everywhere."""
        self.write(place, "limited", 10)
        checkpoint = self.folder / f"limited-{'path' in place}"
        options = {"maxOffsetsPerTrigger": "10", "checkpointLocation": str(checkpoint)}
        query = self.sink(self.read_stream(place, "limited", **options), checkpoint)
        try:
            wait_for(lambda: rows_of(query) >= 10)
            self.write(place, "limited", 30, first=10)
            wait_for(lambda: rows_of(query) >= 40)
            assert max(progress.numInputRows for progress in query.recentProgress) == 10
        finally:
            query.stop()

    def group(self, place: Place) -> None:
        """A second run commits what the first could not: some Sparks end before they tell the source."""
        self.write(place, "grouped", 9)
        checkpoint = self.folder / f"grouped-{'path' in place}"
        options = {"kafka.group.id": "smoke", "checkpointLocation": str(checkpoint)}
        view = self.spark.read.format("kafkalog").options(**place, view="group-offsets")
        for _ in range(2):
            frame = self.read_stream(place, "grouped", **options)
            assert self.sink(frame, checkpoint, available_now=True).awaitTermination(SECONDS)
        found = [(row.topic, row.offset) for row in view.load().where("topic = 'grouped'").collect()]
        assert found == [("grouped", 9)], found

    def large(self, place: Place) -> None:
        self.write_large(place, "large")
        assert self.sizes(self.read(place, "large", **LARGE)) == LARGE_SIZES
        checkpoint = str(self.folder / f"large-{'path' in place}")
        self.copy(place, "large", "large-copy", checkpoint, read=LARGE, write=SPLIT)
        assert self.sizes(self.read(place, "large-copy", **LARGE)) == LARGE_SIZES

    def registered(self) -> None:
        from pyspark_kafkalog import register

        assert self.spark.version in str(register(self.spark))

    def moved(self, *, stateful: bool) -> None:
        """A query goes on where it is set in a directory, and then at the same record in brokers."""
        from pyspark_kafkalog import RestoreSettings, RewindTo, TopicPartition, connect

        topic = f"moved-{stateful}".lower()
        here, there = self.places.values()
        checkpoint, state = self.folder / topic, str(self.folder / f"{topic}-map")
        at = TopicPartition(topic, 0)
        self.write(here, topic, 10)
        with connect(here) as source, connect(there) as target:
            assert self.seen(here, topic, checkpoint, stateful=stateful) == 10
            rewound = source.checkpoints.plan_rewind(
                str(checkpoint), RewindTo.OFFSETS, {at: 7}, with_state=stateful
            )
            source.checkpoints.execute(rewound, stopped=True)
            assert self.seen(here, topic, checkpoint, stateful=stateful) == 13
            self.write(here, topic, 5, first=10)
            settings = RestoreSettings([topic], {topic: f"{topic}-there"}, groups=[], state=state)
            source.logs.restore(target, settings, execute=True)
            moved = target.checkpoints.plan_move(str(checkpoint), state)
            target.checkpoints.execute(moved, stopped=True)
            assert self.seen(there, f"{topic}-there", checkpoint, stateful=stateful) == 18

    def seen(self, place: Place, topic: str, checkpoint: Path, *, stateful: bool) -> int:
        """Let a query read all; the number of rows of all its runs, which its sink has, or its state."""
        rows = self.read_stream(place, topic, checkpointLocation=str(checkpoint)).select("value")
        counted = rows.groupBy().count() if stateful else rows
        writer = counted.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        out = f"{checkpoint}-out"
        if stateful:
            writer = writer.format("memory").outputMode("complete").queryName("moved")
        else:
            writer = writer.format("parquet").option("path", out)
        query = writer.start()
        assert query.awaitTermination(SECONDS)
        if not stateful:
            return self.spark.read.parquet(out).count()
        (row,) = self.spark.table("moved").collect()
        return int(row[0])

    def reassembled_batch(self) -> None:
        from pyspark_kafkalog import reassemble

        place = self.places["directory"]
        self.write_large(place, "split-batch")
        assert self.sizes(reassemble(self.read(place, "split-batch"))) == LARGE_SIZES

    def reassembled_stream(self) -> None:
        from pyspark_kafkalog import reassemble

        place, checkpoint = self.places["directory"], str(self.folder / "whole")
        self.write_large(place, "split")
        messages = reassemble(self.read_stream(place, "split")).select("key", "value")
        writer = messages.writeStream.format("kafkalog").options(**place, topic="whole")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
        assert self.sizes(self.read(place, "whole")) == LARGE_SIZES

    def listeners(self) -> None:
        from pyspark_kafkalog import AuditListener, LagListener

        place, audit = self.places["directory"], str(self.folder / "audit")
        self.write(place, "watched", 12)
        lag = LagListener({**place, "subscribe": "watched"})
        counts: list[str] = []
        counting = AuditListener(audit, echo=counts.append)
        for listener in lag, counting:
            self.spark.streams.addListener(listener)
        try:
            frame = self.read_stream(place, "watched", auditLocation=audit)
            query = self.sink(frame, self.folder / "watched", available_now=True)
            assert query.awaitTermination(SECONDS)
            wait_for(lambda: bool(lag.history(query.id)) and bool(counts))
            first = lag.history(query.id)[0]
            assert first.rows == 12
            assert first.sources[0] is not None, first
            assert first.sources[0].max_offsets_behind == 0
            assert "12" in counts[0]
        finally:
            for listener in lag, counting:
                self.spark.streams.removeListener(listener)

    def write(self, place: Place, topic: str, count: int, first: int = 0, **options: str) -> None:
        rows = self.spark.range(first, first + count, 1, 1).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("kafkalog").options(**place, **options, topic=topic).mode("append").save()

    def write_large(self, place: Place, topic: str) -> None:
        rows = self.spark.range(0, 20, 1, 1).selectExpr(
            "CAST(id AS STRING) AS key", "repeat('x', CAST(id * 300 AS INT)) AS value"
        )
        rows.write.format("kafkalog").options(**place, **SPLIT, topic=topic).mode("append").save()

    def read(self, place: Place, topic: str, **options: str) -> DataFrame:
        return self.spark.read.format("kafkalog").options(**place, **options, subscribe=topic).load()

    def read_stream(self, place: Place, topic: str, **options: str) -> DataFrame:
        given = {"subscribe": topic, "startingOffsets": "earliest", **place, **options}
        return self.spark.readStream.format("kafkalog").options(**given).load()

    def values(self, place: Place, topic: str, **options: str) -> list[int]:
        return sorted(int(row.value) for row in self.read(place, topic, **options).select("value").collect())

    def sizes(self, frame: DataFrame) -> dict[str, int]:
        rows = frame.selectExpr("CAST(key AS STRING) AS key", "length(value) AS size").collect()
        assert len(rows) == len({row.key for row in rows}), "each message is there once"
        return {row.key: row.size for row in rows}

    def copy(
        self,
        place: Place,
        source: str,
        topic: str,
        checkpoint: str,
        *,
        read: Place | None = None,
        write: Place | None = None,
        **options: str,
    ) -> None:
        frame = self.read_stream(place, source, **(read or {})).select("key", "value")
        given = {**place, "topic": topic, "checkpointLocation": checkpoint, **(write or {}), **options}
        writer = frame.writeStream.format("kafkalog").options(**given)
        assert writer.trigger(availableNow=True).start().awaitTermination(SECONDS)

    def sink(self, frame: DataFrame, checkpoint: Path, *, available_now: bool = False) -> StreamingQuery:
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()


LARGE_SIZES = {str(number): number * 300 for number in range(20)}


def rows_of(query: StreamingQuery) -> int:
    failed = query.exception()
    if failed is not None:
        raise failed
    return sum(progress.numInputRows for progress in query.recentProgress)


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.2)


def cause(error: Exception) -> str:
    """The last line of the innermost error, as a Python worker or this process raised it."""
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line]
    return f"{type(error).__name__}: {lines[-1] if lines else error}".replace("|", "/")[:200]


def session(folder: Path, remote: str | None) -> SparkSession:
    if remote is not None:
        return SparkSession.builder.remote(remote).getOrCreate()
    from pyspark_kafkalog import worker_python

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(folder: str, bootstrap: str, remote: str | None = None) -> None:
    spark = session(Path(folder), remote)
    smoke = Smoke(spark, Path(folder), bootstrap)
    found = {}
    for mode, check in smoke.checks():
        started = time.monotonic()
        try:
            check()
            found[mode] = "ok"
        except Exception as e:
            traceback.print_exc()
            found[mode] = cause(e)
        print(f"{mode}: {found[mode]} ({time.monotonic() - started:.1f} s)", file=sys.stderr)
    version = spark.version
    spark.stop()
    print(json.dumps({"spark": version, "modes": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
