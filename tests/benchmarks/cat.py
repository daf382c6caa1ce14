"""``kafkalog cat --json`` and ``export``, as whole processes: from a directory, and against ``kcat -C -J``.

kcat reads from a broker that adopted the directory, and so do we then. Lines go into a pipe, where they are
counted.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from pyspark_kafkalog import connect
from tests.benchmarks.measure import (
    PARTITIONS,
    arguments,
    event,
    print_rate,
    print_ratio,
    seconds_by_turns,
)
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker

TOPIC = "events"
RECORDS, VALUE_SIZE, CHUNK = 3_000_000, 100, 10_000
BAR, RATE_BAR = 3.0, 0.5
"""Against kcat; and million records/s of a core."""
OURS = (sys.executable, "-m", "pyspark_kafkalog")
KCAT = "kcat"


def main() -> None:
    args = arguments(__doc__)
    count = int(RECORDS * args.scale)
    with scratch_folder(args.folder) as folder:
        directory = folder / "kafka-logs"
        chunks = (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))
        values = ([event(number, VALUE_SIZE) for number in chunk] for chunk in chunks)
        rows = (pa.RecordBatch.from_pydict({"value": pa.array(v, pa.binary())}) for v in values)
        connect(directory).write(rows, TOPIC, options={"numPartitions": str(PARTITIONS)})
        _from_directory(directory, count, args.rounds)
        if shutil.which(KCAT):
            _against_kcat(folder, count, args.rounds)
        else:
            print(f"cat and export against {KCAT}: SKIPPED, it is not installed", flush=True)


class _Command:
    """A command whose lines are read from a pipe."""

    def __init__(self, *words: object, lines: int) -> None:
        self._words = [*map(str, words)]
        self._lines = lines
        self.cpu_seconds: list[float] = []
        """Of the whole process, for each run."""

    def __call__(self) -> None:
        lines = 0
        with subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            while chunk := os.read(process.stdout.fileno(), 1 << 20):
                lines += chunk.count(b"\n")
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert (process.returncode, lines) == (0, self._lines), self._words
        self.cpu_seconds.append(used.ru_utime + used.ru_stime)


def _cpu_seconds(contestants: Mapping[str, _Command]) -> dict[str, float]:
    return {name: statistics.median(command.cpu_seconds) for name, command in contestants.items()}


def _from_directory(directory: Path, count: int, rounds: int) -> None:
    words = (*OURS, "cat", directory, TOPIC, "--json")
    contestants = {"all": _Command(*words, lines=count), "start-up": _Command(*words, "--tail", 0, lines=0)}
    seconds_by_turns(contestants, rounds, cold=True)
    taken = _cpu_seconds(contestants)
    rate = count / taken["all"] / 1e6
    print_ratio(
        f"cat --json, directory: {rate:.2f} M records/s of a core, start-up ({taken['start-up']:.2f} CPU-s)"
        f" included, {RATE_BAR} wanted",
        rate / RATE_BAR,
        at_least=1.0,
    )


def _against_kcat(folder: Path, count: int, rounds: int) -> None:
    broker = Broker(folder / "broker")
    broker.start()
    try:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.stop()
        broker.plant(folder / "kafka-logs")
        broker.start()
        at = broker.bootstrap
        contestants = {
            KCAT: _Command(
                KCAT, "-C", "-J", "-q", "-e", "-o", "beginning", "-b", at, "-t", TOPIC, lines=count
            ),
            "cat --json": _Command(*OURS, "cat", at, TOPIC, "--json", lines=count),
        }
        for suffix in ("jsonl", "parquet"):
            words = (*OURS, "export", at, TOPIC, folder / f"x.{suffix}", "--force")
            contestants[f"export to .{suffix}"] = _Command(*words, lines=0)
        seconds = seconds_by_turns(contestants, rounds, cold=True)
        cpu_seconds = _cpu_seconds(contestants)
        for what, taken in (("CPU time", cpu_seconds), ("time", seconds)):
            for name in [*contestants][1:]:
                ours = {"ours": taken[name], KCAT: taken[KCAT]}
                print_rate(f"{name}, broker, by {what}", count, ours, KCAT, BAR)
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
