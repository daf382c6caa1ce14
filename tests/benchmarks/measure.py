"""What all benchmarks share: contests by turns, the lines they print, the data they run on."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
from pyspark.sql import DataFrame, SparkSession

_Result = TypeVar("_Result")

PARTITIONS = 4
EVENT = ('{"id":"', '","user":"', '","type":"click","page":"/cart","ok":true}\n')
EVENT_SIZE = 100
"""What stands before, between and after the two numbers of an event, and its size."""


def arguments(description: str | None) -> argparse.Namespace:
    """The options of every benchmark: ``scale``, ``rounds``, ``folder``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of records")
    parser.add_argument(
        "--rounds", type=int, default=5, help="counted runs of each contestant; 1: with no other before"
    )
    parser.add_argument("--folder", type=Path, help="where to put the data, instead of a temporary folder")
    return parser.parse_args()


def warm_ups(rounds: int) -> int:
    """Runs of each contestant before any is counted, as the JVM compiles and the workers import."""
    return 2 if rounds > 1 else 0


def seconds_by_turns(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    cold: bool = False,
    after: Callable[[str], object] = lambda name: None,
) -> dict[str, float]:
    """Median seconds of each contestant; see :func:`results_by_turns`."""
    timed = {name: partial(_seconds, run) for name, run in contestants.items()}
    found = results_by_turns(timed, rounds, cold=cold, after=after)
    return {name: statistics.median(times) for name, times in found.items()}


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def results_by_turns(
    contestants: Mapping[str, Callable[[], _Result]],
    rounds: int,
    *,
    cold: bool = False,
    after: Callable[[str], object] = lambda name: None,
) -> dict[str, list[_Result]]:
    """What each counted run of each contestant gave.

    Every round runs each of them once, beginning with another one, so all meet the same weather.

    :param cold: count from the first round on.
    :param after: called with a contestant's name after each of its runs; its time does not count.
    """
    found: dict[str, list[_Result]] = {name: [] for name in contestants}
    discarded = 0 if cold else warm_ups(rounds)
    order = [*contestants]
    for _ in range(discarded + rounds):
        for name in order:
            found[name].append(contestants[name]())
            after(name)
        order = [*order[1:], order[0]]
    return {name: results[discarded:] for name, results in found.items()}


def exponent(costs: Mapping[int, float]) -> float:
    """How costs grow with sizes: at 1 twice the size costs twice as much, at 0 the same."""
    sizes, taken = np.log([*costs]), np.log([*costs.values()])
    return float(np.polyfit(sizes, taken, 1)[0]) if len(costs) > 1 else 0.0


def cpu_seconds() -> float:
    """Of this process and all below it, the ones that have ended included."""
    this = psutil.Process()
    seconds = 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            seconds += spent.user + spent.system + spent.children_user + spent.children_system
    return seconds


def print_rate(
    what: str, rows: int, seconds: Mapping[str, float], peer: str, bar: float | None = None
) -> None:
    """One line: the rows/s of ``ours`` and of ``peer``, their ratio, and the bar for it, if any."""
    ours, theirs = (rows / seconds[name] / 1e6 for name in ("ours", peer))
    print_ratio(f"{what}: {ours:.2f} M rows/s, {peer} {theirs:.2f}", ours / theirs, at_least=bar)


def print_ratio(
    what: str, ratio: float, *, at_least: float | None = None, at_most: float | None = None
) -> None:
    """One line: a ratio, and whether it clears its bar."""
    print(f"{what}: ratio {ratio:.2f}{verdict(ratio, at_least=at_least, at_most=at_most)}", flush=True)


def verdict(figure: float, *, at_least: float | None = None, at_most: float | None = None) -> str:
    """Whether a figure clears its bar, in brackets; empty if it has none."""
    if at_least is not None:
        return f" (bar: at least {at_least:g}, {'cleared' if figure >= at_least else 'MISSED'})"
    if at_most is not None:
        return f" (bar: at most {at_most:g}, {'cleared' if figure <= at_most else 'MISSED'})"
    return ""


def rows(spark: SparkSession, count: int, size: int) -> DataFrame:
    """``count`` rows with the ``value`` that :func:`event` gives each, in PARTITIONS partitions."""
    opening, middle, end = EVENT
    parts = [
        f"'{opening}', left({digits}, 24), '{middle}', substring({digits}, 25, 16), '{end}'"
        for digits in (f"sha2(string(id * 16 + {part}), 256)" for part in range(-(-size // EVENT_SIZE)))
    ]
    value = f"binary(left(concat({', '.join(parts)}), {size})) AS value"
    return spark.range(0, count, 1, PARTITIONS).selectExpr(value)


def event(number: int, size: int) -> bytes:
    """Events as lines of JSON, ``size`` bytes in all; lz4 brings the batches of such values to about half.

    40 of the 100 bytes of an event are random hexadecimal digits, the others are the same in all.
    """
    opening, middle, end = EVENT
    value = ""
    for part in range(-(-size // EVENT_SIZE)):
        digits = sha256(b"%d" % (number * 16 + part)).hexdigest()
        value += f"{opening}{digits[:24]}{middle}{digits[24:40]}{end}"
    return value[:size].encode()


def write_log(
    data: DataFrame, log_directory: Path, topic: str, compression: str = "none", partitions: int = PARTITIONS
) -> None:
    """Append ``data`` to a topic of a log directory."""
    (
        data.write.format("kafkalog")
        .option("topic", topic)
        .option("numPartitions", partitions)
        .option("compression.type", compression)
        .mode("append")
        .save(str(log_directory))
    )
