"""A Spark application that tests kill: it writes numbers to brokers exactly once, 100 a micro-batch.

Its arguments are a folder of its own and a master. Each line that it reads is JSON: the ``folder`` of a
query's checkpoint, the sink's ``options``, in how many ``tasks`` the rows come, and whether they are
``shuffled``. With a ``source``, the options of a reader, the numbers are those in its JSON, and what can't be
decoded goes to the topic ``dead``. It is a run of the query: a micro-batch, and before it the one that is not
committed. It answers with "done" or "failed".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import col, lit, lpad
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafkalog import dead_letters
from tests.faults.answering import answer_at_the_end_of
from tests.sessions import local_session

ROWS = 100
SIZE = 3000
"""Bytes of a row, so that a task stages a file."""


def start(spark: SparkSession, run: dict[str, Any]) -> StreamingQuery:
    if "source" in run:
        found = spark.readStream.format("kafkalog").options(**run["source"]).load()
        good = {"topic": lit(run["good"]), "value": _padded("value.n")}
        rows = dead_letters(found, run["dead"], good)
    else:
        numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(ROWS)).load()
        if run["shuffled"]:
            numbers = numbers.repartition(3, "timestamp").repartition(5)
        rows = numbers.select(_padded("value").alias("value"))
    return (
        rows.repartition(run["tasks"])
        .writeStream.format("kafkalog")
        .options(**run["options"])
        .option("delivery.guarantee", "exactly-once")
        .option("checkpointLocation", f"{run['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def _padded(number: str) -> Column:
    return lpad(col(number).cast("string"), SIZE, "0")


def main() -> None:
    folder, master = sys.argv[1:]
    conf = {"spark.excludeOnFailure.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = local_session("exactly once", Path(folder), conf=conf, master=master)
    print("ready", flush=True)
    for line in sys.stdin:
        answer_at_the_end_of([start(spark, json.loads(line))])
    spark.stop()


if __name__ == "__main__":
    main()
