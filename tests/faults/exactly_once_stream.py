"""A Spark application that tests kill: it writes numbers to brokers exactly once, 100 a micro-batch.

Its arguments are a folder of its own and a master. Each line that it reads is JSON: the ``folder`` of a
query's checkpoint, the sink's ``options``, in how many ``tasks`` the rows come, and whether they are
``shuffled``. It is a run of the query: a micro-batch, and before it the one that is not committed. It answers
with "done" or "failed".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.faults.answering import answer_at_the_end_of
from tests.sessions import local_session

ROWS = 100
SIZE = 3000
"""Bytes of a row, so that a task stages a file."""


def start(spark: SparkSession, run: dict[str, Any]) -> StreamingQuery:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(ROWS)).load()
    if run["shuffled"]:
        numbers = numbers.repartition(3, "timestamp").repartition(5)
    return (
        numbers.selectExpr(f"lpad(CAST(value AS STRING), {SIZE}, '0') AS value")
        .repartition(run["tasks"])
        .writeStream.format("kafkalog")
        .options(**run["options"])
        .option("delivery.guarantee", "exactly-once")
        .option("checkpointLocation", f"{run['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


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
