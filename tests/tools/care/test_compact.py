"""kafkalog compact, and compact."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import LogDirectoryLockedError, OptionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.log.lock import directory_lock
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.cleanup.test_compaction import records
from tests.log.random_logs import RandomLog, append
from tests.tools.cli.running import run

COMPACTED, BOTH, DELETED = TopicPartition("c", 0), TopicPartition("cd", 0), TopicPartition("d", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Topics of every policy, of which two are to be compacted."""
    folder = tmp_path / "kafka-logs"
    folder.mkdir()
    for number, partition in enumerate((COMPACTED, BOTH, DELETED)):
        log = RandomLog(random.Random(number), 5, ("none",))
        append(folder / str(partition), partition, log.batches(40), 1000)
    configs = {"c": {"cleanup.policy": "compact"}, "cd": {"cleanup.policy": "compact, delete"}}
    write_topic_configs(str(folder), configs)
    return folder


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.glob("*/*")}


def test_topics_to_be_compacted(root: Path) -> None:
    before, deleted = contents(root), records(root, DELETED)
    dry = run("compact", root, "--json")
    assert "Dry run" in dry.err
    assert contents(root) == before
    done = run("compact", root, "--execute", "--json")
    assert (done.code, done.err) == (0, "")
    assert [(row["topic"], row["partition"]) for row in done.rows] == [("c", 0), ("cd", 0)]
    for planned, row in zip(dry.rows, done.rows, strict=True):
        assert 0 < row["removedRecords"] == planned["removedRecords"] < row["records"] == planned["records"]
        assert row["passes"] == 1
    assert records(root, DELETED) == deleted
    table = run("compact", root, "c").lines
    assert table[0] == ["TOPIC", "PARTITION", "RECORDS", "REMOVED", "SIZE", "FREED", "PASSES", "NOTE"]
    assert table[1][:3] == ["c", "0", "0"]


def test_a_directory_without_such_topics(tmp_path: Path) -> None:
    with connect(tmp_path) as kafka:
        kafka.write(pa.table({"key": [b"k"] * 2, "value": [b"v"] * 2}), "t")
    done = run("compact", tmp_path)
    assert (done.code, "No topic here has a cleanup.policy that says compact" in done.err) == (0, True)
    assert "No topic here" not in run("compact", tmp_path, "--any-policy").err


def test_topics_by_name(root: Path) -> None:
    refused = run("compact", root, "d")
    assert refused.code == 2
    assert "its cleanup.policy is unknown, as the directory has none" in refused.err
    assert "--any-policy" in refused.err
    assert run("compact", root, "d", "--any-policy", "--json").rows[0]["removedRecords"] > 0
    assert len(run("compact", root, "--any-policy", "--json").rows) == 3
    assert run("compact", root, "unknown").code == 3


def test_configs_of_a_run(root: Path) -> None:
    held = run("compact", root, "--set", "min.compaction.lag.ms=999999999", "--json").rows
    assert {row["passes"] for row in held} == {0}
    assert "min.compaction.lag.ms" in held[0]["note"]
    assert run("compact", root, "--set", "nonsense").code == 2
    for wrong, said in {
        "min.cleanable.dirty.ratio=x": "expected a number from 0 to 1, got 'x'",
        "min.cleanable.dirty.ratio=7": "expected a number from 0 to 1",
        "min.cleanable.dirty.ratio=nan": "expected a number from 0 to 1",
        "delete.retention.ms=-1": "expected a whole number from 0 on",
        "segment.bytes=99999999999": "expected a whole number from 14 to 2147483647",
        "min.cleanable.dirty.ration=0": "Did you mean min.cleanable.dirty.ratio?",
    }.items():
        refused = run("compact", root, "--set", wrong)
        assert refused.code == 2
        assert said in " ".join(refused.err.split())
    few = run("compact", root, "c", "--dedupe-buffer-size", "1", "--json").rows
    assert few[0]["note"] == "one pass of several"
    assert run("compact", root, "c", "--dedupe-buffer-size", "1", "--execute", "--json").rows[0]["passes"] > 1


def test_a_directory_in_use(root: Path) -> None:
    with directory_lock(str(root), 1), pytest.raises(LogDirectoryLockedError):
        connect(root).logs.compact(execute=True, lock_timeout=0.1)


def test_by_python(root: Path) -> None:
    read: list[int] = []
    totals = set()

    def progress(size: int, total: int) -> None:
        read.append(size)
        totals.add(total)

    (done,) = connect(root).logs.compact(["c"], execute=True, progress=progress)
    assert done.removed_records > 0
    assert len(totals) == 1
    assert 0 < sum(read) <= totals.pop()
    with pytest.raises(OptionError):
        connect(root).logs.compact(["d"])
    with pytest.raises(UnknownTopicOrPartitionError):
        connect(root).logs.compact(["e"])
    assert connect(root / "c-0").logs.compact(["c"])
