"""What tasks stage, without a place: in files or in messages, and whatever becomes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.format import CRC_V2
from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.filesystem.private import NewFile
from pyspark_kafkalog.log.publish.staged_files import KnownTopics
from pyspark_kafkalog.model import Encoded, EncodeSettings, TopicPartition
from pyspark_kafkalog.staging import ChangedError, Inline, Staged, Staging, read_staged
from tests.codec.strategies import Row, arrow_batch

PARTITIONS = TopicPartition("t", 0), TopicPartition("u", 7)
TOPICS = KnownTopics(lambda _: (), 1, EncodeSettings())


@contextmanager
def errors() -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise TransactionError(str(e)) from None


def encoded(size: int) -> Encoded:
    rows, settings = arrow_batch([Row(None, b"v" * size, None, 1)]), EncodeSettings(max_message_bytes=1 << 30)
    return encode(rows, None, settings, topic_partition=PARTITIONS[0])


def stage(folder: Path, sizes: list[int], inline_bytes: int = 0) -> Staged:
    place = locate(str(folder))
    with Staging(TOPICS, "name", lambda: NewFile(place, "name"), errors, inline_bytes=inline_bytes) as sink:
        for number, size in enumerate(sizes):
            sink.append(PARTITIONS[number % 2], encoded(size))
        return sink.finish()


def found(folder: Path, staged: Staged) -> list[tuple[TopicPartition, bytes]]:
    if staged.name is None:
        return sections_of(staged, Inline(staged))
    with locate(str(folder)).open(staged.name) as file:
        return sections_of(staged, file)


def sections_of(staged: Staged, source: object) -> list[tuple[TopicPartition, bytes]]:
    rows = []
    for sections, data in read_staged(staged, source):  # type: ignore[arg-type]
        for section in sections:
            position = section.position - sections[0].position
            rows.append((section.topic_partition, data[position : position + section.size].tobytes()))
    return rows


@pytest.mark.parametrize("inline_bytes", [0, 1000, 10_000_000])
@pytest.mark.parametrize("sizes", [[], [10], [10, 20, 30], [10, 3_000_000, 20, 700_000, 400_000, 5]])
def test_what_comes_back(tmp_path: Path, sizes: list[int], inline_bytes: int) -> None:
    staged = stage(tmp_path, sizes, inline_bytes)
    size = sum(encoded(each).data.size for each in sizes)
    is_inline = size <= inline_bytes or not sizes
    assert (staged.name is None) == is_inline == (not [*tmp_path.iterdir()])
    assert len(staged.data) == (size if is_inline else 0)
    assert (staged.size, staged.records) == (size, len(sizes))
    assert staged.partitions == {PARTITIONS[number % 2] for number in range(len(sizes))}
    assert found(tmp_path, staged) == [
        (PARTITIONS[number % 2], encoded(each).data.tobytes()) for number, each in enumerate(sizes)
    ]


@pytest.mark.parametrize("inline_bytes", [0, 10_000_000])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"",
        lambda data: b"\1" + data[1:],
        lambda data: data[:-1] + b"\1",
    ],
    ids=["cut", "longer", "emptied", "first byte", "last byte"],
)
def test_what_changes_is_noticed(tmp_path: Path, change: Callable[[bytes], bytes], inline_bytes: int) -> None:
    staged = stage(tmp_path, [10, 5_000_000, 20], inline_bytes)
    if staged.name is None:
        staged = replace(staged, data=change(staged.data))
    else:
        path = tmp_path / staged.name
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ChangedError):
        found(tmp_path, staged)


def test_a_file_that_gets_shorter_while_it_is_read(tmp_path: Path) -> None:
    staged = stage(tmp_path, [5_000_000, 5_000_000])
    assert staged.name is not None
    with locate(str(tmp_path)).open(staged.name) as file:
        rows = read_staged(staged, file)
        next(rows)
        os.truncate(tmp_path / staged.name, 5_000_000)
        with pytest.raises(ChangedError):
            next(rows)


def test_a_task_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = locate(str(tmp_path))

    def attempt(fails: bool, finishes: bool) -> None:
        with Staging(TOPICS, "name", lambda: NewFile(place, "name"), errors) as sink:
            sink.append(PARTITIONS[0], encoded(10))
            assert [path.name for path in tmp_path.iterdir()] == ["name"]
            if finishes:
                sink.finish()
            if fails:
                raise RuntimeError

    for fails, finishes in ((True, True), (True, False), (False, False)):
        with suppress(RuntimeError):
            attempt(fails, finishes)
        assert not [*tmp_path.iterdir()]
    monkeypatch.setattr(NewFile, "write", lambda *_: os.read(-1, 1))
    with pytest.raises(TransactionError, match="Bad file descriptor"):
        stage(tmp_path, [10])
    assert not [*tmp_path.iterdir()]


def test_batches_that_the_commit_changes_get_their_checksums_there() -> None:
    rows = arrow_batch([Row(None, b"v", None, 1)])
    whole = encode(rows, None, EncodeSettings(), topic_partition=PARTITIONS[0]).data
    without = encode(rows, None, EncodeSettings(checksums=False), topic_partition=PARTITIONS[0]).data
    crc = range(CRC_V2, CRC_V2 + 4)
    assert not without[crc].any()
    assert np.array_equal(np.delete(whole, crc), np.delete(without, crc))
