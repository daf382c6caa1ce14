"""Records as Arrow, through DuckDB and Polars: the rows that Spark reads of the same topic."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pyspark_kafkalog import connect
from tests.kafka import Broker

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
polars = pytest.importorskip("polars", reason="Polars is not installed")

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
COLUMNS = ("partition", "offset", "key", "value")
ORDER = ("partition", "offset")
READ = {"large.message.enabled": "true", "kafka.isolation.level": "read_committed"}

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.broker]


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> str:
    """Records of every compression, large messages in segments, and transactions that were aborted."""
    name = f"arrow-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 3)
    for compression in COMPRESSIONS:
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": compression}
        producer = Producer(settings)
        for number in range(3000):
            producer.produce(name, b"%s %d" % (compression.encode(), number), b"%d" % number)
        producer.flush()
        transactional = Producer({**settings, "transactional.id": uuid.uuid4().hex})
        transactional.init_transactions()
        for ends in (transactional.abort_transaction, transactional.commit_transaction):
            transactional.begin_transaction()
            for number in range(100):
                transactional.produce(name, ends.__name__.encode(), b"%d" % number)
            ends()
    large = spark.range(20).selectExpr(
        "cast(id as string) as key", "repeat(cast(id as string), 100000) as value"
    )
    writer = large.write.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
    options = {"topic": name, "large.message.enabled": "true", "max.message.segment.bytes": "30000"}
    writer.options(**options).mode("append").save()
    return name


def digest(rows: Iterable[tuple[object, ...]]) -> str:
    found = hashlib.sha256()
    for row in rows:
        found.update(repr(row).encode())
    return found.hexdigest()


def test_engines_find_what_spark_finds(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = (
        spark.read.format("kafkalog")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **READ})
        .load()
        .select(*COLUMNS)
        .orderBy(*ORDER)
    )
    rows = [
        (row.partition, row.offset, None if row.key is None else bytes(row.key), bytes(row.value))
        for row in frame.collect()
    ]
    assert len(rows) == len(COMPRESSIONS) * 3100 + 20
    expected = digest(rows)
    kafka = connect(broker.bootstrap)
    records = kafka.read(topic, columns=COLUMNS, options=READ)  # DuckDB finds it by its name
    assert records.schema.names == [*COLUMNS]
    by_duckdb = duckdb.sql('select * from records order by "partition", "offset"').fetchall()
    assert digest(by_duckdb) == expected
    by_polars = polars.from_arrow(kafka.read(topic, columns=COLUMNS, options=READ)).sort(*ORDER)
    assert digest(by_polars.rows()) == expected
    parts = kafka.plan(topic, columns=COLUMNS, options={**READ, "minPartitions": "12"})
    assert len(parts) >= 12
    together = polars.concat([polars.from_arrow(part.read()) for part in parts]).sort(*ORDER)
    assert digest(together.rows()) == expected
