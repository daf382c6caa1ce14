"""A stream that compacts after its commits, killed at any step, loses nothing and writes nothing twice."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.cleanup.unfinished import UNFINISHED_FILE
from pyspark_kafkalog.log.layout import CLEANER_CHECKPOINT
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from tests.extensions.cleanup.cleaning_writer import BATCHES, PARTITION, commit, rows
from tests.extensions.cleanup.test_compaction import Record, cleanable_end, expected, records
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.log.partitions import control_batch
from tests.log.random_logs import RandomLog, append

CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "0"}


@pytest.fixture(scope="module")
def writer() -> Iterator[Runner]:
    with step_runner("tests.extensions.cleanup.cleaning_writer") as run:
        yield run


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class Expected:
    """What is to be read: the rows of whole batches, and of what was there before all that must stay."""

    def __init__(self, root: Path) -> None:
        self.before = records(root)
        place = LogDirectory.open(str(root))
        self.end = place.watermarks([PARTITION], read_committed=False)[PARTITION].high_watermark
        committed = {row["offset"] for row in records(root, read_committed=True)}
        last = {row["key"]: row for row in self.before if row["offset"] in committed and row["key"]}
        self.least = [row for row in last.values() if row["value"] is not None]
        self.hidden = [row for row in self.before if row["offset"] not in committed]

    def check(self, root: Path, done: int) -> int:
        """:return: the number of batches that are visible: those reported as done, or one more."""
        found = records(root)
        offsets = [row["offset"] for row in found]
        assert offsets == sorted(set(offsets))
        old = [row for row in found if row["offset"] < self.end]
        assert all(row in self.before for row in old)
        shown = [row["value"] for row in records(root, read_committed=True) if row["offset"] >= self.end]
        seen = [row for row in records(root, read_committed=True) if row["offset"] < self.end]
        assert all(row in seen for row in self.least)
        assert not [row for row in seen if row in self.hidden], "no aborted record is shown"
        return next(number for number in (done, done + 1) if self._are(shown, found, number))

    def _are(self, shown: list[bytes], found: list[Record], batches: int) -> bool:
        """Whether the new rows are those of this many batches, without some that later ones outdate."""
        log = [(self.end + number, row) for number, row in enumerate(all_rows(batches))]
        new = [(row["offset"], row["value"]) for row in found if row["offset"] >= self.end]
        if not (set(new) <= set(log) and [value for _, value in new] == shown):
            return False
        last = {row: offset for offset, row in log}
        return {(offset, row) for row, offset in last.items()} <= set(new)


def all_rows(batches: int) -> list[bytes]:
    return [row for number in range(batches) for row in rows(number)]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_at_every_step(writer: Runner, tmp_path: Path, seed: int, soak: bool) -> None:
    log = RandomLog(random.Random(seed), 10, ("none", "lz4"))
    made = tmp_path / "made"
    root = made / "log"
    root.mkdir(parents=True)
    append(root / str(PARTITION), PARTITION, log.batches(60), 1500)
    for producer_id in sorted(log.open):  # so that nothing holds the compaction back
        append(root / str(PARTITION), PARTITION, [control_batch(log.offset, producer_id, commit=False)], 1500)
        log.offset += 1
    write_topic_configs(str(root), {"t": CONFIGS})
    (root / ".kafka_cleanshutdown").write_text("0")
    wanted = Expected(root)
    unfinished = 0

    def run(step: int) -> int:
        nonlocal unfinished
        folder = tmp_path / str(step)
        shutil.copytree(made, folder)
        code = writer(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        done = folder / "committed"
        count = json.loads(done.read_text()) + 1 if done.exists() else 0
        log_root = folder / "log"
        visible = wanted.check(log_root, count)
        unfinished += (log_root / str(PARTITION) / UNFINISHED_FILE).exists()
        for number in range(count, BATCHES):
            commit(log_root, number)
        assert wanted.check(log_root, BATCHES) == BATCHES >= visible
        assert not LogDirectory.open(str(log_root)).file_faults(PARTITION)
        compacted = log_root / CLEANER_CHECKPOINT
        assert compacted.exists()
        stays = expected(log_root, records(log_root), cleanable_end(log_root))
        assert len(stays) > 10
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    steps = changes(tmp_path / "steps")
    assert len(steps) > 200
    assert {run(number) for number in (steps if soak else steps[::11])} == {KILLED}
    assert unfinished > 3
