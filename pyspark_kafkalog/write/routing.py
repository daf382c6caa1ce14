"""Routes each row to a topic and partition: option, column, partitioner, key hash, sticky, in this order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.partitioner import (
    StickyPartitioner,
    murmur2_partitions,
    payload_sizes,
    rows_by_partition,
)
from pyspark_kafkalog.errors import InvalidRecordError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.topics import check_writable
from pyspark_kafkalog.plugins import check_takes, imported, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyspark_kafkalog.model.sinks import TaskSink
    from pyspark_kafkalog.options.partitioner import Distribution
    from pyspark_kafkalog.options.settings import WriteOptions

    _Rows: TypeAlias = NDArray[np.int64] | None
    """Indices of some rows; None for all of them."""

_BATCHES_THAT_FILL = 4
_RECORD_OVERHEAD = 12
"""Bytes of a record besides key, value and headers."""

Partitioner = Callable[[bytes | None, list[int], list[int]], int]
"""kafka-python's signature: (key, all partitions, available partitions) -> partition."""


def load_partitioner(path: str | None) -> Partitioner | None:
    """The callable at an import path ``package.module:name``; None for None.

    :raises OptionError: if it can't be imported, is not callable, or takes other arguments.
    """
    if path is None:
        return None
    what = f"The partitioner {shown(path)!r}"
    partitioner: Partitioner = imported(what, path, form="package.module:callable")
    check_takes(what, partitioner, "key", "all_partitions", "available_partitions")
    return partitioner


