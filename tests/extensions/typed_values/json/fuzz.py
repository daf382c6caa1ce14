"""Hostile JSON: each value gives what the slow path gives, a row or a corrupt one, and nothing else.

``python -m tests.extensions.typed_values.json.fuzz --count 1000000 --seed 7`` tells what came of them.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.json.decoder import Decoder
from pyspark_kafkalog.extensions.typed_values.json.times import Zone
from pyspark_kafkalog.extensions.typed_values.json.times import zone as zone_named
from tests.extensions.typed_values import fuzzing
from tests.extensions.typed_values.json import oracle
from tests.extensions.typed_values.json.values import KINDS, made_type, mutated, value

BATCH = 2000
ZONES = ("UTC", "Asia/Kolkata", "Europe/Berlin", "-07:00")


def hostile(rng: random.Random, kind: pa.StructType, count: int) -> list[bytes | None]:
    """Values of a type, of which half are mutated."""
    bodies = [value(rng, kind) for _ in range(-(-count // 2))]
    found: list[bytes | None] = []
    for _ in range(count):
        body = rng.choice(bodies)
        found.append(mutated(body, rng, bodies) if rng.random() < 0.5 else body)
        if rng.random() < 0.01:
            found[-1] = rng.choice([None, b"", b" \n"])
    return found


def run(seed: int, count: int, *, compared: int = BATCH) -> Counter[str]:
    """Decode hostile values; ``compared`` of each batch are held against the slow path.

    :raises AssertionError: if a row is not what it must be.
    """
    rng = random.Random(seed)
    outcome: Counter[str] = Counter()
    of_kinds = cache(Decoder)
    for first in range(0, count, BATCH):
        rows = min(BATCH, count - first)
        kind, zone = rng.choice([*KINDS, made_type(rng)]), zone_of(rng.choice(ZONES))
        values = hostile(rng, kind, rows)
        sizes = np.array([-1 if body is None else len(body) for body in values], np.int64)
        starts = np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0)
        data = np.frombuffer(b"".join(body or b"" for body in values), np.uint8)
        decoder = (of_kinds if kind in KINDS else Decoder)(kind, zone, "_corrupt_record")
        found = decoder.decode(data, starts, sizes)
        found.array.validate(full=True)
        assert found.array.type == kind
        assert len(found.array) == rows
        assert not (sizes[found.corrupt] < 0).any()
        for row in found.corrupt[:20]:
            outcome[found.reason(row).rpartition(", at byte")[0].rpartition(": ")[2]] += 1
        outcome["corrupt"] += found.corrupt.size
        outcome["values"] += rows - found.corrupt.size
        mine = oracle.shown(found.array.slice(0, compared)) if compared else []
        expected, corrupt = oracle.slow(values[:compared], kind, zone)
        for row, (one, other) in enumerate(zip(mine, expected, strict=True)):
            assert one == other, (values[row], one, other)
            assert (row in found.corrupt) == corrupt[row], values[row]
            outcome["compared"] += 1
    return outcome


def zone_of(name: str) -> Zone:
    found = zone_named(name)
    assert found is not None
    return found


if __name__ == "__main__":
    fuzzing.main(run, f"pyarrow {pa.__version__}")
