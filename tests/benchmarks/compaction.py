"""Compaction: records/s of one core, of 10 million records of 100 bytes with 1 million keys; and its memory.

Each run compacts a copy of the same log in a process of its own. Memory is compared with that for a fifth of
the records, with a map that has room for all keys of both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.format import OFFSET
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.codec.write_kernels import put_ints
from pyspark_kafkalog.extensions.cleanup.compacting import compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import CompactionSettings
from pyspark_kafkalog.model import EncodeSettings, TopicPartition
from tests.benchmarks.measure import arguments, print_ratio
from tests.benchmarks.session import scratch_folder

PARTITION = TopicPartition("benchmark", 0)
RECORDS, KEYS, KEY_SIZE, VALUE_SIZE = 10_000_000, 1_000_000, 8, 92
IN_SEGMENT = 1_000_000
MAP_BYTES = 32 << 20
BAR, MEMORY_BAR = 2.0, 1.10
"""Million records/s of processor time; the ratio of peak memory."""


def write_log(root: Path, records: int, keys: int, compression: str) -> None:
    """A log whose last record alone is in the active segment."""
    folder = root / str(PARTITION)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for first in [*range(0, records, IN_SEGMENT), records]:
        count = max(min(IN_SEGMENT, records - first), 1)
        key = pc.utf8_lpad(pa.array(rng.integers(0, keys, count)).cast(pa.string()), KEY_SIZE, "0")
        text = (rng.integers(0, 16, count * VALUE_SIZE, np.uint8) + ord("a")).tobytes()
        ends = np.arange(count + 1, dtype=np.int32) * VALUE_SIZE
        value = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(text)])
        columns = {
            "key": key,
            "value": value,
            "timestamp": pa.array(1_700_000_000_000 + np.arange(first, first + count)),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        data = encode(batch, None, EncodeSettings(compression), topic_partition=PARTITION).data
        batches = walk(data)
        put_ints(data, batches.position + OFFSET, batches.base_offset + first, 8)
        (folder / f"{first:020d}.log").write_bytes(data)


def compact_once(root: str, memory: int) -> None:
    """Compact, and print what that took; kernels are loaded before."""
    settings = CompactionSettings(dedupe_buffer_size=memory)
    begun, wall = time.process_time(), time.perf_counter()
    done = compact_partition(root, PARTITION, settings, execute=True)
    # What getrusage says begins with what the parent had.
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    print(
        json.dumps(
            {
                "cpu": time.process_time() - begun,
                "wall": time.perf_counter() - wall,
                "peak": int(kib) * 1024,
                "records": done.records,
                "kept": done.records - done.removed_records,
                "passes": done.passes,
            }
        )
    )


def measured(log: Path, folder: Path, memory: int) -> dict[str, float]:
    """Compact a copy of a log in a new process."""
    copy = folder / "copy"
    shutil.copytree(log, copy)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.compaction", "--compact", str(copy), str(memory)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    finally:
        shutil.rmtree(copy)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    options = arguments(__doc__)
    records, keys = max(int(RECORDS * options.scale), 100), max(int(KEYS * options.scale), 10)
    with scratch_folder(options.folder) as folder:
        for compression, scale in (("none", 1.0), ("lz4", 0.2)):
            log = folder / compression
            write_log(log, int(records * scale), int(keys * scale), compression)
            runs = [measured(log, folder, 128 << 20) for _ in range(options.rounds)]
            rate = statistics.median(run["records"] / run["cpu"] / 1e6 for run in runs)
            best, first = max(run["records"] / run["cpu"] / 1e6 for run in runs), runs[0]
            print_ratio(
                f"compaction, {first['records'] / 1e6:.1f} M records of {KEY_SIZE + VALUE_SIZE} bytes, "
                f"{compression}, {first['kept'] / 1e6:.2f} M left: {rate:.2f} M records/s of processor time "
                f"(best {best:.2f}), peak memory {first['peak'] / 1e6:.0f} MB, {BAR:g} wanted",
                rate / BAR,
                at_least=1.0 if compression == "none" else None,
            )
        small = folder / "small"
        write_log(small, records // 5, keys, "none")
        peaks = [measured(log, folder, MAP_BYTES)["peak"] for log in (folder / "none", small)]
        print_ratio(
            f"peak memory, {records / 1e6:.1f} M records: {peaks[0] / 1e6:.1f} MB, "
            f"a fifth of them: {peaks[1] / 1e6:.1f}",
            peaks[0] / peaks[1],
            at_most=MEMORY_BAR,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compact"]:
        compact_once(sys.argv[2], int(sys.argv[3]))
    else:
        main()
