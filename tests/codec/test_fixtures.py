"""Every log that real brokers wrote, decoded at the level of the codec, against real consumers and tools."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.codec.decode import first_record_at
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.codec.walk import check_batch, walk
from pyspark_kafkalog.model import OffsetRange
from tests.codec.decoding import (
    ALL_COLUMNS,
    WITHOUT_TIMESTAMP,
    differences,
    rows,
    scan,
    segments,
    topic_partition,
    txnindex,
)
from tests.fixtures_dir import CASES, Case

WHOLE = [case for case in CASES if not case.damaged]
DAMAGED = [case for case in CASES if case.damaged]


def schema_of(case: Case):
    """Timestamps of v2-times are beyond what Python, or even Spark, can show."""
    return WITHOUT_TIMESTAMP if case.name == "v2-times" else ALL_COLUMNS


def decoded(case: Case, partition: str, end: int, visible: Visibility | None) -> list:
    start = case.bounds(partition)["log_start_offset"] if case.offsets else 0
    return [
        row
        for segment in segments(case, partition)
        for row in rows(
            segment,
            topic_partition(partition),
            offsets=OffsetRange(start, end),
            visible=visible,
            schema=schema_of(case),
        )
    ]


def of(partition: str, records: list) -> list:
    return [r for r in records if f"{r['topic']}-{r['partition']}" == partition]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_read_uncommitted_rows_are_those_of_the_consumer(case: Case) -> None:
    for partition in case.partitions:
        end = case.bounds(partition)["high_watermark"] if case.offsets else 1 << 62
        assert not differences(of(partition, case.records), decoded(case, partition, end, None))


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_read_committed_rows_are_those_of_the_consumer_by_index_and_by_scan(case: Case) -> None:
    for partition in case.partitions:
        transactions = scan(segments(case, partition))
        indexed = txnindex(case.directory / partition)
        end = 1 << 62
        if case.offsets:
            bounds = case.bounds(partition)
            end = bounds.get("last_stable_offset", bounds["high_watermark"])
            open_offset = transactions.first_open_offset
            assert end == (bounds["high_watermark"] if open_offset is None else open_offset)
        expected = of(partition, case.committed)
        unended = [a.__class__(a.producer_id, a.first_offset) for a in indexed]
        for aborted in (transactions.aborted, indexed, unended):
            assert not differences(expected, decoded(case, partition, end, Visibility(aborted)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_walked_batches_are_those_of_the_dump_tool(case: Case) -> None:
    dumped: dict[str, list] = {}
    for line in case.batches:
        dumped.setdefault(line["file"], []).append(line)
    for file, lines in dumped.items():
        if case.name == "hurt-magic":
            continue
        data = (case.directory / file).read_bytes()
        batches = walk(data)
        for row, line in enumerate(lines):
            actual = {
                "position": batches.position[row],
                "size": batches.size[row],
                "magic": batches.magic[row],
                "crc": batches.crc[row],
                "baseOffset": batches.base_offset[row],
                "lastOffset": batches.last_offset[row],
                "offset": batches.last_offset[row],
                "count": batches.count[row],
                "baseSequence": batches.base_sequence[row],
                "producerId": batches.producer_id[row],
                "producerEpoch": batches.producer_epoch[row],
                "partitionLeaderEpoch": batches.leader_epoch[row],
                "isTransactional": batches.is_transactional[row],
                "isControl": batches.is_control[row],
                "maxTimestamp": batches.max_timestamp[row],
            }
            for field, value in actual.items():
                assert field not in line or line[field] == value, f"{file} batch {row}: {field}"
            assert check_batch(data, line["position"]) == line["isvalid"]


@pytest.mark.parametrize(
    "case", [c for c in WHOLE if "v0" not in c.entry["formats"]], ids=lambda case: case.name
)
def test_first_record_at_answers_as_the_broker(case: Case) -> None:
    for bounds in case.offsets:
        partition = f"{bounds['topic']}-{bounds['partition']}"
        for question in bounds.get("offsets_for_times", []):
            assert answer(case, partition, question["ts"], bounds) == (
                question["offset"],
                question["timestamp"],
            )


def answer(case: Case, partition: str, timestamp: int, bounds: dict) -> tuple[int | None, int | None]:
    """From the first segment whose headers promise such a timestamp, as the broker chooses it.

    In a compacted one they may promise what was removed; then the broker looks no further.
    """
    for segment in segments(case, partition):
        if (walk(segment).max_timestamp >= timestamp).any():
            found = first_record_at(
                segment,
                timestamp=timestamp,
                min_offset=bounds["log_start_offset"],
                topic_partition=topic_partition(partition),
            )
            return found or (None, None)
    return None, None
