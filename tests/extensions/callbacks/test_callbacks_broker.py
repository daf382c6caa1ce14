"""Callbacks and metrics of writes to real brokers: they equal what the broker has, whatever goes wrong."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from pyspark_kafkalog import WriteCallback, connect
from pyspark_kafkalog.broker.produce import producer as produce
from pyspark_kafkalog.errors import RecordTooLargeError, UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.callbacks.files import metrics_rows
from pyspark_kafkalog.extensions.callbacks.options import CallbackOptions
from pyspark_kafkalog.model import QueryBatch, TaskAttempt, TopicPartition
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.places import open_sink
from pyspark_kafkalog.write.listening import listening_of
from pyspark_kafkalog.write.routing import Router
from pyspark_kafkalog.write.rows import write_rows
from tests.broker.producing import digits, numbered, stored, unused_topic, values_of
from tests.extensions.callbacks.hearing import FAILING, Story, batches, noting, stories
from tests.kafka import Broker, run_kafka_class

pytestmark = pytest.mark.broker

MODULE = "tests.extensions.callbacks.hearing"


@pytest.fixture
def topic(broker: Broker) -> str:
    name = unused_topic()
    broker.create_topic(name, 2)
    return name


def table(count: int, size: int = 100) -> pa.Table:
    return pa.Table.from_batches([numbered(count, size=size)])


def check_is_what_the_broker_has(broker: Broker, topic: str, partitions: int, task: Story) -> None:
    """Each record batch of the log was acknowledged with its offset, size and number of records."""
    told = sorted(
        (at["partition"], at["base_offset"], at["records"], at["bytes"])
        for at in task.of("on_acknowledgement")
    )
    there = []
    for partition in range(partitions):
        found = stored(broker.partition_folder(topic, partition))
        headers = zip(found.base_offset, found.count, found.size, strict=True)
        there += [(partition, int(offset), int(count), int(size)) for offset, count, size in headers]
    assert told == sorted(there)
    (metrics,) = task.of("close")
    assert metrics["batches"] == len(there)
    assert metrics["records"] == sum(count for _, _, count, _ in there)
    assert metrics["bytes"] == sum(size for *_, size in there)


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_acknowledgements_are_what_the_broker_has(
    broker: Broker, topic: str, tmp_path: Path, idempotent: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        "callback.class": noting(tmp_path / "heard"),
        "metricsLocation": str(tmp_path / "metrics"),
        "kafka.batch.size": "2000",
        "kafka.compression.type": "lz4",
        "kafka.enable.idempotence": idempotent,
    }
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        connect(broker.bootstrap).write(table(500), topic, options=options)
    task, commit = stories(tmp_path / "heard")
    check_is_what_the_broker_has(broker, topic, 2, task)
    assert batches(task.of("on_enqueue")) == batches(task.of("on_send")) == batches(task.ends())
    acknowledged = task.of("on_acknowledgement")
    assert {at["broker"] for at in acknowledged} == {1}
    assert all(at["attempts"] == 1 and at["error"] is None for at in acknowledged)
    (closed,), (total,) = task.of("close"), commit.of("on_commit")
    assert closed == {**total, "error": None}
    assert closed["acknowledgements"] == closed["batches"] == len(acknowledged)
    latencies = [at["latency_ms"] for at in acknowledged]
    assert closed["latency_total_ms"] == pytest.approx(sum(latencies))
    assert closed["latency_max_ms"] == max(latencies) > 0
    assert (closed["retries"], closed["errors"], closed["throttle_ms"]) == (0, 0, 0)
    assert 0 < closed["requests"] <= closed["batches"]
    assert closed["uncompressed_bytes"] > 500 * 100 > closed["bytes"]
    (row,) = metrics_rows(str(tmp_path / "metrics"))
    assert (row["records"], row["bytes"], row["task"]) == (500, closed["bytes"], 0)
    assert row["compressionRatio"] == closed["uncompressed_bytes"] / closed["bytes"]
    assert f"A batch was written by 1 task: 500 records, {closed['bytes']} bytes in " in caplog.text
    assert [method for method, _ in commit.calls] == ["on_commit", "close"]


def test_log_append_time_is_told(broker: Broker, tmp_path: Path) -> None:
    topic = unused_topic()
    broker.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    options = {"callback.class": noting(tmp_path / "heard")}
    connect(broker.bootstrap).write(table(3), topic, options=options)
    (told,) = stories(tmp_path / "heard")[0].of("on_acknowledgement")
    (found,) = connect(broker.bootstrap).read(topic).read_all()["timestamp"].unique().to_pylist()
    assert told["append_time"] == round(found.timestamp() * 1000)
    assert abs(told["time"] - told["append_time"]) < 60_000


def test_without_acknowledgements_no_offset_is_known(broker: Broker, topic: str, tmp_path: Path) -> None:
    options = {"callback.class": noting(tmp_path / "heard"), "kafka.acks": "0"}
    connect(broker.bootstrap).write(table(50), topic, options=options)
    task, _ = stories(tmp_path / "heard")
    assert {at["base_offset"] for at in task.of("on_acknowledgement")} == {-1}
    assert task.of("close")[0]["records"] == 50


@pytest.mark.parametrize("kind", FAILING, ids=lambda kind: kind.__name__)
def test_a_callback_that_raises_loses_and_doubles_nothing(
    broker: Broker, topic: str, kind: type[WriteCallback], caplog: pytest.LogCaptureFixture
) -> None:
    options = {"callback.class": f"{MODULE}:{kind.__name__}", "kafka.batch.size": "2000"}
    assert connect(broker.bootstrap).write(table(200), topic, options=options) == 200
    assert sorted(values_of(broker.bootstrap, topic)) == digits(200, 100)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = {"FailsAtRetry": 0, "FailsAtOnce": 2, "FailsAtClose": 2}.get(kind.__name__, 1)
    assert len(warned) == expected
    assert all(f"The callback '{MODULE}:{kind.__name__}' raised " in line for line in warned)


def test_a_record_that_the_broker_refuses(broker: Broker, tmp_path: Path) -> None:
    """Its batch has failed, and what waits behind it; each batch has one end."""
    topic = unused_topic()
    broker.create_topic(topic, 2)
    kafka = connect(broker.bootstrap)
    kafka.write(table(1), topic)  # so that this process knows the topic's limit
    with broker.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "5000"})])
    rows = [*digits(50, 100), b"x" * 20_000, *digits(50, 100)]
    given = pa.table({"value": rows, "partition": pa.array([0] * 101, pa.int32())})
    options = {"callback.class": noting(tmp_path / "heard"), "kafka.batch.size": "2000"}
    with pytest.raises(RecordTooLargeError):
        kafka.write(given, topic, options=options)
    (task,) = stories(tmp_path / "heard")
    (closed,) = task.of("close")
    assert closed["error"]
    assert batches(task.ends()) == batches(task.of("on_enqueue"))
    acknowledged = sum(at["records"] for at in task.of("on_acknowledgement"))
    assert closed["records"] == acknowledged
    assert acknowledged == sum(value in digits(50, 100) for value in values_of(broker.bootstrap, topic)) - 1


def test_a_topic_that_is_not_there(broker: Broker, tmp_path: Path) -> None:
    options = {"callback.class": noting(tmp_path / "heard"), "kafka.request.timeout.ms": "1500"}
    with pytest.raises(UnknownTopicOrPartitionError):
        connect(broker.bootstrap).write(table(1), "no-such-topic", options=options)
    (task,) = stories(tmp_path / "heard")
    assert [method for method, _ in task.calls] == ["close"]
    assert "'no-such-topic'" in task.of("close")[0]["error"]


@pytest.mark.long
def test_a_quota_is_told(broker: Broker, tmp_path: Path) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    at = ["--bootstrap-server", broker.bootstrap, "--entity-type", "clients", "--entity-name", topic]
    run_kafka_class("kafka.admin.ConfigCommand", *at, "--alter", "--add-config", "producer_byte_rate=100000")
    options = {"callback.class": noting(tmp_path / "heard"), "kafka.client.id": topic}
    options |= {"kafka.batch.size": "100000", "kafka.max.request.size": "110000"}
    connect(broker.bootstrap).write(table(1300, 1000), topic, options=options)
    task, _ = stories(tmp_path / "heard")
    (closed,) = task.of("close")
    assert 500 < closed["throttle_ms"] < 60_000
    assert closed["retries"] == 0
    check_is_what_the_broker_has(broker, topic, 1, task)


@pytest.mark.long
def test_a_broker_killed_and_started_again(
    stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches in flight are sent again, and each is acknowledged once, with the offset that it has."""
    monkeypatch.setattr(produce, "_MIN_SEND_BYTES", 1)
    broker, topic = stoppable_broker, unused_topic()
    broker.create_topic(topic, 2)
    starting = threading.Timer(1, broker.start)

    def rows() -> Any:
        for step in range(20):
            if step == 10:
                broker.stop(kill=True)
                starting.start()
            yield numbered(100, step * 100)

    options = {"callback.class": noting(tmp_path / "heard"), "kafka.batch.size": "600"}
    connect(broker.bootstrap).write(rows(), topic, options={**options, "kafka.max.request.size": "3000"})
    starting.join()
    assert sorted(values_of(broker.bootstrap, topic)) == digits(2000)
    task, _ = stories(tmp_path / "heard")
    (closed,) = task.of("close")
    assert closed["records"] == 2000
    assert closed["errors"] == 0
    assert closed["requests"] > 0
    assert batches(task.ends()) == batches(task.of("on_enqueue"))
    sent = Counter((at["partition"], at["number"]) for at in task.of("on_send"))
    assert closed["retries"] == len(task.of("on_retry"))
    assert sum(sent.values()) - len(sent) <= closed["retries"]
    assert all(at["error"] for at in task.of("on_retry"))
    known = [
        (at["partition"], at["base_offset"], at["records"], at["bytes"])
        for at in task.of("on_acknowledgement")
        if at["base_offset"] >= 0
    ]
    for partition in range(2):
        found = stored(broker.partition_folder(topic, partition))
        headers = zip(found.base_offset, found.count, found.size, strict=True)
        there = {(partition, *map(int, header)) for header in headers}
        assert {each for each in known if each[0] == partition} <= there


