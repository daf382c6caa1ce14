"""A partition of a gigabyte in an S3 store on loopback: requests, and what 50 ms of latency cost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyspark_kafkalog.filesystem.ahead import PIECE_BYTES
from tests.benchmarks.measure import arguments, print_ratio, seconds_by_turns
from tests.benchmarks.session import scratch_folder
from tests.log.test_object_store import large_log, read_bytes
from tests.object_store import HttpProxy, object_store

MEBIBYTES = 1000
LATENCY = 0.05
"""Seconds that each request waits in the proxy, besides the store's own time."""


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder, object_store(folder / "s3") as store:
        for name, segment_bytes in (("segments of 1 GiB", 1 << 30), ("segments of 64 MiB", 64 << 20)):
            log = folder / name.replace(" ", "-")
            size = large_log(log, max(10, int(MEBIBYTES * args.scale)), segment_bytes=segment_bytes)
            shutil.copytree(log, store.bucket / log.name, copy_function=os.link)
            with HttpProxy(store.address) as near, HttpProxy(store.address, LATENCY) as far:

                def read(proxy: HttpProxy, log: Path = log) -> None:
                    proxy.requests.clear()
                    read_bytes(store.uri(log.name, proxy.address))

                seconds = seconds_by_turns(
                    {"near": lambda: read(near), "far": lambda: read(far)}, args.rounds
                )
                needed = -(-size // PIECE_BYTES)
                print_ratio(f"{name}: {far.total} requests, {needed} needed", far.total / needed, at_most=1.5)
                rates = {where: size / 1e6 / taken for where, taken in seconds.items()}
                both = f"{rates['far']:.0f} MB/s with {LATENCY * 1000:.0f} ms, {rates['near']:.0f} without"
                print_ratio(f"{name}: {both}", rates["far"] / rates["near"])


if __name__ == "__main__":
    main()
