"""Readers beside retention: each row is right, and what is gone is told as failOnDataLoss says."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.extensions.cleanup.deleting import delete_records, retain
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from tests.extensions.cleanup.test_retention import BATCH, NOW, SEGMENT, log
from tests.log.partitions import rows
from tests.log.writing import T0, read, values, write

READS = 40


def read_all(root: Path) -> tuple[int, int]:
    """Read the partition from its planned start; how many rows, and how often records were gone."""
    place = LogDirectory.open(str(root))
    bounds = place.watermarks([T0], read_committed=False)[T0]
    position, found, losses = bounds.log_start_offset, 0, 0
    while position < bounds.high_watermark:
        try:
            for row in rows(place, T0, OffsetRange(position, bounds.high_watermark)):
                assert row["offset"] == position
                assert row["value"] == b"%053d" % position
                position, found = position + 1, found + 1
        except DataLossError as e:
            position, losses = e.next_offset or bounds.high_watermark, losses + 1
    return found, losses


def main(root: Path) -> None:
    """Read again and again until the file ``done`` appears beside the log."""
    total = lost = 0
    while not (root.parent / "done").exists():
        found, losses = read_all(root)
        total, lost = total + found, lost + losses
    print(total, lost)


@pytest.mark.slow
@pytest.mark.soak
def test_a_reader_process_beside_retention(tmp_path: Path) -> None:
    root = tmp_path / "log"
    log(root, 30)
    command = [sys.executable, "-m", "tests.faults.test_retention_races", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            number, deadline = 30, time.monotonic() + 15
            while time.monotonic() < deadline:
                for _ in range(4):
                    write(root, {T0: values(10, 53, 10 * number)}, timestamp=NOW, segment_bytes=SEGMENT)
                    number += 1
                if number % 3:
                    retain([str(root)], ["t"], {"retention.bytes": str(6 * BATCH)}, execute=True)
                else:
                    delete_records([str(root)], {T0: 10 * number - 35}, execute=True)
        finally:
            (tmp_path / "done").touch()
        printed = reader.stdout.read()
        assert reader.wait(60) == 0
    found, losses = map(int, printed.split())
    print(f"{found} rows, {losses} losses while {number - 30} batches came")
    assert found > 1000


def test_what_a_reader_gets_that_comes_too_late(tmp_path: Path) -> None:
    log(tmp_path)
    place = LogDirectory.open(str(tmp_path), slice_bytes=BATCH)
    pieces = place.fetch(Fetch(T0, OffsetRange(0, 90)))
    next(pieces)
    delete_records([str(tmp_path)], {TopicPartition("t", 0): 45}, execute=True)
    next(pieces)  # the open segment, to its end
    with pytest.raises(DataLossError, match="the log now starts at offset 45") as lost:
        next(pieces)
    assert (lost.value.offset, lost.value.next_offset) == (20, 45)


@pytest.mark.soak
def test_a_stream_beside_retention(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint, copy = tmp_path / "log", tmp_path / "checkpoint", tmp_path / "copy"
    log(root, 6)

    def run(**options: object) -> None:
        query = (
            spark.readStream.format("kafkalog")
            .options(startingOffsets="earliest", **options)
            .load(str(root))
            .writeStream.format("kafkalog")
            .options(topic="copy", **{"retention.bytes": 1 << 30})
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(copy))
        )
        query.awaitTermination(60)

    run()
    for number in range(6, 12):
        write(root, {T0: values(10, 53, 10 * number)}, timestamp=NOW, segment_bytes=SEGMENT)
    retain([str(root)], ["t"], {"retention.bytes": str(3 * BATCH)}, execute=True)
    with pytest.raises(Exception, match="failOnDataLoss"):
        run()
    run(failOnDataLoss="false")
    copied = read(copy)[TopicPartition("copy", 0)]
    start = LogDirectory.open(str(root)).watermarks([T0], read_committed=False)[T0].log_start_offset
    assert 60 < start < 120
    assert copied == values(60, 53) + values(120 - start, 53, start)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
