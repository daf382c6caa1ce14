"""kafkalog offsets reset, export, import and delete."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.exactly_once.group_marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset
from tests.fixtures_dir import SMALL_FIXTURES
from tests.tools.cli.running import run
from tests.tools.conftest import T0, T1


def offsets(groups: DirectoryGroups, group: str = "g") -> list[int]:
    return [offset.offset for _, offset in sorted(groups.committed(group).items())]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--all-topics", "--to-earliest"], [0, 0]),
        (["--all-topics", "--to-latest"], [10, 4]),
        (["--all-topics", "--to-current"], [4, 4]),
        (["--all-topics", "--shift-by", "-3"], [1, 1]),
        (["--all-topics", "--to-offset", "7"], [7, 4]),
        (["t:0", "--to-datetime", "2020-09-13T12:26:40.006"], [6, 4]),
        (["t", "--to-datetime", "1600000000002"], [2, 2]),
    ],
)
def test_reset(root: Path, groups: DirectoryGroups, words: list[str], expected: list[int]) -> None:
    dry = run("offsets", "reset", root, "--group", "g", *words)
    assert dry.code == 0
    assert "Dry run" in dry.err
    assert offsets(groups) == [4, 4]
    done = run("offsets", "reset", root, "--group", "g", *words, "--execute")
    assert (done.code, done.out, done.err) == (0, dry.out, "")
    assert offsets(groups) == expected


def test_reset_for_large_messages(tmp_path: Path) -> None:
    """At offset 3 a message is open that began at 0."""
    shutil.copytree(SMALL_FIXTURES / "large-messages" / "li_s07_synthetic-0", tmp_path / "t-0")
    groups = DirectoryGroups.open([str(tmp_path)])
    words = ["offsets", "reset", tmp_path, "--group", "g", "t", "--to-offset", "3"]
    done = run(*words, "--large-messages", "--execute")
    assert done.lines[1:] == [["g", "t", "0", "-", "0", "for", "messages", "from", "offset", "3", "on"]]
    assert {(offset.offset, offset.metadata) for offset in groups.committed("g").values()} == {(0, "3,")}


def test_reset_from_a_file_of_kafkas_tool(root: Path, groups: DirectoryGroups) -> None:
    words = ["offsets", "reset", root, "--group", "g", "--from-file", "-"]
    steps = run(*words, "--execute", "--json", text="t,0,7\nt,1,99\n").rows
    assert [(step["current"], step["offset"], step["note"]) for step in steps] == [
        (4, 7, ""),
        (4, 4, "the log ends before 99"),
    ]
    assert offsets(groups) == [7, 4]
    assert run(*words, "--execute", text='{"t":{"1":1}}').code == 0
    assert offsets(groups) == [7, 1]


def test_what_is_exported_can_be_imported(root: Path, groups: DirectoryGroups, tmp_path: Path) -> None:
    before = {group: groups.committed(group) for group in groups.group_ids()}
    file = tmp_path / "offsets.json"
    file.write_text(run("offsets", "export", root).out)
    assert run("offsets", "export", root, "--group", "g", "--format", "csv").out == "t,0,4\nt,1,4\n"
    assert run("offsets", "export", root, "--format", "csv").out == "g,t,0,4\ng,t,1,4\nother,u,0,0\n"
    for group in before:
        assert run("offsets", "delete", root, "--group", group, "--whole-group", "--execute").code == 0
    assert groups.group_ids() == ()
    assert run("offsets", "import", root, file).code == 0
    assert groups.group_ids() == (), "that was dry"
    assert run("offsets", "import", root, file, "--execute").code == 0
    for group, committed in before.items():
        again = groups.committed(group)
        assert {p: (offset.offset, offset.metadata) for p, offset in again.items()} == {
            p: (offset.offset, offset.metadata) for p, offset in committed.items()
        }


def test_delete(root: Path, groups: DirectoryGroups) -> None:
    words = ["offsets", "delete", root, "--group", "g"]
    dry = run(*words, "t:1")
    assert dry.lines[1:] == [["g", "t", "1", "4"]]
    assert groups.committed("g").keys() == {T0, T1}
    assert run(*words, "t:1", "--execute").code == 0
    assert groups.committed("g").keys() == {T0}
    assert run(*words, "--all-topics", "--execute").code == 0
    assert groups.group_ids() == ("other",)
    assert run(*words, "--whole-group").code == 3, "it is gone"


def test_the_marker_of_an_exactly_once_query_is_not_deleted(root: Path, groups: DirectoryGroups) -> None:
    metadata = marker_metadata(MarkerDetails("the-query", "c", "", 5, 7, 0, (0, 0, 0), ()))
    groups.commit("kafkalog-x", {T0: CommittedOffset(3, metadata=metadata)})
    for words in (["--whole-group"], ["--all-topics"], ["t:0"]):
        for execute in [], ["--execute"]:
            done = run("offsets", "delete", root, "--group", "kafkalog-x", *words, *execute)
            assert done.code == 3
            assert "holds the marker of exactly-once query the-query" in done.err
    assert groups.committed("kafkalog-x")[T0].offset == 3


def test_a_group_that_does_not_exist_yet_is_told_of(root: Path) -> None:
    reset = ("offsets", "reset", root, "--group", "typo", "u", "--to-latest")
    assert "There was no group 'typo': it would be created." in run(*reset).err
    made = run(*reset, "--execute").err
    assert "There was no group 'typo': it was created." in made
    assert "no consumer groups" not in made
    near = run("offsets", "reset", root, "--group", "typos", "u", "--to-latest")
    assert "'typos': it would be created. Did you mean typo?" in near.err
    assert "no group" not in run(*reset).err


def test_a_file_that_is_no_text(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"t,0,\xff")
    done = run("offsets", "import", root, file, "--group", "g")
    assert (done.code, done.out) == (2, "")
    assert "not valid UTF-8" in done.err


def test_partitions_of_a_file_that_are_not_there(
    root: Path, groups: DirectoryGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the hint makes them, and then they are imported."""
    monkeypatch.chdir(tmp_path)
    Path("offsets.csv").write_text("t,0,3\n\ngone,2,0\ngone,0,0\n")
    words = ("offsets", "import", root, "offsets.csv", "--group", "new", "--execute")
    done = run(*words)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"kafkalog: No such partition in {root}: gone-0, gone-2 (partition gone-0, file offsets.csv, line 4)."
        " Leave it out of the file, or make it first:"
        f" kafkalog topics create {root} gone --partitions 3\n"
    )
    assert not groups.committed("new")
    assert run(*shlex.split(done.err.partition("kafkalog topics")[2].join(("topics", "")))).code == 0
    assert run(*words).code == 0
    Path("offsets.csv").write_text("t,0,3\nt,x,3\n")
    assert run(*words).err.endswith(
        "of the file: expected a partition and an offset of 0 or more, got 't,x,3' (file offsets.csv)\n"
    )
    Path("offsets.json").write_text('{"t":{"9":0}}')
    other = run("offsets", "reset", root, "--group", "new", "--from-file", "offsets.json")
    assert f"in {root}: t-9 (file offsets.json). Leave it out" in other.err
    assert other.err.endswith(f"kafkalog topics alter {root} t --partitions 10\n")


