"""Reads topics in tasks, plans micro-batches of them, or looks for their last record; prints the peak."""

from __future__ import annotations

import json
import re
import resource
import sys
from pathlib import Path

from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from pyspark_kafkalog import connect
from pyspark_kafkalog.spark.reader import LogBatchReader
from pyspark_kafkalog.spark.stream_reader import LogStreamReader
from pyspark_kafkalog.tools.records.select import RecordSelection

ADDRESSES = 1 << 30
SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
    ]
)


def main(how: str, options: dict[str, str], ranges: dict[str, list[dict[str, int]]]) -> None:
    """``ranges`` has the start and end offsets of each topic."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    rows = largest = 0
    for topic, offsets in ranges.items():
        start, end = ({topic: found} for found in offsets)
        given = {**options, "subscribe": topic, "startingOffsets": json.dumps(start)}
        if how == "tail":
            connect(options).records.select(topic, RecordSelection(tail=1)).read_all()
            continue
        if how == "plan":
            assert len(LogStreamReader(given, SCHEMA, parallelism=1).partitions(start, end)) == 1
            continue
        batch = LogBatchReader({**given, "endingOffsets": json.dumps(end)}, SCHEMA, parallelism=1)
        (task,) = batch.partitions()
        for arrow_batch in batch.read(task):
            rows += arrow_batch.num_rows
            largest = max(largest, arrow_batch.nbytes)
    status = Path("/proc/self/status").read_text()
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    print(json.dumps({"rows": rows, "largest": largest, "peak": int(peak) << 10}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
