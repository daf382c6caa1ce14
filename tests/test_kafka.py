"""The tools that other tests trust: a broker's own files pass, and files with a fault do not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.kafka import Broker, dump_log_segments

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def segment(broker: Broker) -> Path:
    """The ``.log`` of a topic with one record batch after the other and many index entries."""
    (folder,) = broker.create_topic("dumped", configs={"index.interval.bytes": 100})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(60):
        producer.send("dumped", b"%d" % number * 50)
        producer.flush()
    producer.close()
    return folder / "00000000000000000000.log"


def copy(segment: Path, folder: Path) -> tuple[Path, Path]:
    log, index = (Path(shutil.copy(segment.with_suffix(suffix), folder)) for suffix in (".log", ".index"))
    return log, index


def without_second_batch(data: bytes) -> bytes:
    size = 12 + int.from_bytes(data[8:12], "big")
    return data[:size] + data[2 * size :]


def test_the_brokers_own_files_pass(segment: Path, tmp_path: Path) -> None:
    log, index = copy(segment, tmp_path)
    assert dump_log_segments(log, index).count("isvalid: true") == 60


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".log", lambda data: data[:-40] + b"!" + data[-39:]),
        (".log", lambda data: data[:-40]),
        (".log", without_second_batch),
        (".index", lambda data: data[:7] + bytes([data[7] ^ 1]) + data[8:]),
    ],
    ids=["a flipped byte", "a cut", "a gap", "a wrong position"],
)
def test_a_fault_is_told(
    segment: Path, tmp_path: Path, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    log, _ = copy(segment, tmp_path)
    file = log.with_suffix(suffix)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(AssertionError):
        dump_log_segments(file)
