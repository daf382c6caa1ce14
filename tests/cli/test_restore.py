"""``kafkalog restore`` shows what it would do, does it, and says where offsets went."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import fsspec
import pytest

from pyspark_kafkalog import admin
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.broker.producing import numbered
from tests.cli.running import records, run
from tests.kafka import Broker


@pytest.mark.broker
def test_a_directory_goes_into_a_cluster(root: Path, broker: Broker) -> None:
    at, name, group = broker.bootstrap, f"restored-{uuid.uuid4().hex[:8]}", "g"
    words = ("restore", root, at, "--topic", "t", "--rename", f"t={name}", "--group", group)
    dry = run(*words)
    assert dry.code == 0, dry.err
    assert dry.lines[:3] == [
        ["TOPIC", "PARTITION", "RECORDS", "SIZE", "TARGET", "OFFSETS"],
        ["t", "0", "10", *dry.lines[1][3:5], name, "kept"],
        ["t", "1", "4", *dry.lines[2][3:5], name, "kept"],
    ]
    assert dry.lines[-2][:5] == [group, "t", "0", "4", "4"]
    assert "Dry run" in dry.err
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
def test_an_object_store(root: Path, broker: Broker, tmp_path: Path) -> None:
    """The file of the restore is a local one, whatever the source is."""
    name, state = f"restored-{uuid.uuid4().hex[:8]}", tmp_path / "state"
    words = (broker.bootstrap, "--topic", "t", "--rename", f"t={name}", "--no-groups")
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
    groups = admin.groups_of({"path": str(root), "offsets.retention.minutes": "100000000"})
    groups.commit("old", {partition: CommittedOffset(3, commit_timestamp=weeks_ago)})
    words = ("restore", root, broker.bootstrap, "--topic", "t", "--rename", f"t={name}", "--group", "old")
    assert [row["offset"] for row in run(*words, "--json").json["groups"]] == [3]
    assert run(*words, "--json", "--source-option", "offsets.retention.minutes=60").json["groups"] == []


@pytest.mark.broker
def test_topics_that_exist(root: Path, broker: Broker, tmp_path: Path) -> None:
    """One with records is refused before another is made; an emptied one takes records from its end on."""
    new, old = (f"restored-{uuid.uuid4().hex[:8]}" for _ in range(2))
    broker.make_topic(old)
    admin.produce({"kafka.bootstrap.servers": broker.bootstrap, "topic": old}, [numbered(5)])
    renames = ("--topic", "t", "--topic", "u", "--rename", f"t={new}", "--rename", f"u={old}")
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
    return {row["topic"] for row in run("topics", at, "--json").json}


def test_wrong_commands(root: Path) -> None:
    assert run("restore", root, root).code == 2
    refused = run("restore", root, "host:9092", "--rate", "fast")
    assert (refused.code, "expected a size such as" in refused.err) == (2, True)
    assert run("restore", root, "host:9092", "--group", "g", "--no-groups").code == 2
    assert run("restore", root, "host:9092", "--rename", "t").code == 2
    refused = run("restore", root, "host:9092", "--rename", "t=x", "--rename", "t=y")
    assert (refused.code, "t is named twice" in refused.err) == (2, True)
    refused = run("restore", root, "host:9092", "--state", "s3://user:secret@bucket/state", "--execute")
    assert (refused.code, "Expected a local file" in refused.err, "secret" in refused.err) == (2, True, False)