class Router:
    """Chooses topic and partition of rows.

    :param topic: the option ``topic``; takes precedence over the column.
    :param partition_count: topic -> number of partitions, among which keys are divided.
    :param has_partition: whether a partition beyond that number has been added since; rows may name it.
    :param partitioner: replaces Kafka's own for rows without ``partition``.
    :param batch_size: bytes after which null keys move on to another partition (KIP-480).
    :param distribution: of Kafka's own partitioners: by key, or regardless of keys sticky or in turn.
    :param first: the partition to begin with; should differ between writers.
    :param check_topic: refuses a topic by an error.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        partition_count: Callable[[str], int],
        partitioner: Partitioner | None,
        batch_size: int,
        distribution: Distribution = "key",
        first: int = 0,
        has_partition: Callable[[TopicPartition], bool] = lambda _: False,
        check_topic: Callable[[str], object] = check_writable,
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._partitioner = partitioner
        self._batch_size = batch_size
        self._distribution = distribution
        self._first = first
        self._has_partition = has_partition
        self._check_topic = check_topic
        self._turn: dict[str, int] = {}
        self._sticky: dict[str, StickyPartitioner] = {}

    @classmethod
    def to_sink(
        cls,
        sink: TaskSink[object],
        options: WriteOptions,
        *,
        first: int = 0,
        check_topic: Callable[[str], object] = check_writable,
    ) -> Router:
        """The one that the options ask for, among the partitions that ``sink`` knows.

        :raises OptionError: if the partitioner can't be imported or is not callable.
        """
        return cls(
            topic=options.topic,
            partition_count=sink.partition_count,
            has_partition=sink.has_partition,
            partitioner=load_partitioner(options.partitioner),
            batch_size=options.batch_size,
            distribution=options.distribution,
            first=first,
            check_topic=check_topic,
        )

    @property
    def has_partitioner(self) -> bool:
        """Whether a partitioner of the user's gets the keys."""
        return self._partitioner is not None

    def bytes_that_fill(self) -> int:
        """The bytes of rows that fill a few record batches for each partition of the option ``topic``."""
        if self._topic is None:
            return sys.maxsize
        return _BATCHES_THAT_FILL * self._batch_size * self._partition_count(self._topic)

    def route(self, rows: pa.RecordBatch, records: pa.RecordBatch) -> Iterator[tuple[TopicPartition, _Rows]]:
        """The indices of the rows of each partition that has some, in row order; None for all rows."""
        for topic, chosen in self._topics(rows):
            count = self._partition_count(topic)
            if count == 1 and self._partitioner is None and not _has_partitions(rows):
                yield TopicPartition(topic, 0), chosen
                continue
            partitions = self._partitions(topic, rows, records, chosen, count)
            highest = int(partitions.max(initial=-1))
            for number, group in enumerate(rows_by_partition(partitions, highest + 1)):
                if group.size:
                    yield TopicPartition(topic, number), group if chosen is None else chosen[group]

    def _topics(self, rows: pa.RecordBatch) -> Iterator[tuple[str, _Rows]]:
        if self._topic is not None:
            self._check_topic(self._topic)
            yield self._topic, None
            return
        topics = rows.column("topic").dictionary_encode()
        if topics.null_count:
            raise InvalidRecordError(
                "KAFKA_NULL_TOPIC_IN_DATA: a row has a null 'topic' and there is no option 'topic'",
                hint="Filter such rows out, or give the option 'topic', by which all rows go to one topic.",
            )
        codes = topics.indices.to_numpy()
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            self._check_topic(topic)
            yield topic, np.flatnonzero(codes == code)

    def _partitions(
        self, topic: str, rows: pa.RecordBatch, records: pa.RecordBatch, chosen: _Rows, count: int
    ) -> NDArray[np.int32]:
        if not _has_partitions(rows):
            return self._choose(topic, records, chosen, count)
        assigned = _taken(rows.column("partition"), chosen)
        given = assigned.is_valid().to_numpy(zero_copy_only=False)
        partitions = np.full(len(assigned), -1, dtype=np.int32)
        partitions[given] = assigned.drop_null().to_numpy()
        for number in np.unique(partitions[given & ((partitions < 0) | (partitions >= count))]).tolist():
            if number < 0 or not self._has_partition(TopicPartition(topic, number)):
                add = (
                    "Give a partition that it has, or null where the key decides, or add partitions: kafkalog"
                    " topics alter --partitions."
                )
                raise InvalidRecordError(
                    f"A row has partition {number}, but topic {topic!r} has {count}, counted from 0",
                    hint="Give null where the key decides." if number < 0 else add,
                )
        if not given.all():
            unplaced = np.flatnonzero(~given) if chosen is None else chosen[~given]
            partitions[~given] = self._choose(topic, records, unplaced, count)
        return partitions

    def _choose(self, topic: str, records: pa.RecordBatch, chosen: _Rows, count: int) -> NDArray[np.int32]:
        if self._partitioner is None and self._distribution != "key":
            return self._without_keys(topic, records, chosen, count)
        keys = _taken(records.column("key"), chosen)
        if self._partitioner is not None:
            numbers = list(range(count))
            return np.array(
                [self._call_partitioner(topic, key, numbers) for key in keys.to_pylist()], dtype=np.int32
            )
        if keys.null_count == len(keys):
            return self._sticky_in(topic, count).partitions(_sizes(records, chosen))
        partitions = murmur2_partitions(keys, count)
        if keys.null_count:
            null = keys.is_null().to_numpy(zero_copy_only=False)
            without_key = np.flatnonzero(null) if chosen is None else chosen[null]
            partitions[null] = self._sticky_in(topic, count).partitions(_sizes(records, without_key))
        return partitions

    def _without_keys(
        self, topic: str, records: pa.RecordBatch, chosen: _Rows, count: int
    ) -> NDArray[np.int32]:
        if self._distribution == "sticky":
            return self._sticky_in(topic, count).partitions(_sizes(records, chosen))
        size = records.num_rows if chosen is None else len(chosen)
        turn = self._turn.get(topic, self._first % count)
        self._turn[topic] = (turn + size) % count
        return ((turn + np.arange(size)) % count).astype(np.int32)

    def _sticky_in(self, topic: str, count: int) -> StickyPartitioner:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyPartitioner(count, self._batch_size, self._first)
        return sticky

    def _call_partitioner(self, topic: str, key: bytes | None, numbers: list[int]) -> int:
        assert self._partitioner is not None
        number = self._partitioner(key, numbers, numbers)
        if number not in numbers:
            raise InvalidRecordError(
                f"The partitioner returned {number!r}, but topic {topic!r} has {len(numbers)} partitions",
                hint="Let it return one of the numbers that it is given.",
            )
        return number


def _has_partitions(rows: pa.RecordBatch) -> bool:
    return bool(rows.schema.get_field_index("partition") >= 0)


def _taken(column: pa.Array, chosen: _Rows) -> pa.Array:
    return column if chosen is None else column.take(pa.array(chosen))


def _sizes(records: pa.RecordBatch, chosen: _Rows) -> NDArray[np.int64]:
    """Estimates the bytes of each row in a record batch."""
    sizes = _RECORD_OVERHEAD + payload_sizes(records.column("key"), records.column("value"))
    return sizes if chosen is None else sizes[chosen]
