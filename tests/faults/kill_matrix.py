"""Kills each process at each step of an exactly-once write, starts the query again, and looks what is there.

A combination is the process that is killed, the step at which it is, and how the rows come when the
micro-batch runs again: in the same partitions, in 1, in 7, or in 7 and another order. In some of them each
third row can't be decoded: it goes to a second topic, as a dead letter.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.extensions.exactly_once.stops import VARIABLE
from pyspark_kafkalog.model import TopicPartition
from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.writing import is_stable, shown, transaction_state
from tests.faults.application import Application
from tests.faults.exactly_once_stream import ROWS, SIZE
from tests.kafka import Broker
from tests.kafka_service import running

TASKS = 2
WORKER, EXECUTOR, COMMITTER, DRIVER, BROKER = "task worker", "executor", "commit worker", "driver", "broker"
VICTIMS = (WORKER, EXECUTOR, COMMITTER, DRIVER, BROKER)
IN_TASKS = ("staging", "staged")
IN_COMMITS = ("fenced", "looked", "begun", "producing", "produced", "marked", "ended", "confirmed")
"""The steps, in the order in which they are reached."""
REPLAYS = {"same": (TASKS, False), "1": (1, False), "7": (7, False), "7 shuffled": (7, True)}
DEAD_LETTERS = "7 with dead letters"
WITH_DEAD_LETTERS = ("staged", "producing", "produced", "marked", "ended")
_PATIENCE = 120.0


class Combination(NamedTuple):
    """What is killed when, and how the rows come then."""

    victim: str
    step: str
    replay: str

    def __str__(self) -> str:
        return f"{self.victim} at {self.step}, {self.replay}"


ALL = [
    Combination(victim, step, replay)
    for victim in VICTIMS
    for step in (*IN_TASKS, *IN_COMMITS)
    for replay in (*REPLAYS, *([DEAD_LETTERS] if step in WITH_DEAD_LETTERS else []))
    if not (victim == COMMITTER and step in IN_TASKS)
]


class Matrix:
    """Runs combinations, all in one application, which is started again when it was killed."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self._folder = folder
        self._broker = broker
        self._stops = folder / "stops"
        self._stops.mkdir(parents=True)
        self._application: Application | None = None
        self._number = 0

    def close(self) -> None:
        if self._application is not None:
            self._application.close()

    def run(self, combination: Combination) -> None:
        """One combination; AssertionError if a row is missing, doubled or open."""
        self._number += 1
        topics = [unused_topic()]
        folder = self._folder / str(self._number)
        options = self._options()
        query: dict[str, Any] = {"folder": str(folder), "options": options, "tasks": TASKS, "shuffled": False}
        if combination.replay == DEAD_LETTERS:
            source, good, dead = topics = [unused_topic() for _ in range(3)]
            query |= {"source": self._source(source), "good": good, "dead": dead}
        else:
            options["topic"] = topics[0]
        for topic in topics:
            self._broker.create_topic(topic, 3)
        # In half of them the first micro-batch of the query is the one that dies.
        batches = self._number % 2
        for _ in range(batches):
            assert self._write(query) == "done", self._output()
        with self._stopped_at(combination.step, query) as stopped:
            self._kill(combination.victim, stopped)
        if self._application is not None:
            self._application.receive()
        query["tasks"], query["shuffled"] = REPLAYS.get(combination.replay, (7, False))
        while self._write(query) != "done":
            batches += 1
            assert batches < 5, f"{combination}: the query fails\n{self._output()}"
        self._check(combination, folder, topics)

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "kafka.batch.size": "16384",
            "kafka.request.timeout.ms": "5000",
        }

    def _source(self, topic: str) -> dict[str, str]:
        """The reader of numbers in JSON; each run adds some to its topic."""
        return {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "value.format": "json",
            "value.schema": "n BIGINT, pad STRING",
            "includeCorrupt": "true",
        }

    def _count(self, topic: str) -> int:
        partitions = [TopicPartition(topic, number) for number in range(3)]
        ends = connect(self._broker.bootstrap).place.end_offsets(partitions, read_committed=False)
        return sum(ends.values())

    def _fill(self, topic: str) -> None:
        """The rows of one more micro-batch, which are whole only if they are good."""
        start = self._count(topic)
        rows = [json.dumps({"n": n, "pad": "-" * SIZE}) for n in range(start, start + ROWS)]
        values = [row[:-1] if _is_bad(n) else row for n, row in enumerate(rows, start)]
        connect(self._broker.bootstrap).write(pa.table({"value": values}), topic)

    def _send(self, query: dict[str, Any]) -> Application:
        application = self._application
        if application is None:
            arguments = str(self._folder / "spark"), "local-cluster[1,2,1024]"
            application = Application(
                "tests.faults.exactly_once_stream",
                *arguments,
                output=self._folder / "output",
                environment={VARIABLE: str(self._stops)},
            )
            assert application.receive() == "ready", application.output_tail()
            self._application = application
        if "source" in query:
            self._fill(query["source"]["subscribe"])
        application.send(json.dumps(query))
        return application

    def _write(self, query: dict[str, Any]) -> str:
        return self._send(query).receive()

    @contextlib.contextmanager
    def _stopped_at(self, step: str, query: dict[str, Any]) -> Iterator[int]:
        """Run the query until a process is at the step: its id. At the end it may go on, if it lives."""
        wanted = self._stops / step
        wanted.touch()
        application = self._send(query)
        deadline = time.monotonic() + _PATIENCE
        while not (found := [*self._stops.glob(f"{step}.stopped-*")]):
            assert time.monotonic() < deadline, f"{step} is not reached\n{application.output_tail()}"
            time.sleep(0.01)
        try:
            yield int(found[0].name.rpartition("-")[2])
        finally:
            wanted.unlink()
            for file in self._stops.iterdir():
                file.unlink()

    def _kill(self, victim: str, stopped: int) -> None:
        application = self._application
        assert application is not None
        if victim == DRIVER:
            application.kill()
            application.close()
            self._application = None
        elif victim == BROKER:
            self._broker.stop(kill=True)
            self._broker.start()
        elif victim == EXECUTOR:
            _kill_all(application.executors())
        elif victim == COMMITTER:
            _kill_all([psutil.Process(stopped)])
        else:
            below = application.python_workers()
            at_step = [process for process in below if process.pid == stopped]
            _kill_all(at_step or below)

    def _check(self, combination: Combination, folder: Path, topics: list[str]) -> None:
        written = topics[-2:]
        numbers = [
            [int(re.findall(rb"\d+", value)[0]) for value in shown(self._broker.bootstrap, topic)]
            for topic in written
        ]
        found = sorted(number for each in numbers for number in each)
        assert found == list(range(len(found))), (
            f"{combination}: {len(found)} rows, {len(set(found))} distinct"
        )
        if combination.replay == DEAD_LETTERS:
            assert [{*map(_is_bad, each)} for each in numbers] == [{False}, {True}], combination
        logged = {int(file.name) for file in (folder / "checkpoint" / "commits").glob("[0-9]*")}
        wanted = self._count(topics[0]) if combination.replay == DEAD_LETTERS else ROWS * len(logged)
        assert len(found) == wanted, f"{combination}: {len(found)} rows of {wanted}, of batches {logged}"
        assert all(is_stable(self._broker.bootstrap, topic) for topic in written), combination
        query_id = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
        name = transactional_id(query_id)
        state = transaction_state(self._broker, name)
        assert state == "CompleteCommit", f"{combination}: {state}"
        left = [*(folder / "checkpoint" / "kafkalog-transactions" / name).glob("*/*")]
        assert not left, f"{combination}: {left}"

    def _output(self) -> str:
        return "" if self._application is None else self._application.output_tail()


def _is_bad(number: int) -> bool:
    return number % 3 == 2


def _kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def main() -> None:
    """Run all combinations, or those whose names have one of the arguments; fail if one does."""
    chosen = [c for c in ALL if not sys.argv[1:] or any(part in str(c) for part in sys.argv[1:])]
    failed = 0
    soon = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Broker(Path(folder, "broker"), soon)) as broker,
        contextlib.closing(Matrix(Path(folder, "runs"), broker)) as matrix,
    ):
        for combination in chosen:
            started = time.monotonic()
            try:
                matrix.run(combination)
                result = "passed"
            except AssertionError as e:
                failed += 1
                result = f"FAILED: {e}"
            print(f"{time.monotonic() - started:5.1f} s  {combination}: {result}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed, rows of {SIZE} bytes, {ROWS} a micro-batch")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
