"""Rows are encoded chunk by chunk, each partition's in order, as the sink wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.extensions.large_messages.options import SplitOptions
from pyspark_kafkalog.extensions.large_messages.settings import SplitterSettings
from pyspark_kafkalog.model import ALL_OFFSETS, Encoded, EncodeSettings, TopicPartition
from pyspark_kafkalog.write.routing import Router
from pyspark_kafkalog.write.rows import slices_to_encode, write_rows
from tests.codec.decoding import ALL_COLUMNS
from tests.extensions.large_messages.records import Record, messages, segment


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

    def advance(self, *, flush: bool = False) -> None:
        self.advanced_after.append(len(self.appended))


def router(topic: str | None = "t", partitions: int = 1, batch_size: int = 100_000) -> Router:
    return Router(topic=topic, partition_count=lambda _: partitions, partitioner=None, batch_size=batch_size)


def batches(count: int, rows: int = 1000, size: int = 1000) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pydict({"value": [b"x" * size] * rows}) for _ in range(count))


def test_little_is_buffered_where_few_partitions_are_to_be_filled() -> None:
    sink = Sink()
    write_rows(batches(4), router(), sink)
    assert sink.appended == [(0, 2000), (0, 2000)], "two exceed the least, of a MiB"


@pytest.mark.parametrize("router", [router(partitions=1000), router(topic=None)])
def test_much_is_buffered_where_many_are(router: Router) -> None:
    sink = Sink()
    rows = (batch.append_column("topic", pa.array(["t"] * 1000)) for batch in batches(4))
    write_rows(rows, router, sink)
    assert sum(records for _, records in sink.appended) == 4000
    assert len({partition for partition, _ in sink.appended}) == len(sink.appended)


def test_large_rows_are_not_buffered_nor_are_those_before_them() -> None:
    sink = Sink()
    rows = [*batches(2), *batches(2, rows=2, size=300_000), *batches(1)]
    write_rows(rows, router(batch_size=1 << 20), sink)
    assert sink.appended == [(0, 2000), (0, 2), (0, 2), (0, 1000)]


def test_much_that_is_given_at_once_is_encoded_by_parts() -> None:
    sink = Sink()
    write_rows(batches(1, rows=1000, size=100_000), router(batch_size=1 << 20), sink)
    sizes = [records * 100_000 for _, records in sink.appended]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 32 << 20


def test_nothing_is_asked_where_there_are_no_rows() -> None:
    def count(topic: str) -> int:
        raise AssertionError("there is nothing to write")

    sink = Sink()
    router = Router(topic="t", partition_count=count, partitioner=None, batch_size=100_000)
    write_rows(batches(3, rows=0), router, sink)
    assert sink.appended == []


def test_the_sink_is_asked_for_settings_before_each_encoding() -> None:
    sink = Sink()
    write_rows(batches(3, rows=3, size=400_000), router(), sink)
    assert sink.appended == [(0, 3)] * 3
    assert sink.advanced_after == [1, 2, 3]
    assert sink.sequences == list(range(9))


def test_a_value_of_100_megabytes_is_written_in_message_segments() -> None:
    value = np.random.default_rng(1).bytes(100_000_000)
    rows = [pa.RecordBatch.from_pydict({"value": [b"before", value, b"after"]})]
    sink = Sink()
    write_rows(rows, router(), sink, splitter=SplitOptions(SplitterSettings()).splitter())
    assert sum(records for _, records in sink.appended) == 127
    assert sink.sequences == list(range(127)), "the sink is asked for settings before each stretch"


class Collecting(Sink):
    """Keeps what is appended to each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[TopicPartition, list[bytes]] = {}

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        self.data.setdefault(partition, []).append(bytes(encoded.data))
        super().append(partition, encoded)

    def records(self) -> Iterator[Record]:
        """Partition by partition, as they would stand in a log."""
        for partition, data in self.data.items():
            for part in data:
                for rows, _ in decode(
                    np.frombuffer(part, np.uint8),
                    topic_partition=partition,
                    offsets=ALL_OFFSETS,
                    visible=None,
                    schema=COLUMNS,
                ):
                    for row in rows.to_pylist():
                        headers = [(header["key"], header["value"]) for header in row["headers"] or []]
                        yield Record(row["key"], row["value"], headers, 0, partition)


