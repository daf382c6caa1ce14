"""A scan of the heads of record batches finds what a read of them finds, whatever is in the file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.model import BatchHeader, Fetch, OffsetRange, Slice
from tests.codec.raw import batch, marker, message, record
from tests.log.partitions import T0, write_segment

END = 80


def batches(choose: random.Random) -> list[bytes]:
    """Large and small ones, markers, and messages of an older format."""
    stored = []
    for offset in range(END):
        kind = choose.random()
        if kind < 0.2:
            stored.append(marker(choose.randrange(3), commit=kind < 0.1, offset=offset))
        elif kind < 0.25:
            stored.append(message(b"x" * choose.randrange(9), offset=offset))
        else:
            size = choose.choice([0, 10, 100, 3_000, 5_000, 70_000])
            stored.append(batch([record(b"x" * size)], base_offset=offset, attributes=0x10, producer_id=7))
    return stored


def partition(folder: Path) -> Partition:
    return Partition(T0, locate(str(folder)), lambda _, first: first)


def found(slices: Iterator[Slice]) -> list[BatchHeader]:
    headers = []
    for piece in slices:
        whole = batches_of(piece)
        headers += [header_of(whole.between(at, at + 1)) for at in range(len(whole))]
    return headers


@pytest.mark.parametrize("seed", range(30))
def test_any_segment_with_any_damage(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    stored = batches(choose)
    starts = [sum(map(len, stored[:at])) for at in range(len(stored))]
    log = write_segment(tmp_path / "t-0", stored)
    changed = bytearray(log.read_bytes())
    if seed % 3:
        at = starts[choose.randrange(1, len(starts) - 1)] + choose.choice([7, 9, 10, 11, 16, 25, 26, 60])
        changed[at] ^= 1 << choose.randrange(8)
    log.write_bytes(changed[: len(changed) - choose.choice([0, 0, 1, 70])])
    source = partition(tmp_path / "t-0")
    offsets = OffsetRange(choose.randrange(10), source.log_end_offset(source.segments()))
    wanted = Fetch(T0, offsets, on_corrupt=lambda _: None)
    assert found(source.scan(wanted)) == found(source.read(wanted, max_bytes=1 << 20))
