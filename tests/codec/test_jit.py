from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import NumbaError

from pyspark_kafkalog.codec.jit import compiled
from pyspark_kafkalog.codec.signature import BYTES, INT64S, Signature


def test_a_kernel_compiles_where_nothing_can_be_cached() -> None:
    """Code without a file cannot be cached, like code in a read-only installation."""
    names: dict = {}
    exec("def total(data):\n    return data.sum()", names)
    total = compiled(names["total"], Signature((BYTES,), 1))
    assert total(np.frombuffer(b"\1\2\3", np.uint8)) == 6
    assert total.stats.cache_path is None


def test_no_references_are_counted() -> None:
    """With it, each access to an array in a tuple would take a locked instruction or two."""
    names: dict = {}
    exec(
        "def total(pair, at):\n    first, second = pair\n    sum = 0\n    for i in range(at.size):\n"
        "        sum += first[at[i]] + second[at[i]]\n    return sum",
        names,
    )
    total = compiled(names["total"], Signature(((INT64S, INT64S), INT64S), 1))
    numbers = np.arange(4)
    assert total((numbers, numbers), numbers) == 12
    assert not any("NRT_" in code for code in total.inspect_llvm().values())


def test_what_allocates_does_not_compile() -> None:
    names: dict = {}
    exec("def copied(data):\n    return data.copy().size", names)
    with pytest.raises(NumbaError):
        compiled(names["copied"], Signature((BYTES,), 1))


@pytest.mark.long
def test_bounds_checks_turn_the_cache_off(tmp_path: Path) -> None:
    """Otherwise code compiled without them would be loaded."""
    module = tmp_path / "with_a_kernel.py"
    module.write_text(
        "from pyspark_kafkalog.codec.kernel import kernel\n"
        "from pyspark_kafkalog.codec.signature import BYTES\n"
        "@kernel(BYTES, results=1)\ndef first(data):\n    return data[0]\n"
        "print(first.machine_code.stats.cache_path is None)"
    )
    for switch, uncached in (("1", "True"), ("0", "False")):
        run = subprocess.run(
            [sys.executable, module],
            env={"NUMBA_BOUNDSCHECK": switch, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == uncached
