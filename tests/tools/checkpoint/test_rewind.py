"""``kafkalog checkpoint rewind``: what it plans, what it refuses, what it keeps."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import KafkaLogError, OptionError, TopicPartition, connect
from pyspark_kafkalog.log.journal_file import Ledger
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.model import CommittedOffset
from pyspark_kafkalog.stream.checkpoint import plan_digest
from pyspark_kafkalog.tools.checkpoint import change
from pyspark_kafkalog.tools.checkpoint.change import CheckpointChange
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from pyspark_kafkalog.tools.checkpoint.translation import EXACT, Translated
from tests.tools.checkpoint.checkpoints import QUERY, at, checkpoint, complete, plan
from tests.tools.cli.running import run

REWIND = ("checkpoint", "rewind")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory with the topic t of two partitions, from 3 to 10 and from 0 to 10, a record a second."""
    folder = tmp_path / "logs"
    rows = pa.table(
        {
            "value": [b"%d" % number for number in range(20)],
            "partition": pa.array([number % 2 for number in range(20)], pa.int32()),
        }
    )
    connect(str(folder)).write(rows, "t", options={"numPartitions": "2"})
    assert run("delete-records", folder, "t:0=3", "--execute").code == 0
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plans = [[at(t={0: 2, 1: 2})], [at(t={0: 4, 1: 4})], [at(t={0: 8, 1: 8})]]
    return aged(checkpoint(tmp_path / "c", plans))


def aged(folder: Path) -> Path:
    """The checkpoint of a query that was stopped an hour ago."""
    for file in folder.rglob("*"):
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    return folder


def new(folder: Path, *words: object) -> dict[str, list[int | None]]:
    """The new offsets of both partitions, by source, of a dry run."""
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    done = run(*REWIND, folder, *words, "--json")
    assert done.code == 0, done.err
    assert "Dry run" in done.err or "nothing to change" in done.err
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    found: dict[str, list[int | None]] = {}
    for row in done.json["offsets"]:
        found.setdefault(row["source"], []).append(row["offset"])
    return found


def test_where_it_can_go(folder: Path, logs: Path, tmp_path: Path) -> None:
    assert new(folder, logs, "--to-earliest") == {"0": [3, 0]}
    assert new(folder, logs, "--to-latest") == {"0": [10, 10]}
    assert new(folder, logs, "--to-current") == {"0": [8, 8]}
    assert new(folder, logs, "--to-datetime", "2020-01-01T00:00:00Z") == {"0": [3, 0]}
    assert new(folder, logs, "--to-datetime", "2500-01-01T00:00:00Z") == {"0": [10, 10]}
    assert new(folder, logs, "--to-batch", 0) == {"0": [3, 2]}
    assert new(folder, "--to-batch", 0) == {"0": [2, 2]}
    assert new(folder, "--to-batch", 2) == {"0": [8, 8]}
    assert new(folder, "--to-offsets", at(t={1: 5})) == {"0": [5]}
    assert new(folder, logs, "--to-offsets", at(t={1: 99})) == {"0": [10]}
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,6\nt,1,7\n")
    assert new(folder, "--from-file", file) == {"0": [6, 7]}
    connect(str(logs)).groups.commit("g", {TopicPartition("t", 0): CommittedOffset(5)})
    connect(str(logs)).groups.commit(f"kafkalog-{'a' * 26}", {TopicPartition("t", 0): CommittedOffset(1)})
    unknown = run(*REWIND, folder, logs, "--to-group", "gg")
    assert unknown.code == 3
    assert "No such consumer group: 'gg'. Did you mean g? There is 1 consumer group: g." in unknown.err
    assert new(folder, logs, "--to-group", "g") == {"0": [5]}
    assert new(folder, logs, "t:1", "--to-earliest") == {"0": [0]}


