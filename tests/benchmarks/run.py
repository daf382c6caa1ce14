"""Runs every benchmark, each in a process of its own: ``python tests/benchmarks/run.py [--scale 0.05]``.

Each prints one line for each figure. Arguments are passed on to all of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = (
    "decode",
    "avro",
    "protobuf",
    "json",
    "typed_shapes",
    "read",
    "batches",
    "write",
    "memory",
    "broker_read",
    "broker_stream",
    "small_streams",
    "sockets",
    "broker_planning",
    "many_partitions",
    "cold_start",
    "idle",
    "arrow_read",
    "cat",
    "object_store",
    "transactions",
    "callbacks",
    "growth",
    "skew",
    "many_queries",
    "repair",
    "compaction",
    "backup",
    "restore",
    "audit",
    "commits",
    "exactly_once",
    "large_write",
    "large_read",
    "large_interleaved",
    "large_state",
)


def main() -> None:
    for name in BENCHMARKS:
        subprocess.run(
            [sys.executable, "-m", f"tests.benchmarks.{name}", *sys.argv[1:]],
            cwd=Path(__file__).parents[2],
            check=True,
        )


if __name__ == "__main__":
    main()
