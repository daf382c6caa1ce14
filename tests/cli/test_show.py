"""kafkalog topics, groups, offsets show and lag."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run


def test_topics(root: Path) -> None:
    done = run("topics", root)
    assert done.code == 0
    titles, *rows = done.lines
    assert titles[:5] == ["TOPIC", "PARTITION", "START", "END", "STABLE"]
    assert [row[:5] for row in rows] == [
        ["t", "0", "0", "10", "10"],
        ["t", "1", "0", "4", "4"],
        ["u", "0", "0", "3", "3"],
    ]
    (row,) = run("topics", root, "--topic", "u", "--json").json
    assert (row["topic"], row["highWatermark"], row["segments"]) == ("u", 3, 1)
    assert (row["earliestTimestamp"], row["latestTimestamp"]) == (1_600_000_000_000, 1_600_000_000_002)
    assert "__consumer_offsets" in run("topics", root, "--internal").out


def test_groups(root: Path) -> None:
    assert [line[:2] for line in run("groups", root).lines] == [
        ["GROUP", "STATE"],
        ["g", "Empty"],
        ["other", "Empty"],
    ]
    (row,) = run("groups", root, "--group", "g", "--json").json
    assert row == {
        "group": "g",
        "state": "Empty",
        "protocolType": "",
        "protocol": "",
        "members": [],
        "coordinator": None,
    }
    assert run("groups", root, "--members").out == "GROUP  MEMBER  CLIENT  HOST  PARTITIONS\n"


@pytest.mark.parametrize("words", [["offsets"], ["offsets", "show"]])
def test_offsets(root: Path, words: list[str]) -> None:
    done = run(*words, root, "--group", "g")
    assert [line[:6] for line in done.lines[1:]] == [
        ["g", "t", "0", "4", "10", "6"],
        ["g", "t", "1", "4", "4", "0"],
    ]
    rows = run(*words, "--json", root).json
    assert [(row["group"], row["topic"], row["lag"], row["metadata"]) for row in rows] == [
        ("g", "t", 6, "note"),
        ("g", "t", 0, ""),
        ("other", "u", 3, ""),
    ]
    assert [row["group"] for row in run(*words, root, "--topic", "u", "--json").json] == ["other"]


def test_lag_has_an_exit_code(root: Path) -> None:
    done = run("lag", root)
    assert done.lines == [
        ["GROUP", "LAG", "LARGEST", "PARTITIONS", "GONE"],
        ["g", "6", "6", "2", "0"],
        ["other", "3", "3", "1", "0"],
        ["Total", "lag:", "9"],
    ]
    assert done.code == run("lag", root, "--max-lag", 6).code == 0
    assert run("lag", root, "--max-lag", 5).code == 1
    assert run("lag", root, "--max-lag", 5, "--group", "other").code == 0
    assert run("lag", root, "--json", "--group", "other").json == {
        "groups": [{"group": "other", "lag": 3, "maxLag": 3, "partitions": 1, "unknown": 0}],
        "lag": 3,
    }


def test_what_does_not_exist(root: Path) -> None:
    for words, said in (
        (["topics", root, "--topic", "nothing"], "No such topic: nothing"),
        (["groups", root, "--group", "nobody"], "No such consumer group: 'nobody'"),
        (["offsets", root, "--group", "nobody"], "No such consumer group: 'nobody'"),
        (["topics", root / "nowhere"], "The log directory does not exist"),
    ):
        done = run(*words)
        assert (done.code, done.out) == (3, "")
        assert said in done.err
        assert done.err.count("\n") == 1
