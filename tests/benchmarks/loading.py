"""A process that has numpy and pyarrow, as a worker of Spark's has, and loads the codec when it gets a line.

It prints an empty line when it is ready, then JSON with what that took, and stays until its input ends.
"""

from __future__ import annotations

import json
import sys
import time

import numpy  # noqa: F401
import pyarrow  # noqa: F401


def main() -> None:
    print(flush=True)
    sys.stdin.readline()
    wall, cpu = time.perf_counter(), time.process_time()
    from pyspark_kafkalog.codec import decode, encode  # noqa: F401
    from pyspark_kafkalog.codec.kernel import kernels

    for kernel in kernels():
        assert kernel.machine_code
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({**taken, "numba": "numba" in sys.modules}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
