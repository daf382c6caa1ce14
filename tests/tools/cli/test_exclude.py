"""``--exclude`` of every command that works on topics unless some are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.tools.backup.restore import RestoreSettings
from tests.tools.cli.running import run


@pytest.mark.parametrize("pattern", ["t", "[s-t]", ".*t,x", "x|t"])
def test_what_shows_topics(root: Path, pattern: str) -> None:
    for command in (["topics"], ["topics", "--segments"], ["offsets"], ["offsets", "export"]):
        shown = run(*command, root, "--exclude", pattern, *(() if "export" in command else ["--json"])).out
        assert '"u"' in shown, command
        assert '"t"' not in shown, command
    shown = run("lag", root, "--exclude", pattern, "--json").json
    assert {row["group"] for row in shown["groups"] if row["partitions"]} == {"other"}


def test_the_whole_name_has_to_match(root: Path) -> None:
    run("topics", "create", root, "tt")
    shown = run("topics", root, "--json", "--exclude", "t", "--exclude", "U").rows
    assert {row["topic"] for row in shown} == {"tt", "u"}


def test_nothing_is_left(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run("topics", root, "--json", "--exclude", ".*").rows == []
    assert caplog.messages == [
        "Every topic is excluded, so nothing is read. There are 3 topics: __consumer_offsets, t, u."
    ]


def test_verify(root: Path) -> None:
    shown = {row["topic"] for row in run("verify", root, "--exclude", "t", "--json").json["partitions"]}
    assert shown == {"u", "__consumer_offsets"}
    shown = {row["topic"] for row in run("verify", root, "--exclude", "t,__.*", "--json").json["partitions"]}
    assert shown == {"u"}


def test_copies(root: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    done = run("copy", root, copied, "--exclude", "t", "--json")
    assert {row["topic"] for row in done.json["partitions"] if row["partition"] >= 0} == {"u"}
    assert {p.topic for p in connect(str(copied)).topics.partitions()} == {"u"}
    # What was copied before stays, and is told of no more.
    assert run("copy", root, copied).code == 0
    again = run("copy", root, copied, "--exclude", "t", "--json").json
    assert {row["topic"] for row in again["partitions"] if row["partition"] >= 0} == {"u"}
    assert {p.topic for p in connect(str(copied)).topics.partitions()} == {"t", "u"}
    nothing = run("copy", root, copied, "--exclude", ".*")
    assert nothing.code == 1
    assert "nothing was copied" in nothing.err


def test_adoption(root: Path, tmp_path: Path) -> None:
    backup, log_dir = tmp_path / "backup", tmp_path / "broker"
    assert run("copy", root, backup, "--no-groups").code == 0
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    for topic, adopted in (("t", {"u"}), (".*", set())):
        planned = run("adopt", backup, log_dir, "--no-groups", "--exclude", topic, "--json").rows
        assert {row["topic"] for row in planned} == adopted
    assert run("adopt", backup, log_dir, "--no-groups", "--exclude", "t", "u").code == 2


def test_retention_and_compaction(root: Path) -> None:
    due = ("retain", root, "--set", "retention.ms=1", "--json")
    assert {row["topic"] for row in run(*due).rows} >= {"t", "u"}
    assert "t" not in {row["topic"] for row in run(*due, "--exclude", "t").rows}
    assert run(*due, "--exclude", ".*").rows == []
    everything = ("compact", root, "--any-policy", "--json")
    assert {row["topic"] for row in run(*everything).rows} >= {"t", "u"}
    assert "t" not in {row["topic"] for row in run(*everything, "--exclude", "t").rows}


def test_offsets_of_all_topics_but_some(root: Path) -> None:
    for command in (["reset", "--to-earliest"], ["delete"]):
        group = ("--group", "g", "--all-topics")
        assert len(run("offsets", command[0], root, *command[1:], *group, "--json").rows) == 2
        left = run("offsets", command[0], root, *command[1:], *group, "--exclude", "t", "--json")
        assert left.rows == []


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "{}", "u"],
        ["lag", "{}", "u"],
        ["verify", "{}", "u"],
        ["offsets", "{}", "u"],
        ["offsets", "export", "{}", "u"],
        ["copy", "{}", "{}-new", "u"],
        ["retain", "{}", "u"],
        ["compact", "{}", "u"],
        ["restore", "{}", "127.0.0.1:1", "u"],
    ],
)
def test_named_topics_leave_nothing_to_exclude(root: Path, words: list[str]) -> None:
    done = run(*(word.replace("{}", str(root)) for word in words), "--exclude", "t")
    assert done.code == 2
    assert "drop --exclude" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["reset", "--to-earliest", "t"],
        ["reset", "--from-file", "-"],
        ["delete", "t"],
        ["delete", "--whole-group"],
    ],
)
def test_offsets_of_all_topics_only(root: Path, words: list[str]) -> None:
    done = run("offsets", words[0], root, "--group", "g", *words[1:], "--exclude", "t", "--execute")
    assert done.code == 2
    assert "--exclude needs --all-topics" in done.err


@pytest.mark.parametrize("pattern", ["", ",", "(", "a{,b"])
def test_bad_patterns(root: Path, pattern: str) -> None:
    done = run("topics", root, "--exclude", pattern)
    assert done.code == 2
    assert "--exclude" in done.err


def test_a_restore_has_the_same_exclusions_when_it_goes_on() -> None:
    assert RestoreSettings(exclude=("a",)).lasting() != RestoreSettings().lasting()


def test_nothing_is_left_behind(root: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    assert run("copy", root, tmp_path / "new", "--exclude", "(").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before
