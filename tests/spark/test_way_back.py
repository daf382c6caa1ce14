"""A query changes over to ``kafkalog`` and back to ``kafka`` on one checkpoint, as docs/operate.md says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_kafkalog import connect
from tests.kafka import Broker

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(1200)]


def send(broker: Broker, topic: str, first: int, count: int = 10) -> None:
    values = [b"%d" % number for number in range(first, first + count)]
    connect(broker.bootstrap).write(pa.table({"value": values}), topic)


def values(broker: Broker, topic: str) -> Counter[int]:
    place = connect({"kafka.bootstrap.servers": broker.bootstrap, "kafka.isolation.level": "read_committed"})
    return Counter(int(row["value"]) for row in place.read(topic, columns=["value"]).read_all().to_pylist())


class Query:
    """A copy from a topic to another one, of which each run may have another format."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, name: str) -> None:
        self.source, self.target, self.group = f"{name}-source", f"{name}-target", f"{name}-group"
        self._spark = spark
        self._brokers = {"kafka.bootstrap.servers": broker.bootstrap}
        self._checkpoint = {"checkpointLocation": str(folder / "checkpoint")}
        for topic in self.source, self.target:
            broker.create_topic(topic, 2)

    def run(self, source: str, sink: str, sink_options: dict[str, str] | None = None) -> None:
        options = {**self._brokers, "subscribe": self.source, "startingOffsets": "earliest"}
        options |= {"kafka.group.id": self.group, **self._checkpoint}  # of which kafka makes nothing
        stream = self._spark.readStream.format(source).options(**options).load().select("key", "value")
        writer = stream.writeStream.format(sink).options(
            **self._brokers, **self._checkpoint, topic=self.target
        )
        writer = writer.options(**(sink_options or {})).trigger(availableNow=True)
        writer.start().awaitTermination()


def test_each_format_goes_on_where_the_other_one_was(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    query = Query(spark, broker, tmp_path, "way-back")
    for number, format in enumerate(["kafka", "kafkalog", "kafka", "kafkalog"]):
        send(broker, query.source, number * 10)
        query.run(format, format)
        assert values(broker, query.target) == Counter(range(number * 10 + 10)), format
        if number:
            (lag,) = connect(broker.bootstrap).groups.lags([query.group])
            assert lag.lag == (0 if format == "kafkalog" else 10)


@pytest.mark.long
def test_an_exactly_once_sink_does_not_go_on_behind_another(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    once = {"delivery.guarantee": "exactly-once"}
    query = Query(spark, broker, tmp_path, "way-back-once")
    send(broker, query.source, 0)
    query.run("kafkalog", "kafkalog", once)
    send(broker, query.source, 10)
    query.run("kafka", "kafka", once)
    send(broker, query.source, 20)
    with pytest.raises(StreamingQueryException, match="failOnMissingMarker"):
        query.run("kafkalog", "kafkalog", once)
    assert values(broker, query.target) == Counter(range(20))
    query.run("kafkalog", "kafkalog", {**once, "failOnMissingMarker": "false"})
    send(broker, query.source, 30)
    query.run("kafkalog", "kafkalog", once)
    assert values(broker, query.target) == Counter(range(40))


@pytest.mark.long
@pytest.mark.parametrize(("begins", "goes_on"), [("kafkalog", "kafka"), ("kafka", "kafkalog")])
def test_a_micro_batch_that_is_not_complete_is_written_again(
    spark: SparkSession, broker: Broker, tmp_path: Path, begins: str, goes_on: str
) -> None:
    once = {"delivery.guarantee": "exactly-once"}
    query = Query(spark, broker, tmp_path, f"way-back-from-{begins}")
    send(broker, query.source, 0)
    query.run("kafkalog", "kafkalog", once)
    send(broker, query.source, 10)
    query.run(begins, begins, once)
    # As if the driver was killed before Spark noted that the micro-batch is complete.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    query.run(goes_on, goes_on, once)
    assert values(broker, query.target) == Counter([*range(10), *range(10, 20), *range(10, 20)])
