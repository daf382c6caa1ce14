"""``view=batches``: 10 GB of record batches of 16 KiB, in segments of 1 GB, from a warm page cache.

By ``batches`` in one process, and through Spark; with checksums verified, and headers alone. A plain
read is what a loop of ``readinto`` takes for the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_kafkalog import connect
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.read_kernels import BASE_OFFSET, LAST_OFFSET, POSITION
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.codec.write_kernels import put_ints
from pyspark_kafkalog.extensions.views.batch_headers import batches
from pyspark_kafkalog.model import EncodeSettings, LogSettings, Origin, Slice, TopicPartition
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from tests.benchmarks.measure import arguments, event, print_ratio, seconds_by_turns
from tests.benchmarks.session import scratch_folder
from tests.sessions import local_session

BYTES, SEGMENT, BATCH = 10_000_000_000, 1_000_000_000, 16 << 10
RECORDS, VALUE_SIZE = 140, 100
"""Of a batch, which is a little under 16 KiB, Kafka's default ``batch.size``."""
AT_ONCE = 500
"""Batches that are appended at a time."""
CHUNK = 1 << 20
BAR, OF_DISK = 5.0, 0.8
"""GB/s, or the share of a plain read's rate."""


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder:
        root = folder / "kafka-logs"
        size = _write(root, int(BYTES * args.scale))
        spark = local_session("benchmark", folder)
        try:
            _compare(spark, root, size, args.rounds)
        finally:
            spark.stop()


def _write(root: Path, wanted: int) -> int:
    """Segments of one batch over and over, at offsets that rise; returns their bytes."""
    values = pa.array([event(number, VALUE_SIZE) for number in range(RECORDS)], pa.binary())
    records = pa.RecordBatch.from_pydict({"value": values, "timestamp": pa.array([0] * RECORDS)})
    partition = TopicPartition("t", 0)
    batch = np.asarray(
        encode(records, None, EncodeSettings(batch_size=BATCH), topic_partition=partition).data
    )
    data = np.tile(batch, AT_ONCE)
    headers = walk(data).headers_of(0, AT_ONCE - 1).copy()
    root.mkdir(parents=True)
    size = 0
    with BackupLog.create(str(root / "t-0"), partition, LogSettings(segment_bytes=SEGMENT), 0) as log:
        while size < wanted:
            first = log.next_offset + np.arange(AT_ONCE) * RECORDS
            headers[[BASE_OFFSET, LAST_OFFSET]] = first, first + RECORDS - 1
            put_ints(data, headers[POSITION], first, 8)
            log.append(Slice(pa.py_buffer(data), headers, Origin()))
            size += data.size
    return size


def _compare(spark: SparkSession, root: Path, size: int, rounds: int) -> None:
    place = connect(root).place
    reader = spark.read.format("kafkalog").option("view", "batches")

    def in_spark(**options: str) -> None:
        total = reader.options(**options).load(str(root)).agg({"storedBytes": "sum", "valid": "min"})
        assert total.first()["sum(storedBytes)"] == size

    def by_admin(**how: bool) -> None:
        assert sum(pc.sum(rows["storedBytes"]).as_py() for rows in batches(place, **how)) == size

    contestants: dict[str, Callable[[], object]] = {
        "plain read": partial(_read, root),
        "batches, headers": partial(by_admin, check_crcs=False),
        "batches, checksums": by_admin,
        "view=batches, headers": partial(in_spark, checkCrcs="false"),
        "view=batches, checksums": in_spark,
    }
    seconds = seconds_by_turns(contestants, rounds)
    rates = {name: size / taken / 1e9 for name, taken in seconds.items()}
    disk = rates.pop("plain read")
    wanted = min(BAR, OF_DISK * disk)
    for name, rate in rates.items():
        print_ratio(
            f"{name}: {rate:.2f} GB/s, a plain read {disk:.2f}, wanted {wanted:.2f}",
            rate / wanted,
            at_least=1.0,
        )


def _read(root: Path) -> None:
    chunk = bytearray(CHUNK)
    for path in sorted(root.glob("*/*.log")):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(chunk):
                pass


if __name__ == "__main__":
    main()
