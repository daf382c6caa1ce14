"""kafkalog forget-queries: ledgers go, and a query that comes back is refused, never written twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.log.publish.forgotten import FORGOTTEN_FILE
from pyspark_kafkalog.log.publish.journal import ledger_file
from pyspark_kafkalog.log.publish.ledger import Provenance
from pyspark_kafkalog.model import Plan
from tests.log.writing import T0, read, write_batch
from tests.tools.cli.running import run

DAY = 24 * 3600


def publish(root: Path, number: int, query: str, *, required: bool = True, is_job: bool = False) -> None:
    history = Provenance(Plan(f"{number}", before=f"{number - 1}"), is_job, required)
    write_batch(root, number, {T0: [b"%d" % number]}, query, history=history)


def age(root: Path, query: str, days: int) -> None:
    then = time.time() - days * DAY
    os.utime(root / ledger_file(query), (then, then))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Queries that have written two days ago, two hundred days ago, and now; each one micro-batch."""
    for query, days in (("recent", 2), ("old", 200), ("running", 0)):
        publish(tmp_path, 0, query)
        age(tmp_path, query, days)
    return tmp_path


def test_those_that_have_not_written_for_long_go(root: Path) -> None:
    before = sorted(root.iterdir())
    dry = run("forget-queries", root, "--older-than", "100d")
    assert dry.code == 0
    assert "Dry run" in dry.err
    assert sorted(root.iterdir()) == before
    done = run("forget-queries", root, "--older-than", "100d", "--execute")
    assert (done.code, done.out, done.err) == (0, dry.out, "")
    assert "old" in done.out
    assert not (root / ledger_file("old")).exists()
    publish(root, 1, "recent")
    publish(root, 1, "running")
    assert run("forget-queries", root, "--older-than", "100d", "--json").rows == []
    assert read(root)[T0] == [b"0"] * 3 + [b"1"] * 2


def test_a_negative_time_is_refused(root: Path) -> None:
    with pytest.raises(OptionError, match="at least 0 ms, got -1"):
        connect(root).logs.forget_queries(-1, execute=True)
    assert (root / ledger_file("running")).exists()


@pytest.mark.parametrize("is_job", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_one_that_comes_back_is_refused(root: Path, number: int, is_job: bool) -> None:
    """Also where it repeats its first batch, or a job has numbered it: else its rows would be there twice."""
    (gone,) = connect(root).logs.forget_queries(100 * DAY * 1000, execute=True)
    assert (gone.query_id, gone.batch_id, gone.note) == ("old", 0, "")
    with pytest.raises(
        LogDirectoryError, match=r"forgotten query old: .*whether batch . was written.*new checkp"
    ):
        publish(root, number, "old", is_job=is_job)
    assert read(root)[T0] == [b"0"] * 3
    publish(root, number, "old", required=False, is_job=is_job)
    publish(root, number + 1, "old", is_job=is_job)
    publish(root, 0, "new")


def test_it_remembers_all_that_went(root: Path) -> None:
    logs = connect(root).logs
    assert len(logs.forget_queries(100 * DAY * 1000, execute=True)) == 1
    assert len(logs.forget_queries(DAY * 1000, execute=True)) == 1
    for query in ("old", "recent"):
        with pytest.raises(LogDirectoryError, match=f"forgotten query {query}"):
            publish(root, 0, query)


def test_a_ledger_that_makes_no_sense_stays(root: Path) -> None:
    (root / ledger_file("old")).write_text("{}")
    (root / ledger_file("recent")).rename(root / ledger_file("another"))
    age(root, "old", 200)
    done = run("forget-queries", root, "--older-than", "1d", "--execute", "--json")
    assert done.code == 1
    assert [bool(row["note"]) for row in done.rows] == [True, True]
    assert (root / ledger_file("old")).exists()
    assert (root / ledger_file("another")).exists()
    assert not (root / FORGOTTEN_FILE).exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "ledgers": []}',
        '{"version": 1, "ledgers": [1]}',
        '{"version": 1, "ledgers": "abc"}',
        '{"version": 1, "ledgers": {"abc": 1}}',
    ],
)
def test_what_was_forgotten_cannot_be_read(root: Path, text: str) -> None:
    (root / FORGOTTEN_FILE).write_text(text)
    publish(root, 1, "running")
    with pytest.raises(LogDirectoryError, match="Cannot read the file") as e:
        publish(root, 0, "new")
    assert e.value.file == str(root / FORGOTTEN_FILE)
    with pytest.raises(LogDirectoryError, match="Cannot read the file"):
        connect(root).logs.forget_queries(100 * DAY * 1000, execute=True)
    assert (root / ledger_file("old")).exists()


def test_a_kill_between_the_names_and_the_ledgers_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(path: str, **_: object) -> None:
        if path == str(root / ledger_file("old")):
            raise Crash
        really(path)

    really = os.unlink
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", crash)
        with pytest.raises(Crash):
            connect(root).logs.forget_queries(100 * DAY * 1000, execute=True)
    assert (root / FORGOTTEN_FILE).exists()
    publish(root, 1, "old")
    assert read(root)[T0] == [b"0"] * 3 + [b"1"]
