"""A Spark Connect application: batches and streams of a directory and of a broker.

Its arguments are a folder of its own, the broker's address and a topic. Its last line is JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from pyspark.sql import SparkSession

from pyspark_kafkalog import DefaultSource, LagListener

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


def main(folder: str, bootstrap: str, topic: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
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
        spark.dataSource.register(DefaultSource)
        done["registered"] = len(values(spark, brokers | {"subscribe": topic})) == 2 * COUNT
    finally:
        spark.streams.removeListener(listener)  # PySpark's thread for it would keep the process
        spark.stop()
    print(json.dumps({"done": done, "lag": lines}))


if __name__ == "__main__":
    main(*sys.argv[1:])
