"""One bit flips in a file of a log: verify names what a repair would mend, and what misleads a broker."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import connect
from pyspark_kafkalog.codec.format import TRANSACTIONAL_BIT
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    OFFSET_CHECKPOINTS,
    parse_leader_epoch_checkpoint,
    parse_partition_metadata,
)
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment import beside
from pyspark_kafkalog.log.segment.index import TXN_ENTRY
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.care.verify import verify
from tests.codec.raw import marker, values
from tests.kafka import Broker
from tests.tools.backup.histories import T0, make_log_of

FLIPS = 12
"""In each file, at most."""


def batches() -> Iterator[bytes]:
    """Transactions of three producers that overlap, each second one aborted; six leader epochs."""
    offset = 0
    for turn in range(60):
        producer, epoch = turn % 3, turn // 10
        data = bytearray(values(2, base_offset=offset, attributes=TRANSACTIONAL_BIT, producer_id=producer))
        data[12:16] = epoch.to_bytes(4, "big")
        yield bytes(data)
        offset += 2
        if turn % 3 == 2:
            for ended in range(3):
                end = bytearray(marker(ended, commit=(turn + ended) % 2 == 0, offset=offset))
                end[12:16] = epoch.to_bytes(4, "big")
                yield bytes(end)
                offset += 1


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("flips") / "root"
    make_log_of(found, [*batches()])
    (found / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":-1}')
    return found


def named(root: Path) -> set[str]:
    """The files that verify names."""
    (found,) = verify(LogDirectory.open(str(root)), [T0])
    return {Path(damage.file or "").name for damage in found.damages}


def to_mend(root: Path) -> set[str]:
    """The files that a repair would mend, or can't."""
    (found,) = connect(root).logs.repair().partitions
    return {Path(step.file).name for step in found.steps}


def misleads(name: str, before: bytes, after: bytes) -> bool:
    """Whether a broker that starts on it dies, forgets producers, or tells consumers something else."""
    if name.endswith(".snapshot"):
        return True
    if name.endswith(".txnindex"):
        old, new = (np.frombuffer(data, TXN_ENTRY) for data in (before, after))
        lower = (new["last_stable_offset"] < old["last_stable_offset"]) & (new["last_stable_offset"] >= 0)
        others = [name for name in TXN_ENTRY.names or () if name != "last_stable_offset"]
        # It stops its search behind that offset: a lower one costs time.
        return not ((old[others] == new[others]).all() and lower.any())
    if name == "leader-epoch-checkpoint":
        old, new = (_reads(parse_leader_epoch_checkpoint, data) for data in (before, after))
        if new is None:
            return True
        # Where the first one begins tells no consumer anything.
        return (old[0][0], old[1:]) != (new[0][0], new[1:])
    if name == "partition.metadata":
        return _reads(parse_partition_metadata, after) is None
    return False


def _reads(parse: Callable[[bytes, str], Any], data: bytes) -> Any:
    try:
        return parse(data, "")
    except LogDirectoryError:
        return None


@pytest.mark.long
def test_each_flip_that_misleads_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "WRITING", 0)
    assert named(root) == to_mend(root) == set()
    chance = random.Random(1)
    kinds = set()
    for file in sorted((root / "t-0").iterdir()):
        if file.suffix == ".log" or not file.stat().st_size:
            continue
        kinds.add(file.suffix or file.name)
        before = file.read_bytes()
        at = range(8 * len(before))
        for bit in chance.sample(at, min(FLIPS if file.suffix in ("", ".metadata") else 3, len(at))):
            after = bytearray(before)
            after[bit // 8] ^= 1 << bit % 8
            file.write_bytes(after)
            found, mended = named(root), to_mend(root)
            assert found - {file.name} == set(), (file.name, bit)
            # A repair writes both indexes if one of them is at fault.
            of_both = {file.with_suffix(suffix).name for suffix in (".index", ".timeindex")}
            assert mended - (of_both if file.name in of_both else set()) <= found, (file.name, bit)
            if misleads(file.name, before, bytes(after)):
                assert found == {file.name}, (file.name, bit)
            assert found <= mended, (file.name, bit)
        file.write_bytes(before)
    assert {".index", ".timeindex", ".txnindex", ".snapshot", ".metadata"} < kinds
    assert "leader-epoch-checkpoint" in kinds


def test_a_segment_that_begins_inside_the_one_before(root: Path, tmp_path: Path) -> None:
    """As where a log was taken to end earlier than it did."""
    make_log_of(tmp_path / "root", [*batches()][:6])
    last = max((tmp_path / "root" / "t-0").glob("*.log"))
    last.with_name(f"{int(last.stem) + 1:020d}.log").write_bytes(b"")
    damages = next(verify(LogDirectory.open(str(tmp_path / "root")), [T0])).damages
    assert [damage for damage in damages if "The segment begins before offset" in damage.message]


def test_an_epoch_of_a_batch_that_the_checkpoint_does_not_know(root: Path, tmp_path: Path) -> None:
    make_log_of(tmp_path / "root", [*batches()])
    log = min((tmp_path / "root" / "t-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[15] ^= 64
    log.write_bytes(data)
    assert named(tmp_path / "root") == {"leader-epoch-checkpoint"}


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_a_checkpoint_of_the_directory(name: str, tmp_path: Path) -> None:
    make_log_of(tmp_path / "root", [*batches()][:3])
    (tmp_path / "root" / name).write_text("0\n1\nt 0 x\n")
    assert named(tmp_path / "root") == {name}


def test_what_a_broker_would_delete(tmp_path: Path) -> None:
    make_log_of(tmp_path / "root", [*batches()][:3])
    assert named(tmp_path / "root") == set()
    (tmp_path / "root" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 70\n")
    assert "t-0" in named(tmp_path / "root")


def test_partitions_of_one_topic_with_two_ids(tmp_path: Path) -> None:
    other = TopicPartition("t", 1)
    make_log_of(tmp_path / "root", [])
    make_log_of(tmp_path / "root", [], partition=other, topic_id="AAAAAAAAAAAAAAAAAAAAAw")
    found = verify(LogDirectory.open(str(tmp_path / "root")), [T0, other])
    assert [[Path(damage.file or "").name for damage in row.damages] for row in found] == [
        [],
        ["partition.metadata"],
    ]


@pytest.mark.broker
def test_nothing_is_wrong_beside_a_broker_at_work(broker: Broker) -> None:
    """Segments roll, transactions abort, old segments and records are deleted, and verify looks."""
    topic = f"busy-{uuid.uuid4().hex}"
    broker.create_topic(topic, 1, {"segment.ms": 300, "retention.bytes": 20_000, "file.delete.delay.ms": 100})
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0}
    producer, stop = Producer(settings), threading.Event()
    producer.init_transactions(30)

    def work() -> None:
        for turn in itertools.count():
            producer.begin_transaction()
            for _ in range(20):
                producer.produce(topic, b"v" * 20)
            producer.abort_transaction() if turn % 2 else producer.commit_transaction()
            if turn % 50 == 49:
                broker.delete_records(topic, 10 * turn, 0)
            if stop.is_set():
                return

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            looks = 0
            bases = set()
            while looks < 12 or len(bases) < 8:
                (found,) = verify(LogDirectory.open(str(broker.log_dir)), [TopicPartition(topic, 0)])
                assert not found.damages
                assert not working.done()
                bases |= {file.name for file in broker.partition_folder(topic, 0).glob("*.log")}
                looks += 1
        finally:
            stop.set()
        working.result(60)
