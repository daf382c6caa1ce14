"""A topic as the store of an audit: the last record with a key stands, also of entries in many parts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.audit import topic as topic_module
from pyspark_kafkalog.extensions.audit.stores import Name, read_entries
from pyspark_kafkalog.extensions.audit.topic import TopicEntries, TopicStore
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_report
from tests.broker.producing import unused_topic
from tests.kafka import Broker

NAME = Name("producer/q/0", "00000")


def stored(path: Path, rows: list[tuple[str | None, bytes | None, int, int]]) -> TopicEntries:
    """What a topic of a directory says, of key, value, partition and time in ms."""
    keys, values, partitions, times = zip(*rows, strict=True)
    table = pa.table(
        {
            "key": pa.array([None if key is None else key.encode() for key in keys], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
            "timestamp": pa.array([at * 1000 for at in times], pa.timestamp("us", tz="UTC")),
        }
    )
    connect(path).write(table, "a", options={"numPartitions": "2"})
    return TopicEntries.of(open_report(place_options({"path": str(path)})), "a")


def test_the_last_record_of_a_partition_stands_whatever_its_time_and_the_latest_of_several(
    tmp_path: Path,
) -> None:
    again, moved = "producer/q/0/00000", "producer/q/0/00001"
    entries = stored(
        tmp_path,
        [
            (again, b"old", 0, 9000),
            (moved, b"old", 0, 5000),
            (again, b"new", 0, 1000),
            (moved, b"new", 1, 6000),
            (None, b"x", 0, 1),
            ("deleted", None, 0, 1),
            ("of/some/thing/else", b"x", 0, 1),
            ("producer/q/0/committed", b"2", 1, 1),
            ("producer/q/0/00002", b"of more shares", 1, 1),
        ],
    )
    assert sorted(read_entries(entries)) == [(b"new", True), (b"new", True)]


@pytest.mark.parametrize("key", [None, "c1", "producer/q"])
def test_a_topic_of_other_records_is_refused(key: str | None, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Topic 'a' has records, but no counts"):
        stored(tmp_path, [(key, b"12.50", 0, 1)])


@pytest.mark.broker
def test_an_entry_in_parts(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_module, "_PART_BYTES", 10)
    topic = unused_topic()
    broker.create_topic(topic, 3)
    store = TopicStore(topic, ConnectionOptions((broker.bootstrap,)), ProduceOptions())
    place = open_report(place_options({"kafka.bootstrap.servers": broker.bootstrap}))
    for data in b"0123456789abcdefghijk", b"again, in other parts", b"short":
        store.put(NAME, data)
        assert list(read_entries(TopicEntries.of(place, topic))) == [(data, False)]
    store.put(NAME, b"0123456789abcdefghijk")
    found = TopicEntries.of(place, topic)
    *_, newest = (name for name, value in found.found.items() if value == b"abcdefghij")
    del found.found[newest]
    assert list(read_entries(found)) == []
    assert "The counts of producer/q/0/00000 are incomplete" in caplog.text
