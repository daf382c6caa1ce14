"""A kill between any two file operations of a change leaves the old checkpoint or the new one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import Kafka, TopicPartition, connect
from pyspark_kafkalog.model import QueryBatch
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.stream.checkpoint import plan_digest
from pyspark_kafkalog.stream.source_state import Reader, SourceState
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles, checksums
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from pyspark_kafkalog.tools.checkpoint.translation import EXACT, UNKNOWN, Translated
from tests.tools.checkpoint.checkpoints import QUERY, checkpoint

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WRITING = {"os.rename", "os.remove", "os.mkdir", "os.utime", "os.link"}


def killed_before(operation: int, act: Callable[[], object]) -> bool:
    """Run in a process that is killed before its so-many-th change of a file; whether it was."""
    child = os.fork()
    if not child:
        left = operation

        def count(event: str, found: tuple[Any, ...]) -> None:
            nonlocal left
            writes = event == "open" and isinstance(found[2], int) and found[2] & (os.O_WRONLY | os.O_RDWR)
            if event in WRITING or writes:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    partitions = pa.array([number % 2 for number in range(40)], pa.int32())
    rows = pa.table({"value": [b"%d" % number for number in range(40)], "partition": partitions})
    place = connect(str(tmp_path / "logs"))
    place.write(rows, "t", options={"numPartitions": "2"})
    return place


def stored(folder: Path, kind: str, batch: int, content: object) -> None:
    data = (folder / "offsets" / str(batch)).read_bytes()
    state = {"version": 3, "query": QUERY, "plan": [batch, plan_digest(data)], "turn": 1, "place": "x"}
    (folder / kind).mkdir()
    (folder / kind / "a.json").write_text(json.dumps({**state, "content": content}))


def made(folder: Path, kafka: Kafka, *, is_complete: bool, topic_id: str | None = None) -> Path:
    """A checkpoint of our reader, with Hadoop's checksums."""
    plans = [['{"t": {"0": 2, "1": 2}}'], ['{"t": {"0": 8, "1": 8}}'], ['{"t": {"0": 12, "1": 12}}']]
    checkpoint(folder, plans, done=3 if is_complete else 2)
    for batch in range(3):
        data = (folder / "offsets" / str(batch)).read_bytes()
        (folder / "offsets" / f".{batch}.crc").write_bytes(checksums(data))
    topic_id = topic_id or kafka.place.topic_ids(["t"])["t"]
    stored(folder, "kafkalog-topic-ids", 2, {"t": topic_id})
    stored(folder, "kafkalog-shared", 2, {"t": {"0": [topic_id, 12, -1, None]}})
    stored(folder, "kafkalog-begins", 2, {"t": {"0": 8}})
    return folder


def position(folder: Path) -> Offsets:
    """Where the query goes on, read as Spark and our reader read it."""
    files = CheckpointFiles.open(str(folder))
    files.check_commit(files.complete[-1])
    assert files.newest is not None
    files.plan(files.newest)
    ids = SourceState(str(folder), Reader("", Selection(topics=("t",)))).topic_ids()
    assert ids.keys() == {"t"}
    return files.position()["0"].offsets or {}


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("ends", [(1, 3), (9, 11), (15, 20), (1, 20)])
def test_a_rewind(tmp_path: Path, kafka: Kafka, ends: tuple[int, int], is_complete: bool) -> None:
    new = {T0: ends[0], T1: ends[1]}
    old = {T0: 12, T1: 12} if is_complete else {T0: 8, T1: 8}
    template = made(tmp_path / "template", kafka, is_complete=is_complete)

    def rewind(folder: Path) -> None:
        planned = kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, new)
        kafka.checkpoints.execute(planned, stopped=True)

    seen = []
    for operation in range(200):
        folder = tmp_path / f"c{operation}"
        shutil.copytree(template, folder)
        is_killed = killed_before(operation, lambda folder=folder: rewind(folder))
        found = position(folder)
        seen.append(found)
        assert found in (old, new)
        if not is_killed:
            break
        rewind(folder)
        assert position(folder) == new
        plan = CheckpointFiles.open(str(folder)).plan(2)
        assert plan.sources[0].offsets == new
        shutil.rmtree(folder)
    assert (seen[0], seen[-1]) == (old, new)
    assert len(seen) > 10


class Shift:
    """A translation by which each offset is 5 more."""

    def check_source(self, topic_ids: object) -> None:
        pass

    def check_target(self, cluster_id: str | None, topic_ids: object) -> None:
        pass

    def translate(self, offsets: Offsets) -> dict[TopicPartition, Translated]:
        return {partition: Translated(partition, at + 5, EXACT, 0) for partition, at in offsets.items()}


class Unknown(Shift):
    def translate(self, offsets: Offsets) -> dict[TopicPartition, Translated]:
        return {partition: Translated(partition, None, UNKNOWN, note="why") for partition in offsets}


def test_a_move_is_never_made_twice(tmp_path: Path, kafka: Kafka) -> None:
    template = made(tmp_path / "template", kafka, is_complete=True, topic_id="x" * 22)

    def move(folder: Path) -> None:
        planned = kafka.checkpoints.plan_move(folder, Shift())
        kafka.checkpoints.execute(planned, stopped=True)

    for operation in range(200):
        folder = tmp_path / f"c{operation}"
        shutil.copytree(template, folder)
        is_killed = killed_before(operation, lambda folder=folder: move(folder))
        assert position(folder) in ({T0: 12, T1: 12}, {T0: 17, T1: 17})
        move(folder)
        assert position(folder) == {T0: 17, T1: 17}
        ids = SourceState(str(folder), Reader("", Selection(topics=("t",)))).topic_ids()
        assert ids == kafka.place.topic_ids(["t"])
        if not is_killed:
            break
    assert operation > 10


def test_what_is_unknown_is_refused(tmp_path: Path, kafka: Kafka) -> None:
    folder = made(tmp_path / "c", kafka, is_complete=True)
    with pytest.raises(Exception, match="Nothing tells where the query goes on: t-0, t-1; why"):
        kafka.checkpoints.plan_move(folder, Unknown())


def test_a_ledger_is_told_once(tmp_path: Path, kafka: Kafka) -> None:
    """If the process was killed before the sink was told, the same command tells it."""
    from pyspark_kafkalog.log.journal_file import Ledger
    from pyspark_kafkalog.log.publish import journal

    root = tmp_path / "logs"
    name = journal.ledger_file(QueryBatch(QUERY, 2).query_id)
    template = made(tmp_path / "template", kafka, is_complete=True)
    old = plan_digest((template / "offsets" / "2").read_bytes())
    for operation in range(200):
        folder = tmp_path / f"c{operation}"
        shutil.copytree(template, folder)
        journal.put(str(root), name, Ledger(QUERY, 2, old, {}).text())

        def rewind(folder: Path = folder) -> None:
            planned = kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, {T0: 1, T1: 3}, with_sink=kafka)
            kafka.checkpoints.execute(planned, stopped=True)

        is_killed = killed_before(operation, rewind)
        rewind()
        ledger = journal.read_ledger(str(root / name))
        assert ledger is not None
        assert ledger.plan == plan_digest((folder / "offsets" / "2").read_bytes()) != old
        if not is_killed:
            break
    assert operation > 10
