"""The safe offsets of a running query, and a step of another query that begins there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import OptionError, TopicPartition, connect, reassemble
from tests.large_log import Message

T0 = TopicPartition("t", 0)
MESSAGE = Message(7, 3)


def test_a_query_is_where_its_last_micro_batch_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint = str(tmp_path / "logs"), str(tmp_path / "c")
    kafka = connect(root)
    kafka.write(pa.table({"value": [b"x", MESSAGE.segment(0), b"y"]}), "t")
    records = spark.readStream.format("kafkalog").option("subscribe", "t")
    query = (
        records.option("large.message.enabled", "true")
        .option("startingOffsets", "earliest")
        .load(root)
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
        assert kafka.groups.safe_offsets(query) == kafka.groups.safe_offsets(checkpoint) == {T0: 1}
        kafka.write(pa.table({"value": [MESSAGE.segment(1), MESSAGE.segment(2)]}), "t")
        query.processAllAvailable()
        assert kafka.groups.safe_offsets(query) == kafka.groups.safe_offsets(checkpoint) == {T0: 5}
    finally:
        query.stop()
    assert kafka.groups.safe_offsets(query) == {T0: 5}
    start = json.dumps({"t": {"0": kafka.groups.safe_offsets({T0: 4})[T0]}})
    again = spark.read.format("kafkalog").options(subscribe="t", startingOffsets=start).load(root)
    assert MESSAGE.value in [bytes(row.value) for row in reassemble(again).collect()]


def test_a_query_without_a_micro_batch_has_none(spark: SparkSession, tmp_path: Path) -> None:
    kafka = connect(str(tmp_path / "logs"))
    kafka.write(pa.table({"value": [b"x"]}), "t")
    query = spark.readStream.format("rate").load().writeStream.format("noop").queryName("numbers")
    running = query.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        with pytest.raises(OptionError, match="Query numbers has completed no micro-batch that reads topics"):
            kafka.groups.safe_offsets(running)
    finally:
        running.stop()
