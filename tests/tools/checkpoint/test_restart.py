"""Spark goes on exactly where a changed checkpoint says, in both formats of its log."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import Kafka, TopicPartition, connect, register
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from tests.kafka import Broker

pytestmark = [pytest.mark.slow, pytest.mark.broker]

_numbers = itertools.count()
V2 = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}

HAS_AVAILABLE_NOW = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether one run repeats a micro-batch and goes on; Spark 4.0 and 4.1 do that in two."""
OWN_FAULT = 'because the return value of "scala.Option.get()" is null'
"""Ends the run in which Spark's own source, in 4.1, has repeated a micro-batch for AvailableNow."""
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""State whose files have names of their own, which the log of commits has."""


@dataclass
class Job:
    """A streaming query of one topic, run from start to end again and again."""

    spark: SparkSession
    format: str
    place: Mapping[str, str]
    topic: str
    folder: Path
    name: str | None = None
    stateful: bool = False
    sink: dict[str, str] = field(default_factory=dict)
    written: int = 0
    reader: Mapping[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def kafka(self) -> Kafka:
        return connect(self.place)

    def use_v2(self) -> None:
        """Name the source, and let Spark write version 2 of its logs."""
        if not hasattr(self.spark.readStream, "name"):
            pytest.skip("Spark 4.0 and 4.1 have only version 1")
        self.name = "orders"
        for name, value in V2.items():
            self.spark.conf.set(name, value)

    def write(self, count: int) -> None:
        """Write so many records, in turn to both partitions; their values are numbers from 0."""
        numbers = range(self.written, self.written + count)
        partitions = pa.array([number % 2 for number in numbers], pa.int32())
        rows = pa.table({"value": [b"%d" % number for number in numbers], "partition": partitions})
        self.kafka.write(rows, self.topic, options={"numPartitions": "2"} if "path" in self.place else {})
        self.written += count

    def rows(self) -> DataFrame:
        reader = self.spark.readStream if self.name is None else self.spark.readStream.name(self.name)
        options = {**self.place, **self.reader, "subscribe": self.topic, "startingOffsets": "earliest"}
        if self.format == "kafkalog":
            options["checkpointLocation"] = str(self.checkpoint)
        values = (
            reader.format(self.format).options(**options).load().selectExpr("CAST(value AS STRING) value")
        )
        return (
            values.selectExpr("CAST(value AS INT) % 2 AS part").groupBy("part").count()
            if self.stateful
            else values
        )

    def run(self) -> list[Any]:
        """Run it until it has read all; returns what came: values, or counts by partition."""
        came: list[Any] = []
        for _ in range(self.runs()):
            try:
                self._run_once(came)
            except StreamingQueryException as e:
                if OWN_FAULT not in str(e) or self.format != "kafka":
                    raise
                self._run_once(came)  # the micro-batch is complete by now
        return sorted(came if self.stateful else (int(value) for (value,) in came))

    def runs(self) -> int:
        """The number of runs until it has read all, which is 1 where Spark knows what that is."""
        newest = (list((self.checkpoint / kind).glob("[0-9]*")) for kind in ("offsets", "commits"))
        plans, commits = (max((int(file.name) for file in files), default=-1) for files in newest)
        return 1 if plans == commits or self.format == "kafka" or HAS_AVAILABLE_NOW else 2

    def _run_once(self, came: list[Any]) -> None:
        writer = self.rows().writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.outputMode("update" if self.stateful else "append").trigger(availableNow=True)
        if self.sink:
            query = writer.options(**self.sink).start()
        else:
            query = writer.foreachBatch(lambda rows, _: came.extend(map(tuple, rows.collect()))).start()
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """Make the last micro-batch one that was killed before it was complete."""
        last = max(int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink()

    def rewind(self, to: RewindTo, value: Any = 0, **more: Any) -> None:
        checkpoints = self.kafka.checkpoints
        planned = checkpoints.plan_rewind(self.checkpoint, to, value, **more)
        checkpoints.execute(planned, stopped=True)

    def at(self, first: int, second: int) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, 0): first, TopicPartition(self.topic, 1): second}

    def expected(self, first: int, second: int) -> list[int]:
        """The values from these offsets on."""
        return [n for n in range(self.written) if n // 2 >= (first, second)[n % 2]]


@pytest.fixture(scope="module")
def broker_place(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap}


LONG = pytest.mark.long


def on(*readers: object) -> pytest.MarkDecorator:
    """The readers of the job of a test."""
    return pytest.mark.parametrize("job", readers, indirect=True)


@pytest.fixture(params=["kafkalog", pytest.param("kafka", marks=LONG), pytest.param("directory", marks=LONG)])
def job(request: pytest.FixtureRequest, spark: SparkSession, broker: Broker, tmp_path: Path) -> Job:
    session = spark.newSession()
    register(session)
    topic = f"checkpoint-{next(_numbers)}"
    place = {"kafka.bootstrap.servers": broker.bootstrap}
    if request.param == "directory":
        place = {"path": str(tmp_path / "logs")}
    else:
        broker.create_topic(topic, 2)
    return Job(session, "kafka" if request.param == "kafka" else "kafkalog", place, topic, tmp_path)


@on("kafkalog", *(pytest.param(reader, marks=LONG) for reader in ("kafka", "directory")))
@pytest.mark.parametrize("version", ["v1", pytest.param("v2", marks=LONG)])
def test_a_query_goes_on_where_it_was_set(job: Job, version: str) -> None:
    if version == "v2":
        job.use_v2()
    job.write(10)
    assert job.run() == job.expected(0, 0)
    job.write(10)
    assert job.run() == list(range(10, 20))
    assert (job.checkpoint / "offsets" / "1").read_text().startswith(version)
    job.rewind(RewindTo.OFFSETS, job.at(2, 3))
    assert job.run() == job.expected(2, 3)
    job.write(4)
    job.rewind(RewindTo.LATEST)
    assert job.run() == []
    job.write(2)
    assert job.run() == [24, 25]
    job.rewind(RewindTo.BATCH, 0)
    assert job.run() == job.expected(5, 5)
    job.rewind(RewindTo.EARLIEST, topics=[TopicPartition(job.topic, 1)])
    assert job.run() == job.expected(13, 0)


@pytest.mark.parametrize("stateful", [False, pytest.param(True, marks=LONG)])
@pytest.mark.parametrize(
    "ends", [(2, 3), (7, 12), *(pytest.param((end, end), marks=LONG) for end in (9, 10))]
)
def test_a_micro_batch_that_was_killed_is_repeated_without_rows(
    job: Job, ends: tuple[int, int], stateful: bool
) -> None:
    if job.format == "kafkalog" and ends != (2, 3):
        pytest.skip("one case is enough for each place")
    job.stateful = stateful
    job.write(10)
    job.run()
    job.write(10)
    job.run()
    job.write(4)
    job.forget_last_commit()
    job.rewind(RewindTo.OFFSETS, job.at(*ends), with_state=stateful)
    if not stateful:
        assert job.run() == job.expected(*ends)
    else:
        job.run()
        job.rewind(RewindTo.LATEST, with_state=True)
        job.write(2)
        again = [n for n in range(24) if n // 2 >= ends[n % 2]]
        counts = Counter(number % 2 for number in (*range(10), *again))
        assert job.run() == [(0, counts[0] + 1), (1, counts[1] + 1)]


@pytest.mark.parametrize("version", [pytest.param("v1", marks=LONG), "v2"])
@pytest.mark.parametrize("killed", [pytest.param(False, marks=LONG), True])
def test_state_is_kept_as_it_is(job: Job, version: str, killed: bool) -> None:
    if version == "v2":
        job.use_v2()
        for name, value in ROCKSDB.items():
            job.spark.conf.set(name, value)
    job.stateful = True
    for _ in range(2):  # Spark 4.2.0 itself does not repeat micro-batch 1 in version 2
        job.write(10)
        job.run()
    if killed:
        job.write(2)
        assert job.run() == [(0, 11), (1, 11)]
        job.forget_last_commit()
    job.rewind(RewindTo.OFFSETS, job.at(2, 3), with_state=True)
    more = 1 if killed else 0
    assert job.run()[-2:] == [(0, 18 + more), (1, 17 + more)]


def test_a_file_sink_has_the_rows_again(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job.sink = {"path": str(out)}

    def values() -> list[int]:
        rows = job.spark.read.parquet(str(out)).collect()
        return sorted(int(row.value) for row in rows)

    job.write(20)
    job.run()
    job.rewind(RewindTo.OFFSETS, job.at(2, 3))
    job.run()
    assert values() == sorted([*range(20), *job.expected(2, 3)])
    job.forget_last_commit()  # the sink has that micro-batch
    before = values()
    job.rewind(RewindTo.OFFSETS, job.at(9, 9))
    job.run()
    assert values() == sorted([*before, 18, 19])


@on("directory")
def test_metrics_and_an_audit_count_what_the_sink_has(job: Job, tmp_path: Path) -> None:
    beside = {name: str(tmp_path / name) for name in ("audit", "metrics")}
    job.reader = {"auditLocation": beside["audit"]}
    job.sink = {"path": str(tmp_path / "out"), "topic": "o", "callback.class": "metrics"}
    job.sink |= {"metricsLocation": beside["metrics"], "auditLocation": beside["audit"]}
    sink = connect(job.sink["path"])

    def check(*by_batch: int) -> None:
        views = {name: job.spark.read.format("kafkalog").option("view", name) for name in beside}
        audit = views["audit"].load(beside["audit"]).where("kind = 'SUCCESS'")
        counted = audit.groupBy("side", "batch").sum("messages").collect()
        metrics = views["metrics"].load(beside["metrics"]).groupBy("batch").sum("records").collect()
        expected = dict(enumerate(by_batch))
        for side in ("consumer", "producer"):
            assert {batch: count for of, batch, count in counted if of == side} == expected
        assert dict(map(tuple, metrics)) == expected
        assert sink.read("o").read_all().num_rows == sum(by_batch)

    for _ in range(2):
        job.write(10)
        run_into(job)
    check(10, 10)
    job.rewind(RewindTo.OFFSETS, job.at(2, 3), with_sink=sink)
    run_into(job)
    check(10, 10, 15)
    job.forget_last_commit()
    job.rewind(RewindTo.OFFSETS, job.at(6, 6), with_sink=sink)
    run_into(job)
    check(10, 10, 15, 8)


@on("kafkalog", pytest.param("directory", marks=LONG))
@pytest.mark.parametrize("kind", [pytest.param("directory", marks=LONG), "brokers"])
@pytest.mark.parametrize("killed", [pytest.param(False, marks=LONG), True])
def test_an_exactly_once_sink_is_told(
    job: Job, tmp_path: Path, broker: Broker, kind: str, killed: bool
) -> None:
    target = f"{job.topic}-out"
    place = {"path": str(tmp_path / "out")}
    job.sink = {**place, "topic": target}
    if kind == "brokers":
        broker.create_topic(target, 1)
        place = {"kafka.bootstrap.servers": broker.bootstrap}
        job.sink = {**place, "topic": target, "delivery.guarantee": "exactly-once"}
    sink = connect(place)

    def values() -> list[int]:
        read = sink.read(target, options={"kafka.isolation.level": "read_committed"}).read_all()
        return sorted(int(value) for value in read["value"].to_pylist())

    job.write(10)
    run_into(job)
    job.write(10)
    run_into(job)
    assert values() == list(range(20))
    if killed:
        job.forget_last_commit()
    job.rewind(RewindTo.OFFSETS, job.at(9, 9))
    with pytest.raises(StreamingQueryException, match=r"other offsets|set back|planned"):
        run_into(job)
    if not killed:
        (job.checkpoint / "offsets" / "2").unlink()
        (job.checkpoint / "offsets" / ".2.crc").unlink()
    job.rewind(RewindTo.OFFSETS, job.at(2, 3), with_sink=sink)
    run_into(job)
    assert values() == sorted([*range(20), *job.expected(2, 3)])


def run_into(job: Job) -> None:
    for _ in range(job.runs()):
        _run_into_once(job)


def _run_into_once(job: Job) -> None:
    writer = job.rows().writeStream.format("kafkalog").options(**job.sink)
    writer = writer.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()
