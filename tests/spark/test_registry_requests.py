"""Requests to registries, counted at the server: of tasks and micro-batches, and of workers that end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import connect
from tests.confluent import body, record
from tests.registries import FormatRegistry

pytestmark = pytest.mark.broker
OLD, NEW = record("Order", id="long"), record("Order", id="long", name=("string", "none"))
_EACH = {"confluent": 1, "glue": 1, "apicurio": 3}
"""The requests for one schema: Apicurio has its kind and its references elsewhere."""
_WORKERS = 4
"""More than a session of two cores keeps."""


@contextmanager
def reuse(spark: SparkSession, *, is_on: bool) -> Iterator[None]:
    """Within it workers run further tasks after their first, or don't: Spark asks at each stage."""
    assert spark._jvm is not None
    conf = spark._jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.python.worker.reuse", str(is_on).lower())
    try:
        yield
    finally:
        conf.set("spark.python.worker.reuse", "true")


@pytest.mark.long
@pytest.mark.parametrize("is_on", [True, False], ids=["reuse", "no reuse"])
@pytest.mark.parametrize("of", ["glue", "confluent", "apicurio"])
def test_requests(
    spark: SparkSession, registry_of: Callable[[str], FormatRegistry], tmp_path: Path, of: str, is_on: bool
) -> None:
    """None for the schema of the reader, and one in each worker for that of another version."""
    root, topic = str(tmp_path / "log"), f"orders-{uuid.uuid4().hex[:8]}"
    found = registry_of(of)
    old = found.register(topic, OLD, "AVRO")
    new = found.register(topic, NEW, "AVRO")
    olds, news = (
        [found.framed(key, body(schema, {"id": n, "name": "x"}))[0] for n in range(120)]
        for key, schema in ((old, OLD), (new, NEW))
    )
    connect(root).write(pa.table({"value": news}), topic)
    given = {"value.format": f"{of}-avro", **found.options, "subscribe": topic}

    def counted() -> int:
        made = [*found.relay.requests]
        found.relay.requests.clear()
        assert all(str(old) in each for each in made), made
        assert len(made) % _EACH[of] == 0
        return len(made) // _EACH[of]

    def loaded(parts: int = 1) -> DataFrame:
        reader = spark.read.format("kafkalog").options(**given, minPartitions=parts)
        before = len(found.relay.requests)
        frame = reader.load(root)
        assert len(found.relay.requests) <= before + 1 + _EACH[of]
        del found.relay.requests[before:]
        return frame.where("value.id >= 0")

    def streamed(run: str) -> None:
        reader = spark.readStream.format("kafkalog").options(**given, maxOffsetsPerTrigger=run)
        before = len(found.relay.requests)
        frame = reader.option("startingOffsets", "earliest").load(root)
        del found.relay.requests[before:]
        query = (
            frame.select("value.id")
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / run))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with reuse(spark, is_on=is_on):
        assert loaded(8).count() == 120
        streamed("40")
        assert counted() == 0
        connect(root).write(pa.table({"value": olds}), topic)
        assert (loaded().count(), loaded().count(), loaded(8).count()) == (240, 240, 240)
        of_batches = counted()
        streamed("8")
        of_stream = counted()
    if is_on:
        assert 1 <= of_batches + of_stream <= _WORKERS
    else:
        assert (of_batches, of_stream) == (2 + 4, 15)
