"""A compaction with a limit of time ends, goes on with the next call, and leaves what one without it does."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.cleanup import history
from pyspark_kafkalog.extensions.cleanup.compacting import compact_held, compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import CompactionSettings
from pyspark_kafkalog.extensions.cleanup.history import stored_batches
from pyspark_kafkalog.extensions.cleanup.unfinished import UNFINISHED_FILE, TimeLimit, load
from pyspark_kafkalog.log.layout import CLEANER_CHECKPOINT
from pyspark_kafkalog.log.read.directory import LogDirectory
from tests.extensions.cleanup.test_compaction import (
    ALL_OF_IT,
    T0,
    Record,
    cleanable_end,
    expected,
    make,
    records,
    roll,
    segments,
)
from tests.extensions.cleanup.test_compaction_broker import OneGroup, batches_of
from tests.log.partitions import data_batch
from tests.log.random_logs import DAY_MS, RandomLog, append


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def in_steps(root: Path, settings: CompactionSettings, limit: type[TimeLimit] | None = None) -> int:
    """Compact, with as little as possible in each call; the number of calls."""
    for number in range(1, 2000):
        _, is_all = compact_held(
            str(root), T0, settings, lambda size: None, TimeLimit(0) if limit is None else limit()
        )
        if is_all:
            return number
    raise AssertionError("It does not come to an end")


@pytest.mark.parametrize("number", range(6))
def test_a_pass_in_steps_leaves_the_same_batches(number: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{seed} {number}")
    log = make(tmp_path / "steps", rng, 40)
    settings = replace(
        ALL_OF_IT, segment_bytes=rng.choice((1000, 4000)), delete_retention_ms=rng.choice((0, DAY_MS))
    )
    calls = 0
    for _ in range(2):
        shutil.rmtree(tmp_path / "once", ignore_errors=True)
        shutil.copytree(tmp_path / "steps", tmp_path / "once")
        compact_partition(str(tmp_path / "once"), T0, settings, execute=True)
        calls += in_steps(tmp_path / "steps", settings, OneGroup)
        assert records(tmp_path / "steps") == records(tmp_path / "once")
        found, wanted = (batches_of(tmp_path / root / str(T0)) for root in ("steps", "once"))
        assert found == wanted
        checkpoints = [(tmp_path / root / CLEANER_CHECKPOINT) for root in ("steps", "once")]
        assert len({path.read_bytes() for path in checkpoints if path.exists()}) <= 1
        assert not (tmp_path / "steps" / str(T0) / UNFINISHED_FILE).exists()
        roll(tmp_path / "steps", log)
    assert calls > 4


@pytest.mark.parametrize("number", range(4))
def test_one_segment_a_call_comes_to_an_end(number: int, seed: int, tmp_path: Path) -> None:
    """Readers see all that must stay, and nothing twice, between any two calls."""
    rng = random.Random(f"{seed} {number}")
    log = make(tmp_path, rng, 40)
    before, end = records(tmp_path), cleanable_end(tmp_path)
    wanted = [r for r in expected(tmp_path, before, end) if r["key"] is not None or r["offset"] >= end]
    calls = 0
    while True:
        calls += 1
        _, is_all = compact_held(str(tmp_path), T0, ALL_OF_IT, lambda size: None, TimeLimit(0))
        assert is_between(records(tmp_path), wanted, before)
        if calls == 3:  # what was walked stays true
            append(tmp_path / str(T0), T0, log.batches(3), 1 << 20)
            more = records(tmp_path)[-20:]
            before += [row for row in more if row["offset"] > before[-1]["offset"]]
            wanted += [row for row in more if row["offset"] > wanted[-1]["offset"]]
        if is_all:
            break
    assert calls > 10 or len(segments(tmp_path)) < 4
    assert [r for r in records(tmp_path) if r["offset"] < end] == [r for r in wanted if r["offset"] < end]
    assert not LogDirectory.open(str(tmp_path)).file_faults(T0)


def is_between(found: list[Record], least: list[Record], most: list[Record]) -> bool:
    rest = iter(most)
    return all(row in rest for row in found) and all(row in found for row in least)


def begun(root: Path, seed: int) -> tuple[list[Record], list[Record]]:
    """A log of which a pass has begun: its records before, and those that stay."""
    append(root / str(T0), T0, RandomLog(random.Random(seed), 30, ("none",)).batches(80), 1500)
    before, end = records(root), cleanable_end(root)
    while load(str(root / str(T0))).begun is None:
        compact_held(str(root), T0, SMALL, lambda size: None, OneGroup())
    left = [r for r in expected(root, before, end) if r["key"] is not None or r["offset"] >= end]
    return before, left


SMALL = replace(ALL_OF_IT, segment_bytes=1600)


@pytest.mark.parametrize("what", ["damaged", "gone", "checkpoint", "segment", "memory", "by hand"])
def test_a_pass_that_can_not_go_on_starts_over(what: str, seed: int, tmp_path: Path) -> None:
    before, wanted = begun(tmp_path, seed)
    file, settings = tmp_path / str(T0) / UNFINISHED_FILE, SMALL
    stored = load(str(file.parent)).begun
    assert stored is not None
    assert 0 < stored.rest[0].base_offset < stored.map_end
    if what == "damaged":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        assert load(str(file.parent)).begun is None
    elif what == "gone":
        file.unlink()
    elif what == "checkpoint":
        (tmp_path / CLEANER_CHECKPOINT).write_text("0\n1\nt 0 1\n")
    elif what == "segment":
        os.utime(stored.rest[-1].path, (1, 1))
    elif what == "memory":
        settings = replace(SMALL, dedupe_buffer_size=24 * 5)
    else:
        compact_partition(str(tmp_path), T0, SMALL, execute=True)
        assert not file.exists()
    if what in ("checkpoint", "segment"):
        assert not stored.fits(stored_batches(str(file.parent))[0], 1 if what == "checkpoint" else None, None)
    in_steps(tmp_path, settings, OneGroup)
    if what == "checkpoint":  # what is before it counts as clean, and its duplicates stay
        assert is_between(records(tmp_path), wanted, before)
    else:
        assert records(tmp_path) == wanted
    assert not file.exists() or load(str(file.parent)).begun is None


def test_what_was_walked_is_not_walked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction, which only the batches show, is not looked for in all segments each time."""
    batches = [data_batch(0, 1), *(data_batch(offset, -1) for offset in range(1, 60))]
    append(tmp_path / str(T0), T0, batches, 500)
    walked = []
    read = history.read
    monkeypatch.setattr(
        history, "read", lambda *given, **how: (walked.append(given[1].path), read(*given, **how))[1]
    )
    for _ in range(2):
        done, is_all = compact_held(str(tmp_path), T0, ALL_OF_IT, lambda size: None, TimeLimit(60))
        assert (done.note, done.passes, is_all) == ("a transaction is open at offset 0", 0, True)
    assert walked == [str(path) for path in segments(tmp_path)[:-1]]
