"""Killed at any step, retention leaves a valid log, which the next run completes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog.codec.format import LEADER_EPOCH_V2
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.log.layout import LEADER_EPOCH_CHECKPOINT, format_leader_epoch_checkpoint
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.snapshot import ProducerEntry, format_snapshot
from tests.extensions.cleanup.test_retention import NOW, PER_BATCH, log, start_of
from tests.faults.retainer import T0, T1, apply
from tests.faults.steps import KILLED, changes, step_runner
from tests.log.writing import read, values, write

ALL = values(9 * PER_BATCH, 53)


def prepare(root: Path) -> None:
    log(root)
    log(root, 8, T1)
    for partition in (T0, T1):
        folder = root / str(partition)
        for segment in folder.glob("*.log"):
            data = np.fromfile(segment, np.uint8)
            batches = walk(data)
            for position in batches.position[batches.base_offset >= 30]:
                data[position + LEADER_EPOCH_V2 + 3] = 3  # which no checksum covers
            segment.write_bytes(data.tobytes())
        (folder / LEADER_EPOCH_CHECKPOINT).write_bytes(format_leader_epoch_checkpoint([(0, 0), (3, 30)]))
        (folder / f"{20:020d}.snapshot").write_bytes(format_snapshot([ProducerEntry(7, 1, 5, 19, 0, NOW)]))
    (root / ".kafka_cleanshutdown").write_text("0")


def everything(root: Path) -> dict[str, bytes]:
    """The files of partitions, but indexes without entries, which an empty segment may lack.

    Of the files beside them, a checkpoint may have an entry that says nothing new.
    """
    files = [
        path
        for path in root.glob("*/*")
        if path.is_file() and (path.stat().st_size or path.suffix not in (".index", ".timeindex"))
    ]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(files)}


@pytest.mark.slow
def test_kill_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    whole = tmp_path / "whole"
    prepare(whole / "log")
    with step_runner("tests.faults.retainer") as retainer:
        done = tmp_path / "done"
        shutil.copytree(whole, done)
        assert retainer(done, 0) == 0
        expected = everything(done / "log")
        assert sum(".log" in name for name in expected) == 2
        seen = set()
        steps = changes(done / "steps")
        for step in steps if soak else steps[::7]:
            folder = tmp_path / str(step)
            root = folder / "log"
            shutil.copytree(whole, folder)
            assert retainer(folder, step) == KILLED
            found = read(root)
            for partition, number in ((T0, 90), (T1, 80)):
                assert found[partition] == ALL[number - len(found[partition]) : number]
                seen.add((partition, len(found[partition])))
            place = LogDirectory.open(str(root))
            assert not place.file_faults(T0)
            if step % 3 == 0:  # a write comes first
                write(root, {T0: values(1)}, timestamp=NOW)
                assert read(root)[T0] == [*found[T0], *values(1)]
            else:
                apply(root)
                assert everything(root) == expected
                assert (start_of(root, T0), start_of(root, T1)) == (90, 80)
            shutil.rmtree(folder)
    assert len(steps) > 60
    assert seen == {(T0, 90), (T0, 30), (T0, 5), (T0, 0), (T1, 80), (T1, 20), (T1, 0)}
