"""A Spark application that the campaign kills, whole or in part: it copies topics, and reads batches.

Its argument is a folder of its own. Each line that it reads is JSON, a call of one of the
functions below by name; it answers with a line of JSON. The first line it writes is "ready".
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from tests.sessions import local_session

Stream = dict[str, Any]
"""A dictionary as :meth:`tests.campaign.driver.Stream.settings` makes it."""

FIRST_BATCH = 60
"""Seconds for the first micro-batch of a query, which may wait for a broker."""


class Application:
    """The streams that were started, by name, and the thread that reads batches."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, StreamingQuery] = {}
        self._reading = threading.Event()

    def start(self, streams: list[Stream]) -> None:
        """Start streams, one after the other.

        What queries share in Spark changes while their first tasks are sent, so that
        two at once may end with "Illegal size of collection".
        """
        for stream in streams:
            query = self._queries[stream["name"]] = self._writer(stream).start()
            deadline = time.monotonic() + FIRST_BATCH
            while query.isActive and query.lastProgress is None and time.monotonic() < deadline:
                time.sleep(0.05)

    def status(self) -> dict[str, str | None]:
        """Of each stream why it died; None if it lives."""
        return {name: _death(query) for name, query in self._queries.items()}

    def stop(self) -> None:
        """Stop all streams, wherever they are, and batches."""
        self._reading.clear()
        for query in self._queries.values():
            query.stop()
        self._queries.clear()

    def leave(self, name: str) -> None:
        """Stop a stream, wherever it is."""
        if name in self._queries:
            self._queries.pop(name).stop()

    def finish(self, stream: Stream, seconds: float) -> str | None:
        """Run a stream to its end as it is now; why it did not come there."""
        query = self._writer(stream).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(seconds):
                query.stop()
                return f"it does not end within {seconds} s"
        except PySparkException as error:
            return str(error)
        return None

    def read_batches(self, batches: list[Stream], report: str) -> None:
        """Read each of these now and then until :meth:`stop`, and append what was seen to a file of lines."""
        self._reading.set()
        threading.Thread(target=self._read_batches, args=(batches, Path(report)), daemon=True).start()

    def _read_batches(self, batches: list[Stream], report: Path) -> None:
        # Sources in Python are found by the session that is active in a thread.
        self._spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(self._spark._jsparkSession)
        while self._reading.is_set():
            for batch in batches:
                time.sleep(5)
                seen: dict[str, Any] = {"name": batch["name"], "began": time.time()}
                try:
                    frame = self._spark.read.format("kafkalog").options(**batch["source"]).load()
                    seen["rows"] = _counts(frame.selectExpr(batch["value"]))
                except PySparkException as error:
                    seen["error"] = str(error)
                if not self._reading.is_set():
                    return
                with report.open("a") as lines:
                    print(json.dumps(seen), file=lines)

    def _writer(self, stream: Stream) -> Any:
        frame = self._spark.readStream.format("kafkalog").options(**stream["source"]).load()
        return (
            frame.selectExpr("partition", stream["value"])
            .writeStream.format("kafkalog")
            .options(**stream["sink"])
            .option("checkpointLocation", stream["checkpoint"])
            .queryName(stream["name"])
            .trigger(processingTime="1 second")
        )


def _death(query: StreamingQuery) -> str | None:
    if query.isActive:
        return None
    error = query.exception()
    return "it ended" if error is None else str(error)


def _counts(frame: DataFrame) -> dict[str, list[int]]:
    """By topic and partition: rows, distinct offsets, least and greatest offset."""
    parts = frame.selectExpr("split(string(value), ' ') AS its").selectExpr(
        "its[0] || ' ' || its[1] AS source", "bigint(its[2]) AS offset"
    )
    counts = parts.groupBy("source").agg(
        f.count("*"), f.countDistinct("offset"), f.min("offset"), f.max("offset")
    )
    return {row[0]: list(row[1:]) for row in counts.collect()}


def main(folder: str) -> None:
    # A worker that is killed costs a task an attempt, not the query. Tasks that wait for a broker
    # leave others a thread.
    spark = local_session("campaign", Path(folder), master="local[8,4]")
    application = Application(spark)
    print("ready", flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = getattr(application, name)(*arguments)
        except PySparkException as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