def test_what_is_kept_brings_it_back(folder: Path, logs: Path) -> None:
    before = (folder / "offsets" / "2").read_bytes()
    done = run(*REWIND, folder, logs, "--to-earliest", "--execute", "--json")
    assert done.code == 0, done.err
    assert (folder / "offsets" / "2").read_text().endswith(at(t={0: 3, 1: 0}))
    kept = Path(done.json["kept"])
    assert (kept / "offsets" / "2").read_bytes() == before
    assert run(*REWIND, folder, logs, "--to-earliest", "--execute").err.count("nothing to change") == 1
    (folder / "offsets" / "2").write_bytes((kept / "offsets" / "2").read_bytes())
    assert "may be running" in run(*REWIND, folder, "--to-batch", 1, "--execute").err
    assert new(folder, "--to-batch", 2) == {"0": [8, 8]}


def test_a_micro_batch_whose_plan_a_rewind_has_changed(folder: Path, logs: Path) -> None:
    done = run(*REWIND, folder, "--to-batch", 2)
    assert "ends where a change has set it" not in done.out
    kept = run(*REWIND, folder, logs, "--to-earliest", "--execute", "--json").json["kept"]
    done = run(*REWIND, folder, "--to-batch", 2)
    assert f"Micro-batch 2 ends where a change has set it: {kept} has how it was planned." in done.out
    assert "ends where a change has set it" not in run(*REWIND, folder, "--to-batch", 1).out


def test_expired_offsets_and_partitions_that_are_gone(tmp_path: Path, logs: Path) -> None:
    folder = aged(checkpoint(tmp_path / "d", [[at(t={0: 1, 1: 5, 2: 7})]]))
    done = run(*REWIND, folder, logs, "--to-current", "--execute")
    assert done.code == 0, done.err
    assert "the log starts after 1" in done.out
    assert ", 1 plan\n" in run("checkpoint", "show", folder).out
    assert "the partition is gone" in done.out
    assert (folder / "offsets" / "0").read_text().endswith(at(t={0: 3, 1: 5}))
    assert run("checkpoint", "show", folder, logs).code == 0


def test_a_topic_that_was_created_again(tmp_path: Path, logs: Path) -> None:
    folder = aged(checkpoint(tmp_path / "d", [['{"t": {"0": 9, "1": 9}}']]))
    (folder / "kafkalog-topic-ids").mkdir()
    stored = {"version": 3, "query": QUERY, "plan": None, "place": "", "turn": 1, "content": {"t": "x" * 22}}
    (folder / "kafkalog-topic-ids" / "a.json").write_text(json.dumps(stored))
    assert new(folder, logs, "--to-current") == {"0": [3, 0]}
    assert {row["lag"] for row in run("checkpoint", "show", folder, logs, "--json").json["offsets"]} == {None}
    done = run("lag", logs, "--checkpoint", folder, "--max-lag", 100)
    assert done.code == 1
    assert "2 other topics than were read, or another place: kafkalog checkpoint rewind" in done.out
    done = run(*REWIND, folder, logs, "--to-current", "--execute")
    assert (done.code, "read again" in done.out) == (0, False)
    assert "t is another topic than was read: it was deleted and created again, or this is not" in done.out
    assert run("checkpoint", "show", folder, logs).code == 0
    assert new(folder, logs, "--to-current") == {"0": [3, 0]}


@pytest.mark.parametrize(
    "goal", [["--to-latest"], ["--to-earliest"], ["--to-datetime", "1h"], ["--to-offsets", '{"t":{"0":5}}']]
)
def test_another_topic_is_said_whatever_the_goal(tmp_path: Path, logs: Path, goal: list[str]) -> None:
    folder = aged(checkpoint(tmp_path / "d", [['{"t": {"0": 9, "1": 9}}']]))
    (folder / "kafkalog-topic-ids").mkdir()
    stored = {"version": 3, "query": QUERY, "plan": None, "place": "", "turn": 1, "content": {"t": "x" * 22}}
    (folder / "kafkalog-topic-ids" / "a.json").write_text(json.dumps(stored))
    done = run(*REWIND, folder, logs, *goal)
    assert done.code == 0, done.err
    assert "another topic than was read" in done.out
    assert "this is not the place that the query reads" in done.out
    assert "read again" not in done.out


