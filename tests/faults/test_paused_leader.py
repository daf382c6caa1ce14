"""A leader that is paused past its session goes on as if it still led, and nothing is lost.

It stands still (SIGSTOP) until another has taken over and acknowledged more, and
until the stream has planned for that. Then it goes on (SIGCONT): what lies in its
sockets it answers in the epoch that is over. The soak does so ten times in each test.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.broker.producing import consume, unused_topic
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import API_VERSIONS, PRODUCE, WITHOUT_TOPIC_IDS, delay

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3600)]

MORE = 1000
"""Records that the next leader acknowledges while the last one is paused."""
FOR_EVER = 1_000_000


def brokers_of(cluster: Cluster, *, topic_ids: bool) -> dict[str, str]:
    """Options for the cluster, which can hide its topic ids, as brokers before 2.8 have none."""
    for proxy in cluster.proxies.values():
        if not topic_ids:
            proxy.strike(API_VERSIONS, WITHOUT_TOPIC_IDS, times=FOR_EVER)
        # Spark's workers keep connections from test to test: new ones learn what the brokers can do.
        proxy.reset_all()
    return {"kafka.bootstrap.servers": cluster.proxied_bootstrap, "kafka.request.timeout.ms": "6000"}


@pytest.fixture
def pauses(soak: bool) -> int:
    """How often the leader is paused."""
    return 10 if soak else 1


@pytest.fixture
def topic(cluster: Cluster) -> str:
    topic = unused_topic()
    cluster.create_topic(topic)
    return topic


class Numbers:
    """Writes the numbers from 0 to a topic, each acknowledged by all replicas in sync."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.count = 0
        self._cluster = cluster
        self._topic = topic

    def add(self, count: int) -> None:
        # A new one each time, as an existing one waits for the paused broker.
        producer = KafkaProducer(bootstrap_servers=self._cluster.bootstrap, acks="all", linger_ms=20)
        try:
            values = range(self.count, self.count + count)
            for sent in [producer.send(self._topic, b"%d" % value) for value in values]:
                sent.get(60)
        finally:
            producer.close()
        self.count += count


class Copy:
    """A stream of numbers into Spark's memory."""

    def __init__(self, spark: SparkSession, topic: str, options: dict[str, str], folder: Path) -> None:
        self._spark = spark
        self._name = f"copy_{unused_topic()[-12:]}"
        self._query: StreamingQuery = (
            spark.readStream.format("kafkalog")
            .options(**options)
            .options(subscribe=topic, startingOffsets="earliest")
            .load()
            .selectExpr("INT(STRING(value)) AS value")
            .writeStream.format("memory")
            .queryName(self._name)
            .option("checkpointLocation", str(folder / self._name))
            .start()
        )
        self._offsets = folder / self._name / "offsets"

    def wait_until_planned(self, end: int) -> None:
        """Wait until Spark has logged a micro-batch up to this offset of the only partition."""
        self._wait(lambda: any(f'"0":{end}' in line for line in self._last_plan()), f"no plan up to {end}")

    def wait_until_copied(self, count: int) -> None:
        """Wait until all numbers below ``count`` are there, each once and in order."""
        self._wait(lambda: len(self._rows()) >= count, f"not {count} rows")
        assert self._rows() == list(range(count))

    def stop(self) -> None:
        self._query.stop()

    def _rows(self) -> list[int]:
        return [row.value for row in self._spark.table(self._name).collect()]

    def _last_plan(self) -> list[str]:
        batches = [int(path.name) for path in self._offsets.glob("*") if path.name.isdecimal()]
        if not batches:
            return []
        return (self._offsets / str(max(batches))).read_text().replace(" ", "").splitlines()

    def _wait(self, done: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert self._query.exception() is None, f"the query died: {self._query.exception()}"
            assert time.monotonic() < deadline, f"{complaint}: it has {len(self._rows())}"
            time.sleep(0.1)


@contextlib.contextmanager
def paused(cluster: Cluster, topic: str) -> Iterator[None]:
    """Within, the leader is paused and another leads; at the end the old one goes on, in sync."""
    old = cluster.leader(topic)
    cluster.pause(old)
    try:
        cluster.wait_until(lambda: _leader(cluster, topic) not in (-1, old), "No other broker leads")
        yield
    finally:
        cluster.resume(old)


def _leader(cluster: Cluster, topic: str) -> int:
    """According to the cluster; -1 while it can't say."""
    try:
        return cluster.leader(topic)
    except KafkaError:
        return -1


@pytest.mark.long
@pytest.mark.parametrize(
    ("topic_ids", "fail_on_data_loss"),
    [
        (True, "true"),
        pytest.param(True, "false", marks=pytest.mark.soak),
        pytest.param(False, "true", marks=pytest.mark.soak),
        pytest.param(False, "false", marks=pytest.mark.soak),
    ],
)
def test_a_stream_delivers_all_and_lives(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    topic_ids: bool,
    fail_on_data_loss: str,
    pauses: int,
    tmp_path: Path,
) -> None:
    brokers = brokers_of(cluster, topic_ids=topic_ids)
    numbers = Numbers(cluster, topic)
    numbers.add(MORE)
    rules = {"failOnDataLoss": fail_on_data_loss}
    copy = Copy(spark, topic, brokers | rules, tmp_path)
    try:
        for _ in range(pauses):
            copy.wait_until_copied(numbers.count)
            with paused(cluster, topic):
                numbers.add(MORE)
                copy.wait_until_planned(numbers.count)
                time.sleep(1)
            copy.wait_until_copied(numbers.count)
            cluster.wait_until_in_sync()
    finally:
        copy.stop()


@pytest.mark.soak
@pytest.mark.parametrize("topic_ids", [True, False])
def test_a_task_writes_each_row_once(
    spark: SparkSession, cluster: Cluster, topic: str, topic_ids: bool, pauses: int
) -> None:
    brokers = brokers_of(cluster, topic_ids=topic_ids)
    count = 10_000
    # Many small, slow requests, so that a pause comes during the task.
    small = {"kafka.max.request.size": "4000", "kafka.batch.size": "2000"}
    small["kafka.max.in.flight.requests.per.connection"] = "1"
    for proxy in cluster.proxies.values():
        proxy.strike(PRODUCE, delay(0.05), times=FOR_EVER)
    rows = spark.range(0, count, 1, 1).selectExpr("CAST(id AS STRING) AS value")

    def write() -> None:
        # Sources in Python are found by the session that is active in a thread.
        spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
        writer = rows.write.format("kafkalog").options(**brokers, **small, topic=topic)
        writer.mode("append").save()

    for number in range(pauses):
        before = requests(cluster)
        with ThreadPoolExecutor(1) as thread:
            task = thread.submit(write)
            cluster.wait_until(lambda: requests(cluster).total() > before.total() + 10, "Nothing is written")  # noqa: B023
            with paused(cluster, topic):
                time.sleep(1.5)
            task.result()
        assert len(requests(cluster) - before) > 1, "it ended before the pause"
        written = [int(record.value or b"-1") for record in consume(cluster.bootstrap, topic)]
        assert written[number * count :] == list(range(count))
        cluster.wait_until_in_sync()


def requests(cluster: Cluster) -> Counter[int]:
    """How many requests to write each broker has had so far."""
    return Counter({node: proxy.requests[PRODUCE] for node, proxy in cluster.proxies.items()})
