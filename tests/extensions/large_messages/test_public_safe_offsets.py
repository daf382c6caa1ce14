"""Where to begin to miss no large message: at offsets, ends and checkpoints, by Python and the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import (
    DataLossError,
    KafkaLogError,
    NewTopic,
    OptionError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    connect,
)
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.large_log import Message
from tests.tools.cli.running import run

THREE, TWO = Message(7, 3), Message(8, 2)
VALUES = [
    b"x",
    THREE.segment(0),
    TWO.segment(0),
    b"y",
    TWO.segment(1),
    THREE.segment(1),
    THREE.segment(2),
    b"z",
]
SAFE = [0, 1, 1, 1, 1, 1, 1, 7, 8]
"""The safe offset at each offset."""


@pytest.fixture(params=["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "directory":
        (tmp_path / "logs").mkdir()
        return {"path": str(tmp_path / "logs")}
    broker: Broker = request.getfixturevalue("broker")
    return {"kafka.bootstrap.servers": broker.bootstrap}


@pytest.fixture
def topic(options: Mapping[str, str]) -> str:
    """A topic whose only partition has VALUES, and an open message at its end."""
    topic, kafka = unused_topic(), connect(options)
    kafka.topics.create([NewTopic(topic)])
    kafka.write(pa.table({"value": [*VALUES, Message(9, 2).segment(1), b"end"]}), topic)
    return topic


def test_at_each_offset_and_at_the_end(options: Mapping[str, str], topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with connect(options) as kafka:
        assert [kafka.groups.safe_offsets({partition: at})[partition] for at in range(9)] == SAFE
        assert kafka.groups.safe_offsets([partition]) == {partition: 8}
    gap = {"message.assembler.expiration.offset.gap": "1"}
    with connect({**options, **gap}) as kafka:
        assert kafka.groups.safe_offsets({partition: 4}) == {partition: 2}


def test_a_new_reader_that_begins_there_has_each_message_that_is_open(
    options: Mapping[str, str], topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    with connect(options) as kafka:
        (safe,) = kafka.groups.safe_offsets({partition: 5}).values()
        start = json.dumps({topic: {"0": safe}})
        found = kafka.read(topic, options={"startingOffsets": start, "large.message.enabled": "true"})
        assert THREE.value in found.read_all().column("value").to_pylist()


def checkpoint(folder: Path, *ends: Mapping[str, int], complete: int) -> str:
    """A checkpoint as Spark writes it, of a query that has planned ``ends`` and completed so many of them."""
    for name in "offsets", "commits":
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"6f5b4b0e-0000-4000-8000-000000000000"}')
    for batch, end in enumerate(ends):
        lines = ["v1", "{}", '{"logOffset":0}', json.dumps({topic: {"0": at} for topic, at in end.items()})]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
        if batch < complete:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


def test_a_checkpoint_is_where_its_last_complete_micro_batch_has_ended(
    options: Mapping[str, str], topic: str, tmp_path: Path
) -> None:
    location = checkpoint(tmp_path / "c", {topic: 2}, {topic: 5}, {topic: 8}, complete=2)
    with connect(options) as kafka:
        assert kafka.groups.safe_offsets(location) == {TopicPartition(topic, 0): 1}
        assert kafka.groups.safe_offsets(tmp_path / "c") == {TopicPartition(topic, 0): 1}
        with pytest.raises(KafkaLogError, match="query's id is missing"):
            kafka.groups.safe_offsets(str(tmp_path / "other"))
        new = checkpoint(tmp_path / "new", {topic: 2}, complete=0)
        with pytest.raises(OptionError, match=r"has completed no micro-batch that reads topics\. Wait"):
            kafka.groups.safe_offsets(new)


def test_the_command_shows_the_same(options: Mapping[str, str], topic: str, tmp_path: Path) -> None:
    (place,) = options.values()
    rows = [{"topic": topic, "partition": 0, "offset": 10, "safeOffset": 8}]
    assert run("offsets", "safe", place, topic, "--json").rows == rows
    assert run("offsets", "safe", place, f"{topic}:0", "--json").rows == rows
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({topic: {"0": 5}}))
    rows = [{"topic": topic, "partition": 0, "offset": 5, "safeOffset": 1}]
    assert run("offsets", "safe", place, "--from-file", file, "--json").rows == rows
    location = checkpoint(tmp_path / "c", {topic: 5}, complete=1)
    assert run("offsets", "safe", place, "--checkpoint", location, "--json").rows == rows
    assert "SAFE" in run("offsets", "safe", place, "--checkpoint", location).out
    for words in (), (topic, "--checkpoint", location):
        done = run("offsets", "safe", place, *words)
        assert (done.code, "Give one of TOPIC, --from-file and --checkpoint." in done.err) == (2, True)


def test_what_is_refused(options: Mapping[str, str], topic: str) -> None:
    partition, missing = TopicPartition(topic, 0), TopicPartition(unused_topic(), 0)
    wrong: list[tuple[Any, type[KafkaLogError], str]] = [
        (7, OptionError, "Expected partitions, offsets by partition, a query or a checkpoint, got int"),
        (
            [topic],
            OptionError,
            "Expected partitions, offsets by partition, a query or a checkpoint, got list",
        ),
        ({partition: -2}, OptionError, "Expected an offset, a whole number from 0, got -2"),
        ({partition: True}, OptionError, "Expected an offset, a whole number from 0, got True"),
        ("", OptionError, "The location of a checkpoint is empty"),
        ({partition: 11}, DataLossError, r"Expected an offset up to the end of the log, 10 .*recreated"),
        ([missing], UnknownTopicOrPartitionError, missing.topic),
        ({missing: 0}, UnknownTopicOrPartitionError, missing.topic),
    ]
    with connect(options) as kafka:
        for at, error, said in wrong:
            with pytest.raises(error, match=said):
                kafka.groups.safe_offsets(at)