def test_one_of_several_sources(tmp_path: Path, logs: Path) -> None:
    sources = [f"a:{at(t={0: 5, 1: 5})}", f"b:{at(t={0: 6, 1: 6})}", "rate:7"]
    folder = aged(checkpoint(tmp_path / "d", [sources], version="v2"))
    assert new(folder, logs, "--to-latest") == {"a": [10, 10], "b": [10, 10]}
    assert run(*REWIND, folder, logs, "--to-latest", "--source", "b", "--execute").code == 0
    lines = (folder / "offsets" / "0").read_text().splitlines()
    assert lines[2:] == [sources[0], f"b:{at(t={0: 10, 1: 10})}", "rate:7"]
    done = run(*REWIND, folder, logs, "--to-latest", "--source", "c")
    assert (done.code, "No source 'c'" in done.err) == (2, True)


def test_a_query_that_may_run_is_not_touched(folder: Path, logs: Path) -> None:
    complete(folder, 2)
    done = run(*REWIND, folder, logs, "--to-earliest", "--execute")
    assert (done.code, "the query may be running" in done.err, "--stopped" in done.err) == (3, True, True)
    assert run(*REWIND, folder, logs, "--to-earliest", "--stopped", "--execute").code == 0


def test_a_checkpoint_that_changed_since_the_plan_is_not_touched(folder: Path, logs: Path) -> None:
    checkpoints = connect(str(logs)).checkpoints
    planned = checkpoints.plan_rewind(folder, "earliest")
    plan(folder, 3, at(t={0: 9, 1: 9}))
    with pytest.raises(KafkaLogError, match="not as it was planned"):
        checkpoints.execute(planned, stopped=True)


def test_state_is_refused_unless_asked(folder: Path, logs: Path) -> None:
    (folder / "state" / "0").mkdir(parents=True)
    done = run(*REWIND, folder, logs, "--to-earliest")
    assert (done.code, "has state" in done.err, "--with-state" in done.err) == (2, True, True)
    assert "The state stays as it is" in run(*REWIND, folder, logs, "--to-earliest", "--with-state").out


def test_a_query_that_was_killed(tmp_path: Path, logs: Path) -> None:
    plans = [[at(t={0: 4, 1: 4})], [at(t={0: 8, 1: 8})]]
    folder = aged(checkpoint(tmp_path / "d", plans, done=1))
    refused = run(*REWIND, folder, logs, "--to-latest", "--execute")
    assert (refused.code, "it runs, or the query has ended in it" in refused.err) == (3, True)
    assert run(*REWIND, folder, logs, "--to-latest", "--stopped", "--execute").code == 0
    for batch in 0, 1:
        assert (folder / "offsets" / str(batch)).read_text().endswith(at(t={0: 10, 1: 10}))
    assert not (folder / "commits" / "1").exists()
    folder = aged(checkpoint(tmp_path / "e", plans[:1], done=0))
    done = run(*REWIND, folder, logs, "--to-latest")
    assert (done.code, "completed no micro-batch" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "Give exactly one of"),
        (("--to-latest", "--to-earliest"), "Give exactly one of"),
        (("--to-latest",), "Only the place that the query reads can tell what latest is. Give PLACE"),
        (("--to-batch", 7), "no plan of micro-batch 7"),
        (("--to-offsets", '{"u":{"0":1}}'), "does not read u"),
        (("--to-offsets", '{"t":'), "JSON"),
        (
            ("{logs}", "--to-offsets", '{"t":{"7":1}}'),
            "No such partition: t-7. Topic t has 2 partitions, 0 to 1.",
        ),
        (("--to-offsets", '{"t":{"0":-2}}'), r'got -2. Write it as, for example, {"topicA":{"0":23,"1":0}}'),
        (("{logs}", "u", "--to-batch", 0), "does not read u"),
        (("--to-batch", 0, "--with-sink", "{logs}"), "knows nothing of query"),
        (("--to-batch", 0, "--with-sink-config", "{logs}/../client.properties"), "needs --with-sink"),
        (
            ("--to-batch", 0, "--with-sink", "h:9", "--with-sink-config", "{logs}/../client.properties"),
            "security.protocol",
        ),
    ],
)
def test_what_is_refused(folder: Path, logs: Path, words: tuple[object, ...], what: str) -> None:
    (logs / "../client.properties").write_text("security.protocol=NO_SUCH\n")
    done = run(*REWIND, folder, *(str(word).replace("{logs}", str(logs)) for word in words), "--execute")
    assert (done.code in (2, 3), what in done.err) == (True, True), done.err
    assert not (folder / "kafkalog-kept").exists()


