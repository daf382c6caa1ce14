"""Hostile bytes for everything that reads foreign bytes: accepted, or CorruptRecordError, and nothing else.

``python -m tests.codec.fuzz --count 1000000 --seed 7`` tells what came of each kind of input. Input ``n``
of a seed is always the same one: ``--first n --count 1`` repeats it alone.

Batches of real logs are mutated, half of them inside what is compressed, and mostly given the right
checksums again, so that the mutation reaches the parsers.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import time
import traceback
import zlib
from collections import Counter
from functools import cache
from itertools import pairwise

import google_crc32c
import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.compression import compress, decompress
from pyspark_kafkalog.codec.decode import DecodeLimits, decode, first_record_at
from pyspark_kafkalog.codec.isolation import TransactionScan, Visibility
from pyspark_kafkalog.codec.offsets_topic import (
    decode_consumer_member,
    decode_group,
    decode_key,
    decode_offset,
    encode_group_key,
    encode_offset,
    encode_offset_key,
    raw_group,
)
from pyspark_kafkalog.codec.walk import find_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.extensions.large_messages.segments import find
from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.segment import index
from pyspark_kafkalog.model import AbortedTransaction, CommittedOffset, OffsetRange, TopicPartition
from tests.codec.decoding import ALL_COLUMNS, FOREVER
from tests.codec.raw import batch as batch_of
from tests.codec.raw import marker, message, record, values, wrapper
from tests.fixtures_dir import CASES

CANARY = b"\xee" * 24
"""Surrounds every buffer, and is in none."""

PARTITION = TopicPartition("topic", 0)
MAX_BATCH = 8_000
INTERESTING = [-(2**31), -(2**15), -129, -128, -2, -1, 0, 1, 7, 13, 14, 61, 127, 128, 255, 2**15, 2**31 - 1]
_FIELDS_V2 = [
    *[(0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2)],
    *[(53, 4), (57, 4)],
]
"""Position and size of each field of a v2 header."""
_LONG_VARINTS = [b"\x80" * 10, b"\xff" * 9 + b"\1", b"\x80" * 9 + b"\0", b"\xff" * 4 + b"\x0f", b"\xff" * 10]
_SCHEMAS = [ALL_COLUMNS, ALL_COLUMNS, pa.schema([ALL_COLUMNS.field("offset"), ALL_COLUMNS.field("headers")])]

Outcome = Counter[str]


@cache
def seeds() -> list[bytes]:
    """Batches of every format and compression, from all logs of the fixtures."""
    headers = [(b"key", b"value"), (b"", None), (b"_lm", bytes(29))]
    made = [
        values(5),
        batch_of(
            [record(b"v", key=b"k", headers=headers), record(None, delta=1, timestamp_delta=-(1 << 40))]
        ),
        marker(7, commit=False, offset=5),
        message(b"value", key=b"key", magic=0),
        wrapper([message(b"a"), message(b"b", offset=1)], offset=1),
        wrapper([wrapper([message(b"a")], offset=0)], offset=1),
        wrapper([values(2)], offset=1, compression=2),
        *(values(9, compression=compression) for compression in range(1, 5)),
    ]
    for case in CASES:
        if not case.damaged:
            for partition in case.partitions:
                data = max((file.read_bytes() for file in case.segments(partition)), key=len)
                batches = walk(data)
                rows = [row for row in range(len(batches)) if batches.size[row] < MAX_BATCH]
                for row in rows[:: max(1, len(rows) // 16)]:
                    made.append(data[batches.position[row] :][: batches.size[row]])
    assert not any(CANARY in batch for batch in made)
    return made


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with one part changed."""
    if not data:
        return rng.randbytes(rng.randrange(20))
    out = bytearray(data)
    at = rng.randrange(len(data))
    kind = rng.randrange(10)
    if kind < 3:
        out[at] = rng.choice([out[at] ^ 1 << rng.randrange(8), 0, 1, 2, 127, 128, 255, rng.randrange(256)])
    elif kind == 3:
        size = rng.choice([2, 4])
        _put(out, at, size, rng.choice(INTERESTING) + rng.randrange(-1, 2))
    elif kind == 4:
        out[at : at + rng.choice([1, 1, 2, 5, 100])] = b""
    elif kind == 5:
        out[at:at] = rng.choice([bytes(4), *_LONG_VARINTS, data[at : at + 50], rng.randbytes(3)])
    elif kind == 6:
        other = rng.randrange(len(data))
        out[at : at + 8] = data[other : other + 8]
    elif kind == 7:
        field, size = rng.choice(_FIELDS_V2)
        _put(out, field, size, rng.choice([*INTERESTING, 2**63 - 1, -(2**63), rng.getrandbits(64)]))
    elif kind == 8:
        other = rng.choice(seeds())
        out[at:] = other[rng.randrange(len(other)) :]
    else:
        out[at:] = rng.choice([b"", b"\x80" * (len(data) - at), bytes(len(data) - at)])
    return bytes(out)


