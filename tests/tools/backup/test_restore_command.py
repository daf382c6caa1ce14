"""``kafkalog restore`` shows what it would do, does it, and says where offsets went."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import fsspec
import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import connect
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests import librdkafka
from tests.broker.producing import numbered
from tests.kafka import Broker
from tests.tools.cli.running import records, run


@pytest.mark.broker
def test_a_directory_goes_into_a_cluster(root: Path, broker: Broker) -> None:
    at, name, group = broker.bootstrap, f"restored-{uuid.uuid4().hex[:8]}", "g"
    words = ("restore", root, at, "t", "--rename", f"t={name}", "--group", group)
    dry = run(*words)
    assert dry.code == 0, dry.err
    assert dry.lines[:3] == [
        ["TOPIC", "PARTITION", "RECORDS", "SIZE", "TARGET", "OFFSETS"],
        ["t", "0", "10", *dry.lines[1][3:5], name, "kept"],
        ["t", "1", "4", *dry.lines[2][3:5], name, "kept"],
    ]
    assert dry.lines[-2][:5] == [group, "t", "0", "4", "4"]
    assert "Dry run" in dry.err
    slip = run("restore", root, at, "t", "--rename", f"tt={name}")
    assert "is not among those to restore. Did you mean t?" in slip.err
    assert name not in broker_topics(at)
    assert not list(root.glob(".kafkalog-restore*"))

    done = run(*words, "--execute", "--rate", "10M", "--json")
    assert done.code == 0, done.err
    assert [row["records"] for row in done.json["partitions"]] == [10, 4]
    assert Path(done.json["state"]) in root.glob(".kafkalog-restore-*.jsonl")
    old, new = records(root, "t"), records(at, name)
    for field in ("partition", "offset", "timestamp", "value"):
        assert [row[field] for row in old] == [row[field] for row in new]
    assert run(*words, "--execute", "--json").json["groups"][0]["note"] == "committed before"


@pytest.mark.broker
def test_groups_in_use(root: Path, broker: Broker, tmp_path: Path) -> None:
    """Their offsets are not committed, so consumers would begin elsewhere; the next run commits them."""
    name, group = f"restored-{uuid.uuid4().hex[:8]}", f"live-{uuid.uuid4().hex[:8]}"
    connect(root).groups.commit(group, {TopicPartition("t", 0): CommittedOffset(4)})
    broker.create_topic(name, 2)
    words = ("restore", root, broker.bootstrap, "t", "--rename", f"t={name}", "--group", group)
    words = (*words, "--state", tmp_path / "state", "--execute")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    with librdkafka.member(settings) as consumer:
        consumer.subscribe([name])
        deadline = time.monotonic() + 60
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.1)
        done = run(*words)
    assert done.code == 1, done.err
    assert "not committed: " in done.out
    assert f"Offsets of {group} were not committed, see NOTE" in done.err
    assert len(records(broker.bootstrap, name)) == 14
    again = run(*words, "--json")
    assert again.code == 0, again.err
    assert [(row["targetOffset"], row["note"]) for row in again.json["groups"]] == [(4, "")]


@pytest.mark.broker
def test_what_the_target_does_not_take(root: Path, broker: Broker, tmp_path: Path) -> None:
    """It is said before anything is made, with a way out."""
    names = [f"restored-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    renames = [word for pair in zip("tu", names, strict=True) for word in ("--rename", "=".join(pair))]
    words = ("restore", root, broker.bootstrap, "t", "u", *renames, "--execute")
    words = (*words, "--state", tmp_path / "state")
    configs = {"version": 1, "topics": {"u": {"remote.storage.enable": "true"}}}
    (root / ".kafkalog-topics").write_text(json.dumps(configs))
    refused = run(*words)
    assert (refused.code, "--set remote.storage.enable=" in refused.err) == (2, True), refused.err
    assert not broker_topics(broker.bootstrap) & set(names)
    done = run(*words, "--set", "remote.storage.enable=", "--set", "retention.ms=")
    assert done.code == 0, done.err
    for name in ("__consumer_offsets", "__remote_log_metadata"):
        refused = run("restore", root, broker.bootstrap, "t", "--rename", f"t={name}")
        assert (refused.code, f"{name} is an internal topic" in refused.err) == (2, True)


@pytest.mark.broker
def test_half_of_a_transaction(broker: Broker, tmp_path: Path) -> None:
    """It is left out, even if it was committed behind the end that is asked for."""
    source, name = f"source-{uuid.uuid4().hex[:8]}", f"restored-{uuid.uuid4().hex[:8]}"
    broker.create_topic(source, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": source})
    producer.init_transactions()
    for values in ("ab", "cdef"):
        producer.begin_transaction()
        for value in values:
            producer.produce(source, value)
        producer.commit_transaction()
    ends = tmp_path / "ends"
    ends.write_text(f"{source},0,5\n")
    words = ("restore", broker.bootstrap, broker.bootstrap, source, "--rename", f"{source}={name}")
    done = run(*words, "--to-offsets", ends, "--state", tmp_path / "state", "--no-groups", "--execute")
    assert done.code == 0, done.err
    assert [row["value"] for row in records(broker.bootstrap, name)] == ["a", "b"]


@pytest.mark.broker
def test_another_target(root: Path, broker: Broker, tmp_path: Path) -> None:
    """What a file of a restore says of its target must still hold."""
    name, state = f"restored-{uuid.uuid4().hex[:8]}", tmp_path / "state"
    words = ("restore", root, broker.bootstrap, "u", "--rename", f"u={name}", "--no-groups")
    words = (*words, "--state", state, "--execute")
    assert run(*words).code == 0
    plan, offsets, done = state.read_text().splitlines(keepends=True)

    def changed(**values: str) -> str:
        return json.dumps({**json.loads(plan), **values}) + "\n"

    state.write_text(changed(clusterId="other") + offsets + done)
    refused = run(*words)
    assert (refused.code, "begun to another cluster: expected cluster id other" in refused.err) == (2, True)
    more = [{**json.loads(plan)["partitions"][0], "end": 4}]
    state.write_text(changed(partitions=more) + offsets.replace('"end": 3', '"end": 4') + done)
    lost = run(*words)
    assert (lost.code, "The target lost records of a restore" in lost.err) == (3, True)
    state.write_text(plan + offsets + done)
    assert run(*words).code == 0


@pytest.mark.broker
def test_an_object_store(root: Path, broker: Broker, tmp_path: Path) -> None:
    """The file of the restore is a local one, whatever the source is."""
    name, state = f"restored-{uuid.uuid4().hex[:8]}", tmp_path / "state"
    words = (broker.bootstrap, "t", "--rename", f"t={name}", "--no-groups")
    store = fsspec.filesystem("memory")
    store.put(str(root), "/restore-test", recursive=True)
    try:
        refused = run("restore", "memory://restore-test", *words, "--execute")
        assert (refused.code, "Name a new file by --state" in refused.err) == (2, True)
        done = run("restore", "memory://restore-test", *words, "--execute", "--state", state)
        assert done.code == 0, done.err
    finally:
        store.rm("/restore-test", recursive=True)
    assert [row["value"] for row in records(broker.bootstrap, name)] == [
        r["value"] for r in records(root, "t")
    ]


@pytest.mark.broker
def test_offsets_of_any_age(root: Path, broker: Broker) -> None:
    """A backup's groups are those that it had, however long ago, unless the user says how old they may be."""
    name, partition = f"restored-{uuid.uuid4().hex[:8]}", TopicPartition("t", 0)
    weeks_ago = int(time.time() * 1000) - 30 * 24 * 3600 * 1000
    groups = connect({"path": str(root), "offsets.retention.minutes": "100000000"}).groups
    groups.commit("old", {partition: CommittedOffset(3, commit_timestamp=weeks_ago)})
    words = ("restore", root, broker.bootstrap, "t", "--rename", f"t={name}", "--group", "old")
    assert [row["offset"] for row in run(*words, "--json").json["groups"]] == [3]
    expired = run(*words, "--backup-option", "offsets.retention.minutes=60")
    assert (expired.code, "No such consumer group: 'old'" in expired.err) == (3, True)


