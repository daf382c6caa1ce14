"""What each kind of Spark's Python processes takes over Unix sockets, over TCP, and over TCP that waits.

The last is what the package's processes would do if they left their sockets as PySpark opens them. Each
session is a process of its own; all do the same, by turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.benchmarks.measure import PARTITIONS, arguments, print_ratio, results_by_turns, rows
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.small_streams import Shape, fill
from tests.benchmarks.streams import available_now
from tests.kafka import Broker
from tests.kafka_service import running

ROOT = Path(__file__).parents[2]
TOPIC, COUNT, SIZE, REPEATS = "small", 1000, 100, 20
_PROMPT, _WAITING, _UNIX = "TCP", "TCP that waits", "Unix sockets"
_UNIX_SETTING = "spark.python.unix.domain.socket.enabled"
_NO_CHANGE = """
from pyspark_kafkalog.spark import worker
worker.without_delay = lambda: None
"""
"""A sitecustomize, with which no process touches its socket."""


def main() -> None:
    args = arguments(__doc__)
    repeats = max(int(REPEATS * args.scale), 3)
    with scratch_folder(args.folder) as folder, running(Broker(folder / "broker")) as broker:
        with benchmark_session(folder) as spark:
            fill(spark, broker, Shape(TOPIC, PARTITIONS, COUNT, repeats + 1, None))
        broker.create_topic("sink", PARTITIONS)
        (folder / "sitecustomize.py").write_text(_NO_CHANGE)
        given = (str(repeats), broker.bootstrap, str(folder))
        runs = {
            _PROMPT: partial(_session, "false", *given),
            _WAITING: partial(_session, "false", *given, python_path=str(folder)),
            _UNIX: partial(_session, "true", *given),
        }
        found = results_by_turns(runs, args.rounds, cold=True)
    for what in found[_PROMPT][0]:
        taken = {name: statistics.median(each[what] for each in times) for name, times in found.items()}
        texts = ", ".join(f"{name} {ms:.0f}" for name, ms in taken.items())
        print_ratio(f"{what}, ms: {texts}; TCP against TCP that waits", taken[_PROMPT] / taken[_WAITING])


def _to(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "topic": topic}


def _session(*words: str, python_path: str | None = None) -> dict[str, float]:
    """What :func:`_time_session` prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.sockets", "--session", *words],
        cwd=ROOT,
        env={**os.environ, **({} if python_path is None else {"PYTHONPATH": python_path})},
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _time_session(unix: str, repeats: str, bootstrap: str, folder: str) -> None:
    """In a process of its own: print the milliseconds of each step as JSON."""
    with scratch_folder(Path(folder)) as scratch, benchmark_session(scratch, {_UNIX_SETTING: unix}) as spark:
        figures = {
            **_of_batches(spark, bootstrap, int(repeats)),
            **_of_streams(spark, bootstrap, scratch),
        }
    print(json.dumps(figures))


def _of_batches(spark: SparkSession, bootstrap: str, repeats: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {}

    def time_step(what: str, step: Callable[[], object]) -> object:
        began = time.perf_counter()
        result = step()
        taken.setdefault(what, []).append(1000 * (time.perf_counter() - began))
        return result

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "minPartitions": str(PARTITIONS)}
    source = spark.read.format("kafkalog").options(**options)
    for _ in range(repeats + 2):
        frame = time_step("load()", source.load).where(f"offset < {COUNT // PARTITIONS}")
        execution = frame._jdf.queryExecution()
        time_step("the plan of a batch with a filter", execution.executedPlan)
        time_step(f"its {PARTITIONS} tasks", execution.toRdd().count)
        data = rows(spark, COUNT, SIZE)
        writer = data.write.format("kafkalog").mode("append").options(**_to(bootstrap, "sink"))
        time_step(f"a write with {PARTITIONS} tasks and its commit", writer.save)
    return {what: statistics.median(times[2:]) for what, times in taken.items()}


def _of_streams(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, float]:
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "maxOffsetsPerTrigger": str(COUNT),
    }
    to_noop = available_now(spark, "kafkalog", source, folder / "to-noop")
    sink = ("kafkalog", _to(bootstrap, "sink"))
    to_sink = available_now(spark, "kafkalog", source, folder / "to-sink", sink=sink)
    once = (sink[0], {**sink[1], "delivery.guarantee": "exactly-once"})
    exactly_once = available_now(spark, "kafkalog", source, folder / "once", sink=once)
    steps = {
        "a micro-batch's ends": (to_noop, "latestOffset"),
        "a micro-batch's plan": (to_noop, "queryPlanning"),
        f"a micro-batch's {PARTITIONS} tasks": (to_noop, "addBatch"),
        "a sink's task and commit, at least once": (to_sink, "addBatch"),
        "a sink's task and commit, exactly once": (exactly_once, "addBatch"),
    }
    found = {run: [run() for _ in range(2)][1][1:] for run in {run for run, _ in steps.values()}}
    return {
        what: statistics.median(progress["durationMs"][step] for progress in found[run])
        for what, (run, step) in steps.items()
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--session"]:
        _time_session(*sys.argv[2:])
    else:
        main()
