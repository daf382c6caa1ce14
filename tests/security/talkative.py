"""A Spark application that says all it can, at DEBUG, of what it does with secret options.

It reads one line: JSON with a folder, a topic, and options that work and that fail. All that it
writes is below the folder, or on stdout and stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import LagListener, register

Options = dict[str, str]


def session(folder: str) -> SparkSession:
    # It prints each call of PySpark to the JVM, option() with the user's own words among them.
    logging.getLogger("py4j").setLevel(logging.INFO)
    os.mkdir(f"{folder}/events")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"{folder}/events",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("DEBUG")
    register(spark)
    return spark


def explain(frame: DataFrame) -> None:
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode)


def batch(spark: SparkSession, topic: str, options: Options) -> int:
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafkalog").options(**options).option("topic", topic).mode("append").save()
    frame = spark.read.format("kafkalog").options(**options).option("subscribe", topic).load()
    explain(frame)
    frame.createOrReplaceTempView("records")
    print(spark.sql("SHOW TABLES").collect())
    return frame.filter("partition = 0").count()


def stream(spark: SparkSession, topic: str, options: Options, checkpoint: str) -> None:
    """From the topic to itself."""
    listener = LagListener()
    spark.streams.addListener(listener)
    query = (
        spark.readStream.format("kafkalog")
        .options(**options)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("kafkalog")
        .options(**options)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    print(query.status, [progress.json for progress in query.recentProgress])
    spark.streams.removeListener(listener)


def fail(spark: SparkSession, topic: str, options: Options) -> None:
    """By a batch read and by a stream, and print what there is of the error."""
    errors: list[Any] = []
    try:
        spark.read.format("kafkalog").options(**options).option("subscribe", topic).load().count()
    except PySparkException as error:
        traceback.print_exc()
        errors.append(error)
    try:
        frame = spark.readStream.format("kafkalog").options(**options).option("subscribe", topic).load()
        frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    except PySparkException as error:
        traceback.print_exc()
        errors.append(error)
    assert len(errors) == 2, "both were to fail"
    for error in errors:
        print(error, repr(error), error.getCondition(), error.getMessageParameters())


def main() -> None:
    task = json.loads(sys.stdin.readline())
    folder, topic = task["folder"], task["topic"]
    spark = session(folder)
    for number, options in enumerate(task["works"]):
        assert batch(spark, topic, options) > 0
        stream(spark, topic, options, f"{folder}/checkpoint-{number}")
    for options in task["fails"]:
        fail(spark, topic, options)
    spark.stop()
    print("all done")


if __name__ == "__main__":
    main()
