"""A log directory in a real S3 store: the rows of a local one, in few requests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.ahead import PIECE_BYTES
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from tests.fixtures_dir import case
from tests.log.partitions import rows
from tests.log.writing import T0, write
from tests.object_store import SECRET, HttpProxy, ObjectStore, object_store
from tests.tools.cli.running import run

pytestmark = [pytest.mark.slow, pytest.mark.soak]  # the server is compiled first

LIKE_LOCAL = (
    "v0-gzip",
    "v1v2-upgraded",
    "txn-basic",
    "v2-compacted",
    "v2-deleterecords",
    "v2-large",
    "bad-cut-mid-batch",
    "bad-flipped-byte",
    "bad-index-cut",
    "hurt-cut-txn-marker",
)
OF_LOOKING_UP = 30
"""Requests for the listing, checkpoints and bounds of a directory, and for where a read begins."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


def large_log(root: Path, mebibytes: int, **settings: int) -> int:
    """A partition t-0 of incompressible values; its bytes."""
    root.mkdir()
    numbered = [os.urandom(10_232) for _ in range(1024)]
    for i in range(mebibytes // 10):
        write(root, {T0: numbered}, timestamp=1_700_000_000_000 + i, num_partitions=1, **settings)
    return sum(path.stat().st_size for path in root.glob("t-0/*.log"))


def read_bytes(uri: str) -> int:
    place = LogDirectory.open(uri)
    bounds = place.watermarks([T0], read_committed=False)[T0]
    offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    return sum(piece.buffer.size for piece in place.fetch(Fetch(T0, offsets)))


def check_requests(store: ObjectStore, root: Path, size: int, most: float) -> None:
    shutil.copytree(root, store.bucket / root.name, copy_function=os.link)
    with HttpProxy(store.address) as proxy:
        assert read_bytes(store.uri(root.name, proxy.address)) == size
        needed = -(-size // PIECE_BYTES)
        print(f"{proxy.total} requests, {needed} needed: {dict(proxy.requests)}")
        assert proxy.total <= most


def test_a_partition_takes_a_request_a_piece(store: ObjectStore, tmp_path: Path) -> None:
    size = large_log(tmp_path / "large", 60)
    check_requests(store, tmp_path / "large", size, -(-size // PIECE_BYTES) + OF_LOOKING_UP)


def test_a_gigabyte_takes_at_most_half_more_requests_than_its_bytes_need(
    store: ObjectStore, tmp_path: Path
) -> None:
    size = large_log(tmp_path / "gigabyte", 1000)
    assert size > 1e9
    check_requests(store, tmp_path / "gigabyte", size, 1.5 * 120)


@pytest.mark.parametrize("name", LIKE_LOCAL)
def test_it_gives_what_a_local_directory_gives(store: ObjectStore, name: str) -> None:
    fixture = case(name)
    store.put(fixture.directory, fixture.name)
    local, remote = LogDirectory.open(str(fixture.directory)), LogDirectory.open(store.uri(fixture.name))
    assert remote.topics() == local.topics()
    partitions = [TopicPartition(t, number) for t, numbers in local.topics().items() for number in numbers]
    for committed in (False, True):
        bounds = local.watermarks(partitions, read_committed=committed)
        assert remote.watermarks(partitions, read_committed=committed) == bounds
        for partition, bound in bounds.items():
            offsets = OffsetRange(bound.log_start_offset, bound.end(read_committed=committed))
            found, expected = (
                rows(place, partition, offsets, read_committed=committed, on_corrupt=lambda error: None)
                for place in (remote, local)
            )
            assert found == expected
    ours, theirs = run("verify", store.uri(name), "--json"), run("verify", fixture.directory, "--json")
    assert (ours.code, ours.json["damages"]) == (theirs.code, theirs.json["damages"])


def test_the_tail_of_a_large_log_takes_few_requests(store: ObjectStore, tmp_path: Path) -> None:
    large_log(tmp_path / "tailed", 40, segment_bytes=25 << 20)
    store.put(tmp_path / "tailed", "tailed")
    expected = run("cat", tmp_path / "tailed", "t", "--tail", "3", "--json")
    with HttpProxy(store.address) as proxy:
        done = run("cat", store.uri("tailed", proxy.address), "t", "--tail", "3", "--json")
        assert (done.code, done.out) == (0, expected.out)
        assert len(done.out.splitlines()) == 3
        print(dict(proxy.requests))
        assert proxy.total <= 2 * OF_LOOKING_UP


def test_spark_reads_it(spark: SparkSession, store: ObjectStore, tmp_path: Path) -> None:
    large_log(tmp_path / "spark", 30, segment_bytes=12 << 20)
    store.put(tmp_path / "spark", "spark")
    summed = ("count(*) AS rows", "sum(crc32(value)) AS crcs", "max(offset) AS last")
    local, remote = (
        spark.read.format("kafkalog").option("minPartitions", 3).load(path).selectExpr(*summed).first()
        for path in (str(tmp_path / "spark"), store.uri("spark"))
    )
    assert remote == local
    assert remote is not None
    assert remote.rows == 3 * 1024


def test_a_missing_folder_is_told_without_the_secret(store: ObjectStore) -> None:
    with pytest.raises(LogDirectoryError) as missing:
        LogDirectory.open(store.uri("nothing"))
    assert "nothing" in str(missing.value)
    assert SECRET not in str(missing.value)
