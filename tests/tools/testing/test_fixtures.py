"""The fixtures for users' tests, in projects of pytest that use them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.tools.testing.filling import filled, records_of
from pyspark_kafkalog.tools.try_out.jars import kafka_jars

pytest_plugins = ["pytester"]

CONFTEST = """
import sys
import pytest

pytest_plugins = ["pyspark_kafkalog.testing"]
sys.modules["pyspark"] = None  # as if it were not installed
"""
WITHOUT_JAVA = """
def test_a_log_directory_is_filled(kafka_log_directory, fill_topic):
    kafka = fill_topic(kafka_log_directory, "orders", [("c1", "12.50"), (b"c2", None)], partitions=2)
    found = {partition.partition: partition.high_watermark for partition in kafka.topics.partitions()}
    assert (len(found), sum(found.values())) == (2, 2)
    fill_topic(kafka_log_directory, "orders", ["7.00"])
    rows = kafka.read("orders", columns=["key", "value"]).read_all().to_pylist()
    pairs = {(row["key"], row["value"]) for row in rows}
    assert pairs == {(b"c1", b"12.50"), (b"c2", None), (None, b"7.00")}

def test_the_next_one_is_empty(kafka_log_directory):
    assert not list(kafka_log_directory.iterdir())

def test_a_broker_needs_java(kafka_broker):
    pass

def test_so_does_the_next_one(kafka_broker):
    pass
"""
WITH_A_BROKER = """
import os
import signal

import pytest
from pyspark_kafkalog import CommittedOffset, LocalBroker, TopicPartition, connect

@pytest.fixture(scope="session")
def kafka_broker_settings():
    return {"num.partitions": 3}

@pytest.fixture(scope="module")
def shared(kafka_session_broker):
    with connect(kafka_session_broker.options) as kafka:
        kafka.write(__import__("pyarrow").table({"value": [b"a"]}), "shared")

def topics(broker):
    with connect(broker.options) as kafka:
        return {partition.topic: partition.partition + 1 for partition in kafka.topics.partitions()}

def values(broker, topic):
    with connect(broker.options) as kafka:
        return kafka.read(topic, columns=["value"]).read_all()["value"].to_pylist()

def test_topics_and_groups(kafka_broker, fill_topic):
    configs = {"max.message.bytes": "2000"}
    kafka = fill_topic(kafka_broker, "orders", [("c1", "12.50")], partitions=2, configs=configs)
    assert kafka.topics.configs(["orders"]) == {"orders": configs}
    assert values(kafka_broker, "orders") == [b"12.50"]
    kafka.groups.commit("etl", {TopicPartition("orders", 0): CommittedOffset(0)})
    assert [group.group for group in kafka.groups.describe()] == ["etl"]

def test_they_are_gone(kafka_broker):
    assert not topics(kafka_broker)
    with connect(kafka_broker.options) as kafka:
        assert not kafka.groups.describe()

def test_of_a_module(shared, kafka_broker):
    assert topics(kafka_broker) == {"shared": 3}

def test_it_is_killed_and_started(kafka_broker, fill_topic):
    fill_topic(kafka_broker, "orders", ["1"])
    address, pid = kafka_broker.address, kafka_broker.pid
    kafka_broker.kill()
    assert not kafka_broker.running
    kafka_broker.start()
    assert (kafka_broker.address == address, kafka_broker.pid == pid) == (True, False)
    fill_topic(kafka_broker, "orders", ["2"])
    assert values(kafka_broker, "orders") == [b"1", b"2"]

def test_it_is_left_dead(kafka_broker, fill_topic):
    fill_topic(kafka_broker, "orders")
    os.kill(kafka_broker.pid, signal.SIGKILL)

def test_it_runs_again(kafka_broker):
    assert kafka_broker.running
    assert topics(kafka_broker) == {"shared": 3}

def test_fails(kafka_broker):
    print("pid", kafka_broker.pid, kafka_broker.folder)
    raise AssertionError
"""


@pytest.fixture(scope="module")
def jars() -> Path:
    """Kafka's jars, found before ``pytester`` has set another HOME."""
    return kafka_jars()


def test_without_java_and_spark(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(pytester.path))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(WITHOUT_JAVA)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, errors=2)
    error = f"Java is not found in {pytester.path}. Install Java 17 or newer, or set JAVA_HOME to its folder."
    assert [line for line in done.outlines if line.startswith("Java is not found")] == [error, error]
    done.stdout.no_fnmatch_line("*local_broker.py*")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
def test_a_broker_is_shared_cleaned_and_healed(
    jars: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKALOG_KAFKA", str(jars))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(WITH_A_BROKER)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:randomly")
    done.assert_outcomes(passed=6, failed=1)
    done.stdout.fnmatch_lines(["*log of 127.0.0.1:*", "*Kafka Server started*"])
    (pid,) = (line.split()[1] for line in done.outlines if line.startswith("pid "))
    assert not psutil.pid_exists(int(pid))


def test_records_are_values_or_pairs_or_arrow() -> None:
    columns = {"key": [None, b"k", b"k"], "value": [b"\xc3\xa9", b"v", None]}
    assert records_of(["é", ("k", b"v"), ("k", None)]).to_pydict() == columns
    assert records_of([]).num_rows == 0
    batch = pa.RecordBatch.from_pydict({"value": ["a"], "partition": [0]})
    assert records_of(batch) == pa.Table.from_batches([batch])


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ("12.50", "Expected a list of records, got str"),
        ({"c1": "12.50"}, "Expected a list of records, got dict"),
        (12, "Expected a list of records, got int"),
        (["a", 12.5], r"Record 1 has \(NoneType, float\), expected a value, or a key and a value"),
        ([("k", "v", 3)], r"Record 0 has \(str, str, int\)"),
    ],
)
def test_other_records_are_refused_before_a_topic_is_made(
    records: object, error: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=error):
        filled(tmp_path, "orders", records)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings", [{"partitions": 3}, {"configs": {"retention.ms": "1"}}])
def test_a_topic_that_is_there_is_not_changed(settings: dict[str, object], tmp_path: Path) -> None:
    filled(tmp_path, "orders", ["1"], partitions=2)
    with pytest.raises(OptionError, match="Topic 'orders' is there already, with 2 partitions"):
        filled(tmp_path, "orders", ["2"], **settings)
    assert filled(tmp_path, "orders", partitions=2).read("orders").read_all().num_rows == 1
