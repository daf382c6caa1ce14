"""``transform`` without Spark: in reads, splits, changes and writes of a directory and of brokers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import KafkaLogError, NewTopic, OptionError, TopicPartition, connect
from tests.broker.producing import unused_topic

COUNT = 20


def using(name: str) -> dict[str, str]:
    return {"transform": f"tests.plugins:{name}"}


def table(numbers: range) -> pa.Table:
    return pa.table({"value": [b"%d" % number for number in numbers]})


@pytest.fixture
def topic(options: Mapping[str, str]) -> str:
    name = unused_topic()
    with connect(options) as kafka:
        kafka.topics.create([NewTopic(name)])
        kafka.write(table(range(COUNT)), name)
    return name


def test_a_read_gives_what_it_returns(options: Mapping[str, str], topic: str) -> None:
    kafka = connect({**options, **using("numbers")})
    rows = kafka.read(topic).read_all()
    assert rows.to_pydict() == {
        "topic": [topic] * COUNT,
        "offset": list(range(COUNT)),
        "number": list(range(COUNT)),
    }
    chosen = kafka.read(topic, columns=["number"], filters=[("number", ">=", 18), ("topic", "=", topic)])
    assert chosen.read_all().to_pydict() == {"number": [18, 19]}
    parts = [pickle.loads(pickle.dumps(split)) for split in kafka.plan(topic, options={"minPartitions": "3"})]
    assert len(parts) == 3
    assert [n for part in parts for n in part.read().read_all()["number"].to_pylist()] == list(range(COUNT))
    with pytest.raises(OptionError, match="Unknown column 'value'"):
        kafka.read(topic, columns=["value"])


def test_filters_hold_for_what_it_returns(options: Mapping[str, str], topic: str) -> None:
    rows = connect(options).read(topic, filters=[("offset", ">=", 1018)], options=using("shifted")).read_all()
    assert rows["offset"].to_pylist() == [1018, 1019]


def test_rows_that_it_leaves_out_count_as_read(options: Mapping[str, str], topic: str) -> None:
    kafka = connect(options)
    for expected in COUNT // 2, 0:
        with kafka.changes(topic, group=f"{topic}-etl", options=using("evens")) as changes:
            assert changes.read().read_all().num_rows == expected
    (offset,) = kafka.groups.offsets([f"{topic}-etl"])
    assert (offset.partition, offset.offset) == (0, COUNT)


@pytest.mark.parametrize("as_batches", [False, True])
def test_a_write_takes_what_it_returns(options: Mapping[str, str], as_batches: bool) -> None:
    topic = unused_topic()
    connect(options).topics.create([NewTopic(topic)])
    rows = pa.table({"id": list(range(5)), "name": [f"n{number}" for number in range(5)]})
    given = rows.to_batches(max_chunksize=2) if as_batches else rows
    assert connect(options).write(given, topic, options=using("to_json")) == 3, "two have odd ids"
    values = connect(options).read(topic, columns=["value"]).read_all()["value"].to_pylist()
    assert values[1] == b'[{"id": "int64", "name": "string"}, {"id": 2, "name": "n2"}]'


def test_it_may_choose_the_topic(tmp_path: Path) -> None:
    kafka = connect(str(tmp_path))
    assert kafka.write(table(range(2)), options=using("with_topic")) == 2
    assert [found.topic for found in kafka.topics.partitions()] == ["chosen"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails_at_once", "raised KeyError"),
        (
            "sizes",
            "returned columns that can't be written: Required column 'value' not found. Have the function"
            " return value, or more of key, value, headers, topic, partition, timestamp.",
        ),
        ("gives_no_columns", "returned no column"),
        ("gives_negative_sizes", "returned a broken batch"),
        ("gives_sizes_beyond_the_bytes", "returned a broken batch"),
        ("gives_text_that_is_none", "returned a broken batch"),
        ("gives_partitions_too_large", "returned what can't be written: Column 'partition' has a value"),
        ("fails_at_rows", "raised ValueError"),
    ],
)
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, name: str, said: str) -> None:
    kafka = connect(str(tmp_path))
    with pytest.raises(KafkaLogError, match=rf"^The transform 'tests.plugins:{name}' {said}"):
        kafka.write(table(range(2)), "t", options=using(name))
    assert [file.name for file in tmp_path.rglob("*.log")] == []
    assert not list(tmp_path.glob(".kafkalog-staged*"))


def test_an_error_of_a_read_says_where(tmp_path: Path) -> None:
    kafka = connect(str(tmp_path))
    kafka.write(table(range(5)), "t")
    with pytest.raises(KafkaLogError, match=r"raised ValueError.*: three") as raised:
        kafka.read("t", options={**using("fails_at_three"), "startingOffsets": '{"t":{"0":2}}'}).read_all()
    assert (raised.value.topic_partition, raised.value.offset) == (str(TopicPartition("t", 0)), 2)
    with pytest.raises(OptionError, match="raised KeyError"):
        kafka.read("t", options=using("fails_at_once"))


def test_it_is_given_whole_messages_and_headers(tmp_path: Path) -> None:
    kafka = connect(str(tmp_path))
    split = {"large.message.enabled": "true", "max.message.segment.bytes": "10"}
    kafka.write(pa.table({"value": [b"x" * 25, b"small"]}), "t", options=split)
    whole = {**using("sizes"), "large.message.enabled": "true"}
    assert kafka.read("t", options=whole).read_all().to_pydict() == {"size": [25, 5]}
    names = kafka.read("t", options={**using("same"), "includeHeaders": "true"}).schema.names
    assert names[-1] == "headers"
    letters = {**whole, **using("same"), "large.message.dead.letters": "true"}
    assert kafka.read("t", options=letters).schema.names[-1] == "dropped"
