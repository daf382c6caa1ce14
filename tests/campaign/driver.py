"""The campaign's side of the Spark application: its streams, who of them died and why, and its processes."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pyspark_kafkalog.options.offsets_json import parse_offsets
from tests.campaign import spelling
from tests.campaign.members import IS_LOST
from tests.faults.application import Application

ROW = "concat_ws(' ', topic, partition, offset, string(value)) AS value"
"""A copy names the place of its original."""
_ANSWER = 400
"""Seconds for an answer: starting all streams during faults takes long."""
_KNOWN_RACE = "Illegal size of collection"
"""Queries that start at one moment in one session may end so in Spark: see the README."""
_KILLED_WORKER = "Python worker exited unexpectedly"
_REFUSES = "checkpoint"
"""An error that refuses to continue another history says what is to be done with the checkpoint."""
_TOO_BUSY = "Python worker failed to connect back"
"""Spark gives a Python worker ten seconds to start, which a busy machine may not do."""
_OUR_ERROR = re.compile(rb"^pyspark_kafkalog\.errors\.(.+)", re.MULTILINE)


@dataclass
class Stream:
    """A query of a round, which copies topics into a topic or into a log directory."""

    name: str
    checkpoint: Path
    topics: tuple[str, ...]
    source: dict[str, str]
    sink: dict[str, str]
    may_die: bool = False
    """It fails on data loss, and reads topics that are deleted on purpose."""
    shared: bool = False
    """Others have a part of what it reads: it is a member of their group."""
    over: bool = False
    """It died, and was allowed to."""
    is_set_back: bool = False
    """A store that it continues was replaced by an older copy: it may refuse to go on."""
    refused: str | None = None
    """With which words it did."""
    has_gone_back: bool = False
    """It finished more once than its checkpoint knows, and its group may still show that."""
    deaths: list[str] = field(default_factory=list)
    starts: int = 0
    spelling: int = 0
    """How its next start spells its options; 0 as here."""

    @property
    def rejoins(self) -> bool:
        """Whether it may not end when its group has put it out."""
        return self.source.get("groupMembershipLost") == "rejoin"

    @property
    def exactly_once(self) -> bool:
        return "path" in self.sink or "delivery.guarantee" in self.sink

    @property
    def group(self) -> str:
        return self.source["kafka.group.id"]

    def settings(self) -> dict[str, Any]:
        """What the application needs to know of it."""
        checkpoint = spelling.checkpoint(str(self.checkpoint), self.spelling)
        return {
            "name": self.name,
            "source": spelling.source({**self.source, "checkpointLocation": checkpoint}, self.spelling),
            "sink": spelling.sink(self.sink, self.spelling),
            "checkpoint": checkpoint,
            "value": ROW,
        }

    def finished(self) -> dict[tuple[str, int], int]:
        """Where the last micro-batch ends that Spark has noted as complete."""
        return self._end_of_last("commits")

    def planned(self) -> dict[tuple[str, int], int]:
        """Where the last micro-batch ends that Spark has begun."""
        return self._end_of_last("offsets")

    def _end_of_last(self, log: str) -> dict[tuple[str, int], int]:
        batches = [int(file.name) for file in (self.checkpoint / log).glob("*") if file.name.isdecimal()]
        if not batches:
            return {}
        try:
            lines = (self.checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
            parsed = parse_offsets(lines[2], option="the offset log")
        except (OSError, IndexError):
            return {}  # a fault takes the store back at this moment
        return {(partition.topic, partition.partition): offset for partition, offset in parsed.items()}


class Driver:
    """The application and the streams that it is to run; all calls take their turns."""

    def __init__(self, folder: Path) -> None:
        self.streams: dict[str, Stream] = {}
        self._planners_killed = 0
        """Each is the death of one query."""
        self._workers_killed = False
        self._away: set[str] = set()
        """Streams that are stopped for a while."""
        self._batches: tuple[list[dict[str, Any]], str] = ([], "")
        self._folder = folder
        self._launched = 0
        self._read: dict[Path, int] = {}
        self._lock = threading.Lock()
        self._application = self._launch()

    def run(self, streams: list[Stream], batches: list[dict[str, Any]], report: Path) -> None:
        """Start these streams, and read the batches beside them."""
        with self._lock:
            self.streams = {stream.name: stream for stream in streams}
            self._planners_killed = 0
            self._workers_killed = False
            self._away.clear()
            self._batches = (batches, str(report))
            self._start()

    def look(self) -> list[str]:
        """Start streams again that died; of those that had no reason to, why."""
        with self._lock:
            deaths = {name: why for name, why in self._call("status").items() if why is not None}
            needless = []
            for name, why in deaths.items():
                stream = self.streams[name]
                if stream.over or stream.refused:
                    continue
                if stream.is_set_back and _REFUSES in why and not self._excused(stream, why):
                    stream.refused = why
                    continue
                stream.deaths.append(why)
                if stream.may_die and ("DataLossError" in why or "PARTITION_OFFSET_CHANGED" in why):
                    stream.over = True
                elif not self._excused(stream, why):
                    needless.append(f"{name} died: {why}")
                if not stream.over:
                    self._start_streams([stream])
            return needless

    def finish(self, stream: Stream, seconds: float) -> str | None:
        """Run a stream that was stopped to its end; why it did not come there."""
        with self._lock:
            return self._call("finish", stream.settings(), seconds)

    def stop(self) -> None:
        """Stop all streams."""
        with self._lock:
            self._call("stop")

    def close(self) -> None:
        """End the application."""
        self._end()

    def restart(self) -> None:
        """Kill -9 the application, and start another without streams."""
        with self._lock:
            self.streams, self._batches = {}, ([], "")
            self._end()
            self._application = self._launch()

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """The application is killed -9 whole; at the end another one goes on with the same streams."""
        with self._lock:
            self._end()
            yield
            self._application = self._launch()
            self._start()

    @contextlib.contextmanager
    def away(self, name: str) -> Iterator[None]:
        """A stream is stopped, and started again at the end."""
        with self._lock:
            self._away.add(name)
            self._call("leave", name)
        try:
            yield
        finally:
            with self._lock:
                self._away.discard(name)
                if name in self.streams:
                    self._start_streams([self.streams[name]])

    def planners(self) -> list[psutil.Process]:
        """The processes that plan queries; none while the driver is away."""
        try:
            return self._application.planners()
        except psutil.NoSuchProcess:
            return []

    def kill_planner(self, choice: float) -> bool:
        """Kill the Python process that plans a query, which dies with it. False without such a process."""
        planners = self.planners()
        if planners:
            self._planners_killed += 1
            planners[int(choice * len(planners))].kill()
        return bool(planners)

    def kill_workers(self) -> bool:
        """Kill the Python processes that run tasks, which Spark tries again. False if there are none."""
        workers = self._application.task_workers()
        for worker in workers:
            worker.kill()
        self._workers_killed |= bool(workers)
        return bool(workers)

    def task_errors(self) -> set[str]:
        """The errors of this package with which tasks have failed since this was asked last.

        Spark tries such a task again, so its query lives; in a session of master ``local[2]`` it would not.
        """
        errors: set[str] = set()
        for output in self._folder.glob("application-*.log"):
            with output.open("rb") as log:
                log.seek(self._read.get(output, 0))
                errors.update(match.decode() for match in _OUR_ERROR.findall(log.read()))
                self._read[output] = log.tell()
        return errors

    def log(self) -> str:
        """All that applications have logged."""
        return "".join(
            log.read_text(errors="replace") for log in sorted(self._folder.glob("application-*.log"))
        )

    def _excused(self, stream: Stream, why: str) -> bool:
        if _KNOWN_RACE in why or _TOO_BUSY in why:
            return True
        if stream.shared and not stream.rejoins and IS_LOST in why:
            return True
        # A task that met loss in all its attempts but the last, which was killed.
        if self._workers_killed and stream.may_die and _KILLED_WORKER in why:
            return True
        # It ends with an error of Spark's, such as a broken pipe, and without one of ours.
        if self._planners_killed and "pyspark_kafkalog" not in why:
            self._planners_killed -= 1
            return True
        return False

    def _end(self) -> None:
        self._application.kill()
        self._application.close()

    def _launch(self) -> Application:
        self._launched += 1
        self._planners_killed = 0
        output = self._folder / f"application-{self._launched}.log"
        application = Application("tests.campaign.application", str(self._folder), output=output)
        assert application.receive() == "ready", application.output_tail()
        return application

    def _start(self) -> None:
        away = self._away
        self._start_streams(
            [stream for name, stream in self.streams.items() if not stream.over and name not in away]
        )
        self._call("read_batches", *self._batches)

    def _start_streams(self, streams: list[Stream]) -> None:
        for stream in streams:
            stream.starts += 1
        self._call("start", [stream.settings() for stream in streams])

    def _call(self, name: str, *arguments: Any) -> Any:
        self._application.send(json.dumps([name, arguments]))
        deadline = time.monotonic() + _ANSWER
        while not self._application.has_answered():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} is not answered:\n{self._application.output_tail()}")
            time.sleep(0.02)
        answer = self._application.receive()
        assert answer, f"The application died:\n{self._application.output_tail()}"
        result = json.loads(answer)
        assert not (isinstance(result, dict) and "error" in result), result
        return result