@pytest.mark.parametrize("words", [("lag",), ("offsets",), ("offsets", "export")])
def test_a_group_in_the_place_of_a_topic(root: Path, words: tuple[str, ...]) -> None:
    assert run("offsets", "reset", root, "--group", "etl", "u", "--to-latest", "--execute").code == 0
    done = run(*words, root, "etl")
    assert (done.code, done.out) == (3, "")
    command = f"{' '.join(words)} {root} --group etl"
    assert done.err == f"kafkalog: No such topic: etl. etl is a consumer group. Write kafkalog {command}\n"
    assert run(*command.split()).code == 0
    assert "is a consumer group" not in run(*words, root, "nothing").err


def test_a_file_in_the_place_of_brokers(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,3")
    done = run("offsets", "import", file.name, "host:9092")
    assert done.err.endswith(f"Write kafkalog offsets import host:9092 {file.name}\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--all-topics"], 2, "Give exactly one of --to-earliest, --to-latest"),
        (["--all-topics", "--to-earliest", "--shift-by", "0"], 2, "Give exactly one of"),
        (["--to-earliest"], 2, "Give either TOPIC or --all-topics"),
        (["--all-topics", "t", "--to-earliest"], 2, "Give either"),
        (["--all-topics", "--to-datetime", "soon"], 2, "got 'soon'"),
        (["t:x", "--to-earliest"], 2, "got 't:x'"),
        (["t:9", "--to-earliest"], 3, "No such partition: t-9"),
        (["u", "--shift-by", "1"], 3, "no committed offset to shift from"),
        (["--from-file", "-"], 2, "Line 1"),
    ],
)
def test_what_is_refused(root: Path, words: list[str], code: int, said: str) -> None:
    done = run("offsets", "reset", root, "--group", "g", *words, "--execute", text="nonsense")
    assert (done.code, done.out) == (code, "")
    assert said in done.err
