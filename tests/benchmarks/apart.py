"""Contests whose runs are processes of their own: each tells its time, without that of its imports, and its
peak memory.
"""

from __future__ import annotations

import importlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tests.benchmarks.java_producer import produce_with_java
from tests.benchmarks.measure import PARTITIONS, print_ratio
from tests.kafka import Broker


def run_one(module: str, name: str, *arguments: str) -> None:
    """In its own process: call a contestant, which returns bytes, and print what it took as JSON."""
    contestant = importlib.import_module(module).CONTESTANTS[name]
    began, used = time.perf_counter(), time.process_time()
    size = contestant(*arguments)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": seconds, "cpu": cpu, "bytes": size, "peak": peak}))


def fill(
    broker: Broker, topic: str, count: int, size: int, compression: str, folder: Path, **settings: int
) -> None:
    """Make a topic of ``count`` records, and ``topic-third`` of a third of them, by Java's producer."""
    for name, records in ((topic, count), (f"{topic}-third", count // 3)):
        broker.create_topic(name, PARTITIONS)
        produce_with_java(broker, name, records, size, compression, folder, **settings)


def contest(
    module: str,
    runs: Mapping[str, tuple[str, ...]],
    rounds: int,
    around: Callable[[], AbstractContextManager[str]] = lambda: nullcontext(""),
) -> dict[str, dict[str, float]]:
    """The medians of each run's ``seconds``, ``cpu`` seconds, ``bytes`` and ``peak`` memory, by turns.

    :param runs: the contestant of ``module.CONTESTANTS`` and its first arguments; ``around`` gives the last.
    """
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    order = list(runs)
    discarded = int(rounds > 1)
    for _ in range(rounds + discarded):
        for name in order:
            with around() as last:
                taken[name].append(_measured(module, *runs[name], last))
        order = [*order[1:], order[0]]
    return {
        name: {figure: statistics.median(run[figure] for run in done[discarded:]) for figure in done[0]}
        for name, done in taken.items()
    }


def _measured(*words: str) -> dict[str, float]:
    call = f"from tests.benchmarks.apart import run_one; run_one(*{words!r})"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_memory(what: str, large: Mapping[str, float], small: Mapping[str, float], at_most: float) -> None:
    """One line: the peak memory of a run, and of one with a third of the records."""
    print_ratio(
        f"{what}: peak memory {large['peak'] / 1e6:.0f} MB, of a third {small['peak'] / 1e6:.0f}",
        large["peak"] / small["peak"],
        at_most=at_most,
    )


def print_rates(
    what: str, size: float, found: Mapping[str, Mapping[str, float]], bars: Mapping[str, float | None]
) -> None:
    """For each peer with a bar, two lines: MB/s and MB a CPU second of the first run, and of the peer."""
    own = next(iter(found))
    for figure, unit in (("seconds", ""), ("cpu", " of CPU")):
        rates = {name: size / taken[figure] / 1e6 for name, taken in found.items()}
        for peer, bar in bars.items():
            print_ratio(
                f"{what}, {size / 1e6:.0f} MB: {rates[own]:.0f} MB/s{unit}, {peer} {rates[peer]:.0f}",
                rates[own] / rates[peer],
                at_least=bar,
            )
