"""A group is moved out of ZooKeeper and back, between a real old consumer and a new one."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from pyspark_kafkalog import connect
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.extensions.zookeeper.test_znodes import CONSUMER
from tests.kafka_old import OldBroker
from tests.old_consumers import Topic
from tests.tools.cli.running import run

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("ended_sessions")]


@pytest.fixture
def place(zookeeper_broker: OldBroker) -> str:
    return f"zk://{zookeeper_broker.zookeeper_connect}"


@pytest.fixture
def topic(zookeeper_broker: OldBroker) -> Topic:
    return Topic(zookeeper_broker)


def moved(source: str, target: object, topic: Topic, folder: Path) -> None:
    """Export the offsets of the topic's group, and import them, after a dry run that changes nothing."""
    file = folder / "offsets.json"
    exported = run("offsets", "export", source, "--group", topic.name)
    assert exported.code == 0, exported.err
    file.write_text(exported.out)
    before = run("offsets", "export", target, "--group", topic.name).out
    dry = run("offsets", "import", target, file)
    assert (dry.code, "Dry run" in dry.err) == (0, True), dry.err
    assert run("offsets", "export", target, "--group", topic.name).out == before
    done = run("offsets", "import", target, file, "--execute")
    assert (done.code, done.out) == (0, dry.out), done.err
    offsets = [
        run("offsets", "export", at, "--group", topic.name, "--format", "csv").out for at in (source, target)
    ]
    assert offsets[0] == offsets[1]


@pytest.mark.long
def test_a_group_moves_out_of_zookeeper_and_back(topic: Topic, place: str, tmp_path: Path) -> None:
    topic.produce(30)
    read = topic.read_by_the_old_consumer(12, "auto.offset.reset=smallest")
    lag = run("lag", place, "--group", topic.name, "--max-lag", "17")
    assert (lag.code, lag.lines[1][:3]) == (1, [topic.name, "18", lag.lines[1][2]])

    moved(place, topic.broker.bootstrap, topic, tmp_path)
    read += topic.read_by_a_new_consumer(10)
    topic.produce(6)
    assert run("lag", topic.broker.bootstrap, "--group", topic.name).lines[1][1] == "14"

    moved(topic.broker.bootstrap, place, topic, tmp_path)
    read += topic.read_by_the_old_consumer(14)
    assert sorted(read, key=int) == topic.produced, "nothing is lost, and nothing repeated"
    lag = run("lag", place, "--group", topic.name, "--max-lag", "0")
    assert (lag.code, lag.lines[1][1]) == (0, "0")


def test_a_group_moves_into_a_directory(topic: Topic, place: str, tmp_path: Path) -> None:
    topic.produce(10)
    read = topic.read_by_the_old_consumer(4, "auto.offset.reset=smallest")
    directory = tmp_path / "backup"
    copied = run("backup", topic.broker.bootstrap, directory, topic.name)
    assert copied.code == 0, copied.err
    moved(place, directory, topic, tmp_path)
    with connect(str(directory)) as kafka, kafka.changes(topic.name, group=topic.name) as changes:
        read += [str(value.as_py(), "ascii") for value in changes.read().read_all()["value"]]
    assert sorted(read, key=int) == topic.produced


@pytest.mark.parametrize("stored", [{"offsets.storage": "zookeeper"}, {"dual.commit.enabled": "true"}])
def test_what_came_since_a_commit_in_zookeeper(topic: Topic, place: str, stored: dict[str, str]) -> None:
    topic.produce(6)
    options = {
        "kafka.bootstrap.servers": topic.broker.bootstrap,
        "zookeeper.connect": topic.broker.zookeeper_connect,
        **stored,
    }
    with connect(place) as zookeeper, connect(options) as kafka:
        partition = TopicPartition(topic.name, 1)
        zookeeper.groups.commit(topic.name, {partition: CommittedOffset(2)})
        with kafka.changes(topic.name, group=topic.name) as changes:
            assert sorted(changes.read().read_all()["value"].to_pylist()) == [b"0", b"2", b"4", b"5"]
        assert zookeeper.groups.committed(topic.name)[partition].offset == 3
        with kafka.changes(topic.name, group=topic.name) as changes:
            assert changes.read().read_all().num_rows == 0


