"""Zeros behind the last batch: of a broker that preallocates segments, and in front of other bytes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.filesystem import folder as filesystem
from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment.scan import find_behind
from pyspark_kafkalog.model import OffsetRange, Watermarks
from tests.kafka import Broker
from tests.log.partitions import T0, batch, offsets_read, write_segment
from tests.log.test_directory import bounds
from tests.log.writing import read, values, write
from tests.tools.care.test_repair import ASIDE, put_back
from tests.tools.cli.running import records, run

ROOM = 1 << 30
"""Kafka's default of ``segment.bytes``."""
END = 3 * len(batch(0))
"""Where the last batch ends."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of t-0: offsets 0 to 29, and what a broker allocates by default, as a hole."""
    path = write_segment(tmp_path / "t-0", [batch(offset) for offset in (0, 10, 20)])
    os.truncate(path, ROOM)
    return path


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads of files in log directories."""
    sizes: list[int] = []
    input_file, at = InputFile.read, os.preadv

    def counted(self: InputFile, position: int, size: int, *room: Any) -> Any:
        sizes.append(size)
        return input_file(self, position, size, *room)

    def counted_at(descriptor: int, buffers: Any, position: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return at(descriptor, buffers, position)

    monkeypatch.setattr(InputFile, "read", counted)
    monkeypatch.setattr(os, "preadv", counted_at)
    return sizes


def test_a_hole_is_not_read(log: Path, bytes_read: list[int], caplog: pytest.LogCaptureFixture) -> None:
    root = log.parent.parent
    assert bounds(root) == Watermarks(0, 30, 30)
    logs = connect(root).logs
    assert all(not partition.damages for partition in connect(root).records.verify())
    (planned,) = logs.repair().partitions
    (done,) = logs.repair(execute=True).partitions
    assert (planned.cut_bytes, done.cut_bytes, done.log_end_offset) == (0, 0, 30)
    trims = [(step.position, step.size) for step in done.steps if step.action == "trim"]
    assert trims == [(END, ROOM - END)]
    assert sum(bytes_read) < 100 << 20  # which are windows at the beginning of the file
    assert log.stat().st_size == END
    assert not (log.parent / ASIDE).exists()
    assert not caplog.records


def test_a_writer_takes_the_room(log: Path, bytes_read: list[int], caplog: pytest.LogCaptureFixture) -> None:
    assert write(log.parent.parent, {T0: values(3)}).offsets[T0] == OffsetRange(30, 33)
    assert sum(bytes_read) < 100 << 20
    assert not [record for record in caplog.records if "torn" in record.getMessage()]
    assert read(log.parent.parent)[T0][-3:] == values(3)


@pytest.mark.parametrize("behind", ["room", "torn bytes"])
def test_what_follows_the_log_end_has_no_size(behind: str, tmp_path: Path, bytes_read: list[int]) -> None:
    """Neither for retention, which would delete what is not due, nor in reports."""
    size = len(batch(0))
    for offset in (0, 10, 20):
        log = write_segment(tmp_path / "t-0", [batch(offset)])
    if behind == "room":
        os.truncate(log, ROOM)
    else:
        log.write_bytes(log.read_bytes() + b"torn" * 1000)
    kafka = connect(tmp_path)
    (partition,), segments = kafka.topics.partitions(), kafka.topics.segments()
    assert partition.stored_bytes == 3 * size
    assert [segment.stored_bytes for segment in segments] == [size] * 3
    assert LogDirectory.open(str(tmp_path)).mean_record_bytes([T0]) == {T0: size / 10}
    for kept, start in ((2 * size + 1, 0), (2 * size, 10), (0, 30)):
        (row,) = kafka.logs.retain(configs={"retention.bytes": str(kept)})
        assert (row.new_log_start_offset, row.stored_bytes) == (start, start // 10 * size)
    assert sum(bytes_read) < 100 << 20


def test_a_preallocated_log_without_batches_lost_nothing(tmp_path: Path) -> None:
    os.truncate(write_segment(tmp_path / "t-0", [], base_offset=0), ROOM)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    place = LogDirectory.open(str(tmp_path))
    assert place.stored_sizes([T0])[T0].stored_bytes == 0
    assert place.file_faults(T0) == []


def test_zeros_that_are_stored_are_read_once(
    log: Path, bytes_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on file systems without holes, and those of other machines."""
    monkeypatch.setattr(filesystem, "_SEEK_DATA", None)
    os.truncate(log, 64 << 20)
    assert bounds(log.parent.parent) == Watermarks(0, 30, 30)
    assert sum(bytes_read) < 66 << 20


@pytest.mark.parametrize("at", [END + 12, 10 << 20])
def test_other_bytes_behind_zeros_are_damage(at: int, log: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = 16 << 20
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"torn" * 100)
    os.truncate(log, size)
    before = log.read_bytes()
    root = log.parent.parent
    assert offsets_read(LogDirectory.open(str(root)), T0, OffsetRange(0, 30)) == list(range(30))
    assert bounds(root) == Watermarks(0, 30, 30)
    assert f"no whole record batch in {log} from byte {END} on" in caplog.text
    (damage,) = [damage for partition in connect(root).records.verify() for damage in partition.damages]
    assert (damage.offset, damage.position) == (30, END)
    (done,) = connect(root).logs.repair(execute=True).partitions
    assert done.cut_bytes == size - END
    assert (log.parent / ASIDE).stat().st_size < at + 1000
    put_back(log.parent)
    assert log.read_bytes() == before


def test_a_batch_behind_zeros_is_found(log: Path, bytes_read: list[int]) -> None:
    at = 600 << 20
    with log.open("r+b") as file:
        file.seek(at)
        file.write(batch(30))
    assert find_behind(str(log), END, 30) == at
    assert sum(bytes_read) < 50 << 20
    assert bounds(log.parent.parent) == Watermarks(0, 40, 40)
    with pytest.raises(CorruptRecordError, match=f"before a valid batch at byte {at}"):
        write(log.parent.parent, {T0: values(3)})


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_a_broker_that_preallocates(
    stoppable_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = stoppable_broker
    (folder,) = broker.create_topic("room", 1, {"preallocate": "true", "segment.bytes": 4 << 20})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for i in range(500):
        producer.send("room", b"%d" % i)
    producer.close()
    log = folder / f"{0:020d}.log"

    def is_sound(root: Path) -> None:
        assert run("verify", root, "room").code == 0
        assert len(records(root, "room")) == 500
        assert run("topics", root).code == 0
        assert not [record for record in caplog.records if record.name.startswith("pyspark_kafkalog")]

    assert log.stat().st_size == 4 << 20
    is_sound(broker.log_dir)
    broker.stop(kill=True)
    assert log.stat().st_size == 4 << 20
    is_sound(broker.log_dir)
    killed = tmp_path / "killed"
    shutil.copytree(folder, killed / folder.name)
    assert run("repair", killed, "--execute").code == 0
    broker.start()
    broker.stop()
    assert log.stat().st_size < 1 << 20
    is_sound(broker.log_dir)
    assert (killed / folder.name / log.name).read_bytes() == log.read_bytes()
    assert not (killed / folder.name / ASIDE).exists()
