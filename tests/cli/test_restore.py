"""``kafkalog restore`` shows what it would do, does it, and says where offsets went."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

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


def broker_topics(at: str) -> set[str]:
    return {row["topic"] for row in run("topics", at, "--json").json}


def test_wrong_commands(root: Path) -> None:
    assert run("restore", root, root).code == 2
    refused = run("restore", root, "host:9092", "--rate", "fast")
    assert (refused.code, "expected a size such as" in refused.err) == (2, True)
    assert run("restore", root, "host:9092", "--group", "g", "--no-groups").code == 2
    assert run("restore", root, "host:9092", "--rename", "t").code == 2
