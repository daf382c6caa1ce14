"""The records of a partition's folder."""

from __future__ import annotations

from pathlib import Path

from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from tests.codec.decoding import ALL_COLUMNS
from tests.extensions.large_messages.records import Record
from tests.log.partitions import rows


def stored(folder: Path) -> list[Record]:
    """The records of a partition."""
    topic, _, number = folder.name.rpartition("-")
    partition = TopicPartition(topic, int(number))
    place = LogDirectory.open(str(folder.parent))
    bounds = place.watermarks([partition], read_committed=False)[partition]
    found = rows(
        place, partition, OffsetRange(bounds.log_start_offset, bounds.high_watermark), schema=ALL_COLUMNS
    )
    return [
        Record(
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
            int(row["timestamp"].timestamp() * 1000),
        )
        for row in found
    ]