def test_a_dry_run_looks_at_the_sink(folder: Path, logs: Path) -> None:
    """It says what the sink would be told, changes nothing, and refuses what the real run refuses."""
    words = (*REWIND, folder, logs, "--to-earliest", "--with-sink", logs)
    done = run(*words)
    assert (done.code, f"The sink knows nothing of query {QUERY}" in done.err) == (3, True), done.err
    name, digest = journal.ledger_file(QUERY), plan_digest((folder / "offsets" / "2").read_bytes())
    for batch, known, refusal in (
        (7, digest, "The sink has micro-batch 7 of the query last, and the checkpoint goes on from 2"),
        (2, "another", "The sink has micro-batch 2 with other offsets of its sources than the checkpoint"),
    ):
        journal.put(str(logs), name, Ledger(QUERY, batch, known, {}).text())
        done = run(*words)
        assert (done.code, refusal in done.err) == (3, True), done.err
    ledger = Ledger(QUERY, 2, digest, {}).text()
    journal.put(str(logs), name, ledger)
    done = run(*words)
    said = f"The sink has micro-batch 2 of the query last, and is told its new plan ({logs}/{name})."
    assert (done.code, said in done.out.splitlines()) == (0, True), done.out
    assert (logs / name).read_text() == ledger
    assert not (folder / "kafkalog-kept").exists()
    assert run(*words, "--execute").code == 0
    assert (logs / name).read_text() != ledger
    assert "and knows its plan already (" in run(*REWIND, folder, logs, "--to-current", *words[-2:]).out


