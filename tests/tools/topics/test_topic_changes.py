"""Topics are made, changed and deleted alike in a directory and a cluster; wrong requests change nothing."""

from __future__ import annotations

import io
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import CreatedTopic, NewTopic, TopicChange, TopicToDelete, connect
from pyspark_kafkalog.errors import (
    LogDirectoryError,
    LogDirectoryLockedError,
    OptionError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.log.publish import topics as on_disk
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.tools.records.input_lines import keyed, records_of
from tests.kafka import Broker, dump_log_segments
from tests.log.writing import values, write


def new_name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


class Place:
    def __init__(self, options: dict[str, str]) -> None:
        kafka = connect(options)
        self.place, self.topics, self.groups = kafka.place, kafka.topics, kafka.groups

    def create(self, topic: str, partitions: int | None = None, **more: Any) -> list[CreatedTopic]:
        configs = more.pop("configs", {})
        return self.topics.create([NewTopic(topic, partitions, None, configs)], **more)

    def alter(self, topic: str, **more: Any) -> list[TopicChange]:
        changes = self.topics.plan_alteration([topic], **more)
        self.topics.alter(changes)
        return changes

    def delete(self, topic: str, **more: Any) -> list[TopicToDelete]:
        rows = self.topics.plan_deletion([topic], **more)
        self.topics.delete(rows)
        return rows


@pytest.fixture
def at(options: dict[str, str]) -> Place:
    return Place(options)


def test_the_life_of_a_topic(at: Place, options: dict[str, str]) -> None:
    name = new_name()
    assert at.create(name, 2, configs={"retention.ms": "-1"}) == [CreatedTopic(name, 2, True)]
    assert at.place.topics([name]) == {name: (0, 1)}
    assert at.topics.configs([name]) == {name: {"retention.ms": "-1"}}
    topic_id = at.place.topic_ids([name])[name]
    assert len(topic_id) == 22

    changes = at.alter(name, partitions=4, configs={"retention.ms": None, "cleanup.policy": "compact"})
    assert changes == [
        TopicChange(name, "partitions", "2", "4"),
        TopicChange(name, "retention.ms", "-1", None),
        TopicChange(name, "cleanup.policy", None, "compact"),
    ]
    assert at.place.topics([name]) == {name: (0, 1, 2, 3)}
    deadline = time.monotonic() + 60  # the controller has altered it; a broker hears of it a moment later
    while (found := at.topics.configs([name])) == {name: {"retention.ms": "-1"}}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert found == {name: {"cleanup.policy": "compact"}}
    assert at.place.topic_ids([name])[name] == topic_id
    assert at.alter(name, partitions=4, configs={"cleanup.policy": "compact"}) == []

    lines = io.BytesIO(b"k=a\nk=b\nk=c\n")
    connect(options).write(records_of([lines], keyed(b"=")), name)
    (row,) = at.delete(name)
    assert (row.topic, row.partitions, row.records) == (name, 4, 3)
    assert name not in at.place.topics()


def test_a_topic_of_the_same_name_inherits_nothing(at: Place, options: dict[str, str]) -> None:
    name = new_name()
    at.create(name, 1, configs={"retention.ms": "5"})
    before = at.place.topic_ids([name])[name]
    partition = TopicPartition(name, 0)
    at.groups.commit(name, {partition: CommittedOffset(0)})
    at.delete(name)
    again = Place(options)
    again.create(name)
    assert again.place.topic_ids([name])[name] != before
    assert again.topics.configs([name]) == {name: {}}
    assert again.groups.committed(name) == {}


def test_what_exists_or_is_missing(at: Place) -> None:
    name = new_name()
    at.create(name)
    with pytest.raises(TopicExistsError, match=name):
        at.create(name)
    assert at.create(name, 7, if_not_exists=True) == [CreatedTopic(name, 1, False)]
    other, new = new_name(), [NewTopic(each, 1) for each in (name, new_name())]
    at.create(other)
    with pytest.raises(TopicExistsError, match=f"^Topics {', '.join(sorted([name, other]))} exist already"):
        at.topics.create([*new, NewTopic(other, 1)])
    with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
        at.delete("missing")
    assert at.delete("missing", if_exists=True) == []
    with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
        at.alter("missing", partitions=3)
    assert at.alter("missing", partitions=3, if_exists=True) == []


def test_wrong_requests_change_nothing(at: Place) -> None:
    name = new_name()
    with pytest.raises(OptionError, match=r"Did you mean retention\.ms"):
        at.create(name, configs={"retention.mss": "1"})
    with pytest.raises(OptionError, match="expected a whole number from -1"):
        at.create(name, configs={"retention.ms": "a week"})
    with pytest.raises(OptionError, match="Illegal topic name"):
        at.create("a/b")
    with pytest.raises(OptionError, match="expected 1 to"):
        at.create(name, 0)
    with pytest.raises(OptionError):
        at.topics.create([NewTopic(name, 1, 3)])
    with pytest.raises(OptionError, match="named twice"):
        at.topics.create([NewTopic(name), NewTopic(name)])
    assert at.create(name, 2, validate_only=True) == [CreatedTopic(name, 2, True)]
    assert name not in at.place.topics()
    at.create(name, 3)
    with pytest.raises(OptionError, match="expected more, got 2"):
        at.alter(name, partitions=2)
    with pytest.raises(OptionError, match=r"Did you mean cleanup\.policy"):
        at.alter(name, configs={"cleanup_policy": "compact"})
    assert at.place.topics([name]) == {name: (0, 1, 2)}


def test_internal_topics_are_neither_deleted_nor_created(at: Place, options: dict[str, str]) -> None:
    name = new_name()
    at.create(name)
    partition = TopicPartition(name, 0)
    at.groups.commit(name, {partition: CommittedOffset(0)})
    before = at.place.topics(["__consumer_offsets"])
    assert before
    for topic, lost in (
        ("__consumer_offsets", "offsets of all consumer groups, and all markers of exactly-once writes"),
        ("__transaction_state", "state of all transactions"),
        ("__share_group_state", "share groups"),
        ("__remote_log_metadata", "tiered storage"),
    ):
        for names in [topic], [name, topic]:
            with pytest.raises(OptionError, match=rf"{topic} is an internal topic.*{lost}"):
                at.topics.plan_deletion(names, if_exists=True)
        with pytest.raises(OptionError, match=f"{topic} is an internal topic, which brokers alone create"):
            at.create(topic, if_not_exists=True)
    assert at.place.topics(["__consumer_offsets"]) == before
    assert name in at.place.topics()
    assert set(Place(options).groups.committed(name)) == {partition}


def test_only_a_single_local_directory_can_be_changed(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    at = Place({"path": f"{tmp_path}/a,{tmp_path}/b"})
    with pytest.raises(LogDirectoryError, match="single local log directory"):
        at.create("t")


@pytest.mark.broker
def test_a_directory_that_a_broker_holds_is_left_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "LOCK_SECONDS", 0.1)
    at = Place({"path": str(broker.log_dir)})
    name = new_name()
    broker.create_topic(name)
    with pytest.raises(LogDirectoryLockedError):
        at.create("new")
    with pytest.raises(LogDirectoryLockedError):
        at.delete(name)
    with pytest.raises(LogDirectoryLockedError):
        at.alter(name, partitions=2)
    assert name in at.place.topics()


@pytest.mark.long
@pytest.mark.broker
def test_a_broker_serves_topics_made_in_its_directory(new_broker: Any) -> None:
    broker = new_broker()
    broker.start()
    broker.create_topic("kept", 1)
    broker.create_topic("gone", 2)
    broker.stop()
    at = Place({"path": str(broker.log_dir)})
    at.create("made", 2)
    at.delete("gone")
    write(broker.log_dir, {TopicPartition("kept", 0): values(5)})
    assert not list(broker.log_dir.glob("gone-*"))
    assert dump_log_segments(*sorted(broker.log_dir.glob("made-*/*.log")))
