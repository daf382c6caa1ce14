"""Offsets, positions and times that no int32 holds, in every writer and tool."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import BackupRules, RestoreSettings, connect
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment.recovery import open_active_segment
from pyspark_kafkalog.model import CommittedOffset, LogSettings, OffsetRange, TopicPartition
from tests.codec.raw import batch, marker, record
from tests.kafka import Broker
from tests.log.partitions import (
    T0,
    offset_after_bytes,
    offsets_read,
    write_index,
    write_segment,
    write_time_index,
)
from tests.log.writing import values, write
from tests.tools.backup.consuming import consume
from tests.tools.backup.histories import SMALL, TOPIC_ID, make_log, make_log_of, visible
from tests.tools.cli.running import lines, records

BASES = (2**31 - 2, 3 * 10**9, 2**62)
TIMES = {"now": 1_700_000_000_000, "year 294246": 9_223_372_036_854_775, "the last": 2**63 - 1}
COUNT = 30
PRODUCER = 7


def keyed(base_offset: int, timestamp: int, *, producer_id: int = -1) -> bytes:
    """Five records of keys that come again, all with this timestamp."""
    made = [record(b"%d" % (base_offset + i), key=b"k%d" % i, delta=i) for i in range(5)]
    of_transaction = {"attributes": 0x10, "producer_id": producer_id} if producer_id >= 0 else {}
    times = {"base_timestamp": timestamp, "max_timestamp": timestamp}
    return batch(made, base_offset=base_offset, **times, **of_transaction)


def far_log(root: Path, base: int, timestamp: int, topic: str = "t") -> None:
    """COUNT offsets from ``base`` on, in several segments; an aborted transaction is among them."""
    batches = [keyed(base, timestamp), keyed(base + 5, timestamp, producer_id=PRODUCER)]
    batches += [marker(PRODUCER, commit=False, offset=base + 10), keyed(base + 11, timestamp)]
    batches += [keyed(offset, timestamp) for offset in range(base + 16, base + 26, 5)]
    last = [record(b"last", key=b"k", delta=i) for i in range(4)]
    batches += [batch(last, base_offset=base + 26)]
    settings = LogSettings(segment_bytes=400, index_interval_bytes=100)
    make_log_of(root, batches, start=base, partition=TopicPartition(topic, 0), settings=settings)


def shown(base: int, count: int = COUNT) -> list[int]:
    """What read_committed shows of it."""
    return [*range(base, base + 5), *range(base + 11, base + count)]


@pytest.mark.parametrize(
    ("base", "timestamp"),
    [
        pytest.param(base, TIMES[name], id=f"{base}-{name}", marks=[] if i == j else pytest.mark.soak)
        for i, base in enumerate(BASES)
        for j, name in enumerate(TIMES)
    ],
)
def test_writers_and_tools(base: int, timestamp: int, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    far_log(root, base, timestamp)
    lines("repair", root, "--execute")  # closes the indexes
    assert visible(root) == shown(base)

    copy = tmp_path / "copy"
    lines("copy", root, copy)
    for added in (2, 4):
        write(root, {T0: values(2)}, segment_bytes=400)
        assert visible(root) == shown(base, COUNT + added)
        lines("copy", root, copy)
        assert visible(copy) == visible(root)
    end = base + COUNT + 4

    assert [row["offset"] for row in records(root, "t", "--offset", str(end - 3))] == [*range(end - 3, end)]
    assert str(base + 5) in "".join(lines("dump", root, "t:0", "--records"))
    place = LogDirectory.open(str(root))
    assert place.offsets_for_times({T0: timestamp})[T0] == base
    assert place.newest_timestamps([T0]) == {T0: max(timestamp, 1_700_000_000_999)}
    assert offset_after_bytes(place, T0, OffsetRange(base, end), 500) > base
    groups = DirectoryGroups.open(str(root), num_partitions=1)
    groups.commit("readers", {T0: CommittedOffset(base + 7)})
    assert str(base + 7) in "".join(lines("offsets", "list", root, "--group", "readers"))
    assert connect(root).groups.lags()[0].lag == COUNT + 4 - 7
    lines("topics", "list", root)

    kept = tmp_path / "kept"
    shutil.copytree(root, kept)
    lines("verify", root)
    lines("compact", kept, "t", "--any-policy", "--execute", "--set", "min.cleanable.dirty.ratio=0")
    lines("verify", kept)
    write(kept, {T0: values(2)})
    lines("delete-records", root, f"t:0={base + 16}", "--execute")
    assert visible(root) == [*range(base + 16, end)]
    lines("retain", root, "--set", "retention.bytes=300", "--set", "cleanup.policy=delete", "--execute")
    write(root, {T0: values(2)})
    assert visible(root)[-1] == end + 1
    for folder in (root, kept, copy):
        lines("verify", folder)

    log_dir = tmp_path / "broker"
    make_log(log_dir, [], topic_id=TOPIC_ID)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    lines("adopt", copy, log_dir, "--no-groups", "--execute")
    assert visible(log_dir) == shown(base, COUNT + 4)


def test_positions_near_the_end_of_the_largest_segment(tmp_path: Path) -> None:
    """Two batches of a gigabyte, which are holes, and a last one that ends where no position is left."""
    base, last = 3 * 10**9, keyed(3 * 10**9 + 2, TIMES["now"])
    room = 2**31 - 1 - len(last)
    sizes = room // 2, room - room // 2
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = folder / f"{base:020d}.log"
    with log.open("wb") as file:
        at = 0
        for number, size in enumerate(sizes):
            header = bytearray(batch([record(b"")], base_offset=base + number)[:61])
            header[8:12] = struct.pack(">i", size - 12)
            file.seek(at)
            file.write(header)
            at += size
        file.seek(at)
        file.write(last)
    write_index(log, [(1, sizes[0]), (6, room)])
    write_time_index(log, [(TIMES["now"] + 999, 1)])
    opened = open_active_segment(str(folder), T0, SMALL.index_interval_bytes)
    assert opened is not None
    assert opened.next_offset == base + 7
    write(tmp_path, {T0: values(2)}, segment_bytes=2**31 - 1)
    write(tmp_path, {T0: values(2)}, segment_bytes=2**31 - 1)
    assert sorted(path.name for path in folder.glob("*.log")) == [log.name, f"{base + 7:020d}.log"]
    place = LogDirectory.open(str(tmp_path))
    assert offsets_read(place, T0, OffsetRange(base + 6, base + 11)) == [*range(base + 6, base + 11)]


def test_times_that_span_all_that_there_are(tmp_path: Path) -> None:
    """In one segment, whose indexes are to be rebuilt: no record is cut off or written over."""
    batches = [keyed(5 * i, timestamp) for i, timestamp in enumerate((0, 2**63 - 1, -(2**63), TIMES["now"]))]
    write_segment(tmp_path / "t-0", batches)
    shutil.copytree(tmp_path, tmp_path / "repaired")
    lines("repair", tmp_path / "repaired", "--execute")
    write(tmp_path, {T0: values(2)})
    write(tmp_path, {T0: values(2)})
    assert visible(tmp_path) == [*range(24)]
    write(tmp_path / "repaired", {T0: values(2)})
    assert visible(tmp_path / "repaired") == [*range(22)]
    for folder in (tmp_path, tmp_path / "repaired"):
        lines("verify", folder)


@pytest.mark.long
@pytest.mark.broker
def test_a_broker(stoppable_broker: Broker, tmp_path: Path) -> None:
    """Copied from it twice with rows between, and restored into it."""
    broker = stoppable_broker
    topics = {f"far-{i}-{tmp_path.name}": base for i, base in enumerate(BASES)}
    for topic, base in topics.items():
        broker.create_topic(topic)
        far_log(tmp_path / "logs", base, TIMES["now"], topic)
    lines("copy", tmp_path / "logs", tmp_path / "first")
    broker.stop()
    lines("adopt", tmp_path / "first", broker.log_dir, "--no-groups", "--execute")
    broker.start()
    rules = BackupRules(topics=tuple(topics), groups=())
    backup = tmp_path / "backup"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for added in (0, 2, 4):
        if added:
            for topic in topics:
                producer.produce(topic, b"more")
                producer.produce(topic, b"more")
            assert producer.flush(30) == 0
        rows = connect(broker.bootstrap).logs.backup(str(backup), rules)
        assert not [row for row in rows if row.problem]
        for topic, base in topics.items():
            assert visible(backup, TopicPartition(topic, 0)) == shown(base, COUNT + added)
            assert [*consume(broker.bootstrap, topic, [0])[0]] == shown(base, COUNT + added)
    lines("verify", backup)
    rename = {topic: f"restored-{topic}" for topic in topics}
    settings = RestoreSettings(tuple(topics), rename, state=str(tmp_path / "state"))
    connect(backup).logs.restore(connect(broker.bootstrap), settings, execute=True)
    for topic, base in topics.items():
        restored = consume(broker.bootstrap, rename[topic], [0])[0]
        assert len(restored) == len(shown(base, COUNT + 4))


def test_an_overflow_is_an_error_in_other_processes_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import numpy; numpy.int32(2**31 - 1) + numpy.int32(1)"],
        capture_output=True,
        text=True,
    )
    assert "RuntimeWarning: overflow encountered in scalar add" in done.stderr
    assert done.returncode == 1