@pytest.mark.long
def test_a_live_consumer_is_shown_and_left_alone(topic: Topic, place: str, tmp_path: Path) -> None:
    topic.produce(4)
    consumer = topic.broker.console_consumer(topic.name, topic.name, ["auto.offset.reset=smallest"])
    try:
        assert consumer.stdout is not None
        assert sorted(consumer.stdout.readline().strip() for _ in topic.produced) == topic.produced
        (shown,) = run("groups", place, "--group", topic.name, "--json").rows
        assert (shown["state"], shown["protocolType"]) == ("Stable", "consumer")
        (member,) = shown["members"]
        assert member["memberId"].startswith(f"{topic.name}_{member['host']}-")
        assert [(p["topic"], p["partition"]) for p in member["partitions"]] == [
            (topic.name, 0),
            (topic.name, 1),
        ]
        assert (
            f"{topic.name}-0, {topic.name}-1" in run("groups", place, "--group", topic.name, "--members").out
        )
        file = tmp_path / "offsets.csv"
        file.write_text(f"{topic.name},0,0\n")
        refused = run("offsets", "import", place, file, "--group", topic.name, "--execute")
        assert refused.code == 3
        assert "can be changed only while it is inactive, but it is Stable. Stop its consumers" in refused.err
        whole = ["offsets", "delete", place, "--group", topic.name, "--whole-group", "--execute"]
        assert (run(*whole).code, f"Group '{topic.name}' has live consumers" in run(*whole).err) == (3, True)
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.communicate(timeout=60)
    assert run("lag", place, "--group", topic.name, "--max-lag", "0").code == 0
    reset = ["offsets", "reset", place, "--group", topic.name, f"{topic.name}:1", "--to-earliest"]
    assert run(*reset, "--execute").code == 0
    assert topic.read_by_the_old_consumer(2) == ["1", "3"]
    assert run(*whole).code == 0
    assert run("groups", place, "--group", topic.name).code == 3


def test_an_export_says_which_group_it_leaves_out(topic: Topic, place: str) -> None:
    other = f"{topic.name}-other"
    partition = TopicPartition(topic.name, 0)
    with connect(place) as kafka:
        for group in topic.name, other:
            kafka.groups.commit(group, {partition: CommittedOffset(0)})
    client = KazooClient(topic.broker.zookeeper_connect)
    client.start()
    try:
        client.set(f"/consumers/{other}/offsets/{topic.name}/0", b"many")
    finally:
        client.stop()
        client.close()
    both = [place, "--group", topic.name, "--group", other]
    done = run("offsets", "export", *both)
    unreadable = f"Group '{other}' can't be read: Expected an offset of 0 or more, got b'many'"
    assert (done.code, [row["group"] for row in done.json]) == (1, [topic.name])
    assert done.err.startswith(unreadable)
    shown = run("offsets", *both, "--json")
    assert (shown.code, {row["group"]: row["state"] for row in shown.rows}) == (
        1,
        {topic.name: "ok", other: "failed"},
    )
    assert shown.err.startswith(unreadable)
    lag = run("lag", *both)
    assert (lag.code, lag.lines[-1]) == (1, ["Total", "lag:", "unknown"])
    assert run("lag", *both, "--json").json["lag"] is None
    watched = run("lag", *both, "--json", "--watch", "1", "--count", "1")
    assert (watched.code, watched.json["lag"]) == (1, None)


@pytest.mark.parametrize("words", [(), ("--members",), ("--json",)])
def test_groups_that_cannot_be_read_are_said(topic: Topic, place: str, words: tuple[str, ...]) -> None:
    client = KazooClient(topic.broker.zookeeper_connect)
    client.start()
    try:
        for group, data in ("good", json.dumps(CONSUMER).encode()), ("bad", b"{}"):
            client.create(f"/consumers/{topic.name}-{group}/ids/c", data, makepath=True)
        bad = f"{topic.name}-bad"
        done = run("groups", place, "--group", f"{topic.name}-good", "--group", bad, *words)
        assert (done.code, f"{topic.name}-good" in done.out) == (1, True)
        assert done.err == (
            f"Group '{bad}' can't be read: Expected a JSON object with a version, got b'{{}}'"
            f" (file {place}/consumers/{bad}/ids/c)\n"
        )
        assert ("got b'{}'" in done.out) == (words != ("--members",))
    finally:
        for group in "good", "bad":
            client.delete(f"/consumers/{topic.name}-{group}", recursive=True)
        client.stop()
        client.close()


def test_zookeeper_beside_another_place(topic: Topic, place: str) -> None:
    beside = f"zookeeper.connect={topic.broker.zookeeper_connect}"
    for words in (["groups"], ["lag"], ["offsets", "show"], ["topics"]):
        done = run(*words, topic.broker.bootstrap, "-o", beside)
        assert (done.code, "'zookeeper.connect' can't be set beside another place" in done.err) == (2, True)
        done = run(*words, place, "-o", beside)
        assert (done.code, "PLACE and option 'zookeeper.connect' both name a place" in done.err) == (2, True)


def test_what_zookeeper_has_not(topic: Topic, place: str) -> None:
    for words in (["topics", place], ["cat", place, topic.name], ["doctor", place], ["verify", place]):
        done = run(*words)
        assert (done.code, "ZooKeeper has only groups" in done.err) == (2, True), done.err
    with connect(place) as kafka:
        kafka.groups.commit(topic.name, {TopicPartition(topic.name, 0): CommittedOffset(0)})
    large = [
        "offsets",
        "reset",
        place,
        "--group",
        topic.name,
        "--all-topics",
        "--to-earliest",
        "--large-messages",
    ]
    assert (run(*large).code, "ZooKeeper keeps no metadata" in run(*large).err) == (2, True)
