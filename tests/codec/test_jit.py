from __future__ import annotations

import subprocess
import sys

import numpy as np
from numba import types

from pyspark_kafkalog.codec.jit import BYTES, kernel


def test_a_kernel_compiles_where_nothing_can_be_cached() -> None:
    """Code without a file has no place for a cache, as an installation that nobody may write to."""
    names: dict = {}
    exec("def total(data):\n    return data.sum()", names)
    total = kernel(types.uint64(BYTES))(names["total"])
    assert total(np.frombuffer(b"\1\2\3", np.uint8)) == 6
    assert total.stats.cache_path is None


def test_bounds_checks_turn_the_cache_off() -> None:
    """Else code that was compiled without them would be loaded."""
    code = (
        "from pyspark_kafkalog.codec import read_kernels as k; print(k.walk_batches.stats.cache_path is None)"
    )
    for switch, uncached in (("1", "True"), ("0", "False")):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={"NUMBA_BOUNDSCHECK": switch},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == uncached
