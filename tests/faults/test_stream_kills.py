"""A streaming write is killed -9 at the steps of a commit; the restart completes every batch, once.

The process that commits a micro-batch is a Python worker of Spark's driver: it
alone changes the log directory. So that worker is killed, at some of its steps (the
soak takes nearly all), and with it, in most rounds, all Python of this package that
Spark would run next: nothing more is written, as if the driver had died whole, and no
JVM need start. One round does kill the whole application, Spark's JVM too. The restart
is a new query, which has nothing but the checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.faults.application import HERE, Application

BATCH = 100
LIVES = "0 worker"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Numbers:
    """:mod:`tests.faults.number_stream`, with the killer in its Python."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._order(LIVES)
        self._application = Application(
            "tests.faults.number_stream",
            str(folder),
            output=folder / "output",
            paths=(HERE / "killer",),
            environment={"KAFKALOG_KILLER": str(folder)},
        )

    def _order(self, order: str) -> None:
        (self._folder / "dead").unlink(missing_ok=True)
        (self._folder / "steps").write_text("")
        (self._folder / "order").write_text(order)

    def run(self, folder: Path, *, tasks: int, order: str = LIVES) -> str:
        """One run of the query; "done", "failed", or the exit code of an application that died."""
        self._order(order)
        self._application.send(f"{folder} {tasks}")
        return self._application.receive() or str(self._application.exit_code())

    def complete(self, folder: Path, *, tasks: int) -> None:
        """A run without a kill."""
        assert self.run(folder, tasks=tasks) == "done", self._application.output_tail()

    def close(self) -> None:
        self._application.close()


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Numbers]:
    with contextlib.closing(Numbers(tmp_path_factory.mktemp("application") / "killer")) as application:
        yield application


def numbers(folder: Path) -> list[int]:
    """What a new reader of the directory sees, in order."""
    place = LogDirectory.open(str(folder / "log"))
    rules = ReadRules(
        schema=pa.schema([pa.field("value", pa.binary())]),
        read_committed=False,
        fail_on_data_loss=True,
        limits=DecodeLimits(),
    )
    return sorted(
        int(value)
        for number in place.topics().get("numbers", ())
        for batch in RecordReader(place, rules).read(
            Split(TopicPartition("numbers", number), OffsetRange(EARLIEST, LATEST))
        )
        for value in batch.column("value").to_pylist()
    )


def check_whole_batches(folder: Path, counts: set[int], killed: str) -> None:
    """A reader sees each number once, and all numbers of a micro-batch or none."""
    found = numbers(folder)
    assert found == list(range(len(found))), f"{killed}: {len(found)} values"
    assert len(found) in counts, f"{killed}: {len(found)} values, not {counts}"


def check_completed(folder: Path, count: int, killed: str) -> None:
    check_whole_batches(folder, {count}, f"restart after {killed}")
    ours = {path.name.split("-")[1] for path in (folder / "log").glob(".kafkalog-*")}
    assert ours == {"sink", "lock", "seen"}, (
        f"restart after {killed}: staged files or a journal were left behind"
    )


@pytest.mark.long
def test_killed_at_steps_of_the_first_commit(application: Numbers, tmp_path: Path, soak: bool) -> None:
    """It creates partitions. Every other time Spark survives, and another worker aborts."""
    for number, step in enumerate(itertools.count(*((1, 2) if soak else (20, 31)))):
        folder = tmp_path / str(step)
        killed = f"{step} {('driver', 'worker')[number % 2]}"
        if application.run(folder, tasks=2 + number % 2, order=killed) == "done":
            break
        check_whole_batches(folder, {0, BATCH}, killed)
        application.complete(folder, tasks=1 + step % 3)
        check_completed(folder, 2 * BATCH, killed)
    assert step > 30


def test_killed_at_steps_of_a_later_commit(application: Numbers, tmp_path: Path, soak: bool) -> None:
    """It appends to partitions that readers know."""
    application.complete(tmp_path, tasks=2)
    for step in itertools.count(2, 1 if soak else 17):
        count = len(numbers(tmp_path))
        killed = f"{step} driver"
        if application.run(tmp_path, tasks=2 + step % 2, order=killed) == "done":
            break
        check_whole_batches(tmp_path, {count, count + BATCH}, killed)
        application.complete(tmp_path, tasks=1 + step % 3)
        check_completed(tmp_path, count + 2 * BATCH, killed)
    assert step > 15


@pytest.mark.soak
@pytest.mark.parametrize("step", [6, 24])
def test_whole_application_killed(application: Numbers, tmp_path: Path, step: int) -> None:
    killed = f"{step} application"
    with contextlib.closing(Numbers(tmp_path / "killer")) as victim:
        assert victim.run(tmp_path, tasks=2, order=killed) == "-9"
    check_whole_batches(tmp_path, {0, BATCH}, killed)
    application.complete(tmp_path, tasks=3)
    check_completed(tmp_path, 2 * BATCH, killed)
