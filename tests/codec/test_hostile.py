"""Bytes are accepted, or CorruptRecordError with a position: never another exception, a hang or a crash.

Batches of real logs are mutated, half of them inside what is compressed, and mostly given the right
checksums again, so that the mutation reaches the parsers. Once more with numba's bounds checks.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import zlib
from functools import cache
from itertools import pairwise

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.compression import compress, decompress
from pyspark_kafkalog.codec.decode import DecodeLimits, decode, first_record_at
from pyspark_kafkalog.codec.isolation import TransactionScan, Visibility
from pyspark_kafkalog.codec.walk import find_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, TopicPartition
from tests.codec.decoding import ALL_COLUMNS, FOREVER
from tests.codec.raw import marker, message, values, wrapper
from tests.fixtures_dir import CASES

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "250"))
MUTATIONS = 100
"""Mutations of one example: 25,000 in all."""

CANARY = b"\xee" * 24
"""Stands before and after every buffer, and in none."""

PARTITION = TopicPartition("topic", 0)
MAX_BATCH = 8_000
INTERESTING = [-(2**31), -(2**15), -129, -128, -2, -1, 0, 1, 7, 13, 14, 61, 127, 128, 255, 2**15, 2**31 - 1]


@cache
def seeds() -> list[bytes]:
    """Batches of every format and compression."""
    made = [
        values(5),
        marker(7, commit=False, offset=5),
        message(b"value", key=b"key", magic=0),
        wrapper([message(b"a"), message(b"b", offset=1)], offset=1),
        *(values(9, compression=compression) for compression in range(1, 5)),
    ]
    for case in CASES:
        if not case.damaged:
            segments = [s for partition in case.partitions for s in case.segments(partition)]
            data = max((s.read_bytes() for s in segments), key=len)
            batches = walk(data)
            rows = [row for row in range(len(batches)) if batches.size[row] < MAX_BATCH]
            for row in rows[:: max(1, len(rows) // 4)]:
                made.append(data[batches.position[row] :][: batches.size[row]])
    assert not any(CANARY in batch for batch in made)
    return made


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with one part changed."""
    if not data:
        return rng.randbytes(rng.randrange(20))
    out = bytearray(data)
    at = rng.randrange(len(data))
    kind = rng.randrange(8)
    if kind < 3:
        out[at] = rng.choice([out[at] ^ 1 << rng.randrange(8), 0, 1, 2, 127, 128, 255, rng.randrange(256)])
    elif kind == 3:
        size = rng.choice([2, 4])
        value = rng.choice(INTERESTING) + rng.randrange(-1, 2)
        out[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
    elif kind == 4:
        out[at : at + rng.choice([1, 1, 2, 5, 100])] = b""
    elif kind == 5:
        out[at:at] = rng.choice([bytes(4), b"\xff" * 5, b"\x80" * 10, data[at : at + 50], rng.randbytes(3)])
    elif kind == 6:
        other = rng.randrange(len(data))
        out[at : at + 8] = data[other : other + 8]
    else:
        out[at:] = rng.choice([b"", b"\x80" * (len(data) - at), bytes(len(data) - at)])
    return bytes(out)


def recompressed(data: bytes, rng: random.Random) -> bytes:
    """The batch with its compressed part mutated before compression, or as it was if it has none."""
    attributes = data[22] if data[16] == 2 else data[17]
    compression, magic = attributes & 7, data[16]
    at = {0: 22, 1: 30, 2: 61}[magic]
    if not compression:
        return data
    if magic < 2:
        at += 4 + max(struct.unpack_from(">i", data, at - 4)[0], 0)
    inside = decompress(compression, np.frombuffer(data, np.uint8)[at:], magic=magic, max_bytes=1 << 20)
    body = compress(compression, np.frombuffer(with_checksums(mutated(inside.tobytes(), rng)), np.uint8))
    size = b"" if magic == 2 else struct.pack(">i", len(body))
    return data[: at - len(size)] + size + body


def with_checksums(data: bytes) -> bytes:
    """``data`` with the size of a single batch, and the checksums of all batches in it, made right."""
    out = bytearray(data)
    batches = walk(out)
    for row in range(len(batches)):
        start, end = int(batches.position[row]), int(batches.position[row] + batches.size[row])
        if batches.magic[row] == 2:
            out[start + 17 : start + 21] = struct.pack(
                ">I", google_crc32c.value(bytes(out[start + 21 : end]))
            )
        else:
            out[start + 12 : start + 16] = struct.pack(">I", zlib.crc32(out[start + 16 : end]))
    return bytes(out)


def resized(data: bytes) -> bytes:
    return data[:8] + struct.pack(">i", len(data) - 12) + data[12:]


def hostile(rng: random.Random) -> bytes:
    """A few batches, mutated."""
    parts = []
    for batch in rng.choices(seeds(), k=rng.randrange(1, 4)):
        if rng.random() < 0.5:
            batch = recompressed(batch, rng)
        if rng.random() < 0.7:
            batch = mutated(batch, rng)
        if len(batch) > 30 and rng.random() < 0.8:
            batch = resized(batch)
        if rng.random() < 0.8 and parts:
            batch = struct.pack(">q", rng.randrange(1, 1000) * len(parts)) + batch[8:]
        parts.append(batch)
    data = b"".join(parts)
    if rng.random() < 0.1:
        data = mutated(data, rng)
    return with_checksums(data) if rng.random() < 0.9 else data


def between_canaries(data: bytes) -> np.ndarray:
    return np.frombuffer(CANARY + data + CANARY, np.uint8)[len(CANARY) : len(CANARY) + len(data)]


def check_decode(data: bytes, rng: random.Random) -> None:
    """Decode ``data``, and check all that must hold of what comes out."""
    start = rng.choice([0, 0, 3])
    skip = rng.random() < 0.3
    positions: list[int | None] = []
    next_offset = start
    decoded = decode(
        between_canaries(data),
        topic_partition=PARTITION,
        offsets=OffsetRange(start, rng.choice([FOREVER.end, 10])),
        visible=rng.choice([None, Visibility([AbortedTransaction(7, 0), AbortedTransaction(13, 0, 9)])]),
        schema=ALL_COLUMNS,
        limits=DecodeLimits(
            max_rows=rng.choice([1, 3, 1000]),
            max_bytes=rng.choice([1, 100, 1 << 20]),
            max_decompressed_bytes=1 << 16,
            check_crcs=rng.random() < 0.8,
        ),
        on_corrupt=(lambda error: positions.append(error.position)) if skip else None,
    )
    try:
        for arrow_batch, after in decoded:
            arrow_batch.validate(full=True)
            offsets = [next_offset - 1, *arrow_batch.column("offset").to_pylist(), after]
            assert all(a < b for a, b in pairwise(offsets))
            next_offset = after
            for name in ("key", "value"):
                content = arrow_batch.column(name).buffers()[2]
                assert CANARY[:8] not in (content.to_pybytes() if content else b"")
    except CorruptRecordError as e:
        positions.append(e.position)
    check_positions(positions, data)


def check_lookups(data: bytes, rng: random.Random) -> None:
    buffer = between_canaries(data)
    position = find_batch(buffer, rng.randrange(len(data) + 1))
    assert position is None or 0 <= position < len(data)
    timestamp, min_offset = rng.choice([0, 1 << 42]), rng.choice([0, 5])
    limits = DecodeLimits(max_decompressed_bytes=1 << 16)
    positions = []
    try:
        TransactionScan().add(buffer)
    except CorruptRecordError as e:
        positions.append(e.position)
    try:
        first_record_at(
            buffer,
            timestamp=timestamp,
            min_offset=min_offset,
            topic_partition=PARTITION,
            limits=limits,
        )
    except CorruptRecordError as e:
        positions.append(e.position)
    check_positions(positions, data)


def check_positions(positions: list[int | None], data: bytes) -> None:
    for position in positions:
        assert position is not None
        assert 0 <= position <= len(data)


@settings(max_examples=EXAMPLES, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**64))
@example(seed=988874)  # a wrapper of offset 0 with offsets above those of the next batch
def test_hostile_bytes_are_accepted_or_corrupt(seed: int) -> None:
    rng = random.Random(seed)
    before = pa.total_allocated_bytes()
    for _ in range(MUTATIONS):
        data = hostile(rng)
        check_decode(data, rng)
        check_lookups(data, rng)
    assert pa.total_allocated_bytes() - before < 32 << 20


def test_mutations_reach_the_parsers() -> None:
    """That the property above is not about checksums alone: a good share is accepted or fails deep inside."""
    rng = random.Random(1)
    accepted, messages = 0, set()
    for _ in range(2000):
        try:
            arrow_batches = list(
                decode(
                    hostile(rng),
                    topic_partition=PARTITION,
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


@pytest.mark.slow
def test_hostile_bytes_with_bounds_checks() -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "HOSTILE_EXAMPLES": "30"}
    only = f"{__file__}::{test_hostile_bytes_are_accepted_or_corrupt.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", only]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
