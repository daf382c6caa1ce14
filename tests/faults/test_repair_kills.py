"""A repair that is killed at any step, and run again, leaves what one leaves that was not killed."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.layout import format_offset_checkpoint
from pyspark_kafkalog.model import TopicPartition
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.log.partitions import batch, write_index, write_segment
from tests.tools.care.test_repair import state

MODES = {"": {}, "discard": {"discard": True}, "salvage": {"salvage": True}}


@pytest.fixture(scope="module")
def repairer() -> Iterator[Runner]:
    with step_runner("tests.faults.repairer") as run:
        yield run


@pytest.fixture(autouse=True)
def nothing_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def damage(root: Path) -> None:
    """Of every kind: broken batches, a torn tail, leftovers, a missing segment, bad files beside them."""
    (root).mkdir()
    (root / ".kafka_cleanshutdown").write_text("")
    for topic in ("a", "b", "c", "d"):
        folder = root / f"{topic}-0"
        for base_offset in range(0, 60, 10):
            log = write_segment(folder, [batch(base_offset + part, 2) for part in range(0, 10, 2)])
            write_index(log, [], zeros=5)
            (folder / f"{base_offset:020d}.snapshot").write_bytes(b"broken")
        (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 58\n")
    for topic, positions in {"a": {20: [200]}, "b": {0: [50, 300], 30: [10], 50: [400]}}.items():
        for base_offset, places in positions.items():
            log = root / f"{topic}-0" / f"{base_offset:020d}.log"
            content = bytearray(log.read_bytes())
            for place in places:
                content[place] ^= 1
            log.write_bytes(content)
    (root / "b-0" / f"{10:020d}.log").unlink()
    (root / "b-0" / f"{20:020d}.log").write_bytes(b"x" * 100)
    folder = root / "c-0"
    write_segment(folder, [batch(0, 10), batch(10, 10)], suffix=".swap")
    (folder / f"{0:020d}.index.swap").write_bytes(b"")
    write_segment(folder, [batch(50, 10)], suffix=".swap")
    write_segment(folder, [batch(40, 10)], suffix=".cleaned")
    (folder / f"{5:020d}.log.deleted").write_bytes(b"")
    (folder / f"{50:020d}.log").write_bytes((folder / f"{50:020d}.log").read_bytes()[:-3])
    (root / "d-0" / f"{10:020d}.log").write_bytes(b"\0" * 500)
    (root / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({TopicPartition("d", 0): 35}))
    (root / "cleaner-offset-checkpoint").write_text("0\n1\n")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_kill_at_any_step(
    mode: str, repairer: Runner, tmp_path: Path, chance: random.Random, soak: bool
) -> None:
    def run(step: int) -> int:
        folder = tmp_path / "run"
        folder.mkdir()
        if mode:
            (folder / mode).touch()
        damage(folder / "log")
        return repairer(folder, step)

    assert run(0) == 0
    expected = state(tmp_path / "run" / "log")
    assert not [
        step
        for partition in connect(tmp_path / "run" / "log").logs.repair().partitions
        for step in partition.steps
    ]
    (tmp_path / "run" / "steps").rename(tmp_path / "steps")
    shutil.rmtree(tmp_path / "run")
    steps = changes(tmp_path / "steps")
    assert len(steps) > 100
    for step in steps if soak else sorted(chance.sample(steps, 8)):
        assert run(step) == KILLED
        done = connect(tmp_path / "run" / "log").logs.repair(execute=True, **MODES[mode])
        assert done.clean_shutdown
        found = state(tmp_path / "run" / "log")
        different = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
        assert not [name for name in different if not name.endswith((".tmp", ".kafkalog-cut"))], step
        # The reason for a cut may be told otherwise.
        cut = {name: content for name, content in found.items() if name.endswith(".kafkalog-cut")}
        assert cut.keys() == {name for name in expected if name.endswith(".kafkalog-cut")}
        for name, content in cut.items():
            assert len(content) == len(expected[name]), (step, name)
        shutil.rmtree(tmp_path / "run")
