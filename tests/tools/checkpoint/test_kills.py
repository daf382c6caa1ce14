"""A kill between any two file operations of a change leaves the old checkpoint or the new one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import Kafka, KafkaLogError, TopicPartition, connect
from pyspark_kafkalog.model import QueryBatch
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.stream.checkpoint import plan_digest
from pyspark_kafkalog.stream.source_state import Reader, SourceState
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles, checksums
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from pyspark_kafkalog.tools.checkpoint.translation import EXACT, UNKNOWN, Translated
from tests.tools.checkpoint.checkpoints import QUERY, checkpoint
from tests.tools.cli.running import run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WRITING = {"os.rename", "os.remove", "os.mkdir", "os.utime", "os.link"}


def forked(operation: int, act: Callable[[], object], stop: Callable[[], object]) -> int:
    """A process, by its id, that acts, and calls ``stop`` before its so-many-th change of a file."""
    child = os.fork()
    if child:
        return child
    left = operation

    def count(event: str, found: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(found[2], int) and found[2] & (os.O_WRONLY | os.O_RDWR)
        if event in WRITING or writes:
            left -= 1
            if left == -1:
                stop()

    sys.addaudithook(count)
    act()
    os._exit(0)


def killed_before(operation: int, act: Callable[[], object]) -> bool:
    """Run in a process that is killed before its so-many-th change of a file; whether it was."""
    child = forked(operation, act, lambda: os.kill(os.getpid(), signal.SIGKILL))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


@contextmanager
def stopped_before(operation: int, act: Callable[[], object]) -> Iterator[int]:
    """Run in a process that waits before its so-many-th change of a file, until it is killed; its id."""
    child = forked(operation, act, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    try:
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it has ended before"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


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
    (folder / kind / "a.json").write_text(json.dumps({**state, "content": content}, sort_keys=True))


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
    """Where the query goes on, read as Spark and our reader read it; before a change that has not ended."""
    files = CheckpointFiles.open(str(folder))
    files.check_commit(files.complete[-1])
    assert files.newest is not None
    files.plan(files.newest)
    if files.begun is None:
        ids = SourceState(str(folder), Reader("", Selection(topics=("t",)))).topic_ids()
        assert ids.keys() == {"t"}
    else:
        data = (folder / "offsets" / str(files.newest)).read_text()
        assert data.startswith("kafkalog-kept/")  # Spark refuses it as the version
        assert "begun and not ended" in run("checkpoint", folder).out
    return files.position()["0"].offsets or {}


@pytest.mark.parametrize("is_complete", [pytest.param(True, marks=pytest.mark.long), False])
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((1, 3), marks=pytest.mark.long),
        (9, 11),
        pytest.param((15, 20), marks=pytest.mark.long),
        pytest.param((1, 20), marks=pytest.mark.long),
    ],
)
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
        if operation % 3 == 0:  # another command instead of the same
            kafka.checkpoints.execute(
                kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, {T0: 4, T1: 5}), stopped=True
            )
            assert position(folder) == {T0: 4, T1: 5}
        rewind(folder)
        assert position(folder) == new
        assert CheckpointFiles.open(str(folder)).begun is None
        plan = CheckpointFiles.open(str(folder)).plan(2)
        assert plan.sources[0].offsets == new
        shutil.rmtree(folder)
    assert (seen[0], seen[-1]) == (old, new)
    assert len(seen) > 10


@contextmanager
def full_disk(after: int) -> Iterator[list[int]]:
    """After so many writes the disk is full; yields the writes that failed."""
    real, done, failed = os.pwrite, [], []

    def pwrite(descriptor: int, data: Any, position: int) -> int:
        if len(done) >= after:
            failed.append(len(done))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done.append(1)
        return real(descriptor, data, position)

    os.pwrite = pwrite
    try:
        yield failed
    finally:
        os.pwrite = real


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_full_disk(tmp_path: Path, kafka: Kafka, is_complete: bool) -> None:
    """The error says what the checkpoint is by now, and that the same again, or the old position, ends it."""
    new, old = {T0: 1, T1: 3}, ({T0: 12, T1: 12} if is_complete else {T0: 8, T1: 8})
    template = made(tmp_path / "template", kafka, is_complete=is_complete)

    def rewind(folder: Path, to: RewindTo, value: Any = 0) -> None:
        planned = kafka.checkpoints.plan_rewind(folder, to, value)
        kafka.checkpoints.execute(planned, stopped=True)

    seen = set()
    for after in range(200):
        folder = tmp_path / f"c{after}"
        shutil.copytree(template, folder)
        with full_disk(after) as failed:
            try:
                rewind(folder, RewindTo.OFFSETS, new)
            except KafkaLogError as e:
                said = str(e)
        if not failed:
            break
        if position(folder) == new:
            seen.add("new")
            if len(failed) > 1:  # else only the lock lacks its holder
                assert "The checkpoint is changed, and the query can start" in said
            continue
        assert "No space left on device" in said
        assert "Free space on the disk. " in said
        if CheckpointFiles.open(str(folder)).begun is not None:
            seen.add("begun")
            assert "The change was begun, and the query does not start until it ends: run it again" in said
            shutil.copytree(folder, tmp_path / f"left{after}")
            rewind(tmp_path / f"left{after}", RewindTo.CURRENT)
            assert position(tmp_path / f"left{after}") == old
        else:
            seen.add("old")
            assert "The checkpoint is as it was: run it again" in said
        rewind(folder, RewindTo.OFFSETS, new)
        assert position(folder) == new
    assert seen == {"old", "begun", "new"}


def test_two_changes_at_once(tmp_path: Path, kafka: Kafka) -> None:
    """The second is refused, and says who makes the first; one that was killed does not stand in the way."""
    template = made(tmp_path / "template", kafka, is_complete=True, topic_id="x" * 22)

    def change(folder: Path, act: str) -> None:
        checkpoints = kafka.checkpoints
        planned = (
            checkpoints.plan_rewind(folder, RewindTo.OFFSETS, {T0: 1, T1: 3})
            if act == "rewind"
            else checkpoints.plan_move(folder, Shift())
        )
        checkpoints.execute(planned, stopped=True)

    for operation in range(3, 15, 4):
        for first, second in (("rewind", "move"), ("move", "rewind"), ("rewind", "rewind")):
            folder = tmp_path / f"{first}-{second}-{operation}"
            shutil.copytree(template, folder)
            with stopped_before(operation, lambda f=folder, act=first: change(f, act)) as holder:
                with pytest.raises(KafkaLogError, match=f"The checkpoint is in use by process {holder} on"):
                    change(folder, second)
                done = run("checkpoint", "rewind", folder, tmp_path / "logs", "--to-earliest", "--execute")
                assert done.code == 3
                assert f"process {holder}" in done.err
                assert "Wait for it, or end it: this releases its lock" in done.err
            change(folder, "rewind")
            assert position(folder) == {T0: 1, T1: 3}


def test_threads_keep_each_other_out(tmp_path: Path, kafka: Kafka) -> None:
    folder = made(tmp_path / "c", kafka, is_complete=True)
    planned = [
        kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, {T0: at, T1: at}) for at in range(1, 9)
    ]
    refused: list[str] = []

    def execute(number: int) -> None:
        try:
            kafka.checkpoints.execute(planned[number], stopped=True)
        except KafkaLogError as e:
            refused.append(str(e))

    threads = [threading.Thread(target=execute, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert all("in use by a thread of this process" in said or "not as it was" in said for said in refused)
    assert position(folder) in [{T0: at, T1: at} for at in range(1, 9)]


class Shift:
    """A translation by which each offset is 5 more."""

    def check_source(self, topic_ids: object) -> tuple[()]:
        return ()

    def check_target(self, cluster_id: str | None, topic_ids: object) -> None:
        pass

    def translate(self, offsets: Offsets) -> dict[TopicPartition, Translated]:
        return {partition: Translated(partition, at + 5, EXACT, 0) for partition, at in offsets.items()}


class Unknown(Shift):
    def translate(self, offsets: Offsets) -> dict[TopicPartition, Translated]:
        return {partition: Translated(partition, None, UNKNOWN, note="why") for partition in offsets}


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_move_is_never_made_twice(tmp_path: Path, kafka: Kafka, is_complete: bool) -> None:
    template = made(tmp_path / "template", kafka, is_complete=is_complete, topic_id="x" * 22)
    old, new = ({T0: at, T1: at} for at in ((12, 17) if is_complete else (8, 13)))

    def move(folder: Path) -> None:
        planned = kafka.checkpoints.plan_move(folder, Shift())
        kafka.checkpoints.execute(planned, stopped=True)

    for operation in range(200):
        folder = tmp_path / f"c{operation}"
        shutil.copytree(template, folder)
        is_killed = killed_before(operation, lambda folder=folder: move(folder))
        assert position(folder) in (old, new)
        move(folder)
        assert position(folder) == new
        assert CheckpointFiles.open(str(folder)).plan(2).sources[0].offsets == {T0: 17, T1: 17}
        ids = SourceState(str(folder), Reader("", Selection(topics=("t",)))).topic_ids()
        assert ids == kafka.place.topic_ids(["t"])
        if not is_killed:
            break
    assert operation > 10


def test_what_is_unknown_is_refused(tmp_path: Path, kafka: Kafka) -> None:
    folder = made(tmp_path / "c", kafka, is_complete=True)
    with pytest.raises(Exception, match="It is not known where the query goes on in t-0, t-1: why"):
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


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_ledger_is_told_of_changes_that_were_undone(
    tmp_path: Path, kafka: Kafka, is_complete: bool
) -> None:
    from pyspark_kafkalog.log.journal_file import Ledger
    from pyspark_kafkalog.log.publish import journal

    folder, last = made(tmp_path / "c", kafka, is_complete=is_complete), 2 if is_complete else 1
    root, name = str(tmp_path / "logs"), journal.ledger_file(QUERY)
    digest = plan_digest((folder / "offsets" / str(last)).read_bytes())
    journal.put(root, name, Ledger(QUERY, last, digest, {}).text())

    def rewind(to: RewindTo, value: Any = 0) -> Path:
        planned = kafka.checkpoints.plan_rewind(folder, to, value, with_sink=kafka)
        kafka.checkpoints.execute(planned, stopped=True)
        return Path(planned.kept)

    kept = [rewind(RewindTo.OFFSETS, {T0: at, T1: at}) for at in (1, 4)]
    for undone in reversed(kept):
        shutil.copytree(undone, folder, dirs_exist_ok=True)
    rewind(RewindTo.CURRENT)
    ledger = journal.read_ledger(os.path.join(root, name))
    assert ledger is not None
    assert (ledger.batch_id, ledger.plan) == (last, digest)
    # It is told only of what the checkpoint itself has had.
    journal.put(root, name, Ledger(QUERY, last, "x" * len(digest), {}).text())
    with pytest.raises(KafkaLogError, match="other offsets of its sources"):
        rewind(RewindTo.CURRENT)


def test_a_change_that_was_interrupted_can_be_left(tmp_path: Path, kafka: Kafka) -> None:
    """Without another position the command brings back what was there."""
    template = made(tmp_path / "template", kafka, is_complete=False)
    before = {file.relative_to(template): file.read_bytes() for file in template.rglob("*") if file.is_file()}

    def rewind(folder: Path, to: RewindTo, value: object = 0) -> None:
        planned = kafka.checkpoints.plan_rewind(folder, to, value)  # type: ignore[arg-type]
        assert not planned.is_nothing
        kafka.checkpoints.execute(planned, stopped=True)

    left = 0
    for operation in range(200):
        folder = tmp_path / f"c{operation}"
        shutil.copytree(template, folder)
        is_killed = killed_before(
            operation, lambda folder=folder: rewind(folder, RewindTo.OFFSETS, {T0: 1, T1: 3})
        )
        if CheckpointFiles.open(str(folder)).begun is not None:
            left += 1
            rewind(folder, RewindTo.CURRENT)
            assert {file: (folder / file).read_bytes() for file in before} == before
        if not is_killed:
            break
    assert left >= 5


@pytest.mark.parametrize("version", [2, 3])
def test_a_topic_that_is_read_in_two_places(tmp_path: Path, kafka: Kafka, version: int) -> None:
    """A rewind in one of them neither takes the topic of the other for its own, nor changes what it knows."""
    folder = checkpoint(tmp_path / "c", [['{"t": {"0": 2, "1": 2}}', '{"t": {"0": 7, "1": 7}}']])
    here, (topic_id,) = identity(kafka.place_options)[1], kafka.place.topic_ids(["t"]).values()
    digest = plan_digest((folder / "offsets" / "0").read_bytes())
    ids = folder / "kafkalog-topic-ids"
    ids.mkdir()
    for turn, (name, place, known) in enumerate((("a", here, topic_id), ("b", "elsewhere", "x" * 22))):
        place = hashlib.sha256(repr(place).encode()).hexdigest()[:32]
        file = {"version": version, "query": QUERY, "plan": [0, digest], "turn": turn, "place": place}
        (ids / f"{name}.json").write_text(json.dumps({**file, "content": {"t": known}}))
    assert not kafka.checkpoints.show(folder).problems
    planned = kafka.checkpoints.plan_rewind(folder, RewindTo.CURRENT, sources=["0"])
    assert planned.is_nothing
    planned = kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, {T0: 1})
    kafka.checkpoints.execute(planned, stopped=True)
    stored = {name: json.loads((ids / f"{name}.json").read_bytes()) for name in "ab"}
    assert [stored[name]["content"]["t"] for name in "ab"] == [topic_id, "x" * 22]
    digest = plan_digest((folder / "offsets" / "0").read_bytes())
    assert [stored[name]["plan"] for name in "ab"] == [[0, digest]] * 2


def test_the_start_of_a_source_that_has_none_yet_is_kept(tmp_path: Path, kafka: Kafka) -> None:
    """Its first micro-batch is planned, and not complete: where it begins is stored for the plan before."""
    folder = made(tmp_path / "c", kafka, is_complete=False)
    (folder / "offsets" / "2").write_text('v2\n{}\na:{"t": {"0": 12, "1": 12}}\nb:{"u": {"0": 9}}')
    (folder / "offsets" / "1").write_text('v2\n{}\na:{"t": {"0": 8, "1": 8}}')
    for number in (1, 2):
        (folder / "offsets" / f".{number}.crc").unlink()
    shutil.rmtree(folder / "kafkalog-topic-ids")
    reader = Reader("", Selection(topics=("u",)))
    name = SourceState(str(folder), reader)._name("earliest", None)
    stored(folder, "kafkalog-start-offsets", 1, {"u": {"0": 4}})
    (folder / "kafkalog-start-offsets" / "a.json").rename(folder / "kafkalog-start-offsets" / name)
    kafka.checkpoints.execute(kafka.checkpoints.plan_rewind(folder, "offsets", {T0: 1}), stopped=True)
    chosen = SourceState(str(folder), reader).start_offsets("earliest", dict)
    assert chosen == {TopicPartition("u", 0): 4}
