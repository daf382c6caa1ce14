"""Hostile values are rows or corrupt rows: never an exception, a hang, a crash, or bytes of the next row.

A slice of what the module ``fuzz`` of each format makes. Once more with numba's bounds checks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pyarrow as pa
import pytest

from tests.extensions.typed_values.avro import fuzz as avro
from tests.extensions.typed_values.json import fuzz as json
from tests.extensions.typed_values.protobuf import fuzz as protobuf

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # a million values in the soak
    pytest.mark.parametrize("fuzz", [avro, json, protobuf], ids=["avro", "json", "protobuf"]),
]


def test_hostile_values_are_rows_or_corrupt(fuzz: ModuleType, seed: int, soak: bool) -> None:
    before = pa.total_allocated_bytes()
    outcome = fuzz.run(seed, 1_000_000 if soak else 20_000, compared=200)
    assert pa.total_allocated_bytes() - before < 32 << 20
    assert outcome["values"] > 1000
    assert outcome["compared"] > 1000
    assert len(outcome) > 11


@pytest.mark.soak
def test_hostile_values_with_bounds_checks(fuzz: ModuleType, seed: int) -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    command = [sys.executable, "-m", fuzz.__name__, "--count", "1000000", "--seed", str(seed)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
