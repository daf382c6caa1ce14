"""A query of a shared group that copies a topic exactly once, without Spark: tests stop and kill it.

It plans with the stream reader, as Spark's planner does, keeps Spark's logs, and has a process of its own for
each commit, as Spark's sink has. Its arguments are a folder, and JSON with the options of source and sink.
A commit that fails ends it, with exit code 1.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import uuid
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import QueryBatch, TaskAttempt
from pyspark_kafkalog.options.settings import WriteOptions, write_options
from pyspark_kafkalog.places import open_sink
from pyspark_kafkalog.spark import writer
from pyspark_kafkalog.spark.running_query import RunningQuery
from pyspark_kafkalog.spark.stream_reader import LogStreamReader
from pyspark_kafkalog.stream.checkpoint import QueryLog
from pyspark_kafkalog.write.routing import Router
from pyspark_kafkalog.write.rows import write_rows


class Copier:
    """One run of the query."""

    schema = StructType([StructField("value", BinaryType())])

    def __init__(self, folder: Path, source: dict[str, str], sink: dict[str, str]) -> None:
        self.folder, self.sink_options = folder, sink
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        metadata = folder / "metadata"
        if not metadata.exists():
            self.put(metadata, json.dumps({"id": str(uuid.uuid4())}))
        self.query_id = json.loads(metadata.read_text())["id"]
        self.run_id = str(uuid.uuid4())
        self.sink, asked = Pipe()
        if os.fork() == 0:
            self.sink.close()
            self.serve(asked)
            os._exit(0)
        asked.close()
        self.reader = LogStreamReader(source, self.schema)

    def put(self, file: Path, text: str) -> None:
        """Write a file as a whole, as Spark does."""
        new = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        new.write_text(text)
        new.rename(file)

    def newest(self, name: str) -> int:
        return max(
            (int(file.name) for file in (self.folder / name).iterdir() if file.name.isdecimal()), default=-1
        )

    def end_of(self, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "offsets" / str(batch)).read_text().splitlines()[2])
        return found

    def run(self) -> None:
        planned, complete = self.newest("offsets"), self.newest("commits")
        while True:
            start = self.reader.initialOffset() if complete < 0 else self.end_of(complete)
            if planned == complete:
                end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
                if end == start:
                    time.sleep(0.02)
                    continue
                planned += 1
                self.put(self.folder / "offsets" / str(planned), f"v1\n{{}}\n{json.dumps(end)}\n")
            self.batch(planned, start, self.end_of(planned))
            complete = planned
            self.put(self.folder / "commits" / str(complete), "v1\n{}\n")

    def batch(self, number: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        tasks = self.reader.partitions(start, end)
        splits = [split for task in tasks for split in task.splits]
        logging.info(
            "micro-batch %d reads %s", number, [f"{s.partition.partition}:{s.offsets}" for s in splits]
        )
        for task in tasks:
            QueryLog(str(self.folder)).note_holder(self.run_id, task.holder)
        rows = [table for task in tasks for table in self.reader.read(task)]
        try:
            self.sink.send((number, self.written(rows)))
            failed = self.sink.recv()
        except (EOFError, OSError):
            failed = "its process is dead"
        if failed:
            print(f"micro-batch {number}: {failed}", flush=True)
            sys.exit(1)

    def written(self, rows: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """What the sink gets of rows that were read."""
        return rows

    def serve(self, asked: Connection) -> None:
        """Stage and commit what the planner sends, in a process without the reader's threads."""
        options = write_options(self.sink_options)
        with suppress(EOFError, OSError):
            while True:
                number, rows = asked.recv()
                asked.send(self.commit(number, rows, options))

    def commit(self, number: int, rows: list[pa.RecordBatch], options: WriteOptions) -> str:
        batch, sink = QueryBatch(self.query_id, number), open_sink(options)
        query = RunningQuery(self.query_id, number, "", run_id=self.run_id)
        group = options.transactions and options.transactions.source_group
        try:
            with sink.open(batch, TaskAttempt(0, 0, 0)) as task:
                write_rows(rows, Router.to_sink(task, options), task)
                finished = task.finish()
            plan = writer._plan(str(self.folder), query, group=group, keeps=True)
            sink.commit(batch, [finished], plan)
        except KafkaLogError as e:
            return f"{type(e).__name__} {e}"
        return ""


def main(kind: type[Copier] = Copier) -> None:
    folder, given = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    options = json.loads(given)
    copier = kind(Path(folder), options["source"], options["sink"])
    try:
        copier.run()
    except KafkaLogError as e:
        print(f"{type(e).__name__} {e}", flush=True)
        sys.exit(1)
    finally:
        copier.reader.stop()


if __name__ == "__main__":
    main()
