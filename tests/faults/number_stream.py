"""A Spark application that tests kill: it writes streams of numbers, 100 a micro-batch, to log directories.

Its argument is a folder of its own. Each line that it reads, ``<folder> <tasks>``, is a run of the query
of ``folder/checkpoint``: a micro-batch, with its rows in so many tasks, and before it the one that is not
committed. It answers with "done" or "failed".
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.sessions import local_session


def run(spark: SparkSession, folder: str, tasks: int) -> None:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").load()
    query = (
        numbers.selectExpr("CAST(value AS STRING) AS value")
        .repartition(tasks)
        .writeStream.format("kafkalog")
        .option("topic", "numbers")
        .option("numPartitions", "2")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/log")
    )
    query.awaitTermination()


def main() -> None:
    spark = local_session("numbers", Path(sys.argv[1]))
    for line in sys.stdin:
        folder, tasks = line.split()
        try:
            run(spark, folder, int(tasks))
        except StreamingQueryException as error:
            print(error, file=sys.stderr)
            print("failed", flush=True)
        else:
            print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
