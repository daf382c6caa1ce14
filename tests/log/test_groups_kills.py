"""A process that commits and compacts, killed at any step, leaves the last offsets or those before them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.log_groups import groups as groups_module
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.log.committer import COMMITS, OTHER, T0, T1, compact_early


@pytest.fixture(scope="module")
def committer() -> Iterator[Runner]:
    with step_runner("tests.log.committer") as run:
        yield run


@pytest.fixture(autouse=True)
def as_the_committer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_CLEAN_BYTES", groups_module._CLEAN_BYTES)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    compact_early()


def check(folder: Path) -> int:
    """The committed offset, which must be the last reported one or the next."""
    root = str(folder / "log")
    done = int((folder / "done").read_text()) if (folder / "done").exists() else -1
    groups = DirectoryGroups.open([root], num_partitions=1)
    committed = groups.committed("query")
    offsets = {commit.offset for commit in committed.values()} or {-1}
    assert len(committed) in (0, 2), "Half a commit"
    assert len(offsets) == 1, "Half a commit"
    found = offsets.pop()
    assert found in (done, done + 1)
    if done >= 2:
        assert groups.group_ids() == (OTHER, "query")
        assert groups.committed(OTHER)[T0].offset == 7
    for number in range(3):
        groups.commit("query", {T0: CommittedOffset(100 + number), T1: CommittedOffset(100)})
        others = DirectoryGroups.open([root], num_partitions=1)
        for reader in (groups, others):
            assert [commit.offset for commit in reader.committed("query").values()] == [100 + number, 100]
            assert done < 2 or reader.committed(OTHER)[T0].offset == 7
    return found


@pytest.mark.long
@pytest.mark.slow
def test_kill_at_every_step(committer: Runner, tmp_path: Path, soak: bool) -> None:
    seen: Counter[int] = Counter()
    killed_while_cleaning = 0

    def run(step: int) -> int:
        nonlocal killed_while_cleaning
        folder = tmp_path / str(step)
        (folder / "log").mkdir(parents=True)
        (folder / "log" / ".kafka_cleanshutdown").write_text("0")
        code = committer(folder, step)
        killed_while_cleaning += bool(list(folder.glob("log/*/*.cleaned")))
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        seen[check(folder)] += 1
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert len(steps) > 150
    assert {run(number) for number in (steps if soak else steps[::9])} == {KILLED}
    assert set(seen) == set(range(-1, COMMITS))
    assert killed_while_cleaning > (10 if soak else 0)
