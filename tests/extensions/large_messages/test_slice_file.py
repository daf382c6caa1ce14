"""Slices that memory has no room for go to a temporary file, and the log is read once."""

from __future__ import annotations

import logging
import os
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.slice_file import SliceFile
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from tests.codec.raw import batch, record
from tests.extensions.large_messages.interleaved import segment_values
from tests.log.partitions import T0, write_index, write_segment

MESSAGES, SIZE, SEGMENT = 40, 50_000, 5_000
VALUES = [bytes([number]) * SIZE for number in range(MESSAGES)]
CAPACITY = 10 * SIZE


@pytest.fixture
def stored(tmp_path: Path) -> int:
    """Bytes of a log of messages that are all open at once."""
    messages = [segment_values(number, value, SEGMENT) for number, value in enumerate(VALUES)]
    segments = [segment for one_of_each in zip(*messages, strict=True) for segment in one_of_each]
    batches = [batch([record(value)], base_offset=offset) for offset, value in enumerate(segments)]
    ends = [*accumulate(map(len, batches))]
    write_index(write_segment(tmp_path / "t-0", batches), [*enumerate(ends[:-1], 1)])
    return ends[-1]


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each read of the log."""
    sizes: list[int] = []
    read = InputFile.read

    def counted(self: InputFile, position: int, size: int, *room: pa.Buffer) -> pa.Buffer:
        sizes.append(size)
        return read(self, position, size, *room)

    monkeypatch.setattr(InputFile, "read", counted)
    return sizes


def values(root: Path) -> list[bytes]:
    rules = ReadRules(pa.schema([("offset", pa.int64()), ("value", pa.binary())]), False, True)
    options = LargeMessageOptions(True, settings=AssemblerSettings(buffer_capacity=CAPACITY))
    reader = WholeMessageReader(LogDirectory.open(str(root)), rules, options)
    split = Split(T0, OffsetRange(EARLIEST, LATEST))
    return [value for rows in reader.read(split) for value in rows.column("value").to_pylist()]


def test_the_log_is_read_once(tmp_path: Path, stored: int, read_bytes: list[int]) -> None:
    assert values(tmp_path) == VALUES
    print(f"{sum(read_bytes)} bytes of {stored}")
    assert sum(read_bytes) < 1.3 * stored


def test_without_a_folder_for_it_slices_are_read_again(
    tmp_path: Path,
    stored: int,
    read_bytes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    caplog.set_level(logging.WARNING, "pyspark_kafkalog")
    assert values(tmp_path) == VALUES
    assert sum(read_bytes) > 1.3 * stored
    assert [message.split(":")[0] for message in caplog.messages] == [
        "Slices of large messages are read again, as no temporary file takes them"
    ]


def test_it_is_in_sparks_folder_without_a_name_and_reuses_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    slices = [np.full(10, number, np.uint8) for number in range(3)]
    with SliceFile(25) as file:
        assert [file.put(data) for data in slices] == [0, 10, None]
        assert not os.listdir(tmp_path)
        assert taken(file, 0) == slices[0].tolist()
        assert file.put(slices[2]) == 0
        assert [taken(file, 10), taken(file, 0)] == [slices[1].tolist(), slices[2].tolist()]


def taken(file: SliceFile, position: int) -> list[int]:
    data = file.take(position, 10)
    assert data is not None
    return [*data.tolist()]
