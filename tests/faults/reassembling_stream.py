"""A Spark application that tests kill: its streams reassemble large messages between log directories.

Its argument is a folder of its own. Each line that it reads, ``<folder> <way> <limit>``, runs the
query of ``folder/checkpoint``, with so many offsets to a micro-batch, until it has read all. It
answers with "started", and then "done" or "failed". A way is ``source`` or ``reassemble``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafkalog import reassemble
from tests.faults.answering import answer_at_the_end_of
from tests.sessions import local_session


def start(spark: SparkSession, folder: str, way: str, limit: str) -> StreamingQuery:
    frame = (
        spark.readStream.format("kafkalog")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .option("large.message.enabled", str(way == "source").lower())
        .load(f"{folder}/source")
    )
    if way == "reassemble":
        frame = reassemble(frame)
    return (
        frame.select("value", "partition")
        .writeStream.format("kafkalog")
        .option("topic", "messages")
        .option("numPartitions", "2")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/log")
    )


def start_again(spark: SparkSession, *arguments: str) -> StreamingQuery:
    """Spark finds that an idle Python worker was killed when it next uses it."""
    for _ in range(4):
        try:
            return start(spark, *arguments)
        except (PySparkException, Py4JError) as error:
            print(error, file=sys.stderr)
    return start(spark, *arguments)


def main() -> None:
    spark = local_session("reassembling", Path(sys.argv[1]))
    for line in sys.stdin:
        query = start_again(spark, *line.split())
        print("started", flush=True)
        answer_at_the_end_of([query])
    spark.stop()


if __name__ == "__main__":
    main()