def test_a_zombie_task_is_heard_and_not_counted(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Brokers keep what it has sent. Metrics are those of the attempt whose message the commit has."""
    options = {"callback.class": noting(tmp_path / "heard"), "metricsLocation": str(tmp_path / "metrics")}
    settings = write_options({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **options})
    listening, sink, batch = listening_of(settings), open_sink(settings), QueryBatch("q", 5)
    assert isinstance(listening, CallbackOptions)

    def run(attempt: int) -> tuple[Any, Any]:
        task = TaskAttempt(0, 0, attempt)
        with (
            listening.of_task(batch, task, awaits_commit=sink.needs_commit) as listener,
            sink.open(batch, task, listener) as open_task,
        ):
            write_rows([numbered(30)], Router.to_sink(open_task, settings), open_task)
            return open_task.finish(), listening.heard(listener)

    zombie, counted = run(0), run(1)
    assert zombie != counted
    with listening.of_commit(batch, [counted[1]]) as listener:
        sink.commit(batch, [counted[0]], None, listener)
    first, second, commit = stories(tmp_path / "heard")
    for task in first, second:
        assert sum(at["records"] for at in task.of("on_acknowledgement")) == 30
    assert commit.of("on_commit")[0]["records"] == 30
    (row,) = metrics_rows(str(tmp_path / "metrics"))
    assert (row["query"], row["batch"], row["attempt"], row["records"]) == ("q", 5, 1, 30)
    assert len(values_of(broker.bootstrap, topic)) == 60


def test_exactly_once_the_commit_sends(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Tasks stage; the driver's object hears of what is sent, and all is counted once."""
    options = {
        "callback.class": noting(tmp_path / "heard"),
        "metricsLocation": str(tmp_path / "metrics"),
        "delivery.guarantee": "exactly-once",
        "stagingLocation": str(tmp_path / "staging"),
        "kafka.batch.size": "2000",
        "kafka.compression.type": "gzip",
    }
    connect(broker.bootstrap).write(table(500), topic, options=options)
    task, commit = stories(tmp_path / "heard")
    assert {method for method, _ in task.calls} == {"on_enqueue", "close"}
    acknowledged = commit.of("on_acknowledgement")
    assert batches(acknowledged) == batches(commit.of("on_send")) == batches(task.of("on_enqueue"))
    (staged,), (total,) = task.of("close"), commit.of("on_commit")
    assert total["records"] == staged["records"] == 500 == sum(at["records"] for at in acknowledged)
    assert total["bytes"] == staged["bytes"] == sum(at["bytes"] for at in acknowledged)
    assert (staged["requests"], total["acknowledgements"]) == (0, len(acknowledged))
    assert total["requests"] > 0
    of_task, of_commit = metrics_rows(str(tmp_path / "metrics"))
    assert (of_task["task"], of_task["records"], of_task["requests"]) == (0, 500, 0)
    assert (of_commit["task"], of_commit["records"], of_commit["requests"]) == (None, 0, total["requests"])
    for partition in range(2):
        found = stored(broker.partition_folder(*TopicPartition(topic, partition)))
        offsets = {at["base_offset"] for at in acknowledged if at["partition"] == partition}
        assert offsets <= {int(offset) for offset in found.base_offset}
