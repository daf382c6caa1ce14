"""A script that tests kill: a streaming query that writes numbers, 100 a micro-batch, to a log directory.

Usage: number_stream.py ROOT CHECKPOINT TASKS BATCHES
"""

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession


def main(root: str, checkpoint: str, tasks: str, batches: str) -> None:
    """Write so many micro-batches more, each with its rows in ``tasks`` tasks."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").load()
    for _ in range(int(batches)):
        query = (
            numbers.selectExpr("CAST(value AS STRING) AS value")
            .repartition(int(tasks))
            .writeStream.format("kafkalog")
            .option("topic", "numbers")
            .option("numPartitions", "2")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(root)
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