@pytest.mark.broker
def test_topics_that_exist(root: Path, broker: Broker, tmp_path: Path) -> None:
    """One with records is refused before another is made; an emptied one takes records from its end on."""
    new, old = (f"restored-{uuid.uuid4().hex[:8]}" for _ in range(2))
    broker.make_topic(old)
    connect(broker.bootstrap).write([numbered(5)], old)
    renames = ("t", "u", "--rename", f"t={new}", "--rename", f"u={old}")
    words = ("restore", root, broker.bootstrap, *renames, "--state", tmp_path / "state", "--json")
    for more in ((), ("--execute",)):
        refused = run(*words, *more)
        assert (refused.code, "has records already" in refused.err) == (2, True)
    assert new not in broker_topics(broker.bootstrap)
    broker.delete_records(old, 5)
    planned = run(*words).json
    (row,) = (row for row in planned["partitions"] if row["targetTopic"] == old)
    assert (row["targetStart"], row["targetEnd"], row["keepsOffsets"]) == (5, 8, False)
    (row,) = (row for row in planned["groups"] if row["targetTopic"] == old)
    assert row["targetOffset"] == 5
    assert run(*words, "--execute").json["partitions"] == planned["partitions"]


def broker_topics(at: str) -> set[str]:
    return {row["topic"] for row in run("topics", at, "--json").rows}


def test_wrong_commands(root: Path) -> None:
    assert run("restore", root, root).code == 2
    refused = run("restore", root, "host:9092", "--rate", "fast")
    assert (refused.code, "expected a size such as" in refused.err) == (2, True)
    assert run("restore", root, "host:9092", "--group", "g", "--no-groups").code == 2
    assert run("restore", root, "host:9092", "--rename", "t").code == 2
    typo = run("restore", root, "127.0.0.1:1", "--group", "typo", "--execute")
    assert (typo.code, "No such consumer group: 'typo'" in typo.err) == (3, True)
    refused = run("restore", root, "host:9092", "--rename", "t=x", "--rename", "t=y")
    assert (refused.code, "t is named twice" in refused.err) == (2, True)
    refused = run("restore", root, "host:9092", "--state", "s3://user:secret@bucket/state", "--execute")
    assert (refused.code, "Expected a local file" in refused.err, "secret" in refused.err) == (2, True, False)
