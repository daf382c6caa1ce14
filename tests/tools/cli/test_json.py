"""The JSON of each command: an object of which a key names the rows, or an object per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.tools.checkpoint.checkpoints import at, checkpoint
from tests.tools.cli.running import run
from tests.tools.cli.test_help import COMMANDS

KEYS: Mapping[str, set[str]] = {
    "doctor {}": {"ok", "findings"},
    "topics show {}": {"partitions"},
    "topics show {} --segments": {"segments"},
    "topics describe {}": {"topics"},
    "topics create {} new": {"topics"},
    "topics alter {} t --partitions 7": {"changes"},
    "topics delete {} t": {"topics"},
    "verify {}": {"partitions", "damages"},
    "delete-records {} t:0=1": {"partitions"},
    "redrive {} t --first": {"partitions"},
    "groups {}": {"groups"},
    "lag {}": {"groups", "lag"},
    "offsets show {}": {"offsets"},
    "offsets reset {} t --group g --to-latest": {"offsets"},
    "offsets import {} offsets.json": {"offsets"},
    "offsets safe {} t": {"offsets"},
    "offsets delete {} t --group g": {"offsets"},
    "checkpoint show {}-checkpoint": {
        *("location", "queryId", "version", "planned", "complete", "plans", "operators", "watermarkMs"),
        *("ageSeconds", "otherSources", "offsets", "nextStart", "problems"),
    },
    "checkpoint rewind {}-checkpoint {} --to-latest": {"offsets", "notes", "kept"},
    "copy {} backup": {"partitions", "problems"},
    "adopt {} other --no-groups": {"partitions"},
    "compact {} --any-policy": {"partitions"},
    "retain {}": {"partitions"},
    "repair {}": {"path", "partitions", "steps", "cleanShutdown"},
    "forget-queries {} --older-than 1d": {"queries"},
}
"""Commands on a log directory, and the keys of what they print."""
OF_BROKERS: Mapping[str, set[str]] = {
    "brokers HOST": {"brokers"},
    "backup HOST backup TOPIC": {"partitions", "problems"},
    "checkpoint move {} HOST --map map": {"offsets", "notes", "kept"},
    "restore backup HOST TOPIC --rename TOPIC=again-TOPIC": {
        "partitions",
        "groups",
        "configs",
        "state",
        "unplanned",
        "wasComplete",
    },
}
STREAMS = ("cat {} t", "dump {} t:0", "lag {} --watch 1 --count 1")
"""Commands that print an object per line."""


@pytest.mark.parametrize("words", KEYS)
def test_an_object_whose_keys_name_rows(
    words: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    Path("other/meta.properties").write_text("version=1\nbroker.id=1\ncluster.id=c\n")
    assert run("topics", "create", "other", "t", "--partitions", 2).code == 0
    checkpoint(Path(f"{root}-checkpoint"), [[at(t={0: 1, 1: 1})]])
    Path("offsets.json").write_text(run("offsets", "export", root).out)
    done = run(*words.replace("{}", str(root)).split(), "--json")
    assert done.code in (0, 1), done.err
    assert done.json.keys() == KEYS[words]


@pytest.mark.parametrize("words", STREAMS)
def test_an_object_per_line(words: str, root: Path) -> None:
    printed = run(*words.replace("{}", str(root)).split(), "--json").out.splitlines()
    assert printed
    assert all(isinstance(json.loads(line), dict) for line in printed)


@pytest.mark.broker
def test_objects_of_brokers(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    topic = unused_topic()
    broker.make_topic(topic)
    connect(broker.bootstrap).write(pa.table({"value": [b"1", b"2"]}), topic)
    checkpoint(Path("checkpoint"), [[at(**{topic: {0: 1}})]])
    assert run("backup", broker.bootstrap, "copy", topic).code == 0
    again = ("restore", "copy", broker.bootstrap, topic, "--rename", f"{topic}=moved-{topic}")
    assert run(*again, "--state", "map", "--no-groups", "--execute").code == 0
    for words, keys in OF_BROKERS.items():
        done = run(
            *words.format("checkpoint").replace("HOST", broker.bootstrap).replace("TOPIC", topic).split(),
            "--json",
        )
        assert done.code == 0, done.err
        assert done.json.keys() == keys


def test_every_command_with_json_is_here() -> None:
    held = {
        tuple(words.split(" {}")[0].split(" HOST")[0].split()) for words in (*KEYS, *STREAMS, *OF_BROKERS)
    }
    with_json = {
        path for path, command in COMMANDS.items() if any("--json" in one.opts for one in command.params)
    }
    assert with_json - {("produce",)} == {(one[0],) if one[0] == "restore" else one for one in held}
