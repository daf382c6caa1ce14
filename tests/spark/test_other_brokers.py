"""Batches and streams to and from brokers that ask who their clients are, and one of Kafka 2.8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.producing import unused_topic
from tests.kafka_service import KafkaService
from tests.security.logins import Options, certificate_login, password_login

pytestmark = pytest.mark.broker

COUNT = 3000
KINDS: dict[str, tuple[str, Callable[..., Options]]] = {
    "SASL over TLS": ("secure_broker", lambda broker: password_login(broker, "SASL_SSL", "SCRAM-SHA-512")),
    "certificates": ("secure_broker", certificate_login),
    "2.8": ("old_broker", lambda broker: {"kafka.bootstrap.servers": broker.bootstrap}),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("fixture", "login"),
    [
        pytest.param(*kind, id=name, marks=pytest.mark.soak if name == "certificates" else ())
        for name, kind in KINDS.items()
    ],
)
def test_batches_and_streams(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    fixture: str,
    login: Callable[..., Options],
) -> None:
    broker: KafkaService = request.getfixturevalue(fixture)
    options = login(broker)
    first, second = unused_topic(), unused_topic()
    for topic in (first, second):
        broker.make_topic(topic, 2)

    def values(topic: str) -> list[int]:
        frame = spark.read.format("kafkalog").options(**options).option("subscribe", topic).load()
        return sorted(int(row.value) for row in frame.select("value").collect())

    rows = spark.range(0, COUNT, 1, 3).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("kafkalog").options(**options).option("topic", first)
    writer.option("kafka.compression.type", "lz4").mode("append").save()
    assert values(first) == list(range(COUNT))

    reader = spark.readStream.format("kafkalog").options(**options).option("subscribe", first)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", COUNT // 2)
    stream = reader.load().selectExpr("key", "value").writeStream.format("kafkalog").options(**options)
    query = (
        stream.option("topic", second)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) >= 2
    assert values(second) == list(range(COUNT))
