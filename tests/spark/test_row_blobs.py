"""Rows as blobs: cut by partition, in offset order, of bounded size, and merged where they overlap."""

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import InvalidRecordError
from pyspark_kafkalog.extensions.large_messages.row_blobs import (
    Blob,
    decoded,
    encoded,
    in_offset_order,
    pack,
    pieces,
)
from pyspark_kafkalog.model import TopicPartition

T0 = TopicPartition("t", 0)


def rows(offsets, topic="t", partition=0, value=b"v"):
    count = len(offsets)
    topics = topic if isinstance(topic, list) else [topic] * count
    partitions = partition if isinstance(partition, list) else [partition] * count
    return pa.record_batch(
        {
            "value": pa.array([value] * count, pa.binary()),
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "more": pa.array([str(offset) for offset in offsets]),
        }
    )


def packed(*batches):
    return [
        (row["topic"], row["partition"], row["firstOffset"], row["lastOffset"], decoded(row["rows"]))
        for batch in pack(batches)
        for row in batch.to_pylist()
    ]


def blob(*offsets):
    return encoded(rows(list(offsets)).drop_columns(["topic", "partition"]))


def offsets_of(batch):
    return batch.column("offset").to_pylist()


def test_each_partition_becomes_a_row_in_offset_order():
    batch = rows([7, 3, 5, 4, 1], ["u", "t", "t", "t", "u"], [0, 1, 0, 1, 0])
    found = packed(batch, batch.slice(0, 0))
    assert {(topic, number): offsets_of(rows) for topic, number, _, _, rows in found} == {
        ("t", 0): [5],
        ("t", 1): [3, 4],
        ("u", 0): [1, 7],
    }
    assert [(first, last) for *_, first, last, rows in found] == [
        (offsets_of(rows)[0], offsets_of(rows)[-1]) for *_, rows in found
    ]
    assert {name for *_, rows in found for name in rows.schema.names} == {"value", "offset", "more"}
    assert [rows.column("more").to_pylist() for *_, rows in found if len(rows) == 2] == [
        ["1", "7"],
        ["3", "4"],
    ]


def test_blobs_have_a_bounded_size_but_for_a_single_row():
    batch = rows(list(range(10)), value=bytes(1000))
    assert [len(piece) for piece in pieces(batch, 2500)] == [2, 1, 2, 2, 1, 2]
    assert [len(piece) for piece in pieces(batch, 10)] == [1] * 10


def test_large_types_become_small():
    batch = rows([1])
    large = batch.set_column(0, "value", batch.column("value").cast(pa.large_binary()))
    large = large.append_column(
        "deep", pa.array([[{"k": "x"}]], pa.list_(pa.struct({"k": pa.large_string()})))
    )
    ((*_, found),) = packed(large)
    assert found.schema.field("value").type == pa.binary()
    assert found.schema.field("deep").type == pa.list_(pa.struct({"k": pa.string()}))


@pytest.mark.parametrize("name", ["topic", "partition", "offset"])
def test_rows_have_a_place(name):
    batch = rows([1])
    index = batch.schema.get_field_index(name)
    null = batch.set_column(index, name, pa.nulls(1, batch.schema.field(name).type))
    with pytest.raises(InvalidRecordError, match=f"null .{name}."):
        list(pack([null]))


def test_a_record_that_is_there_twice_is_told():
    with pytest.raises(InvalidRecordError, match=r"twice .*\(partition t-0, offset 4\)"):
        list(pack([rows([5, 4, 4])]))
    with pytest.raises(InvalidRecordError, match=r"twice .*\(partition t-0, offset 3\)"):
        list(in_offset_order([blob(1, 2, 3), blob(3, 4)], T0))


def test_blobs_that_overlap_are_merged_and_others_pass():
    blobs = [blob(1, 2), blob(4, 9), blob(5, 7), blob(8, 12), blob(13)]
    found = list(in_offset_order(blobs, T0))
    assert [offsets_of(batch) for batch, _ in found] == [[1, 2], [4], [5, 7], [8, 9, 12], [13]]
    assert [blob for _, blob in found] == [blobs[0].rows, None, None, None, blobs[4].rows]
    assert list(in_offset_order([], T0)) == []


def test_a_blob_holds_only_its_rows():
    batch = rows(list(range(1000)), value=bytes(1000))
    assert len(encoded(batch.slice(10, 1)).rows) < 4000
    assert encoded(batch.slice(10, 2))[:2] == Blob(10, 11, b"")[:2]
