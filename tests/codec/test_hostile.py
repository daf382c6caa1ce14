"""Bytes are accepted, or CorruptRecordError with a position: never another exception, a hang or a crash.

A slice of what :mod:`tests.codec.fuzz` makes. Once more with numba's bounds checks.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.errors import CorruptRecordError
from tests.codec import fuzz
from tests.codec.decoding import ALL_COLUMNS, FOREVER

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_hostile_bytes_are_accepted_or_corrupt(seed: int, soak: bool) -> None:
    count = 250_000 if soak else 6_000
    before = pa.total_allocated_bytes()
    outcomes = fuzz.run(seed, count)
    assert pa.total_allocated_bytes() - before < 32 << 20
    assert sum(outcome["inputs"] for outcome in outcomes.values()) == count
    assert all(outcome["rows"] for outcome in outcomes.values())


def test_a_wrapper_of_offset_0_may_hold_offsets_above_those_of_the_next_batch() -> None:
    rng = random.Random(988874)
    for _ in range(100):
        fuzz.check_decode(rng, fuzz.Outcome())


def test_mutations_reach_the_parsers() -> None:
    """The property above tests more than checksums: many inputs are accepted or fail deep inside."""
    rng = random.Random(1)
    accepted, messages = 0, set()
    for _ in range(2000):
        try:
            arrow_batches = list(
                decode(
                    fuzz.hostile(rng),
                    topic_partition=fuzz.PARTITION,
                    offsets=FOREVER,
                    visible=None,
                    schema=ALL_COLUMNS,
                )
            )
            accepted += any(arrow_batch.num_rows for arrow_batch, _ in arrow_batches)
        except CorruptRecordError as e:
            messages.add(e.message.split(":")[0].rstrip("0123456789 ,"))
    assert accepted > 200
    assert len(messages) > 10


@pytest.mark.long
def test_hostile_bytes_with_bounds_checks(soak: bool) -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    command = [sys.executable, "-m", "tests.codec.fuzz", "--count", "3000" if soak else "1000"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
