"""What fails the start of a query, on real brokers: a rewind gets it past that."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_kafkalog import NewTopic, ResetTo
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles, checksums
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from tests.kafka import Broker
from tests.tools.checkpoint.test_restart import LONG, Job, on
from tests.tools.checkpoint.test_restart import job as job
from tests.tools.cli.running import run

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.fixture
def on_brokers(job: Job) -> Job:
    if "path" in job.place:
        pytest.skip("about brokers")
    return job


def test_expired_offsets(on_brokers: Job, broker: Broker) -> None:
    job = on_brokers
    job.write(10)
    job.run()
    job.write(20)
    assert run("delete-records", broker.bootstrap, f"{job.topic}=9", "--execute").code == 0
    shown = run("checkpoint", "show", job.checkpoint, broker.bootstrap)
    assert (shown.code, "records that were not read are deleted" in shown.out) == (1, True)
    with pytest.raises(StreamingQueryException):
        job.run()
    # The query has planned a micro-batch now, which it can't complete.
    words = ("--to-current", "--stopped", "--execute")
    done = run("checkpoint", "rewind", job.checkpoint, broker.bootstrap, *words)
    assert done.code == 0, done.err
    assert job.run() == list(range(18, 30))


def test_a_topic_that_was_created_again(on_brokers: Job, broker: Broker) -> None:
    job = on_brokers
    job.write(20)
    job.run()
    topics = job.kafka.topics
    topics.delete(topics.plan_deletion([job.topic]))
    deadline = time.monotonic() + 60
    while job.topic in job.kafka.report_place.topics() and time.monotonic() < deadline:
        time.sleep(0.2)
    topics.create([NewTopic(job.topic, partitions=2)])
    job.written = 0
    job.write(6)
    shown = run("checkpoint", "show", job.checkpoint, broker.bootstrap)
    assert shown.code == 1
    assert ("deleted and created again" in shown.out) == (job.format == "kafkalog")
    with pytest.raises(StreamingQueryException):
        job.run()
    job.rewind(RewindTo.CURRENT if job.format == "kafkalog" else RewindTo.EARLIEST)
    assert job.run() == list(range(6))


def test_an_open_transaction(on_brokers: Job, broker: Broker) -> None:
    """A reader of what is committed does not start beyond it, so the position stays before."""
    job = on_brokers
    job.reader = {"kafka.isolation.level": "read_committed"}
    job.write(10)
    job.run()
    with closing(
        KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"{job.topic}-open")
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(job.topic, b"10", partition=0).get()
        producer.flush()
        words = ("checkpoint", "rewind", job.checkpoint, broker.bootstrap)
        for to in ("--to-latest",), ("--to-datetime", "2500-01-01T00:00:00Z"):
            done = run(*words, *to, "--json")
            assert [row["offset"] for row in done.json["offsets"]] == [5, 5]
        assert "a transaction is open there" in done.out
        job.rewind(RewindTo.LATEST)
        assert job.run() == []
        producer.commit_transaction()
    assert job.run() == [10]


@on("kafkalog", pytest.param("directory", marks=LONG))
def test_a_query_of_a_group(job: Job) -> None:
    job.reader = {"kafka.group.id": f"{job.topic}-group"}
    job.write(20)
    job.run()
    job.rewind(RewindTo.OFFSETS, job.at(2, 3))
    assert job.run() == job.expected(2, 3)
    job.kafka.groups.reset(job.kafka.groups.plan_reset(f"{job.topic}-group", None, ResetTo.OFFSET, 7))
    job.rewind(RewindTo.GROUP, f"{job.topic}-group")
    assert job.run() == job.expected(7, 7)


def test_two_sources_and_one_of_them_goes_back(job: Job, spark: SparkSession) -> None:
    other = Job(job.spark, job.format, job.place, f"{job.topic}-b", job.folder)
    if "path" not in job.place:
        job.kafka.topics.create([NewTopic(other.topic, partitions=2)])
    job.write(20)
    other.write(20)

    def both() -> list[tuple[str, int]]:
        came: list[tuple[str, int]] = []
        a, b = job.rows().selectExpr("'a'", "value"), other.rows().selectExpr("'b'", "value")
        writer = a.union(b).writeStream.option("checkpointLocation", str(job.checkpoint))
        writer = writer.foreachBatch(lambda rows, _: came.extend(map(tuple, rows.collect())))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted((source, int(value)) for source, value in came)

    assert len(both()) == 40
    job.rewind(RewindTo.OFFSETS, other.at(9, 8))
    assert both() == [("b", value) for value in other.expected(9, 8)]
    job.rewind(RewindTo.EARLIEST, sources=["0"])
    assert both() == [("a", value) for value in range(20)]


@on("kafka")
def test_async_progress_tracking(job: Job) -> None:
    """Of Spark's own source, which is the only one that has it."""

    def run_so() -> None:
        writer = job.rows().writeStream.format("kafka").options(**job.place, topic=f"{job.topic}-out")
        writer = writer.option("checkpointLocation", str(job.checkpoint)).trigger(processingTime="0 seconds")
        writer = writer.option("asyncProgressTrackingEnabled", "true")
        query = writer.option("asyncProgressTrackingCheckpointIntervalMs", "0").start()
        query.processAllAvailable()
        query.stop()

    job.kafka.topics.create([NewTopic(f"{job.topic}-out")])
    for _ in range(3):
        job.write(10)
        run_so()
    for batch in CheckpointFiles.open(str(job.checkpoint)).plans[:-1]:  # as longer intervals leave it
        if batch:
            (job.checkpoint / "offsets" / str(batch)).unlink()
    job.rewind(RewindTo.OFFSETS, job.at(2, 3))
    run_so()
    out = job.kafka.read(f"{job.topic}-out").read_all()["value"].to_pylist()
    assert sorted(map(int, out)) == sorted([*range(30), *job.expected(2, 3)])
    data = (job.checkpoint / "offsets" / "0").read_bytes()
    assert checksums(data) == (job.checkpoint / "offsets" / ".0.crc").read_bytes()
