"""A query goes on in another cluster, by the map of a restore: no record is lost, and none repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import KafkaLogError, connect
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from tests.kafka import Broker
from tests.tools.checkpoint.checkpoints import at, checkpoint, complete, plan
from tests.tools.checkpoint.test_restart import LONG, Job
from tests.tools.checkpoint.test_restart import job as job
from tests.tools.cli.running import run

PLAN = {
    "version": 1,
    "source": "x",
    "clusterId": "c",
    "producerId": 7,
    "producerEpoch": 0,
    "settings": {},
    "configs": {},
    "partitions": [
        {"topic": "t", "partition": 0, "start": 3, "end": 90, "sourceId": "", "openTransactions": []}
        | {"target": "u", "targetId": "", "base": 100}
    ],
}
LINES = [
    {"topic": "t", "partition": 0, "start": 3, "end": 50, "target": 100},
    {"topic": "t", "partition": 0, "start": 51, "end": 89, "target": 147},
    {"done": True},
]


def a_map(folder: Path, lines: list[dict[str, object]], **plan: object) -> Path:
    file = folder / "map.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in ({**PLAN, **plan}, *lines)))
    return file


@pytest.mark.parametrize(
    ("offset", "expected"), [(3, 100), (49, 146), (50, 147), (51, 147), (88, 184), (89, 185), (120, 185)]
)
def test_offsets_of_a_map(tmp_path: Path, offset: int, expected: int) -> None:
    from pyspark_kafkalog.model import TopicPartition
    from pyspark_kafkalog.tools.checkpoint.restore_map import RestoreMap

    found = RestoreMap(str(a_map(tmp_path, LINES))).translate({TopicPartition("t", 0): offset})
    (to,) = found.values()
    assert to == (TopicPartition("u", 0), expected, "exact", 0, "")


def test_what_a_map_does_not_have_is_refused(tmp_path: Path) -> None:
    file = a_map(tmp_path, LINES)
    (tmp_path / "logs").mkdir()
    for sources, what in (
        (at(t={0: 1}), "offsets 1 to 2 were not restored"),
        (at(t={1: 5}), "the restore has no copy of it"),
        (at(v={0: 5}), "the restore has no copy of it"),
    ):
        folder = checkpoint(tmp_path / f"c{what[-4:]}{sources[2]}", [[sources]])
        before = (folder / "offsets" / "0").read_bytes()
        done = run("checkpoint", "move", folder, tmp_path / "logs", "--map", file, "--stopped", "--execute")
        assert (done.code, what in done.err) == (3, True)
        assert (folder / "offsets" / "0").read_bytes() == before


def test_a_map_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    from pyspark_kafkalog.tools.checkpoint.restore_map import RestoreMap

    (planned,) = PLAN["partitions"]  # type: ignore[misc, attr-defined]
    for source_id, is_refused in (("M" * 22, True), ("N" * 22, False), ("", False)):
        found = RestoreMap(str(a_map(tmp_path, LINES, partitions=[{**planned, "sourceId": source_id}])))
        assert not found.check_source({"other": "M" * 22})
        if is_refused:
            with pytest.raises(KafkaLogError, match="of other topics than the query has read: t"):
                found.check_source({"t": "N" * 22})
        else:
            assert {*found.check_source({"t": "N" * 22})} == ({"t"} if source_id else set())


def test_a_move_that_keeps_all_offsets_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plans are as they were before it, and later offsets may be others there."""
    from pyspark_kafkalog.tools.checkpoint.restore_map import RestoreMap

    monkeypatch.setattr(RestoreMap, "check_target", lambda *given: None)  # a directory in a cluster's place
    logs = tmp_path / "logs"
    connect(str(logs)).write(pa.table({"value": [b"%d" % n for n in range(20)]}), "t")
    mapped = [
        {"topic": "t", "partition": 0, "start": 0, "end": 10, "target": 0},
        {"topic": "t", "partition": 0, "start": 15, "end": 30, "target": 10},
        {"done": True},
    ]
    here = {"start": 0, "end": 30, "target": "t", "base": 0}
    (planned,) = PLAN["partitions"]  # type: ignore[misc, attr-defined]
    file = a_map(tmp_path, mapped, partitions=[{**planned, **here}])
    folder = checkpoint(tmp_path / "c", [[at(t={0: 10})]])
    words = ("checkpoint", "move", folder, logs, "--map", file, "--stopped", "--execute")
    for _ in range(2):  # the second one as after a kill
        assert run(*words).code == 0
        assert (folder / "offsets" / "0").read_text().endswith(at(t={0: 10}))
    plan(folder, 1, at(t={0: 18}))
    complete(folder, 1)
    again = run(*words)
    assert (again.code, "was moved to" in again.err) == (2, True)
    assert (folder / "offsets" / "1").read_text().endswith(at(t={0: 18}))


