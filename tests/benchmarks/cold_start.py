"""Cold starts: the first row in a new session against Spark's ``kafka``, and processes that load the codec.

The codec comes from the compiled library, or by numba from its cache or, where that is empty, from source.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from tests.benchmarks.java_producer import produce_with_java
from tests.benchmarks.measure import PARTITIONS, arguments, cpu_seconds, print_ratio, verdict
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.benchmarks.trivial import Trivial
from tests.kafka import Broker
from tests.kafka_service import running

ROOT = Path(__file__).parents[2]
COUNT, SIZE = 30_000, 100
TOPIC = "first"
FIRST_ROW_BARS = {"batch": 1.05, "stream": 0.9}
LOADING_BAR = 150
"""Milliseconds of CPU."""
MEMORY_BAR = 60
"""MB that a process with the library is smaller by."""
AT_ONCE = (1, 8)
_PEER = "Spark's kafka"
_FLOOR = "trivial"
"""The part of PySpark: a Python source that has its rows at hand."""


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder:
        with running(Broker(folder / "broker")) as broker:
            broker.create_topic(TOPIC, PARTITIONS)
            produce_with_java(broker, TOPIC, max(int(COUNT * args.scale), PARTITIONS), SIZE, "none", folder)
            for query in QUERIES:
                _first_row(query, broker, folder, args.rounds)
        _load(folder, args.rounds)


def _batch(spark: SparkSession, kind: str, options: dict[str, str], folder: Path) -> None:
    assert spark.read.format(kind).options(**options).load().head()


def _stream(spark: SparkSession, kind: str, options: dict[str, str], folder: Path) -> None:
    """Until its sink has its first micro-batch."""
    rows = spark.readStream.format(kind).options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()


QUERIES: dict[str, Callable[[SparkSession, str, dict[str, str], Path], None]] = {
    "batch": _batch,
    "stream": _stream,
}


def _first_row(query: str, broker: Broker, folder: Path, rounds: int) -> None:
    formats = {**FORMATS, _FLOOR: _FLOOR}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in formats}
    order = [*formats]
    for _ in range(rounds):
        for name in order:
            command = [sys.executable, "-m", "tests.benchmarks.cold_start", "--first-row"]
            command += [query, formats[name], broker.bootstrap, str(folder)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            wall, cpu = map(float, done.stdout.split()[-2:])
            taken[name].append((wall, cpu))
        order = [*order[1:], order[0]]
    for column, what in enumerate(("time to", "CPU until")):
        ours, theirs, floor = (
            statistics.median(each[column] for each in taken[name]) for name in ("ours", _PEER, _FLOOR)
        )
        print_ratio(
            f"{what} the first row of a cold {query}: {ours:.2f} s, {_PEER} {theirs:.2f}, "
            f"a trivial Python source {floor:.2f}",
            ours / theirs,
            at_most=FIRST_ROW_BARS[query],
        )


def _time_first_row(query: str, kind: str, bootstrap: str, folder: str) -> None:
    """In a new session, print seconds until the first row, on the clock and of CPU in all its processes."""
    with scratch_folder(Path(folder)) as scratch, benchmark_session(scratch) as spark:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        wall, cpu = time.perf_counter(), cpu_seconds()
        if kind == _FLOOR:
            # Spark looks for Python sources at the first one that is registered or asked for.
            spark.dataSource.register(Trivial)
            options = {"rows": str(COUNT), "size": str(SIZE), "partitions": str(PARTITIONS)}
        QUERIES[query](spark, kind, options, scratch)
        print(time.perf_counter() - wall, cpu_seconds() - cpu)


def _load(folder: Path, rounds: int) -> None:
    caches = {at_once: folder / f"cache-{at_once}" for at_once in AT_ONCE}
    memory: dict[str, float] = {}
    for at_once, cache in caches.items():
        found = {"numba, empty cache": [_loaded(at_once, cache)], "numba": [], "library": []}
        for _ in range(rounds):
            found["numba"].append(_loaded(at_once, cache))
            found["library"].append(_loaded(at_once, None))
        for how, loads in found.items():
            cpu, wall, memory[how] = (statistics.median(values) for values in zip(*loads, strict=True))
            bar = LOADING_BAR if how == "library" else None
            print(
                f"load the codec, {how}, {at_once} at once: {cpu:.0f} ms of CPU each"
                f"{verdict(cpu, at_most=bar)}, {wall:.0f} ms until all have it",
                flush=True,
            )
    smaller = memory["numba"] - memory["library"]
    print(
        f"resident memory with the codec: library {memory['library']:.0f} MB, numba {memory['numba']:.0f}; "
        f"smaller by {smaller:.0f} MB{verdict(smaller, at_least=MEMORY_BAR)}",
        flush=True,
    )


def _loaded(at_once: int, cache: Path | None) -> tuple[float, float, float]:
    """Processes that load the codec at once: milliseconds of CPU of each, milliseconds in all, MB of each.

    :param cache: numba's, which is to be used; None: the compiled library.
    """
    by_numba = {"PYSPARK_KAFKALOG_JIT": "1", "PYSPARK_KAFKALOG_JIT_SAID": "1", "NUMBA_CACHE_DIR": str(cache)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.loading"],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_KAFKALOG_JIT": "0", **(by_numba if cache else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(at_once)
    ]
    with contextlib.ExitStack() as open_processes:
        for process in processes:
            open_processes.enter_context(process)
            assert process.stdout.readline()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        taken = [json.loads(process.stdout.readline()) for process in processes]
        resident = [psutil.Process(process.pid).memory_info().rss for process in processes]
    if cache is None and any(one["numba"] for one in taken):
        raise SystemExit("No compiled library fits this source: run ci/install '.[test]'.")
    return (
        1000 * statistics.median(one["cpu"] for one in taken),
        1000 * max(one["wall"] for one in taken),
        statistics.median(resident) / 1e6,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first-row"]:
        _time_first_row(*sys.argv[2:])
    else:
        main()
