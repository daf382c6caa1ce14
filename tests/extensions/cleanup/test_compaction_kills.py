"""A process that compacts, killed at any step, leaves a log that has all that must stay."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.cleanup.compacting import compact_partition
from pyspark_kafkalog.log.layout import CLEAN_SHUTDOWN_FILE
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from tests.extensions.cleanup.compactor import PARTITION, SETTINGS
from tests.extensions.cleanup.test_compaction import Record, cleanable_end, expected, records
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.log.random_logs import RandomLog, append


@pytest.fixture(scope="module")
def compactor() -> Iterator[Runner]:
    with step_runner("tests.extensions.cleanup.compactor") as run:
        yield run


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def is_between(found: list[Record], least: list[Record], most: list[Record]) -> bool:
    """Whether ``found`` has all of ``least`` and nothing but ``most``, in order."""
    rest = iter(most)
    return all(row in rest for row in found) and all(row in found for row in least)


@pytest.mark.long
@pytest.mark.slow
def test_kill_at_every_step(compactor: Runner, tmp_path: Path, seed: int, soak: bool) -> None:
    rng = random.Random(seed)
    log = RandomLog(rng, 40, ("none", "lz4"))
    made = tmp_path / "made"
    (made / "log").mkdir(parents=True)
    append(made / "log" / str(PARTITION), PARTITION, log.batches(70), 1500)
    (made / "log" / CLEAN_SHUTDOWN_FILE).write_text("0")
    before, end = records(made / "log"), cleanable_end(made / "log")
    last = expected(made / "log", before, end)
    # Without their delete horizon tombstones may go or stay.
    least = [
        row for row in last if (row["value"] is not None and row["key"] is not None) or row["offset"] >= end
    ]
    assert len(least) < len(before) * 0.8
    swaps = undone = 0

    def run(step: int) -> int:
        nonlocal swaps, undone
        folder = tmp_path / str(step)
        shutil.copytree(made, folder)
        root = folder / "log"
        code = compactor(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        assert is_between(records(root), least, before), f"step {step}"
        assert (code == 0) == (root / CLEAN_SHUTDOWN_FILE).exists() or step > 0
        swaps += bool(list(root.glob("*/*.swap")))
        undone += bool(list(root.glob("*/*.cleaned")))
        if step % 2:
            clear_leftovers(str(root / str(PARTITION)))
            assert is_between(records(root), least, before), f"step {step}"
            assert not [p for p in (root / str(PARTITION)).iterdir() if p.suffix in (".swap", ".cleaned")]
        compact_partition(str(root), PARTITION, SETTINGS, execute=True)
        now = records(root)
        assert is_between(now, least, last), f"step {step}"
        assert not LogDirectory.open(str(root)).file_faults(PARTITION)
        assert not [p for p in (root / str(PARTITION)).iterdir() if p.suffix in (".swap", ".cleaned")]
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert {run(number) for number in (steps if soak else steps[::5])} == {KILLED}
    assert swaps > (20 if soak else 3)
    assert undone > (10 if soak else 1)
