"""Streams that reassemble large messages are killed -9 again and again: every message comes once, none early.

Messages of several producers lie interleaved in two partitions, and small
micro-batches cut most of them. Most rounds kill Python processes, at a random
moment: those of the driver that plan, or all below Spark's JVM, tasks and commits among
them. The others kill the whole application. Each round restarts a query from its checkpoint.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import parse_offsets
from tests.extensions.large_messages.interleaved import Written, interleaved
from tests.faults.application import Application
from tests.log.writing import read, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WAYS, SOAK_WAYS = ("source",), ("reassemble", "source")
ROUNDS, SOAK_ROUNDS = 1, 50
WHOLE = 5
"""One in this many rounds kills the whole application."""
RECORDS = 6000
"""Records in each of two partitions."""
LIMIT = 60
"""Offsets of a micro-batch, in both partitions."""


@dataclass
class Stream:
    """A query that copies whole messages from ``folder/source`` to ``folder/log``, and these messages."""

    folder: Path
    way: str
    written: dict[int, Written]

    def batches(self) -> dict[int, dict[int, int]]:
        """The ends of planned micro-batches: by number, offsets by partition."""
        planned = {int(file.name): file for file in (self.folder / "checkpoint/offsets").glob("[0-9]*")}
        # A file that was being written when Spark died has no third line.
        lines = {number: path.read_text().splitlines()[2:3] for number, path in planned.items()}
        return {
            number: {
                partition.partition: end for partition, end in parse_offsets(found[0], option="c").items()
            }
            for number, found in lines.items()
            if found
        }

    def committed(self) -> int:
        """How many micro-batches Spark has noted as complete."""
        return len(list((self.folder / "checkpoint/commits").glob("[0-9]*")))

    def published(self) -> dict[int, list[bytes]]:
        log = self.folder / "log"
        found = read(log) if log.exists() else {}
        return {number: found.get(TopicPartition("messages", number), []) for number in self.written}

    def check(self, when: str) -> None:
        """The published messages are all those that end before some micro-batch, in order."""
        published = self.published()
        for number, values in published.items():
            expected = [value for _, value in self.written[number].messages]
            assert values == expected[: len(values)], f"{when}: partition {number}"
        counts = {number: len(values) for number, values in published.items()}
        whole = [
            {n: sum(o < ends.get(n, 0) for o, _ in w.messages) for n, w in self.written.items()}
            for ends in self.batches().values()
        ]
        assert counts in [dict.fromkeys(self.written, 0), *whole], f"{when}: {counts}"


def _stream(folder: Path, way: str) -> Stream:
    written = {number: interleaved(f"{way}-{number}", RECORDS) for number in range(2)}
    write(folder / "source", {TopicPartition("t", n): log.records for n, log in written.items()})
    return Stream(folder, way, written)


@pytest.fixture
def streams(tmp_path: Path, soak: bool) -> list[Stream]:
    return [_stream(tmp_path / way, way) for way in (SOAK_WAYS if soak else WAYS)]


class _Applications:
    """One at a time; a new one after that was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        self._running: Application | None = None

    def running(self) -> Application:
        if self._running is None:
            self._started += 1
            folder = self._folder / f"application-{self._started}"
            folder.mkdir()
            self._running = Application(
                "tests.faults.reassembling_stream", str(folder), output=folder / "output"
            )
        return self._running

    def kill(self) -> None:
        self.running().kill()
        self.close()

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None


@pytest.fixture
def applications(tmp_path: Path) -> Iterator[_Applications]:
    with contextlib.closing(_Applications(tmp_path)) as applications:
        yield applications


def _round(number: int, stream: Stream, applications: _Applications, chance: random.Random) -> None:
    application = applications.running()
    before = stream.committed()
    deadline = time.monotonic() + 60
    while stream.committed() == before:
        assert time.monotonic() < deadline, application.output_tail()
        # A query may meet a Python process that was killed with another query.
        application.send(f"{stream.folder} {stream.way} {LIMIT}")
        assert application.receive() == "started", application.output_tail()
        while stream.committed() == before and not application.has_answered():
            time.sleep(0.02)
        if stream.committed() == before:
            assert application.receive() == "failed", application.output_tail()
    time.sleep(chance.uniform(0, 1))
    if number % WHOLE == 0:
        applications.kill()
        return
    planners_only = chance.random() < 0.5
    for process in application.planners() if planners_only else application.python_below_spark():
        process.kill()
    assert application.receive() == "failed", application.output_tail()


@pytest.mark.long
def test_every_message_once_and_none_early(
    streams: list[Stream], applications: _Applications, chance: random.Random, soak: bool
) -> None:
    for number in range(1, (SOAK_ROUNDS if soak else ROUNDS) + 1):
        stream = streams[number % len(streams)]
        _round(number, stream, applications, chance)
        stream.check(f"round {number}, {stream.way}")
    for stream in streams:
        assert stream.committed() < 2 * RECORDS / LIMIT, "it was killed on its way"
        application = applications.running()
        application.send(f"{stream.folder} {stream.way} 100000")
        assert [application.receive() for _ in range(2)] == ["started", "done"], application.output_tail()
        stream.check(f"the end, {stream.way}")
        for number, written in stream.written.items():
            assert len(stream.published()[number]) == len(written.messages)