def test_another_place_and_a_restore_that_is_not_done_are_refused(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    folder = checkpoint(tmp_path / "c", [[at(t={0: 5})]])
    words = ("checkpoint", "move", folder, tmp_path / "logs", "--stopped", "--map")
    assert "restore to cluster c" in run(*words, a_map(tmp_path, LINES)).err
    assert "is not done" in run(*words, a_map(tmp_path, LINES[:2])).err
    (tmp_path / "empty").touch()
    assert run(*words, tmp_path / "empty").code == 2


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize(
    ("stateful", "version"),
    [
        pytest.param(False, "v1", marks=LONG),
        pytest.param(True, "v1", marks=LONG),
        (True, "v2"),
    ],
)
def test_a_query_that_is_moved(
    job: Job, spark: SparkSession, broker: Broker, tmp_path: Path, stateful: bool, version: str
) -> None:
    if version == "v2":
        job.use_v2()
    job.stateful, source = stateful, job.kafka
    job.write(20)
    assert job.run() == ([(0, 10), (1, 10)] if stateful else list(range(20)))
    job.write(8)
    backup, new = job.place.get("path"), f"{job.topic}-new"
    if backup is None:
        backup = str(tmp_path / "backup")
        done = run("backup", broker.bootstrap, backup, job.topic, "--no-groups")
        assert done.code == 0, done.err
    broker.create_topic(new, 2)
    words = ("restore", backup, broker.bootstrap, job.topic, "--rename", f"{job.topic}={new}")
    other = Job(job.spark, job.format, {"kafka.bootstrap.servers": broker.bootstrap}, new, job.folder)
    other.stateful, other.name = stateful, job.name
    other.write(6)  # so that no offset stays what it is
    assert run("delete-records", broker.bootstrap, f"{new}=3", "--execute").code == 0
    done = run(*words, "--no-groups", "--state", tmp_path / "map", "--execute")
    assert done.code == 0, done.err

    words = ("checkpoint", "move", job.checkpoint, broker.bootstrap, "--map", tmp_path / "map", "--stopped")
    dry = run(*words)
    assert dry.code == 0, dry.err
    assert f"Topics have other names there: {job.topic} is {new}." in dry.out
    assert "Dry run" in dry.err
    # Only the reader of this package stores ids of topics.
    unproven = f"See that the query has read what was copied, of {job.topic}: the checkpoint has no id of it"
    assert (unproven in dry.out) == (job.format == "kafka")
    done = run(*words, "--execute", "--json")
    assert done.code == 0, done.err
    assert [(row["current"], row["offset"]) for row in done.json["offsets"]] == [(10, 13), (10, 13)]
    assert other.run() == ([(0, 14), (1, 14)] if stateful else list(range(20, 28)))
    other.written = 28
    other.write(2)
    assert other.run() == ([(0, 15), (1, 15)] if stateful else [28, 29])
    with pytest.raises(KafkaLogError, match=r"was moved to .* before"):
        connect(broker.bootstrap).checkpoints.plan_move(job.checkpoint, tmp_path / "map")
    assert source.name
    other.rewind(RewindTo.CURRENT, with_state=stateful)
