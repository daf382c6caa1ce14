"""What waits in a task or a planner is bounded by its bytes in memory, however few of them are stored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from tests.extensions.large_messages.interleaved import segment_values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")

MIB = 1 << 20
SHAPES = {"small": (4000, 10_000), "wide": (2000, 50_000), "wider": (600, 200_000)}
"""Records of a topic-partition and bytes of each: 40, 100 and 120 MB, of which some kB are stored."""
MESSAGES, MESSAGE_BYTES, FIRST_BYTES = 60, 2_000_000, 1_990_000
"""Large messages of two segments, all of whose second ones follow all first ones."""
ZSTD = {"compression.type": "zstd"}
ONE_ROW = {"small": [{"0": 0, "1": 0}, {"0": 1, "1": 0}]}

Ranges = dict[str, list[dict[str, int]]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("memory") / "log")
    kafka = connect(path)
    for topic, (count, size) in SHAPES.items():
        kafka.write(_alike(count, size), topic, options={**ZSTD, "numPartitions": "2"})
    messages = [segment_values(number, bytes(MESSAGE_BYTES), FIRST_BYTES) for number in range(MESSAGES)]
    for part in zip(*messages, strict=True):
        kafka.write(pa.table({"value": pa.array(part, pa.binary())}), "large", options=ZSTD)
    return path


def _alike(count: int, size: int) -> Iterator[pa.RecordBatch]:
    for number in range(2):
        for _ in range(0, count, 100):
            values = pa.array([bytes(size)] * 100, pa.binary())
            yield pa.record_batch({"value": values, "partition": pa.array([number] * 100, pa.int32())})


def all_of(partitions: int) -> Ranges:
    """All records of so many topic-partitions of each shape."""
    nothing = {"0": 0, "1": 0}
    return {
        topic: [nothing, nothing | {str(number): count for number in range(partitions)}]
        for topic, (count, _) in SHAPES.items()
    }


class Read(NamedTuple):
    rows: int
    largest: int
    """Bytes of the largest arrow batch."""
    peak: int
    """The most bytes of memory that the process had."""


def read(how: str, path: str, ranges: Ranges, **options: str) -> Read:
    """In a process of its own, with a limit on its addresses."""
    given = json.dumps({"path": path, **options}), json.dumps(ranges)
    command = [sys.executable, "-m", "tests.spark.peak_of_read", how, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
    return Read(**json.loads(done.stdout))


@pytest.fixture(scope="module")
def least(path: str) -> int:
    """What a process takes that reads one record."""
    return read("tasks", path, ONE_ROW).peak


@pytest.mark.long
@pytest.mark.parametrize(("partitions", "options"), [(1, {}), (2, {}), (2, {"maxPartitions": "1"})])
def test_a_task(path: str, least: int, partitions: int, options: dict[str, str]) -> None:
    """The rows of two small topic-partitions are joined."""
    found = read("tasks", path, all_of(partitions), **options)
    assert found.rows == partitions * sum(count for count, _ in SHAPES.values())
    assert found.largest <= 17 * MIB
    assert found.peak <= least + 128 * MIB


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_planner_of_a_stream(path: str, least: int, partitions: int) -> None:
    assert read("plan", path, all_of(partitions)).peak <= least + 32 * MIB


def test_the_last_record(path: str, least: int) -> None:
    """It is looked for among the last 1,000 of each topic-partition."""
    assert read("tail", path, all_of(2)).peak <= least + 128 * MIB


def test_whole_messages(path: str) -> None:
    """A few bytes complete all of them at once."""
    ranges = {"large": [{"0": 0}, {"0": 2 * MESSAGES}]}
    found = read("tasks", path, ranges, **{"large.message.enabled": "true"})
    assert found.rows == MESSAGES
    assert found.largest <= 33 * MIB


def test_whole_messages_in_the_planner_of_a_stream(path: str, least: int) -> None:
    ranges = {"large": [{"0": MESSAGES}, {"0": 2 * MESSAGES}]}
    assert read("plan", path, ranges, **{"large.message.enabled": "true"}).peak <= least + 32 * MIB
