"""An application that tests kill: its streams copy topics to log directories and commit to their groups.

Its argument is a file of JSON: the options of each stream's ``source``, its ``checkpoint`` and its
``path``. A line ``small`` runs all of them at once, 20 records a micro-batch; ``all`` to their ends.
It is answered by "started", and by "done" or "failed" once none of them runs any more.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery


def start(spark: SparkSession, stream: dict[str, Any], *, small: bool) -> StreamingQuery:
    limit = {"maxOffsetsPerTrigger": "20"} if small else {}
    frame = spark.readStream.format("kafkalog").options(**stream["source"], **limit).load()
    writer = (
        frame.select("value")
        .writeStream.format("kafkalog")
        .option("topic", "numbers")
        .option("checkpointLocation", stream["checkpoint"])
    )
    if not small:
        writer = writer.trigger(availableNow=True)
    return writer.start(stream["path"])


def main() -> None:
    streams = json.loads(Path(sys.argv[1]).read_text())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    for line in sys.stdin:
        small = line.strip() == "small"
        queries = [start(spark, stream, small=small) for stream in streams]
        print("started", flush=True)
        answer = "done"
        for query in queries:
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                print(error, file=sys.stderr)
                answer = "failed"
        print(answer, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
