"""A Spark application with its own executors, whose parts tests kill: it reads and writes topics.

Usage: broker_application.py MASTER. Each line that it reads is JSON, a call of one of
the functions below by name; it answers with a line of JSON, the result or {"error": text}.
The first line it writes is "ready".
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_kafkalog import worker_python

Options = dict[str, str]


def read(spark: SparkSession, options: Options) -> list[int]:
    """The numbers in a topic."""
    frame = spark.read.format("kafkalog").options(**options).load()
    return [int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect()]


def write(spark: SparkSession, options: Options, count: int, tasks: int) -> None:
    """Write the numbers below ``count`` to a topic."""
    numbers = spark.range(0, count, 1, tasks).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format("kafkalog").options(**options).mode("append").save()


def stream(spark: SparkSession, options: Options, folder: str) -> list[int]:
    """The content of the file sink after all of a topic was streamed there."""
    query = (
        spark.readStream.format("kafkalog")
        .options(**options)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [int(row.value) for row in spark.read.parquet(f"{folder}/rows").collect()]


def main(master: str) -> None:
    os.environ["PYSPARK_PYTHON"] = worker_python()
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Executors come back at once, and take tasks although others failed there.
        .config("spark.excludeOnFailure.enabled", "false")
        .getOrCreate()
    )
    print("ready", flush=True)
    functions: dict[str, Any] = {"read": read, "write": write, "stream": stream}
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            result = functions[name](spark, *arguments)
        except PySparkException as error:
            result = {"error": str(error)}
        print(json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
