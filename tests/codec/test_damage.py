"""Damaged logs at the level of the codec: rows up to the damage, then an error with its place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import TopicPartition
from tests.codec.decoding import ALL_COLUMNS, FOREVER, differences, rows, topic_partition
from tests.codec.raw import message, values, wrapper
from tests.fixtures_dir import CASES, Case

DAMAGED = [case for case in CASES if case.damaged]


def until_damage(data: bytes, partition: TopicPartition) -> tuple[list[dict[str, Any]], Any]:
    """The rows before the first damage, and the error."""
    got: list[pa.RecordBatch] = []
    try:
        for arrow_batch, _ in decode(
            data, topic_partition=partition, offsets=FOREVER, visible=None, schema=ALL_COLUMNS
        ):
            got.append(arrow_batch)
    except CorruptRecordError as e:
        return [row for arrow_batch in got for row in arrow_batch.to_pylist()], e
    return [row for arrow_batch in got for row in arrow_batch.to_pylist()], None


@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.name)
def test_rows_end_where_the_recovery_of_the_broker_ended(case: Case) -> None:
    (partition,) = case.partitions
    recovered = {f["file"]: f["size_after"] for f in case.recovery["files"]}
    actual: list[dict[str, Any]] = []
    for segment in case.segments(partition):
        data = segment.read_bytes()
        found, error = until_damage(data, topic_partition(partition))
        actual += found
        end = walk(data).end if error is None else error.position
        if case.name == "hurt-magic":
            assert error.offset == 39
        else:
            assert end == recovered[segment.name]
        if end < len(data):
            break
    assert not differences(case.records[: len(actual)], actual)
    assert case.name == "hurt-magic" or len(actual) == len(case.records)


@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.name)
def test_leaving_damage_out_loses_no_row_that_the_broker_kept(case: Case) -> None:
    (partition,) = case.partitions
    left_out: list[CorruptRecordError] = []
    actual = [
        row
        for segment in case.segments(partition)
        for row in rows(segment.read_bytes(), topic_partition(partition), on_corrupt=left_out.append)
    ]
    by_offset = {row["offset"]: row for row in actual}
    assert len(by_offset) == len(actual)
    kept = [by_offset[record["offset"]] for record in case.records]
    assert not differences(case.records, kept)
    assert all(error.position is not None for error in left_out)


SMALL = (
    values(3)
    + values(2, base_offset=3, compression=4)
    + message(b"old", offset=5)
    + wrapper([message(b"a"), message(b"b", offset=1)], offset=7)
    + values(2, base_offset=8)
)
ENDS = [int(end) for end in walk(SMALL).position + walk(SMALL).size]
ROWS_UNTIL = dict(zip(ENDS, [3, 5, 6, 8, 10], strict=True))


def test_a_log_cut_at_every_byte_gives_its_whole_batches() -> None:
    whole = rows(SMALL)
    for size in range(len(SMALL)):
        ends = [end for end in ENDS if end <= size]
        got, error = until_damage(SMALL[:size], TopicPartition("topic", 0))
        assert error is None
        assert got == whole[: ROWS_UNTIL[ends[-1]] if ends else 0]


def test_a_flipped_bit_at_every_byte_never_gives_other_rows() -> None:
    """Except in the offsets of a batch, which no checksum covers: then other offsets, or an error."""
    whole = rows(SMALL)
    starts = [0, *ENDS]
    for position in range(len(SMALL)):
        for bit in (0x01, 0x80):
            data = bytearray(SMALL)
            data[position] ^= bit
            batch = sum(end <= position for end in ENDS)
            before = ROWS_UNTIL[starts[batch]] if batch else 0
            got, error = until_damage(bytes(data), TopicPartition("topic", 0))
            assert got[:before] == whole[:before]
            if position - starts[batch] < 8:
                continue
            in_leader_epoch = data[starts[batch] + 16] == 2 and 12 <= position - starts[batch] < 16
            if in_leader_epoch:
                assert (got, error) == (whole, None)
            else:
                assert got == whole[:before]
                assert error is None or error.position == starts[batch]
