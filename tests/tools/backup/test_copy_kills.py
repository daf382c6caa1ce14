"""A copy killed at any step goes on with nothing lost, doubled or mixed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import CommittedOffset, OffsetRange, TopicPartition
from tests.codec.raw import values
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.log.partitions import offsets_read
from tests.tools.backup.copier import RULES, STAGES
from tests.tools.backup.histories import T0, content, make_log, make_log_of, set_log_start
from tests.tools.backup.test_gaps import of_transaction
from tests.tools.backup.test_history import check_sound


@pytest.fixture(scope="module")
def copier() -> Iterator[Runner]:
    with step_runner("tests.tools.backup.copier") as run:
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
@pytest.mark.parametrize("begin", [9, 40])
def test_kill_at_every_step_of_a_gap_that_ends_within_a_batch(
    copier: Runner, begin: int, tmp_path: Path, soak: bool
) -> None:
    """Whatever was written, what the source has deleted is never in the copy."""
    open_ones = [of_transaction(5, 7), of_transaction(7, 8)]
    make_log_of(tmp_path / "first", [values(5, base_offset=0), *open_ones])
    make_log_of(
        tmp_path / "longer", [values(60, base_offset=begin), values(5, base_offset=begin + 60)], start=begin
    )
    set_log_start(tmp_path / "longer", begin + 20)
    connect(tmp_path / "first").logs.backup(str(tmp_path / "whole"), RULES)
    (row,) = connect(tmp_path / "longer").logs.backup(str(tmp_path / "whole"), RULES)
    gaps, gone, seen = [OffsetRange(9, begin + 20)], set(range(9, begin + 20)), set[int]()
    assert (row.problem, row.gaps) == (None, gaps)
    whole = content(tmp_path / "whole")

    def run(step: int) -> int:
        folder = tmp_path / f"run-{step}"
        folder.mkdir()
        code = copier(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        for _ in range(2):
            if (folder / "copy" / "t-0").exists():
                assert not gone.intersection(stored(folder / "copy"))
            (row,) = connect(tmp_path / "longer").logs.backup(str(folder / "copy"), RULES)
            assert row.problem is None
        assert not gone.intersection(stored(folder / "copy"))
        if row.gaps == gaps:
            assert content(folder / "copy") == whole
            seen.add(step)
        check_sound(folder / "copy")
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert {run(number) for number in (steps if soak else steps[::12])} == {KILLED}
    assert len(seen) > 3


def stored(root: Path) -> list[int]:
    """The offsets that read_uncommitted shows."""
    place = LogDirectory.open(str(root))
    marks = place.watermarks([T0], read_committed=False)[T0]
    return offsets_read(place, T0, OffsetRange(marks.log_start_offset, marks.high_watermark))


@pytest.mark.long
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
