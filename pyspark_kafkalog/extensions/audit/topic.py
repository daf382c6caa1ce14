"""A topic as the store of an audit: a record for each entry, by the connection settings of the query.

The key of a record is the entry's name, and its value the content. The last record with a key stands, so that
the topic may be compacted. All of a name go to the partition that Kafka's own partitioner gives the key. An
entry that is too large for one record is stored in parts, with random names; they come first, and the entry's
own record names them.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyspark_kafkalog.broker.produce.sink import BrokerSink
from pyspark_kafkalog.client.partitions import bounds_of
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.partitioner import murmur2_partitions
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.audit.stores import Name, names_in
from pyspark_kafkalog.model import EncodeSettings, OffsetRange, Place, QueryBatch, TaskAttempt, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions, ProduceOptions
from pyspark_kafkalog.options.settings import PlaceOptions, Selection
from pyspark_kafkalog.places import open_report
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.reader import columns_of
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.write.rows import RECORD

_PART_BYTES = 500_000
"""The most bytes of an entry in one record, which every topic takes by default."""
_PARTS = b'{"parts": '
"""The first bytes of a record that names the parts of its entry; a line of counts has no such field."""

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class TopicStore:
    """A topic of the cluster whose records are counted."""

    topic: str
    connection: ConnectionOptions
    produce: ProduceOptions

    def check(self, batch: str) -> None:
        """See :meth:`.stores.Store.check`.

        :raises UnknownTopicOrPartitionError: if there is no such topic, and brokers don't create it.
        """
        with self._sink().open(QueryBatch(""), TaskAttempt(0, 0, 0)) as producer:
            producer.partition_count(self.topic)

    def put(self, name: Name, data: bytes) -> None:
        """See :meth:`.stores.Store.put`. All replicas have it when this returns."""
        rows = list(_rows(str(name).encode(), data))
        keys, values = zip(*rows, strict=True)
        now = [time.time_ns() // 1_000_000] * len(rows)
        records = pa.RecordBatch.from_arrays(
            [
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
                pa.nulls(len(rows), RECORD.field("headers").type),
                pa.array(now, pa.int64()),
            ],
            schema=RECORD,
        )
        with self._sink().open(QueryBatch(""), TaskAttempt(0, 0, 0)) as producer:
            of_name = pa.array([str(name).encode()], pa.binary())
            count = producer.partition_count(self.topic)
            partition = TopicPartition(self.topic, int(murmur2_partitions(of_name, count)[0]))
            for row in range(len(rows)):
                one, settings = records.slice(row, 1), producer.settings(partition)
                producer.append(partition, encode(one, None, settings, topic_partition=partition))
            producer.finish()

    def has(self, name: Name) -> bool:
        """See :meth:`.stores.Store.has`; it reads the topic."""
        place = open_report(PlaceOptions(brokers=self.connection, fetch=FetchOptions()))
        found = (_last_of(rows) for rows in _records(place, self.topic))
        return any(str(name) in last for last in found)

    def _sink(self) -> BrokerSink:
        # A record that is there twice counts once, so that no producer id is needed.
        produce = replace(self.produce, acks=-1, enable_idempotence=False)
        return BrokerSink(self.connection, produce, EncodeSettings("gzip"))


def _rows(name: bytes, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of the records of an entry, in order."""
    if len(data) <= _PART_BYTES:
        yield name, data
        return
    parts = []
    for position in range(0, len(data), _PART_BYTES):
        parts.append(f"{name.decode()}/{uuid.uuid4().hex}")
        yield parts[-1].encode(), data[position : position + _PART_BYTES]
    yield name, json.dumps({"parts": parts}).encode()


@dataclass(frozen=True, slots=True)
class TopicEntries:
    """The entries in a topic: for each name the last record."""

    found: dict[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, place: Place, topic: str) -> TopicEntries:
        """The entries of a topic, up to its end as it is now.

        :raises UnknownTopicOrPartitionError: if there is no such topic.
        :raises OptionError: if it has only other records.
        :raises DataLossError: if records are deleted meanwhile.
        """
        found: dict[str, tuple[int, bytes]] = {}
        has_records = False
        for rows in _records(place, topic):
            has_records = True
            for name, stored in _last_of(rows).items():
                # A topic that got more partitions has a name in two of them: the later one stands.
                if name not in found or found[name][0] < stored[0]:
                    found[name] = stored
        entries = cls({name: value for name, (_, value) in found.items()})
        if has_records and not entries.names():
            raise OptionError(
                f"Topic {topic!r} has records, but no counts", hint="Give a topic that auditTopic has named."
            )
        return entries

    def names(self) -> list[Name]:
        """See :meth:`.stores.Entries.names`."""
        return names_in(self.found)

    def read(self, name: Name) -> bytes | None:
        """See :meth:`.stores.Entries.read`; None also for an entry that lacks parts, which are deleted."""
        data = self.found.get(str(name))
        if data is None or not data.startswith(_PARTS):
            return data
        parts = [self.found.get(part) for part in json.loads(data)["parts"]]
        if any(part is None for part in parts):
            _log.warning("The counts of %s are incomplete, as the topic has deleted some", name)
            return None
        return b"".join(part for part in parts if part is not None)


def _records(place: Place, topic: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """The records of each partition, up to its end as it is now."""
    schema = columns_of(["key", "value", "timestamp"])
    reader = RecordReader(place, ReadRules(schema, read_committed=False, fail_on_data_loss=True))
    partitions = look_up_partitions(place, Selection(topics=(topic,)))
    for partition, bounds in bounds_of(place, partitions).items():
        offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
        if offsets.start < offsets.end:
            yield reader.read(Split(partition, offsets))


def _last_of(arrow_batches: Iterable[pa.RecordBatch]) -> dict[str, tuple[int, bytes]]:
    """Timestamp in µs and value of the last record of each key of a partition."""
    last: dict[str, tuple[int, bytes]] = {}
    for rows in arrow_batches:
        times = rows.column("timestamp").cast(pa.int64()).fill_null(0).to_pylist()
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        for key, value, at in zip(keys, values, times, strict=True):
            if key is not None and value is not None:  # others are not an audit's
                last[key.decode(errors="replace")] = at, value
    return last
