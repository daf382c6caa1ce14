"""A Spark application that tests kill: it writes streams of numbers, 100 a micro-batch, to log directories.

Its argument is a folder of its own. Each line that it reads, ``<folder> <tasks>``, is a run of the query
of ``folder/checkpoint``: a micro-batch, with its rows in so many tasks, and before it the one that is not
committed. It answers with "done" or "failed".
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.faults.answering import answer_at_the_end_of
from tests.sessions import local_session


def start(spark: SparkSession, folder: str, tasks: int) -> StreamingQuery:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").load()
    return (
        numbers.selectExpr("CAST(value AS STRING) AS value")
        .repartition(tasks)
        .writeStream.format("kafkalog")
        .option("topic", "numbers")
        .option("numPartitions", "2")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/log")
    )


def main() -> None:
    spark = local_session("numbers", Path(sys.argv[1]))
    for line in sys.stdin:
        folder, tasks = line.split()
        answer_at_the_end_of([start(spark, folder, int(tasks))])
    spark.stop()


if __name__ == "__main__":
    main()