def _put(out: bytearray, at: int, size: int, value: int) -> None:
    out[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")


def recompressed(data: bytes, rng: random.Random) -> bytes:
    """The batch, its compressed part, if any, mutated before compression."""
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
    """``data`` with the size of a single batch and the checksums of all its batches corrected."""
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


def check_decode(rng: random.Random, outcome: Outcome) -> None:
    """Decode hostile batches, and check everything that must hold for the result."""
    data = hostile(rng)
    start = rng.choice([0, 0, 3])
    skip = rng.random() < 0.3
    positions: list[int | None] = []
    next_offset = start
    decoded = decode(
        between_canaries(data),
        topic_partition=PARTITION,
        offsets=OffsetRange(start, rng.choice([FOREVER.end, 10])),
        visible=rng.choice([None, Visibility([AbortedTransaction(7, 0), AbortedTransaction(13, 0, 9)])]),
        schema=rng.choice(_SCHEMAS),
        limits=DecodeLimits(
            max_rows=rng.choice([1, 3, 1000]),
            max_bytes=rng.choice([1, 100, 1 << 20]),
            max_record_bytes=1 << 16,
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
            outcome["rows"] += arrow_batch.num_rows
            for name in {"key", "value"} & set(arrow_batch.schema.names):
                content = arrow_batch.column(name).buffers()[2]
                assert CANARY[:8] not in (content.to_pybytes() if content else b"")
    except (CorruptRecordError, OversizedRecordError) as e:
        positions.append(e.position)
        outcome["CorruptRecordError"] += 1
    outcome["left out"] += len(positions)
    check_positions(positions, data)
    check_lookups(data, rng, outcome)


def check_lookups(data: bytes, rng: random.Random, outcome: Outcome) -> None:
    """The other readers of batches: for the next valid one, for transactions, for a time."""
    buffer = between_canaries(data)
    position = find_batch(buffer, rng.randrange(len(data) + 1))
    assert position is None or 0 <= position < len(data)
    timestamp, min_offset = rng.choice([0, 1 << 42]), rng.choice([0, 5])
    limits = DecodeLimits(max_bytes=1 << 12, max_record_bytes=1 << 16)
    positions = []
    try:
        TransactionScan().add(buffer, walk(buffer))
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
    except (CorruptRecordError, OversizedRecordError) as e:
        positions.append(e.position)
    outcome["CorruptRecordError"] += len(positions)
    check_positions(positions, data)


def check_positions(positions: list[int | None], data: bytes) -> None:
    for position in positions:
        assert position is not None
        assert 0 <= position <= len(data)


@cache
def coordinator_records() -> list[bytes]:
    """Keys and values of ``__consumer_offsets``."""
    made = [
        encode_offset_key("group", PARTITION),
        encode_group_key("group"),
        encode_offset(CommittedOffset(5, 3, "metadata", 1)),
        encode_offset(CommittedOffset(5, 3, "", 1, 2)),
    ]
    for case in CASES:
        for row in case.records if not case.damaged else []:
            if row["topic"] == "__consumer_offsets":
                made += [bytes.fromhex(row[name]) for name in ("key", "value") if row.get(name)]
    return made


def check_coordinator_records(rng: random.Random, outcome: Outcome) -> None:
    """Keys and values of ``__consumer_offsets``, and the members' own bytes in them."""
    data = rng.choice(coordinator_records())
    for _ in range(rng.randrange(1, 4)):
        data = mutated(data, rng)
    raw_group(data)
    positions = []
    for read in (decode_key, decode_offset, decode_group, decode_consumer_member):
        try:
            found = read(data)
            outcome["rows"] += 1
            for member in getattr(found, "members", ()):
                member.subscribed_topics()
                member.assigned_partitions()
        except CorruptRecordError as e:
            positions.append(e.position)
    outcome["CorruptRecordError"] += len(positions)
    assert all(position is not None and position >= 0 for position in positions)


def check_message_segments(rng: random.Random, outcome: Outcome) -> None:
    """Values and headers that may belong to message segments."""
    half = struct.pack(">qq", rng.getrandbits(63), rng.getrandbits(63))
    check = (int.from_bytes(half[:4], "big") + int.from_bytes(half[8:12], "big")) % (1 << 32)
    number, count, length = (rng.choice([0, 1, 5, *INTERESTING]) for _ in range(3))
    fields = struct.pack(">iii", number, count, length)
    value = struct.pack(">bI", 0, check) + half + fields + rng.randbytes(rng.choice([0, 5]))
    lm = struct.pack(">b", rng.choice([0, 1, 2, 3, -1])) + half + fields
    rows = []
    for _ in range(rng.randrange(1, 6)):
        chosen = rng.choice([value, mutated(value, rng), None, b""])
        names = rng.choices(["_lm", "_l", "", "_t"], k=rng.randrange(4))
        headers = [{"key": name, "value": rng.choice([lm, mutated(lm, rng), None])} for name in names]
        rows.append({"value": chosen, "headers": rng.choice([headers, headers or None])})
    schema = pa.schema([ALL_COLUMNS.field("value"), ALL_COLUMNS.field("headers")])
    arrow_batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    found = find(arrow_batch.slice(rng.randrange(arrow_batch.num_rows)))
    if found is not None:
        assert len(found.message_ids()) == found.row.size
        assert (np.diff(found.row) > 0).all()
        outcome["rows"] += found.row.size


def check_indexes(rng: random.Random, outcome: Outcome) -> None:
    """The three indexes: any result will do, but soon and without errors."""
    entries = [struct.pack(">ii", 10 * i, 100 * i) for i in range(1, 30)]
    times = [struct.pack(">qi", 1000 * i, 10 * i) for i in range(1, 30)]
    aborted = [struct.pack(">hqqqq", 0, i, 10 * i, 10 * i + 5, 10 * i) for i in range(1, 30)]
    data = b"".join(rng.choice([entries, times, aborted])) + bytes(rng.choice([0, 0, 16, 8192]))
    for _ in range(rng.randrange(1, 4)):
        data = mutated(data, rng)
    file = InputFile(pa.BufferReader(data), "index", len(data))
    wanted = rng.choice([0, 55, 2**31 - 1, 2**62, -1, *INTERESTING])
    for look in (index.floor_offset, index.higher_offset, index.floor_position, index.floor_timestamp):
        outcome["rows"] += look(file, rng.choice([0, 1 << 40]), wanted) is not None
    outcome["rows"] += len(index.aborted_transactions(file))


_CHECKS = {
    check_decode: 85,
    check_coordinator_records: 5,
    check_message_segments: 5,
    check_indexes: 5,
}


def run(seed: int, count: int, *, first: int = 0) -> dict[str, Outcome]:
    """The outcome of the inputs from the ``first`` on.

    :raises AssertionError: that names seed and number of an input for which something does not hold.
    """
    outcomes: dict[str, Outcome] = {}
    for number in range(first, first + count):
        rng = random.Random(f"{seed} {number}")
        (check,) = rng.choices(list(_CHECKS), list(_CHECKS.values()))
        outcome = outcomes.setdefault(check.__name__.removeprefix("check_"), Counter())
        outcome["inputs"] += 1
        try:
            check(rng, outcome)
        except BaseException as e:
            text = "".join(traceback.format_exception(e))
            raise AssertionError(f"--seed {seed} --first {number} --count 1: {text}") from None
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="inputs (default: 100,000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: 0)")
    parser.add_argument("--memory", type=int, default=4096, help="MiB of address space (default: 4096)")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (given.memory << 20, given.memory << 20))
    print(f"seed {given.seed}, {len(seeds())} batches of {len(CASES)} cases", flush=True)
    total: dict[str, Outcome] = {}
    begun, done, step = time.monotonic(), 0, 10_000
    while done < given.count:
        size = min(step, given.count - done)
        for name, outcome in run(given.seed, size, first=given.first + done).items():
            total.setdefault(name, Counter()).update(outcome)
        done += size
        if done % 100_000 == 0 or done == given.count:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"{done} inputs, {time.monotonic() - begun:.0f} s, {peak} MB at most", flush=True)
    for name, outcome in sorted(total.items()):
        print(name, dict(sorted(outcome.items())))


if __name__ == "__main__":
    main()
