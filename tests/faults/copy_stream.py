"""A script that tests kill: a streaming query that copies one log directory to another, to its end.

Usage: copy_stream.py SOURCE SINK CHECKPOINT SPLITS
"""

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession


def main(source: str, sink: str, checkpoint: str, splits: str) -> None:
    """Copy ``source`` to topic ``copy`` in ``sink``, 100 offsets a micro-batch."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    stream = (
        spark.readStream.format("kafkalog")
        .option("subscribe", "numbers")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .option("minPartitions", splits)
        .load(source)
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("kafkalog")
        .option("topic", "copy")
        .option("numPartitions", "2")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(sink)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
