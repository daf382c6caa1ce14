"""A stream from topic to topic while a cluster suffers one fault after another."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.broker.producing import connected, consume, produce, rows, unused_topic
from tests.kafka_cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.soak]

STEP = 500


class Source:
    """Writes numbers to a topic in the background, STEP at a time, until it is told to stop."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.count = 0
        self._cluster = cluster
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        ours = connected(self._cluster.bootstrap)
        while not self._over.wait(0.2):
            numbers = range(self.count, self.count + STEP)
            partitions = pa.array([number % 3 for number in numbers], pa.int32())
            produce(
                ours, self._topic, [rows(value=[b"%d" % number for number in numbers], partition=partitions)]
            )
            self.count += STEP
        ours.close()

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join()


def storm(cluster: Cluster, topics: tuple[str, str]) -> Iterator[str]:
    """Each step does some harm, and names it; all is repaired before the next."""
    for topic in topics:
        for partition in range(3):
            cluster.move_leader(topic, partition)
        yield f"the leaders of {topic} moved"
    for proxy in cluster.proxies.values():
        proxy.reset_all()
    yield "all connections were reset"
    victim = cluster.leader(topics[0])
    cluster.kill(victim)
    yield f"broker {victim} was killed"
    cluster.restart(victim)
    yield f"broker {victim} came back"
    pid = cluster.brokers[cluster.leader(topics[1])].pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(pid, signal.SIGCONT)
    yield "a broker paused"
    for proxy in cluster.proxies.values():
        proxy.hold()
    time.sleep(2)
    for proxy in cluster.proxies.values():
        proxy.heal()
    yield "the network was dead"


@contextlib.contextmanager
def copying(
    spark: SparkSession, bootstrap: str, topics: tuple[str, str], folder: Path
) -> Iterator[StreamingQuery]:
    brokers = {"kafka.bootstrap.servers": bootstrap, "kafka.request.timeout.ms": "3000"}
    source, sink = topics
    query = (
        spark.readStream.format("kafkalog")
        .options(**brokers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("kafkalog")
        .options(**brokers)
        .option("topic", sink)
        .option("checkpointLocation", str(folder))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def test_a_storm(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topics = unused_topic(), unused_topic()
    for topic in topics:
        cluster.create_topic(topic, 3)
    source = Source(cluster, topics[0])
    with copying(spark, cluster.proxied_bootstrap, topics, tmp_path) as query:
        source.start()
        try:
            for harm in storm(cluster, topics):
                copied = query.lastProgress.batchId if query.lastProgress else -1
                deadline = time.monotonic() + 90
                while query.lastProgress is None or query.lastProgress.batchId < copied + 2:
                    assert query.exception() is None, f"after {harm}: {query.exception()}"
                    assert time.monotonic() < deadline, f"no batch ends after {harm}"
                    time.sleep(0.1)
        finally:
            source.finish()
        query.processAllAvailable()
    copies = sorted(int(record.value or b"-1") for record in consume(cluster.bootstrap, topics[1]))
    assert copies == list(range(source.count))
