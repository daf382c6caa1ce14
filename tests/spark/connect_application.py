"""A Spark Connect application: batches and streams of directories and brokers, and ``reassemble``.

Its arguments are a folder of its own, the broker's address and a topic. Its last line is JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import SparkSession

from pyspark_kafkalog import LagListener, doctor, reassemble, register, worker_python
from pyspark_kafkalog.spark.features import UNIX_SOCKETS

COUNT = 1000


def values(spark: SparkSession, options: dict[str, str]) -> list[int]:
    rows = spark.read.format("kafkalog").options(**options).load().select("value").collect()
    return sorted(int(row.value) for row in rows)


def exchange(spark: SparkSession, place: dict[str, str], topic: str, checkpoint: str) -> bool:
    """Write a topic, read it, stream it into itself, read it again."""
    rows = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafkalog").options(**place).option("topic", topic).mode("append").save()
    once = values(spark, place | {"subscribe": topic})
    reader = spark.readStream.format("kafkalog").options(**place).option("subscribe", topic)
    query = (
        reader.option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("kafkalog")
        .options(**place)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    twice = values(spark, place | {"subscribe": topic})
    return once == list(range(COUNT)) and twice == sorted(2 * once)


def reassembled(spark: SparkSession, path: str, *, streaming: bool) -> bool:
    """Split 50 messages, and copy them whole: as a batch, or as a stream of small micro-batches."""
    split, whole = f"split-{streaming}", f"whole-{streaming}"
    messages = spark.range(50).selectExpr("CAST(id AS STRING) AS key", "repeat(id % 10, 5000) AS value")
    writer = messages.write.format("kafkalog").option("topic", split)
    writer.options(**{"large.message.enabled": "true", "max.message.segment.bytes": "1000"})
    writer.mode("append").save(path)
    given = {"subscribe": split, "startingOffsets": "earliest"}
    if not streaming:
        rows = reassemble(spark.read.format("kafkalog").options(**given).load(path)).select("key", "value")
        rows.write.format("kafkalog").option("topic", whole).mode("append").save(path)
    else:
        reader = spark.readStream.format("kafkalog").options(**given, maxOffsetsPerTrigger="377")
        query = (
            reassemble(reader.load(path))
            .select("key", "value")
            .writeStream.format("kafkalog")
            .option("topic", whole)
            .option("checkpointLocation", f"{path}-{whole}")
            .trigger(availableNow=True)
            .start(path)
        )
        assert query.awaitTermination(120)
    written = spark.read.format("kafkalog").option("subscribe", whole).load(path)
    rows = written.selectExpr("CAST(CAST(key AS STRING) AS INT) AS key", "CAST(value AS STRING) AS value")
    return sorted(map(tuple, rows.collect())) == [(i, str(i % 10) * 5000) for i in range(50)]


def main(folder: str, bootstrap: str, topic: str) -> None:
    os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.remote("local[2]")
        .config(map=UNIX_SOCKETS)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    whole = [reassembled(spark, f"{folder}/large", streaming=kind) for kind in (False, True)]
    brokers = {"kafka.bootstrap.servers": bootstrap}
    lines: list[str] = []
    listener = LagListener(brokers | {"subscribe": topic}, echo=lines.append)
    spark.streams.addListener(listener)
    try:
        done = {
            "directory": exchange(spark, {"path": f"{folder}/log"}, "t", f"{folder}/checkpoint-1"),
            "broker": exchange(spark, brokers, topic, f"{folder}/checkpoint-2"),
        }
        deadline = time.monotonic() + 30
        while len(lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        done["register"] = str(register(spark))
        done["doctor"] = [(one.what, one.found) for one in doctor(spark, brokers).findings if one.remedy]
        done["registered"] = len(values(spark, brokers | {"subscribe": topic})) == 2 * COUNT
    finally:
        spark.streams.removeListener(listener)  # PySpark's thread for it would keep the process
        spark.stop()
    print(json.dumps({"done": done | {"reassembled": whole}, "lag": lines}))


if __name__ == "__main__":
    main(*sys.argv[1:])
