"""What grows with what lies beside: a write of 100 records, and plans, in directories of several sizes.

Each figure is the CPU of this process. The exponent is that of the last sizes: at 1 twice as many of them
cost twice as much, at 0 nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from pyspark_kafkalog import CommittedOffset, connect
from pyspark_kafkalog.log.layout import segment_file
from pyspark_kafkalog.log.publish.journal import ledger_file
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.stream.checkpoint import QueryLog
from tests.benchmarks.measure import arguments, exponent, verdict
from tests.benchmarks.session import scratch_folder
from tests.log.partitions import batch, write_index, write_segment, write_time_index

RECORDS = 100
REPEATS = 15
"""Runs of which the best counts."""
SIZES = (1, 1_000, 4_000, 20_000)
FEW_REPEATS = 3
FITTED = 3
"""Sizes, the last ones, that tell the exponent."""
WRITE_BAR, PLAN_BAR = 0.1, 1.05
ZEROS, ZEROS_BAR = 1 << 30, 0.3


def main() -> None:
    args = arguments(__doc__)
    sizes = [max(int(size * args.scale), 1) for size in SIZES]
    with scratch_folder(args.folder) as folder:
        for name, fill in FILLINGS.items():
            found = {}
            for size in sizes:
                root = folder / name / str(size)
                _write(root)
                fill(root, size)
                found[size] = least_cpu_seconds(lambda: _write(root))  # noqa: B023
            show(f"write of {RECORDS} records beside {name}", found, WRITE_BAR)
        for name, (ask, fill) in QUESTIONS.items():
            found = {}
            for size in sizes[1:]:
                root = folder / name / str(size)
                root.mkdir(parents=True)
                fill(root, size)
                found[size] = least_cpu_seconds(lambda: ask(root), FEW_REPEATS)  # noqa: B023
            show(name, found, PLAN_BAR)
        seconds = least_cpu_seconds(
            lambda: _look_at_zeros(folder / "zeros", int(ZEROS * args.scale)), FEW_REPEATS
        )
        print(f"the end of a log before 1 GiB of zeros: {seconds:.2f} s{verdict(seconds, at_most=ZEROS_BAR)}")


def _write(root: Path) -> None:
    connect(root).write(pa.table({"value": [b"%0100d" % i for i in range(RECORDS)]}), "t")


def _queries(root: Path, count: int) -> None:
    for number in range(count):
        (root / ledger_file(f"query {number}")).write_text("{}")


def _partitions(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"other-{number}").mkdir()


def _topics(root: Path, count: int) -> None:
    for number in range(count):
        (root / f"other{number}-0").mkdir()


def _segments(root: Path, count: int) -> None:
    """Later segments of the same partition, each of one record."""
    for offset in range(RECORDS, RECORDS + count):
        log = write_segment(root / "t-0", [batch(offset, 1)])
        write_index(log, [])
        write_time_index(log, [])


def _topic(root: Path, partitions: int) -> None:
    for number in range(partitions):
        write_segment(root / f"t-{number}", [batch(0, 1)])


def _micro_batches(checkpoint: Path, count: int) -> None:
    (checkpoint / "offsets").mkdir()
    for number in range(count):
        (checkpoint / "offsets" / str(number)).write_text("v1\n{}\n{}")


def _groups(root: Path, count: int) -> None:
    write_segment(root / "t-0", [batch(0, 10)])
    kafka = connect(root)
    for number in range(count // 20):
        kafka.groups.commit(f"group-{number}", {TopicPartition("t", 0): CommittedOffset(number % 10)})


def _look_at_zeros(root: Path, size: int) -> None:
    log = root / "t-0" / segment_file(0, ".log")
    if not log.exists():
        write_segment(log.parent, [batch(0, 1)])
        with log.open("ab") as file:
            for _ in range(-(-size // (1 << 24))):
                file.write(bytes(1 << 24))
    partition = TopicPartition("t", 0)
    assert LogDirectory.open(str(root)).end_offsets([partition], read_committed=False) == {partition: 1}


QUESTIONS: Mapping[str, tuple[Callable[[Path], object], Callable[[Path, int], None]]] = {
    "plan of a topic of so many partitions": (lambda root: connect(root).plan("t"), _topic),
    "newest of so many micro-batches in a checkpoint": (
        lambda checkpoint: QueryLog(str(checkpoint)).newest_plan(),
        _micro_batches,
    ),
    "lags of a twentieth as many groups of a directory": (lambda root: connect(root).groups.lags(), _groups),
}
FILLINGS: Mapping[str, Callable[[Path, int], None]] = {
    "queries": _queries,
    "partitions of another topic": _partitions,
    "other topics": _topics,
    "segments of its partition": _segments,
}


def least_cpu_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The least CPU of a run, after two that are thrown away.

    A write that lists the root, which takes a hundredth of the time, is not the least.
    """
    taken = []
    for _ in range(repeats + 2):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken[2:])


def show(what: str, seconds: Mapping[int, float], bar: float) -> None:
    """One line: CPU by size, and the exponent of the line that fits the last sizes best."""
    found = exponent(dict([*seconds.items()][-FITTED:]))
    costs = ", ".join(f"{size:,}: {took * 1000:.1f} ms" for size, took in seconds.items())
    print(f"{what}: {costs}; exponent {found:.2f}{verdict(found, at_most=bar)}", flush=True)


if __name__ == "__main__":
    main()
