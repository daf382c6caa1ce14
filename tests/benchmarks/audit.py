"""What an audit adds to a row that is written to a log directory, and to one that is read: CPU time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_kafkalog import AuditedRecord, CountingAuditor, connect
from pyspark_kafkalog.model import TopicPartition
from tests.benchmarks.measure import arguments, print_ratio, results_by_turns
from tests.benchmarks.session import scratch_folder

COUNT, SIZE, PARTITIONS, AT_ONCE = 1_000_000, 100, 4, 50_000
BAR = 1.05
"""For the auditor that counts; one with keys costs what its function does."""
HERE = "tests.benchmarks.audit"
AUDITORS = {"counting": "counting", "keys in Arrow": f"{HERE}:InArrow", "keys one by one": f"{HERE}:OneByOne"}


class InArrow(CountingAuditor):
    """Keys from the first bytes of the records' keys, all at once."""

    columns = ("key",)

    def audit_keys(self, partition: TopicPartition, records: pa.RecordBatch) -> pa.Array:
        return pa.compute.binary_slice(records.column("key"), 0, 2).cast(pa.string())


class OneByOne(CountingAuditor):
    """The same, one by one."""

    columns = ("key",)

    def audit_key(self, record: AuditedRecord) -> str | None:
        return None if record.key is None else record.key[:2].decode()


def rows(first: int, count: int) -> pa.RecordBatch:
    """Rows with keys of 10 kinds, values of SIZE bytes, and a second for each thousand of them."""
    numbers = np.arange(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"t%d-%d" % (number % 10, number) for number in numbers.tolist()]),
            "value": pa.array([bytes(SIZE)] * count),
            "timestamp": pa.array(1_700_000_000_000_000 + numbers * 1000).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def _write(folder: Path, data: list[pa.RecordBatch], audit: dict[str, str]) -> None:
    shutil.rmtree(folder / "log", ignore_errors=True)
    connect(folder / "log").write(data, "t", options={"numPartitions": str(PARTITIONS), **audit})


def _read(folder: Path, audit: dict[str, str]) -> None:
    for _ in connect(folder / "log").read("t", options=audit):
        pass


def _cpu(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    args = arguments(__doc__)
    count = int(COUNT * args.scale)
    with scratch_folder(args.folder) as folder:
        data = [rows(first, min(AT_ONCE, count - first)) for first in range(0, count, AT_ONCE)]
        audits: dict[str, dict[str, str]] = {"": {}}
        for name, auditor in AUDITORS.items():
            audits[name] = {"auditor.class": auditor, "auditLocation": str(folder / "audit")}
        for did, work in ("written", partial(_write, folder, data)), ("read", partial(_read, folder)):
            runs = {name: partial(_cpu, partial(work, audit)) for name, audit in audits.items()}
            found = results_by_turns(runs, args.rounds)
            plain = min(found.pop(""))
            for name, times in found.items():
                seconds = min(times)  # others may use the machine
                added = (seconds - plain) / count * 1e9
                text = (
                    f"row {did}, audited ({name}): {added:.0f} ns of CPU more than {plain / count * 1e9:.0f}"
                )
                print_ratio(text, seconds / plain, at_most=BAR if name == "counting" else None)


if __name__ == "__main__":
    main()
