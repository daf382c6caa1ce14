"""An application that tests kill: its streams copy topics to log directories and commit to their groups.

Its argument is a file of JSON: the options of each stream's ``source``, its ``checkpoint`` and its
``path``. A line ``small`` runs all of them at once, 20 records a micro-batch; ``all`` to their ends.
It is answered by "started", and by "done" or "failed" once none of them runs any more.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.faults.answering import answer_at_the_end_of
from tests.sessions import local_session


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


def start_all(spark: SparkSession, streams: list[dict[str, Any]], *, small: bool) -> list[StreamingQuery]:
    """The first one starts alone: state that queries share in Spark changes while their first tasks are sent.

    Spark's own map of a data source's environment gets its entries then, and a task of
    another query that is being serialised would end with "Illegal size of collection".
    """
    first = start(spark, streams[0], small=small)
    while first.isActive and first.lastProgress is None:
        time.sleep(0.02)
    return [first, *(start(spark, stream, small=small) for stream in streams[1:])]


def main() -> None:
    streams = json.loads(Path(sys.argv[1]).read_text())
    spark = local_session("committing streams", Path(sys.argv[1]).parent)
    for line in sys.stdin:
        small = line.strip() == "small"
        queries = start_all(spark, streams, small=small)
        print("started", flush=True)
        answer_at_the_end_of(queries)
    spark.stop()


if __name__ == "__main__":
    main()
