"""Whole partitions at the level of the codec: segment files one after another, no index, no log layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.codec.decode import DecodeLimits, decode
from pyspark_kafkalog.codec.isolation import TransactionScan, Visibility
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, OnCorrupt, TopicPartition
from tests.fixtures_dir import TIMESTAMP_TYPES, Case, same_bytes

ALL_COLUMNS = pa.schema(list(ROW_TYPES.items()))
WITHOUT_TIMESTAMP = pa.schema([(name, kind) for name, kind in ROW_TYPES.items() if name != "timestamp"])
_PARTITION = TopicPartition("topic", 0)
_LIMITS = DecodeLimits()
FOREVER = OffsetRange(0, (1 << 63) - 1)


def topic_partition(partition: str) -> TopicPartition:
    """The topic-partition that a folder is named after."""
    topic, _, number = partition.rpartition("-")
    return TopicPartition(topic, int(number))


def rows(
    buffer: Any,
    partition: TopicPartition = _PARTITION,
    *,
    offsets: OffsetRange = FOREVER,
    visible: Visibility | None = None,
    schema: pa.Schema = ALL_COLUMNS,
    limits: DecodeLimits = _LIMITS,
    on_corrupt: OnCorrupt | None = None,
) -> list[dict[str, Any]]:
    """All rows that ``buffer`` decodes to."""
    decoded = decode(
        buffer,
        topic_partition=partition,
        offsets=offsets,
        visible=visible,
        schema=schema,
        limits=limits,
        on_corrupt=on_corrupt,
    )
    return [row for arrow_batch, _ in decoded for row in arrow_batch.to_pylist()]


def segments(case: Case, partition: str) -> Iterator[bytes]:
    return (segment.read_bytes() for segment in case.segments(partition))


def scan(buffers: Iterator[bytes]) -> TransactionScan:
    """The transactions of a partition, from its markers."""
    transactions = TransactionScan()
    for buffer in buffers:
        transactions.add(buffer, walk(buffer))
    return transactions


def txnindex(folder: Path) -> list[AbortedTransaction]:
    """The aborted transactions of a partition, from its ``.txnindex`` files (Kafka's AbortedTxn)."""
    entries = b"".join(file.read_bytes() for file in sorted(folder.glob("*.txnindex")))
    fields = [
        [int.from_bytes(entries[at + i : at + i + 8], "big", signed=True) for i in (2, 10, 18)]
        for at in range(0, len(entries), 34)
    ]
    return [AbortedTransaction(*entry) for entry in fields]


def differences(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> list[str]:
    """How decoded rows differ from the records that a consumer returned; empty if they don't."""
    if [e["offset"] for e in expected] != [a["offset"] for a in actual]:
        return [f"offsets {[a['offset'] for a in actual]} instead of {[e['offset'] for e in expected]}"]
    return [
        f"offset {e['offset']}: {field}"
        for e, a in zip(expected, actual, strict=True)
        for field, same in _same(e, a).items()
        if not same
    ]


def _same(expected: dict[str, Any], actual: dict[str, Any]) -> dict[str, bool]:
    same = {
        "topic": actual["topic"] == expected["topic"],
        "partition": actual["partition"] == expected["partition"],
        "timestampType": actual["timestampType"] == TIMESTAMP_TYPES[expected["timestampType"]],
        "key": same_bytes(expected, "key", actual["key"]),
        "value": same_bytes(expected, "value", actual["value"]),
    }
    if "timestamp" in actual:
        same["timestamp"] = actual["timestamp"].timestamp() * 1000 == expected["timestamp"]
    if "headers" in actual:
        headers = actual["headers"]
        same["headers"] = (headers is not None) == bool(expected["headers"]) and all(
            a["key"] == e["key"] and same_bytes(e, "value", a["value"])
            for a, e in zip(headers or [], expected["headers"], strict=True)
        )
    return same
