"""Rows are encoded chunk by chunk, each partition's in order, as the sink wants them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.encode import Encoded, EncodeSettings
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.model import SplitterSettings, TopicPartition
from pyspark_kafkalog.transfer.routing import Router
from pyspark_kafkalog.transfer.writing import make_splitter, random_ids, write_rows


class Sink:
    """Notes how many records were appended at a time; counts sequence numbers."""

    def __init__(self) -> None:
        self.appended: list[tuple[int, int]] = []
        self.sequences: list[int] = []
        self.advanced_after: list[int] = []
        self._records = 0

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        return EncodeSettings(producer_id=1, producer_epoch=0, base_sequence=self._records)

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        self.appended.append((partition.partition, encoded.records))
        self.sequences += walk(encoded.data).base_sequence.tolist()
        self._records += encoded.records

    def advance(self) -> None:
        self.advanced_after.append(len(self.appended))


def router(topic: str | None = "t", partitions: int = 1, batch_size: int = 100_000) -> Router:
    return Router(topic=topic, partition_count=lambda _: partitions, partitioner=None, batch_size=batch_size)


def batches(count: int, rows: int = 1000, size: int = 1000) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pydict({"value": [b"x" * size] * rows}) for _ in range(count))


def test_by_default_much_is_held() -> None:
    sink = Sink()
    write_rows(batches(4), router(), sink)
    assert sink.appended == [(0, 4000)]


def test_little_is_held_where_few_partitions_are_to_be_filled() -> None:
    sink = Sink()
    its = router()
    write_rows(batches(4), its, sink, hold=its.bytes_that_fill)
    assert sink.appended == [(0, 2000), (0, 2000)], "two exceed the least, of a MiB"


@pytest.mark.parametrize("its", [router(partitions=1000), router(topic=None)])
def test_much_is_held_where_many_are(its: Router) -> None:
    sink = Sink()
    rows = (batch.append_column("topic", pa.array(["t"] * 1000)) for batch in batches(4))
    write_rows(rows, its, sink, hold=its.bytes_that_fill)
    assert sum(records for _, records in sink.appended) == 4000
    assert len({partition for partition, _ in sink.appended}) == len(sink.appended)


def test_nothing_is_asked_where_there_are_no_rows() -> None:
    def hold() -> int:
        raise AssertionError("there is nothing to hold")

    sink = Sink()
    write_rows(batches(3, rows=0), router(), sink, hold=hold)
    assert sink.appended == []


def test_the_sink_is_asked_for_settings_before_each_encoding() -> None:
    sink = Sink()
    write_rows(batches(3, rows=3, size=400_000), router(), sink, hold=lambda: 0)
    assert sink.appended == [(0, 3)] * 3
    assert sink.advanced_after == [1, 2, 3]
    assert sink.sequences == list(range(9))


def test_a_value_of_100_megabytes_is_written_in_message_segments() -> None:
    value = np.random.default_rng(1).bytes(100_000_000)
    rows = [pa.RecordBatch.from_pydict({"value": [b"before", value, b"after"]})]
    sink = Sink()
    write_rows(rows, router(), sink, splitter=make_splitter(SplitterSettings()))
    assert sink.appended == [(0, 127)]
    assert sink.sequences[-1] == 126


def test_the_sink_is_asked_for_settings_before_each_stretch_of_a_large_message() -> None:
    rows = [pa.RecordBatch.from_pydict({"value": [bytes(300 << 20)]})]
    sink = Sink()
    write_rows(rows, router(), sink, splitter=make_splitter(SplitterSettings()))
    (_, first), (_, second) = sink.appended
    assert first + second == 394
    assert sink.sequences == list(range(394))


def test_message_ids_are_random_uuids() -> None:
    ids = random_ids(1000)
    found = {uuid.UUID(bytes=ids[start : start + 16]) for start in range(0, len(ids), 16)}
    assert len(found) == 1000
    assert {(one.version, one.variant) for one in found} == {(4, uuid.RFC_4122)}
