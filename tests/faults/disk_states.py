"""Streams and batch jobs into a directory, and everything that a kill or a loss of power may leave.

``python -m tests.faults.disk_states [--seed N] [--power N]`` tries a kill after each call that changes the
disk, and so many losses of power after each; the tests try some of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.log.layout import JOURNAL_FILE
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import Fetch, OffsetRange, QueryBatch, TopicPartition
from tests.faults.disk import Call, Disk, recorded
from tests.faults.publisher import QUERY, records
from tests.fixtures_dir import SMALL_FIXTURES
from tests.log.writing import publish_staged, stage, write

JOBS = 3
_SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


@dataclass(frozen=True)
class Scenario:
    """The jobs to run, and the directory to run them in."""

    name: str
    stream: bool
    root: str
    """``fresh``: created by the first job; ``ours``: with a topic; ``broker``: a broker's."""

    def make(self, top: Path) -> Path:
        """Prepare the directory; the returned one need not exist."""
        root = top / "made" / "log"
        if self.root == "ours":
            root.mkdir(parents=True)
            write(root, {TopicPartition("t", 0): [b"before"]})
        elif self.root == "broker":
            root.parent.mkdir()
            shutil.copytree(SMALL_FIXTURES / "logs" / "txn-basic", root, copy_function=shutil.copyfile)
            for path in (root, *root.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            for number in range(2):
                (root / f"txn-basic-{number}").rename(root / f"t-{number}")
            for checkpoint in root.glob("*-checkpoint"):
                checkpoint.write_text(checkpoint.read_text().replace("txn-basic", "t"))
            (root / "t-0" / f"{10**6:020d}.log.deleted").write_bytes(b"deleted")
            (root / "t-1" / f"{0:020d}.index.cleaned").write_bytes(b"cleaned")
        return root

    def run(self, root: Path, number: int, tasks: int) -> None:
        """A job. Its rows are the same however many tasks it has."""
        batch = QueryBatch(QUERY, number) if self.stream else QueryBatch(f"job.{number}")
        rows = records(number % 2, tasks) if number < 2 else records(0, tasks)
        marked = [
            {partition: [b"%d:" % number + value for value in values] for partition, values in task.items()}
            for task in rows
        ]
        staged = [file for task in marked for file in stage(root, batch.job, task, batch_size=300)]
        publish_staged(root, staged, batch, segment_bytes=2000)

    def rows(self, number: int) -> Counter[bytes]:
        (task,) = records(number % 2 if number < 2 else 0, 1)
        return Counter(b"%d:" % number + value for values in task.values() for value in values)


SCENARIOS = [
    Scenario(f"{kind} into {root}", kind == "stream", root)
    for kind in ("stream", "batch")
    for root in ("fresh", "ours", "broker")
]


def visible(root: Path) -> Counter[bytes]:
    """The values that a reader sees."""
    if not root.exists():
        return Counter()
    place = LogDirectory.open(str(root))
    found: Counter[bytes] = Counter()
    partitions = [
        TopicPartition(topic, number) for topic, numbers in place.topics().items() for number in numbers
    ]
    for partition, bounds in place.watermarks(partitions, read_committed=False).items():
        offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
        for piece in place.fetch(Fetch(partition, offsets)):
            for decoded in decode(
                piece.buffer, topic_partition=partition, offsets=offsets, visible=None, schema=_SCHEMA
            ):
                found.update(decoded.arrow_batch.column("value").to_pylist())
    return found


class Recording:
    """The calls of a scenario's jobs, and how many jobs were done before each."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self._top, self._begin = folder / "top", folder / "begin"
        self._top.mkdir()
        root = scenario.make(self._top)
        self._path = root.relative_to(self._top)
        shutil.copytree(self._top, self._begin)
        self._before = visible(root)
        self._theirs = {
            path.relative_to(self._top): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file() and path.suffix in (".snapshot", ".txnindex", ".deleted")
        }
        self._ends = []
        self.calls: list[Call] = []
        with recorded() as calls:
            for number in range(JOBS):
                scenario.run(root, number, tasks=2)
                self._ends.append(len(calls))
        self.calls = calls

    def states(self, power: int, chance: random.Random) -> Iterator[tuple[str, int, Disk]]:
        """Each call's number, and the disk after it: once for a kill, several times for losses of power."""
        disk = Disk(self._top)
        disk.root = Disk(self._begin).root
        for number, call in enumerate([None, *self.calls]):
            if call is not None:
                disk.replay(*call)
            if call is None or call[0] != "close":
                yield "kill", number, disk
                for _ in range(power):
                    yield "power", number, disk

    def check(self, how: str, number: int, disk: Disk, to: Path, chance: random.Random) -> None:
        """A reader sees whole jobs. Jobs not reported done run again; then all rows are there, once."""
        if how == "kill":
            disk.after_kill(to)
        else:
            disk.after_power_loss(to, chance)
        root, scenario = to / self._path, self.scenario
        done = sum(end <= number for end in self._ends)
        seen = visible(root)
        states = [self._before + sum(map(scenario.rows, range(jobs)), Counter()) for jobs in (done, done + 1)]
        assert seen in states, (
            f"{done} jobs are done; {seen - states[0]} too much, {states[0] - seen} missing"
        )
        if (root / ".kafka_cleanshutdown").exists():
            journal = root / JOURNAL_FILE
            kept = journal.read_bytes() if journal.exists() else None
            journal.unlink(missing_ok=True)
            assert visible(root) == seen, "A broker would start as if cleanly stopped"
            if kept is not None:
                journal.write_bytes(kept)
        again = done if scenario.stream else states.index(seen) + done
        for job in range(again, JOBS):
            scenario.run(root, job, tasks=3)
        assert visible(root) == self._before + sum(map(scenario.rows, range(JOBS)), Counter())
        assert not (root / JOURNAL_FILE).exists()
        for path, data in self._theirs.items():
            assert (to / path).read_bytes() == data, f"{path} has changed"


def check_states(
    scenario: Scenario, folder: Path, seed: int, *, power: int, share: float = 1
) -> Counter[str]:
    """Check a share of all states; how many of each kind."""
    chance = random.Random(f"{seed} {scenario.name}")
    recording = Recording(scenario, folder)
    checked: Counter[str] = Counter()
    for how, number, disk in recording.states(power, chance):
        if chance.random() < share:
            to = folder / "state"
            try:
                recording.check(how, number, disk, to, chance)
            except Exception as e:
                last = recording.calls[number - 1][:2] if number else None
                raise AssertionError(
                    f"{scenario.name}, seed {seed}, {how} after call {number}: {last}: {e}"
                ) from e
            shutil.rmtree(to)
            checked[how] += 1
    return checked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--power", type=int, default=4, help="losses of power after each call")
    options = parser.parse_args()
    logging.getLogger("pyspark_kafkalog").setLevel(logging.ERROR)
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            checked = check_states(scenario, Path(folder), options.seed, power=options.power)
        print(json.dumps({"scenario": scenario.name, "seed": options.seed, **checked}), flush=True)


if __name__ == "__main__":
    main()
