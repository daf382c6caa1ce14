"""Write to a log directory and read it back, in a line each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.log.publish.ledger import Provenance
from pyspark_kafkalog.log.publish.publish import Published, publish
from pyspark_kafkalog.log.publish.staged_files import KnownTopics, staging
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EncodeSettings, Fetch, OffsetRange, QueryBatch, TopicPartition
from pyspark_kafkalog.staging import Staged
from tests.codec.strategies import Row, arrow_batch

Values = Mapping[TopicPartition, Sequence[bytes]]

ANY = Provenance(required=False)
"""For a batch whose number does not matter."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_SCHEMA = pa.schema(
    [("offset", pa.int64()), ("value", pa.binary()), ("timestamp", pa.timestamp("us", "UTC"))]
)


TOPICS = KnownTopics(lambda _: (), 1, EncodeSettings())


def values(count: int, size: int = 10, start: int = 0) -> list[bytes]:
    """Distinct values of ``size`` bytes."""
    return [b"%0*d" % (size, i) for i in range(start, start + count)]


def stage(
    root: Path,
    job: str,
    records: Values,
    *,
    timestamp: int = 1_600_000_000_000,
    keyed: bool = False,
    **settings: Any,
) -> list[Staged]:
    """Stage the values as one task; timestamps rise by 1 ms from ``timestamp`` on in each partition.

    :param keyed: whether each value is its record's key, too.
    """
    with staging(str(root), job, "0", TOPICS) as sink:
        for partition, values in records.items():
            rows = [
                Row(value if keyed else None, value, None, timestamp + i) for i, value in enumerate(values)
            ]
            sink.append(
                partition,
                encode(arrow_batch(rows), None, EncodeSettings(**settings), topic_partition=partition),
            )
        staged = sink.finish()
    return [staged] if staged.sections else []


def configs_of(**settings: Any) -> dict[str, str]:
    """Fields of LogSettings as configurations of topics."""
    configs = {name.replace("_", "."): str(value) for name, value in settings.items()}
    if is_set := configs.pop("log.append.time", None):
        configs["message.timestamp.type"] = "LogAppendTime" if is_set == "True" else "CreateTime"
    return configs


def publish_staged(
    root: Path,
    staged: Sequence[Staged],
    batch: QueryBatch,
    *,
    num_partitions: int = 2,
    lock_timeout: float = 10,
    history: Provenance = ANY,
    **settings: Any,
) -> Published:
    """Publish; ``settings`` are fields of LogSettings."""
    return publish(
        str(root),
        staged,
        batch,
        configs_of(**settings),
        num_partitions=num_partitions,
        history=history,
        lock_timeout=lock_timeout,
    )


def write(root: Path, records: Values, *, timestamp: int = 1_600_000_000_000, **settings: Any) -> Published:
    """Stage and publish as a batch job."""
    batch = QueryBatch(uuid.uuid4().hex)
    return publish_staged(root, stage(root, batch.job, records, timestamp=timestamp), batch, **settings)


def write_batch(
    root: Path, batch_id: int, records: Values, query: str = "query", *, keyed: bool = False, **settings: Any
) -> Published:
    """Stage and publish as a micro-batch."""
    batch = QueryBatch(query, batch_id)
    return publish_staged(root, stage(root, batch.job, records, keyed=keyed), batch, **settings)


def read(root: Path) -> dict[TopicPartition, list[bytes]]:
    """Values of all records that a reader sees, by partition; checks that offsets have no gaps."""
    place = LogDirectory.open(str(root))
    partitions = [TopicPartition(t, p) for t, numbers in place.topics().items() for p in numbers]
    found: dict[TopicPartition, list[bytes]] = {}
    for partition, bounds in place.watermarks(partitions, read_committed=False).items():
        offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
        rows = [
            row
            for piece in place.fetch(Fetch(partition, offsets))
            for decoded in decode(
                piece.buffer, topic_partition=partition, offsets=offsets, visible=None, schema=_SCHEMA
            )
            for row in decoded.arrow_batch.to_pylist()
        ]
        assert [row["offset"] for row in rows] == list(range(*offsets))
        found[partition] = [row["value"] for row in rows]
    return found


def files_beside_partitions(root: Path) -> set[str]:
    """Names of the files in the root, without the locks."""
    return {entry.name for entry in os.scandir(root) if not entry.is_dir()} - {".lock", ".kafkalog-lock"}
