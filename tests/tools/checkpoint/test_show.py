"""``kafkalog checkpoint show`` and ``kafkalog lag --checkpoint``, beside a log directory."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.tools.checkpoint.files import checksums
from tests.tools.checkpoint.checkpoints import QUERY, at, checkpoint, complete, plan
from tests.tools.cli.running import run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory with the topic t of two partitions, from 3 to 10 and from 0 to 10."""
    folder = tmp_path / "logs"
    partitions = pa.array([number % 2 for number in range(20)], pa.int32())
    rows = pa.table({"value": [b"%d" % number for number in range(20)], "partition": partitions})
    connect(str(folder)).write(rows, "t", options={"numPartitions": "2"})
    assert run("delete-records", folder, "t:0=3", "--execute").code == 0
    return folder


def test_the_position_beside_the_place(tmp_path: Path, logs: Path) -> None:
    folder = checkpoint(tmp_path / "c", [[at(t={0: 4, 1: 4})], [at(t={0: 5, 1: 9})]], done=1)
    done = run("checkpoint", folder, logs, "--json")
    assert done.code == 0
    assert [(row["offset"], row["planned"], row["lag"], row["state"]) for row in done.json["offsets"]] == [
        (4, 5, 6, "ok"),
        (4, 9, 6, "ok"),
    ]
    assert (done.json["planned"], done.json["complete"], done.json["queryId"]) == (1, 0, QUERY)
    assert "Micro-batch 1 is planned and not complete" in done.json["nextStart"]


def test_what_is_gone_fails_the_next_start(tmp_path: Path, logs: Path) -> None:
    folder = checkpoint(tmp_path / "c", [[at(t={0: 1, 1: 11, 2: 0}, gone={0: 3})]])
    done = run("checkpoint", "show", folder, logs, "--json")
    assert done.code == 1
    states = [(row["state"], row["expired"], row["lag"]) for row in done.json["offsets"]]
    assert states == [("gone", None, None), ("expired", 2, 7), ("beyond", None, -1), ("gone", None, None)]
    assert len(done.json["problems"]) == 3
    assert "t-0" in done.json["problems"][0]


def test_a_topic_that_was_created_again_is_told_by_its_stored_id(tmp_path: Path, logs: Path) -> None:
    folder = checkpoint(tmp_path / "c", [['{"t": {"0": 4, "1": 4}}']])
    (folder / "kafkalog-topic-ids").mkdir()
    stored = {"version": 3, "query": QUERY, "plan": None, "place": "", "turn": 1, "content": {"t": "x" * 22}}
    (folder / "kafkalog-topic-ids" / "a.json").write_text(json.dumps(stored))
    done = run("checkpoint", "show", folder, logs)
    assert done.code == 1
    assert "created again, or this is not the place that the query reads (t-0, t-1)" in done.out
    assert "failOnDataLoss" not in done.out


def test_logs_that_do_not_fit_each_other(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", [[at(t={0: 1})]])
    complete(folder, 3)
    assert "put together from two moments" in run("checkpoint", "show", folder).out
    plan(folder, 3, at(t={0: 1}))
    done = run("checkpoint", "show", folder)
    assert "plan of micro-batch 2 is missing" in done.out
    assert "Micro-batch 3 is complete: the next one is 4" in done.out


def test_an_edited_plan_is_told_by_hadoops_checksums(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", [[at(t={0: 1})]])
    (folder / "offsets" / ".0.crc").write_bytes(checksums(b"another"))
    done = run("checkpoint", "show", folder)
    assert done.code == 3
    assert "differs from its checksums" in done.err


def test_a_query_that_has_planned_nothing(tmp_path: Path, logs: Path) -> None:
    done = run("checkpoint", "show", checkpoint(tmp_path / "c", []), logs)
    assert (done.code, "has planned nothing" in done.out) == (0, True)


def test_settings_of_a_place_need_one(tmp_path: Path) -> None:
    assert run("checkpoint", "show", checkpoint(tmp_path / "c", []), "-o", "a=b").code == 2


def test_lag_of_queries_by_their_checkpoints(tmp_path: Path, logs: Path) -> None:
    one = checkpoint(tmp_path / "one", [[at(t={0: 4, 1: 4})]])
    two = checkpoint(tmp_path / "two", [[f"b:{at(t={0: 10, 1: 10})}", f"a:{at(t={1: 9})}"]], version="v2")
    done = run("lag", logs, "--checkpoint", one, "--checkpoint", two, "--json")
    assert {row["group"]: row["lag"] for row in done.rows} == {
        str(one): 12,
        f"{two}#a": 1,
        f"{two}#b": 0,
    }
    assert run("lag", logs, "--checkpoint", one, "--max-lag", 11).code == 1
    assert run("lag", logs, "--checkpoint", one, "--max-lag", 12).code == 0
    text = run("lag", logs, "--checkpoint", one, "--prometheus").out
    assert f'kafka_consumergroup_lag_sum{{consumergroup="{one}",topic="t"}} 12' in text


def test_a_position_beyond_a_log_names_the_command_of_checkpoints(tmp_path: Path, logs: Path) -> None:
    folder = checkpoint(tmp_path / "c", [[at(t={0: 4, 1: 99})]])
    done = run("lag", logs, "--checkpoint", folder, "--max-lag", 100)
    assert (done.code, "1 beyond the end: kafkalog checkpoint rewind --to-current" in done.out) == (1, True)


def test_a_checkpoint_that_cannot_be_read_gives_the_alarm(tmp_path: Path, logs: Path) -> None:
    done = run("lag", logs, "--checkpoint", tmp_path / "none", "--max-lag", 100)
    assert (done.code, "does not exist" in done.out) == (1, True)


def test_one_that_is_missing_or_empty_fails_a_look_at_lag(tmp_path: Path, logs: Path) -> None:
    (tmp_path / "empty").mkdir()
    one = checkpoint(tmp_path / "one", [[at(t={0: 4, 1: 4})]])
    for name, why in (("none", "does not exist"), ("empty", "is not the checkpoint of a query")):
        done = run("lag", logs, "--checkpoint", one, "--checkpoint", tmp_path / name)
        assert (done.code, why in done.out, str(one) in done.out) == (1, True, True)
        done = run("lag", logs, "--checkpoint", tmp_path / name, "--prometheus")
        assert (done.code, "kafkalog_consumergroup_trouble" in done.out) == (0, True)


def test_a_checkpoint_without_a_complete_micro_batch_gives_the_alarm(tmp_path: Path, logs: Path) -> None:
    folder = checkpoint(tmp_path / "c", [[at(t={0: 4})]], done=0)
    assert run("lag", logs, "--checkpoint", folder, "--max-lag", 100).code == 1
