"""Any bytes in any file of a real directory are read, or refused with an error of the package, and soon."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError, LogDirectoryError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from tests.fixtures_dir import CASES, Case
from tests.log.partitions import copy, offset_after_bytes, offsets_read

_ROUNDS = 25
_NAMES = [
    "v0-snappy",
    "v1-lat-lz4",
    "v1v2-onesegment",
    "v2-rolled",
    "v2-compacted",
    "v2-zstd",
    "txn-basic",
    "txn-lat",
]
_SAMPLE = [fixture for fixture in CASES if fixture.name in _NAMES]
_EXPECTED_ERRORS = (CorruptRecordError, DataLossError, LogDirectoryError)


def hurt(data: bytes, chance: random.Random) -> bytes:
    """``data`` with damage of one of the usual kinds."""
    at, size = chance.randrange(len(data) + 1), chance.choice([1, 1, 4, 8, 40, 400])
    return chance.choice(
        [
            lambda: data[:at],
            lambda: data[:at] + chance.randbytes(size) + data[at + size :],
            lambda: data[:at] + bytes(size) + data[at + size :],
            lambda: data[:at] + data[at + size :],
            lambda: data[:at] + chance.choice([b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0"]) + data[at + 4 :],
            lambda: data[:at] + data[max(0, at - size) :],
            lambda: data + bytes(chance.choice([10, 5000])),
            lambda: chance.randbytes(size),
        ]
    )()


@pytest.mark.parametrize("fixture", _SAMPLE, ids=lambda fixture: fixture.name)
def test_hurt_files_are_read_or_refused(fixture: Case, tmp_path: Path) -> None:
    root = copy(fixture, tmp_path / "root")
    chance = random.Random(fixture.name)
    files = [file for file in sorted(root.rglob("*")) if file.is_file() and file.stat().st_size]
    for _ in range(_ROUNDS):
        chosen = {file: file.read_bytes() for file in chance.sample(files, chance.choice([1, 1, 2, 5]))}
        for file, data in chosen.items():
            file.write_bytes(hurt(data, chance))
        begun = time.monotonic()
        outcome = read_all(root, fixture, slice_bytes=chance.choice([100, 3000, 8 << 20]))
        assert outcome, [str(file.relative_to(root)) for file in chosen]
        assert time.monotonic() - begun < 20
        for file, data in chosen.items():
            file.write_bytes(data)


def read_all(root: Path, fixture: Case, *, slice_bytes: int) -> int:
    """Ask every question about every partition; returns the number of answers and refusals."""
    answers = 0
    for name in fixture.partitions:
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        for read_committed in (False, True):
            errors: list[KafkaLogError] = []
            try:
                place = LogDirectory.open(str(root), slice_bytes=slice_bytes)
                bounds = place.watermarks([partition], read_committed=read_committed)[partition]
                assert 0 <= bounds.log_start_offset <= bounds.high_watermark
                assert bounds.last_stable_offset <= bounds.high_watermark
                offsets = OffsetRange(bounds.log_start_offset, bounds.end(read_committed=read_committed))
                place.offsets_for_times({partition: 1_703_000_000_000})
                if offsets.start < offsets.end:
                    end = offset_after_bytes(place, partition, offsets, 3000)
                    assert offsets.start < end <= offsets.end
                found = offsets_read(
                    place, partition, offsets, read_committed=read_committed, on_corrupt=errors.append
                )
                assert found == sorted(set(found))
                assert all(offsets.start <= offset < offsets.end for offset in found)
            except _EXPECTED_ERRORS as e:
                errors.append(e)
            assert all(isinstance(e, LogDirectoryError) or e.topic_partition == name for e in errors)
            answers += 1
    return answers
