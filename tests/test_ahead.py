"""Files of object stores are read in large pieces, ahead of the reader, and give the bytes that are there."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyspark_kafkalog.filesystem.ahead import PIECE_BYTES, PieceReader

SIZE = 5 * PIECE_BYTES + 12_345
DATA = random.Random(1).randbytes(SIZE)


class File:
    """Keeps what was requested of it: positions and sizes."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []
        self.gate = threading.Semaphore(1000)

    def read_at(self, size: int, position: int) -> bytes:
        self.requests.append((position, size))
        with self.gate:
            return self.data[position : position + size]


@contextmanager
def reading(file: File, size: int | None = None) -> Iterator[PieceReader]:
    reader = PieceReader(file.read_at, len(file.data) if size is None else size)
    try:
        yield reader
    finally:
        reader.close()


@pytest.mark.parametrize("step", [PIECE_BYTES, PIECE_BYTES - 777, 1 << 20, 3 * PIECE_BYTES])
def test_what_is_read_to_its_end_takes_a_request_a_piece(step: int) -> None:
    file = File()
    with reading(file) as reader:
        reader.expect(SIZE)
        position = 100
        while position < SIZE:
            size = reader.read(position, step).size
            assert reader.read(position, step).to_pybytes() == DATA[position : position + step]
            position += size
    assert len(file.requests) == -(-(SIZE - 100) // PIECE_BYTES)
    assert sum(size for _, size in file.requests) == SIZE - 100


def test_pieces_are_requested_before_they_are_read() -> None:
    file = File()
    with reading(file) as reader:
        reader.expect(3 * PIECE_BYTES)
        reader.read(0, 1000)
        deadline = time.monotonic() + 60
        while len(file.requests) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert sorted(position for position, _ in file.requests) == [0, PIECE_BYTES, 2 * PIECE_BYTES]


def test_a_small_file_is_read_at_once() -> None:
    file = File(DATA[:3_000_000])
    with reading(file) as reader:
        for position in (2_000_000, 0, 1_000_000):
            assert reader.read(position, 4096).to_pybytes() == DATA[position : position + 4096]
    assert file.requests == [(0, 3_000_000)]


def test_scanning_takes_larger_and_larger_pieces() -> None:
    file = File()
    with reading(file) as reader:
        for position in range(0, SIZE, 1 << 16):
            assert reader.read(position, 1 << 16).to_pybytes() == DATA[position : position + (1 << 16)]
    assert len(file.requests) == 5 + 5


def test_any_reads_give_the_bytes_that_are_there() -> None:
    rng = random.Random(2)
    for _ in range(20):
        file = File()
        with reading(file) as reader:
            for _ in range(30):
                if rng.random() < 0.3:
                    reader.expect(rng.choice([0, rng.randrange(SIZE), 2 * SIZE]))
                position, size = rng.randrange(SIZE), rng.choice([1, 5000, 1 << 20, 2 * PIECE_BYTES])
                assert reader.read(position, size).to_pybytes() == DATA[position : position + size]
            assert len(reader._pieces) <= 20


def test_a_file_that_has_become_shorter() -> None:
    file = File(DATA[: PIECE_BYTES + 10])
    with reading(file, SIZE) as reader:
        reader.expect(SIZE)
        assert reader.read(PIECE_BYTES - 10, 1000).to_pybytes() == DATA[PIECE_BYTES - 10 : PIECE_BYTES + 10]
        assert reader.read(PIECE_BYTES + 10, 1000).size == 0


def test_an_error_reaches_whoever_reads_the_piece() -> None:
    file = File()

    def fail(size: int, position: int) -> bytes:
        if position:
            raise OSError(5, "Input/output error")
        return file.read_at(size, position)

    reader = PieceReader(fail, SIZE)
    reader.expect(SIZE)
    assert reader.read(0, 10).to_pybytes() == DATA[:10]
    with pytest.raises(OSError, match="Input/output"):
        reader.read(PIECE_BYTES, 10)
    reader.close()
