"""A publisher killed at any step leaves whole micro-batches visible, and a replay completes them, once."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.log.layout import JOURNAL_FILE
from pyspark_kafkalog.log.publish.journal import ledger_file
from tests.faults.publisher import BATCHES, QUERY, publish_batch, records
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.log.writing import files_beside_partitions, read


@pytest.fixture(scope="module")
def publisher() -> Iterator[Runner]:
    with step_runner("tests.faults.publisher") as run:
        yield run


@pytest.fixture(autouse=True)
def nothing_is_flushed(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def visible(root: Path) -> Counter[bytes]:
    return (
        Counter(value for values in read(root).values() for value in values) if root.exists() else Counter()
    )


def batch(number: int) -> Counter[bytes]:
    return Counter(value for task in records(number, 1) for values in task.values() for value in values)


def check_whole_or_absent(folder: Path) -> int:
    """A reader sees whole batches: all reported ones, and maybe the next; returns how many."""
    done = committed(folder)
    found = visible(folder / "log")
    expected: Counter[bytes] = sum((batch(n) for n in range(done + 1)), Counter())
    if found == expected:
        return done + 1
    assert found == expected + batch(done + 1)
    return done + 2


def committed(folder: Path) -> int:
    path = folder / "committed"
    return json.loads(path.read_text()) if path.exists() else -1


def check_replay_completes(folder: Path) -> None:
    """Run the same batches again with other tasks: then each row is there once, and nothing else."""
    root = folder / "log"
    for number in range(committed(folder) + 1, BATCHES):
        publish_batch(root, number, tasks=3)
    assert visible(root) == sum((batch(n) for n in range(BATCHES)), Counter())
    assert files_beside_partitions(root) <= {ledger_file(QUERY), ".kafka_cleanshutdown"}
    assert {path.name for path in root.iterdir() if path.is_dir()} == {"t-0", "t-1", "new-0", "new-1"}


@pytest.mark.slow
def test_kill_at_every_step(publisher, tmp_path, soak):
    seen: Counter[int] = Counter()

    def run(step: int) -> int:
        folder = tmp_path / str(step)
        (folder / "log").mkdir(parents=True)
        (folder / "log" / ".kafka_cleanshutdown").write_text("0")
        code = publisher(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        seen[check_whole_or_absent(folder)] += 1
        check_replay_completes(folder)
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert len(steps) > 50
    assert {run(number) for number in (steps if soak else steps[::7])} == {KILLED}
    assert set(seen) == set(range(BATCHES + 1))


@pytest.mark.slow
def test_kill_at_every_step_of_undoing(publisher, tmp_path, soak):
    """One dies when a batch is appended, the next at each step of its undo; a third completes it."""
    whole, unfinished = tmp_path / "whole", tmp_path / "unfinished"
    for folder in (whole, unfinished):
        folder.mkdir()
    publisher(whole, 0)
    steps = (whole / "steps").read_text().splitlines()
    commits = [
        i for i, step in enumerate(steps, 1) if step.startswith("replace") and ledger_file(QUERY) in step
    ]
    assert len(commits) == BATCHES
    assert publisher(unfinished, commits[-1]) == KILLED
    before = visible(unfinished / "log")
    assert before == batch(0)
    completed = tmp_path / "completed"
    shutil.copytree(unfinished, completed)
    assert publisher(completed, 0) == 0
    steps = (completed / "steps").read_text().splitlines()
    (last,) = [
        i for i, step in enumerate(steps, 1) if step.startswith("unlink") and f"{JOURNAL_FILE}'" in step
    ]
    assert last > 20
    for step in [*range(1, last + 1, 1 if soak else 7), last, last + 1]:
        folder = tmp_path / str(step)
        shutil.copytree(unfinished, folder)
        assert publisher(folder, step) == KILLED
        assert visible(folder / "log") == before
        assert (folder / "log" / JOURNAL_FILE).exists() == (step <= last)
        check_replay_completes(folder)
        shutil.rmtree(folder)
