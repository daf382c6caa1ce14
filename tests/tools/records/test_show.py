"""kafkalog topics, groups, offsets show and lag."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.errors import BrokerConnectionError
from pyspark_kafkalog.extensions.exactly_once.group_marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.rows import table_columns
from pyspark_kafkalog.tools.cli.parameters import offsets_of
from pyspark_kafkalog.tools.groups.commands import lag as cli_lag
from pyspark_kafkalog.tools.groups.consumer_groups import GroupOffset
from pyspark_kafkalog.tools.groups.watching import GroupPace, duration, sparkline
from tests.log.writing import values, write
from tests.tools.cli.running import run
from tests.tools.conftest import U0


def test_topics(root: Path) -> None:
    done = run("topics", root)
    assert done.code == 0
    titles, *rows = done.lines
    assert titles == ["TOPIC", "PARTITION", "START", "END", "SIZE", "LATEST"]
    assert [row[:4] for row in rows] == [["t", "0", "0", "10"], ["t", "1", "0", "4"], ["u", "0", "0", "3"]]
    assert rows[2][-1] == "2020-09-13T12:26:40Z"
    titles, *rows = run("topics", root, "--wide").lines
    assert titles[3:5] == ["END", "STABLE"]
    assert rows[2][3:5] == ["3", "3"]
    assert "2020-09-13T12:26:40.002Z" in rows[2]
    (row,) = run("topics", root, "u", "--json").rows
    assert (row["topic"], row["highWatermark"], row["segments"]) == ("u", 3, 1)
    assert (row["earliestTimestamp"], row["latestTimestamp"]) == (1_600_000_000_000, 1_600_000_000_002)
    assert "__consumer_offsets" in run("topics", root, "--internal").out


def test_groups(root: Path) -> None:
    assert [line[:2] for line in run("groups", root).lines] == [
        ["GROUP", "STATE"],
        ["g", "Empty"],
        ["other", "Empty"],
    ]
    (row,) = run("groups", root, "--group", "g", "--json").rows
    assert row == {
        "group": "g",
        "state": "Empty",
        "protocolType": "",
        "protocol": "",
        "members": [],
        "coordinator": None,
        "note": "",
    }
    assert run("groups", root, "--members").lines == [
        ["GROUP", "STATE", "CLIENT", "HOST", "PARTITIONS"],
        ["g", "Empty", "-", "-", "-"],
        ["other", "Empty", "-", "-", "-"],
    ]
    titles = ["GROUP", "STATE", "MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"]
    assert run("groups", root, "--members", "--wide").lines[0] == titles


@pytest.mark.parametrize("words", [["offsets"], ["offsets", "show"]])
def test_offsets(root: Path, words: list[str]) -> None:
    done = run(*words, root, "--group", "g")
    assert [line[:6] for line in done.lines[1:]] == [
        ["g", "t", "0", "4", "10", "6"],
        ["g", "t", "1", "4", "4", "0"],
    ]
    rows = run(*words, "--json", root).rows
    assert [(row["group"], row["topic"], row["lag"], row["metadata"]) for row in rows] == [
        ("g", "t", 6, "note"),
        ("g", "t", 0, ""),
        ("other", "u", 3, ""),
    ]
    assert [row["group"] for row in run(*words, root, "u", "--json").rows] == ["other"]


def test_an_alarm_over_nothing_is_not_green(root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    write(empty, {TopicPartition("t", 0): values(3)})
    for words, code in ((["--max-lag", 5], 1), (["--max-lag", 5, "--prometheus"], 1), ([], 0)):
        done = run("lag", empty, *words)
        assert done.code == code
        assert "No group has committed offsets here: nothing was checked." in done.err
    assert run("lag", root, "--max-lag", 5, "t", "--exclude", "x").code == 2
    assert "nothing was checked" not in run("lag", root, "--max-lag", 100).err


def test_lag_has_an_exit_code(root: Path) -> None:
    done = run("lag", root)
    assert done.lines == [
        ["GROUP", "LAG", "MAX", "LAG", "PARTITIONS", "GONE"],
        ["g", "6", "6", "2", "0"],
        ["other", "3", "3", "1", "0"],
        ["Total", "lag:", "9"],
    ]
    assert done.code == run("lag", root, "--max-lag", 6).code == 0
    assert run("lag", root, "--max-lag", 5).code == 1
    assert run("lag", root, "--max-lag", 5, "--group", "other").code == 0
    assert run("lag", root, "--json", "--group", "other").json == {
        "groups": [
            {
                "group": "other",
                "lag": 3,
                "maxLag": 3,
                "partitions": 1,
                "gone": 0,
                "beyond": 0,
                "expired": 0,
                "state": "ok",
                "note": "",
            }
        ],
        "lag": 3,
    }


def test_segments(root: Path) -> None:
    titles, *rows = run("topics", root, "--segments", "u").lines
    assert titles == ["TOPIC", "PARTITION", "START", "SIZE", "INDEX", "LATEST"]
    assert [row[:3] for row in rows] == [["u", "0", "0"]]
    (row,) = run("topics", root, "--segments", "u", "--json").rows
    assert (row["segment"], row["baseOffset"], row["active"]) == (f"{0:020d}.log", 0, True)
    assert (row["file"], row["indexState"]) == (f"{root}/u-0/{row['segment']}", "ok")
    assert run("topics", root, "--segments", "--wide").lines[0][-1] == "FILE"
    done = run("topics", "localhost:9", "--segments")
    assert (done.code, done.out) == (2, "")
    assert "Brokers don't show their segments" in done.err


def test_tables_fit_80_columns(root: Path) -> None:
    shown = ("topics", "topics --segments", "groups", "groups --members", "offsets", "lag", "verify")
    for command in shown:
        assert max(map(len, run(*command.split(), root).out.splitlines())) <= 80, command


def test_a_watch_outlasts_an_outage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(*args: Any, **settings: Any) -> list[GroupOffset]:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise BrokerConnectionError("No broker can be reached")
        return offsets_of(*args, **settings)

    monkeypatch.setattr(cli_lag, "offsets_of", look)
    done = run("lag", root, "--watch", "0.01", "--count", "3", "--json")
    first, last = map(json.loads, done.out.splitlines())
    assert (done.code, done.err) == (0, "kafkalog: No broker can be reached\n")
    assert (first["lag"], last["lag"]) == (9, 9)
    looks = 1
    assert run("lag", root, "--watch", "0.01").code == 3


def test_lag_is_watched(root: Path) -> None:
    look, titles, *rows = run("lag", root, "--watch", "0.01", "--count", "2").lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", look[0])
    assert look[1:] == [f"{root}:", "total", "lag", "9"]
    assert titles == ["GROUP", "LAG", "CONSUMED/S", "PRODUCED/S", "CATCH", "UP", "LAGS"]
    assert [row for row in rows if row[0] == "g"] == [
        ["g", "6", "-", "-", "-", "█"],
        ["g", "6", "0.0", "0.0", "-", "██"],
    ]
    widest = GroupPace("a-group-of-16-ch", 123456, 1, 1234.5, 1234.5, 90000.0, (1,) * 20)
    assert "MAX LAG" in run("lag", root, "--watch", "0.01", "--count", "1", "--wide").out
    shown = table_columns(GroupPace, [widest], wide=False)
    assert sum(2 + max(len(one.title), len(str(one.cell(widest, wide=False)))) for one in shown) - 2 <= 80
    done = run("lag", root, "--watch", "0.01", "--count", "2", "--json", "--max-lag", "5")
    first, second = map(json.loads, done.out.splitlines())
    assert (done.code, first["lag"], first["timestamp"] > 1_600_000_000_000) == (1, 9, True)
    assert second["groups"][0] == {
        "group": "g",
        "lag": 6,
        "maxLag": 6,
        "consumedPerSecond": 0.0,
        "producedPerSecond": 0.0,
        "secondsToCatchUp": None,
        "history": [6, 6],
        "state": "ok",
        "note": "",
    }
    for words in ("--count 2", "--watch 0", "--prometheus --json", "--prometheus --watch 1"):
        assert run("lag", root, *words.split()).code == 2, words


def test_the_group_that_is_furthest_behind_comes_first(root: Path, groups: DirectoryGroups) -> None:
    groups.commit("ahead", {U0: CommittedOffset(99)})
    groups.commit("zero", {U0: CommittedOffset(3)})
    for more in ([], ["--watch", "1", "--count", "1"]):
        shown = run("lag", root, "--sort", "lag", "--json", *more).json["groups"]
        assert [row["group"] for row in shown] == ["ahead", "g", "other", "zero"]
    assert [row[0] for row in run("lag", root).lines[1:-1]] == ["ahead", "g", "other", "zero"]
    groups.commit("a-zero", {U0: CommittedOffset(3)})
    assert [row[0] for row in run("lag", root, "--sort", "lag").lines[2:4]] == ["g", "other"]


def test_lag_for_prometheus(root: Path) -> None:
    done = run("lag", root, "--prometheus")
    assert 'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 6\n' in done.out
    assert done.code == 0
    assert run("lag", root, "--prometheus", "--max-lag", "1").code == 1


@pytest.mark.parametrize(
    ("values", "line"), [([], ""), ([0], "▁"), ([0, 0], "▁▁"), ([1, 1000], "▂█"), ([7, 0, 3], "█▁▄")]
)
def test_sparkline(values: list[int], line: str) -> None:
    assert sparkline(values) == line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (59.4, "59s"), (61, "1m 1s"), (7260, "2h 1m"), (90_000, "1d 1h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_alarm_that_cannot_work_says_so(root: Path, groups: DirectoryGroups) -> None:
    groups.commit("ahead", {U0: CommittedOffset(500)})
    lag = ("lag", root, "--group", "ahead", "--max-lag", 1000)
    done = run(*lag)
    assert done.lines[1][:5] == ["ahead", "0", "0", "1", "0"]
    assert (done.code, done.lines[1][5:]) == (
        1,
        ["1", "beyond", "the", "end:", "kafkalog", "offsets", "reset"],
    )
    assert run(*lag, "--watch", "0.01", "--count", "1").code == 1
    done = run(*lag, "--prometheus")
    assert (done.code, 'partition="0",state="beyond"} 1' in done.out) == (1, True)
    (row,) = run("offsets", root, "--group", "ahead", "--json").rows
    assert (row["lag"], row["state"]) == (-497, "beyond")
    groups.delete_offsets("ahead", [U0])
    done = run("lag", root, "u", "--group", "g", "--max-lag", 1000)
    assert (done.code, done.lines[1][:4]) == (1, ["g", "-", "-", "0"])
    assert run("lag", root, "u", "--max-lag", 1000).code == 0, "of others nothing is expected"


def test_markers_are_shown_but_no_lag(root: Path, groups: DirectoryGroups) -> None:
    metadata = marker_metadata(MarkerDetails("the-query", "c", "", 5, 7, 0, (0, 0, 0), ()))
    groups.commit("kafkalog-x", {U0: CommittedOffset(1, metadata=metadata)})
    assert "kafkalog-x" not in run("lag", root).out
    for words in ("--prometheus", "--json", "--watch 0.01 --count 1"):
        assert "kafkalog-x" not in run("lag", root, *words.split()).out, words
    assert run("lag", root, "--max-lag", 6).code == 0
    shown = run("lag", root, "--all").lines[2]
    assert shown == ["kafkalog-x", "-", "-", "1", "0", "marker"]
    shown = run("lag", root, "--all", "--wide").lines[2]
    assert shown[-3:] == ["of", "query", "the-query"]
    assert run("lag", root, "--group", "kafkalog-x", "--max-lag", 6).code == 1
    (row,) = run("groups", root, "--group", "kafkalog-x").lines[1:]
    assert row[:3] == ["kafkalog-x", "Empty", "marker"]
    (row,) = run("groups", root, "--group", "kafkalog-x", "--wide").lines[1:]
    assert row[:4] == ["kafkalog-x", "Empty", "marker", "the-query"]
    (row,) = run("offsets", root, "--group", "kafkalog-x", "--json").rows
    assert (row["state"], row["note"], row["lag"]) == ("marker", "of query the-query", None)
    assert "kafkalog-x" not in run("offsets", "export", root).out
    done = run("offsets", "reset", root, "--group", "kafkalog-x", "--all-topics", "--to-earliest")
    assert (done.code, done.out) == (3, "")


def test_tables_with_the_marker_of_a_query_fit_80_columns(root: Path, groups: DirectoryGroups) -> None:
    query = str(uuid.uuid4())
    metadata = marker_metadata(MarkerDetails(query, "c", "", 5, 7, 0, (0, 0, 0), ()))
    groups.commit(transactional_id(query), {U0: CommittedOffset(1, metadata=metadata)})
    for words in (("groups", root), ("offsets", root), ("lag", root, "--all")):
        shown = run(*words).out
        assert transactional_id(query) in shown
        assert max(map(len, shown.splitlines())) <= 80
        assert query in run(*words, "--wide").out


def test_offsets_of_a_deleted_topic(root: Path) -> None:
    """A group keeps them. They are shown, but their lag is not known: a monitor of it must not be green."""
    shutil.rmtree(root / "u-0")
    (row,) = run("offsets", root, "u", "--json").rows
    assert (row["group"], row["offset"], row["lag"]) == ("other", 0, None)
    assert run("lag", root).lines[2] == [
        "other",
        "-",
        "-",
        "1",
        "1",
        *["the", "partition", "does", "not", "exist"],
    ]
    done = run("lag", root, "u", "--max-lag", 10)
    assert (done.code, done.out) == (3, "")
    assert "No such topic: u." in done.err
    assert run("offsets", root, "u", "--group", "g").code == 3, "g has no offset of it"


def test_what_does_not_exist(root: Path) -> None:
    for words, said in (
        (["topics", root, "nothing"], "No such topic: nothing"),
        (
            ["groups", root, "--group", "othe"],
            "No such consumer group: 'othe'. Did you mean other? There are 2 consumer groups: g, other.",
        ),
        (["offsets", root, "--group", "missing"], "No such consumer group: 'missing'"),
        (["offsets", root, "nothing"], "No such topic: nothing"),
        (["offsets", "export", root, "nothing"], "No such topic: nothing"),
        (["lag", root, "tt", "--max-lag", 10], "No such topic: tt. Did you mean t?"),
        (["dump", root, "tt-0"], "No such topic: tt. Did you mean t?"),
        (["topics", root / "nowhere"], "The log directory does not exist"),
    ):
        done = run(*words)
        assert (done.code, done.out) == (3, "")
        assert said in done.err
        assert done.err.count("\n") == 1