def test_a_dry_run_asks_the_brokers_of_the_sink(folder: Path, logs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        sink = f"127.0.0.1:{closed.getsockname()[1]}"
    done = run(*REWIND, folder, logs, "--to-earliest", "--with-sink", sink)
    assert (done.code, sink in done.err) == (3, True), done.err


def test_a_sink_is_named_only_if_a_plan_changes(folder: Path, logs: Path) -> None:
    for words, is_named in ((("--to-current",), False), (("--to-earliest",), True)):
        done = run(*REWIND, folder, logs, *words)
        assert (done.code, "--with-sink" in done.out) == (0, is_named), done.out
    (folder / "kafkalog-transactions").mkdir()
    for words, is_named in ((("--to-current",), False), (("--to-earliest",), True)):
        done = run(*REWIND, folder, logs, *words)
        assert (done.code, "unless you give them by --with-sink" in done.out) == (0, is_named), done.out


def test_damage_is_named_and_nothing_written(folder: Path, logs: Path) -> None:
    (folder / "offsets" / "2").write_text('v1\n{}\n{"t":{"0"')
    done = run(*REWIND, folder, logs, "--to-latest", "--stopped", "--execute")
    assert (done.code, "Line 3" in done.err, "offsets/2" in done.err) == (3, True, True)
    assert not (folder / "kafkalog-kept").exists()


def test_values_that_do_not_fit(folder: Path, logs: Path) -> None:
    checkpoints = connect(str(logs)).checkpoints
    for to, value in (
        (RewindTo.OFFSETS, 5),
        (RewindTo.BATCH, "5"),
        (RewindTo.GROUP, 5),
        ("nowhere", 0),
        ("offsets", {"t": 1}),
    ):
        with pytest.raises(OptionError):
            checkpoints.plan_rewind(folder, to, value)


def test_the_current_position_of_a_query_that_was_killed(tmp_path: Path, logs: Path) -> None:
    """The micro-batch keeps its rows and its number, by which a sink tells whether it has them."""
    plans = [[at(t={0: 4, 1: 4})], [at(t={0: 8, 1: 8})]]
    folder = checkpoint(tmp_path / "d", plans, done=1)
    done = run(*REWIND, folder, logs, "--to-current", "--stopped", "--execute")
    assert "nothing to change" in done.err
    assert (folder / "offsets" / "1").read_text().endswith(plans[1][0])
    assert run("delete-records", logs, "t:0=6", "--execute").code == 0
    assert run(*REWIND, folder, logs, "--to-current", "--stopped", "--execute").code == 0
    assert (folder / "offsets" / "0").read_text().endswith(at(t={0: 6, 1: 4}))
    assert (folder / "offsets" / "1").read_text().endswith(plans[1][0])


def test_what_a_micro_batch_without_rows_means_is_said(tmp_path: Path, logs: Path) -> None:
    plans = [[at(t={0: 4, 1: 4})], [at(t={0: 8, 1: 8})]]
    folder = checkpoint(tmp_path / "d", plans, done=1)
    said = "From micro-batch 2 on, the query reads"
    assert f"{said} 8 of its offsets" in run(*REWIND, folder, logs, "--to-batch", 0).out
    assert f"{said} 8 of its offsets" in run(*REWIND, folder, logs, "--to-earliest").out
    assert f"{said} 3 of its offsets" in run(*REWIND, folder, "--to-offsets", at(t={0: 5, 1: 9})).out
    assert said not in run(*REWIND, folder, logs, "--to-latest").out


def test_a_query_that_shares_its_group_needs_a_reset_of_the_group(folder: Path, logs: Path) -> None:
    assert (
        "reset the group" not in run(*REWIND, folder, logs, "--to-earliest").out
    )  # it has no place for that
    (folder / "kafkalog-start-offsets").mkdir()
    (folder / "kafkalog-start-offsets" / "a.json").write_text("{}")
    assert "reset the group" in run(*REWIND, folder, logs, "--to-earliest").out
    assert "reset the group" not in run(*REWIND, folder, logs, "--to-latest").out


def test_a_topic_that_is_gone_is_left_out_by_its_name(tmp_path: Path, logs: Path) -> None:
    folder = aged(checkpoint(tmp_path / "d", [[at(gone={0: 7}, t={0: 5, 1: 5})]]))
    assert run(*REWIND, folder, logs, "gone", "--to-current", "--execute").code == 0
    assert (folder / "offsets" / "0").read_text().endswith(at(t={0: 5, 1: 5}))
    folder = aged(checkpoint(tmp_path / "e", [[at(gone={0: 7})]]))
    done = run(*REWIND, folder, logs, "--to-current", "--execute")
    assert (done.code, "No partition that source 0 has read exists" in done.err) == (3, True)


def test_what_else_is_in_the_folder_of_changes(folder: Path, logs: Path, tmp_path: Path) -> None:
    """A file that a file manager has left says nothing; a change that can't be read may have been a move."""
    checkpoints = connect(str(logs)).checkpoints
    (folder / "kafkalog-kept").mkdir()
    (folder / "kafkalog-kept" / ".DS_Store").touch()
    assert run(*REWIND, folder, logs, "--to-latest", "--stopped", "--execute").code == 0
    checkpoints.plan_move(folder, Same())
    (kept,) = (folder / "kafkalog-kept").glob("2*")
    (kept / "change.json").write_text("{")
    with pytest.raises(KafkaLogError, match="Nothing tells whether the checkpoint was moved"):
        checkpoints.plan_move(folder, Same())


def test_a_micro_batch_of_before_a_move_is_of_another_place(folder: Path, logs: Path) -> None:
    checkpoints = connect(str(logs)).checkpoints
    checkpoints.execute(checkpoints.plan_move(folder, Back()), stopped=True)
    with pytest.raises(OptionError, match="offsets of micro-batch 1 are of another place"):
        checkpoints.plan_rewind(folder, RewindTo.BATCH, 1)
    plan(folder, 3, at(t={0: 9, 1: 9}))
    complete(folder, 3)
    assert new(folder, logs, "--to-batch", 2) == {"0": [7, 7]}
    (kept,) = (folder / "kafkalog-kept").glob("2*")
    shutil.copy(kept / "offsets" / "2", folder / "offsets" / "2")
    assert new(folder, logs, "--to-batch", 1) == {"0": [4, 4]}


class Same:
    """A translation to the same offsets."""

    back = 0

    def check_source(self, topic_ids: object) -> tuple[()]:
        return ()

    def check_target(self, cluster_id: str | None, topic_ids: object) -> None:
        pass

    def translate(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Translated]:
        return {
            partition: Translated(partition, at - self.back, EXACT, 0) for partition, at in offsets.items()
        }


class Back(Same):
    """One to the offsets before."""

    back = 1


@pytest.mark.parametrize(
    "damaged",
    [
        {"plans": {}, "target": "kafka2", "told": None},
        {"plans": {"2": ["a", "b"]}, "target": "", "told": 1},
        {"plans": {"2": ["a", "b"]}, "target": "", "told": [2]},
        {"plans": {"2": ["a"]}, "target": "", "told": 2},
        [],
    ],
)
def test_a_damaged_note_of_a_change(folder: Path, logs: Path, damaged: object) -> None:
    """It is named, and nothing is changed."""
    kept = folder / "kafkalog-kept" / "20260101T000000.000000Z"
    kept.mkdir(parents=True)
    (kept / "change.json").write_text(json.dumps(damaged))
    kafka = connect(str(logs))
    with pytest.raises(KafkaLogError, match="the file is damaged") as error:
        kafka.checkpoints.plan_rewind(folder, RewindTo.BATCH, 1)
    assert str(kept / "change.json") in str(error.value)
    before = (folder / "offsets" / "2").read_bytes()
    with pytest.raises(KafkaLogError, match="the file is damaged"):
        kafka.checkpoints.plan_rewind(folder, RewindTo.EARLIEST, with_sink=kafka)
    assert (folder / "offsets" / "2").read_bytes() == before


def test_two_changes_without_a_lock(folder: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store nothing keeps them apart: the one that fails does not say that all is as it was."""
    kafka, keep, changes = connect(str(logs)), change._keep, []

    def planned(to: RewindTo) -> CheckpointChange:
        return kafka.checkpoints.plan_rewind(folder, to)

    def meanwhile(*given: Any) -> None:
        changes.append(given)
        if len(changes) > 1:
            return keep(*given)
        kafka.checkpoints.execute(planned(RewindTo.LATEST), stopped=True)
        raise KafkaLogError("no room")

    monkeypatch.setattr(change, "_locked", lambda _: nullcontext())
    monkeypatch.setattr(change, "_keep", meanwhile)
    with pytest.raises(KafkaLogError, match="Something else has changed the checkpoint since: plan it again"):
        kafka.checkpoints.execute(planned(RewindTo.EARLIEST), stopped=True)
    assert len(changes) == 2
