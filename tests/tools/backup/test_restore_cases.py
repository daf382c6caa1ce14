"""Every log that a real broker wrote, of each format, is restored with all its records."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import RestoredPartition, RestoreSettings, connect
from pyspark_kafkalog.errors import RecordTooLargeError
from tests.broker.producing import unused_topic
from tests.fixtures_dir import CASES, Case, same_bytes
from tests.kafka import Broker
from tests.kafka_old import OldBroker
from tests.log.partitions import batch, write_segment
from tests.tools.backup.consuming import Record, consume

pytestmark = pytest.mark.broker

ALWAYS = (
    "v0-gzip",
    "v1v2-upgraded",
    "v2-lat-none",
    "v2-compacted-tombstones",
    "v2-large",
    "txn-basic",
)
"""The others are the soak's."""
WHOLE = [
    case
    for case in CASES
    if not case.damaged and not any(topic.startswith("__") for topic in case.entry["topics"])
]


def is_same(expected: dict[str, Any], record: Record) -> bool:
    """Whether a record is what Java's consumer read from the log itself."""
    names = [name for name, _ in record.headers]
    return (
        same_bytes(expected, "key", record.key)
        and same_bytes(expected, "value", record.value)
        and names == [header["key"] for header in expected["headers"]]
        and all(
            same_bytes(header, "value", value)
            for header, (_, value) in zip(expected["headers"], record.headers, strict=True)
        )
        and record.timestamp == expected["timestamp"]
    )


def expected_of(case: Case, row: RestoredPartition) -> list[dict[str, Any]]:
    """What a read_committed consumer got, and what it would get if the open transactions were aborted."""

    def is_own(entry: dict[str, Any]) -> bool:
        return (entry["topic"], entry["partition"]) == (row.topic, row.partition)

    committed = list(filter(is_own, case.committed))
    bounds = case.bounds(f"{row.topic}-{row.partition}")
    stable = bounds.get("last_stable_offset", bounds["high_watermark"])
    later = [entry for entry in filter(is_own, case.records) if entry["offset"] >= stable]
    if not later or stable == bounds["high_watermark"]:
        return committed
    batches = [batch for batch in case.batches if batch["file"].startswith(f"{row.topic}-{row.partition}/")]
    return committed + [entry for entry in later if is_decided(entry["offset"], batches)]


def is_decided(offset: int, batches: list[dict[str, Any]]) -> bool:
    """Whether the batch at an offset belongs to no transaction, or to one that was committed.

    Every transaction in these logs that ends behind an open one has four records, or else was aborted.
    """
    (own,) = (batch for batch in batches if batch["baseOffset"] <= offset <= batch["lastOffset"])
    return not own["isTransactional"] or own["count"] == 4


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in ALWAYS else pytest.mark.soak)
        for case in WHOLE
    ],
)
def test_all_records_are_restored(case: Case, broker: Broker, tmp_path: Path) -> None:
    names = {topic: f"{topic}-{uuid.uuid4().hex[:8]}" for topic in case.entry["topics"]}
    settings = RestoreSettings(tuple(names), names, state=str(tmp_path / "state"), groups=())
    source, target = {"path": str(case.directory)}, {"kafka.bootstrap.servers": broker.bootstrap}
    planned = connect(source).logs.restore(connect(target), settings)
    assert not connect(target).place.topics(list(names.values()))
    restored = connect(source).logs.restore(connect(target), settings, execute=True)
    assert restored.partitions == planned.partitions
    for row in restored.partitions:
        expected = expected_of(case, row)
        found = consume(broker.bootstrap, row.target_topic, [row.partition])[row.partition]
        assert list(found) == list(range(row.target_end))
        assert len(expected) == row.records == len(found)
        for old, (offset, record) in zip(expected, found.items(), strict=True):
            assert is_same(old, record), (old, record)
            assert not row.keeps_offsets or offset == old["offset"]
        assert row.keeps_offsets == (list(found) == [old["offset"] for old in expected])


@pytest.mark.long
@pytest.mark.slow
def test_a_topic_with_segments_smaller_than_batches(old_broker: OldBroker, tmp_path: Path) -> None:
    """Small batches that are joined, one that is too large as it is, and a record alone in its batch."""
    topic, source = unused_topic(), tmp_path / "source"
    small = [batch(10 * number, 10, size=100) for number in range(200)]
    write_segment(source / "t-0", [*small, batch(2000, 1000, size=100), batch(3000, 1, size=15_000)])
    settings = RestoreSettings(("t",), {"t": topic}, configs={"segment.bytes": "20000"}, groups=())
    target = {"kafka.bootstrap.servers": old_broker.bootstrap}
    (row,) = connect(source).logs.restore(connect(target), settings, execute=True).partitions
    assert (row.records, row.keeps_offsets) == (3001, True)
    found = consume(old_broker.bootstrap, topic, [0])[0]
    assert [record.value for record in found.values()] == [
        *(b"%0100d" % number for _ in range(200) for number in range(10)),
        *(b"%0100d" % number for number in range(1000)),
        b"%015000d" % 0,
    ]
    refused = RestoreSettings(
        ("t",),
        {"t": unused_topic()},
        configs={"segment.bytes": "10000"},
        groups=(),
        state=str(tmp_path / "2"),
    )
    with pytest.raises(RecordTooLargeError, match=r"LIST_TOO_LARGE.*Raise the topic's segment\.bytes"):
        connect(source).logs.restore(connect(target), refused, execute=True)