COLUMNS = pa.schema([ALL_COLUMNS.field(name) for name in ("key", "value", "headers")])
_HEADERS = COLUMNS.field("headers").type
_MESSAGE = st.tuples(
    st.none() | st.binary(max_size=3),
    st.none() | st.binary(max_size=60),
    st.lists(
        st.tuples(st.text(max_size=2).filter("_t".__ne__), st.none() | st.binary(max_size=3)), max_size=2
    ),
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 2),
)


@pytest.mark.long
@given(
    rows=st.lists(_MESSAGE, min_size=1, max_size=20),
    splitter=st.builds(SplitterSettings, st.integers(1, 70), st.booleans(), st.booleans()),
    parts=st.integers(1, 4),
    with_partitions=st.booleans(),
)
def test_every_message_goes_whole_to_the_partition_of_its_key_in_order(
    rows: list[tuple[Any, ...]], splitter: SplitterSettings, parts: int, with_partitions: bool
) -> None:
    keys, values, headers, topics, partitions = (list(column) for column in zip(*rows, strict=True))
    numbered = [
        [*row_headers, ("number", str(number).encode())] for number, row_headers in enumerate(headers)
    ]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in row_headers] for row_headers in numbered], _HEADERS
        ),
        "topic": pa.array(topics),
    }
    if with_partitions:
        columns["partition"] = pa.array(partitions, pa.int32())
    table = pa.RecordBatch.from_pydict(columns)
    size = -(-len(rows) // parts)
    pieces = [table.slice(start, size) for start in range(0, len(rows), size)]
    sink = Collecting()
    write_rows(pieces, router(topic=None, partitions=3), sink, splitter=SplitOptions(splitter).splitter())
    written = list(sink.records())
    found: dict[TopicPartition, list[int]] = {}
    for record in messages(written):
        user_headers = [header for header in record.headers if header[0] != "_t"]
        number = int(user_headers[-1][1] or b"")
        assert (record.key, record.value, user_headers) == (keys[number], values[number], numbered[number])
        assert isinstance(record.partition, TopicPartition)
        found.setdefault(record.partition, []).append(number)
        expected = partitions[number] if with_partitions else None
        if expected is None and record.key is not None:
            expected = (murmur2(record.key) & 0x7FFFFFFF) % 3
        assert record.partition == (
            topics[number],
            record.partition.partition if expected is None else expected,
        )
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(len(rows)))
    for record in written:
        found_segment = segment(record)
        if found_segment is not None and record.key == found_segment.id and not with_partitions:
            assert isinstance(record.partition, TopicPartition)
            assert record.partition.partition == (murmur2(record.key) & 0x7FFFFFFF) % 3


@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 3)), max_size=3))
def test_what_formats_encode_is_small_in_bytes_and_rows(drawn: list[tuple[int, int]]) -> None:
    arrow_batches = []
    for rows, size in drawn:
        texts = pa.array([b"x" * size]).take(pa.array(np.zeros(rows, np.int64)))
        arrow_batches.append(pa.RecordBatch.from_pydict({"value": texts, "row": pa.array(range(rows))}))
    slices = list(slices_to_encode(arrow_batches))
    assert all(0 < found.num_rows <= 1 << 16 for found in slices)
    given_rows = [row for found in arrow_batches for row in found.column("row").to_pylist()]
    assert [row for found in slices for row in found.column("row").to_pylist()] == given_rows


def test_large_rows_are_encoded_one_by_one() -> None:
    (found,) = batches(1, rows=10, size=20 << 20)
    assert [each.num_rows for each in slices_to_encode([found])] == [1] * 10
