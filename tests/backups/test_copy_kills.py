"""A copy killed at any step goes on with nothing lost, doubled or mixed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.backups.copier import RULES, STAGES
from tests.backups.histories import T0, content, make_log, set_log_start
from tests.backups.test_history import check_sound
from tests.faults.steps import KILLED, Runner, changes, step_runner


@pytest.fixture(scope="module")
def copier() -> Iterator[Runner]:
    with step_runner("tests.backups.copier") as run:
        yield run


@pytest.fixture(autouse=True)
def nothing_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.slow
def test_kill_at_every_step(copier: Runner, tmp_path: Path, soak: bool) -> None:
    make_log(tmp_path / "first", [(1, 60)])
    make_log(tmp_path / "longer", [(1, 60), (2, 120)])
    make_log(tmp_path / "truncated", [(1, 60), (2, 90), (5, 150)])
    for stage in STAGES:
        set_log_start(tmp_path / stage, 7)
        groups = DirectoryGroups.open(str(tmp_path / stage), num_partitions=1)
        groups.commit("g", {T0: CommittedOffset(50 + len(stage))})
    seen: Counter[int] = Counter()

    def run(step: int) -> int:
        folder = tmp_path / f"run-{step}"
        folder.mkdir()
        code = copier(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        target = folder / "copy"
        seen[len(content(target)) if (target / "t-0").exists() else 0] += 1
        # Whatever the source has become since, it goes on.
        (row,) = connect(tmp_path / "truncated").logs.backup(str(target), RULES)
        assert (row.problem, row.log_start_offset, row.log_end_offset) == (None, 7, 150)
        assert content(target) == whole
        check_sound(target)
        committed = connect(target).groups.committed("g")
        assert committed[T0].offset == 50 + len("truncated")
        shutil.rmtree(folder)
        return code

    connect(tmp_path / "truncated").logs.backup(str(tmp_path / "whole"), RULES)
    whole = content(tmp_path / "whole")
    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert {run(number) for number in (steps if soak else steps[::18])} == {KILLED}
    assert len(seen) > 3


@pytest.mark.slow
def test_kill_at_every_step_beside_damage(copier: Runner, tmp_path: Path, soak: bool) -> None:
    """The damage stays as it is, and is told; the other partition is copied."""
    damaged = TopicPartition("u", 0)
    for stage, epochs in zip(
        STAGES, ([(1, 60)], [(1, 60), (2, 120)], [(1, 60), (2, 90), (5, 150)]), strict=True
    ):
        make_log(tmp_path / stage, epochs)
        make_log(tmp_path / stage, epochs, partition=damaged)
    connect(tmp_path / "first").logs.backup(str(tmp_path / "held"), RULES)
    (tmp_path / "held" / ".kafka_cleanshutdown").unlink()
    segment = sorted((tmp_path / "held" / str(damaged)).glob("*.log"))[-1]
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.write_bytes(data)
    held = content(tmp_path / "held", damaged)

    def run(step: int) -> int:
        folder = tmp_path / f"run-{step}"
        shutil.copytree(tmp_path / "held", folder / "copy")
        code = copier(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        rows = connect(tmp_path / "truncated").logs.backup(str(folder / "copy"), RULES)
        assert [(row.topic, "before a valid batch" in (row.problem or "")) for row in rows] == [
            ("t", False),
            ("u", True),
        ]
        assert content(folder / "copy") == content(tmp_path / "truncated")
        assert content(folder / "copy", damaged) == held
        assert not (folder / "copy" / ".kafka_cleanshutdown").exists()
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert {run(number) for number in (steps if soak else steps[::18])} == {KILLED}
