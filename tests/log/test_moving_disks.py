"""A broker moves partitions between its disks while a reader of all of them looks: nothing is lost."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import BackupRules, NewTopic, connect
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import DataLossError, LogDirectoryError, UnknownTopicOrPartitionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.read import directory
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from tests.kafka import Broker
from tests.kafka_disks import add_disk, move
from tests.log.partitions import T0, batch, control_batch, data_batch, offsets_read, write_segment
from tests.sleeping import replace_sleep

ALL = OffsetRange(0, 40)
IDS = {"with topic id": "AAAAAAAAAAAAAAAAAAAAAQ", "without": None}


@pytest.fixture(params=IDS.values(), ids=IDS)
def disks(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """The partition on the first one, whole on the second one as the copy that will replace it."""
    old, new = tmp_path / "a", tmp_path / "b"
    for start in range(0, 40, 5):
        write_segment(old / "t-0", [batch(start, 5)])
    if request.param:
        (old / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {request.param}\n")
    write_segment(new / "u-0", [batch(0)])
    shutil.copytree(old / "t-0", new / "t-0.0123456789abcdef0123456789abcdef-future")
    return old, new


def appears(root: Path) -> None:
    """The first rename of the broker (LogManager.replaceCurrentWithFutureLog)."""
    next(root.glob("t-0.*-future")).rename(root / "t-0")


def goes(root: Path) -> None:
    """The second one."""
    (root / "t-0").rename(root / f"t-0.{uuid.uuid4().hex}-delete")


class Watched(LogRoot):
    """A log root; something happens before each look for partitions."""

    happening: Callable[[], None]

    def find_live(self, partition: TopicPartition) -> Folder | None:
        self.happening()
        return super().find_live(partition)

    def partitions(self) -> set[TopicPartition]:
        self.happening()
        return super().partitions()


def opened(roots: tuple[Path, ...], happening: Callable[[], None]) -> LogDirectory:
    watched = []
    for root in roots:
        watched.append(Watched(open_root(str(root)).folder))
        watched[-1].happening = happening
    return LogDirectory(watched, slice_bytes=200)


@pytest.mark.parametrize("is_first", [True, False], ids=["to a later root", "to an earlier root"])
def test_every_look_finds_it(disks: tuple[Path, Path], is_first: bool) -> None:
    """Whichever of them meets which rename."""
    old, new = disks
    kept = [(disk, disk.with_name(f"kept-{disk.name}")) for disk in disks]
    for disk, copy in kept:
        shutil.copytree(disk, copy)
    for first in range(6):
        for second in range(first, first + 5):
            for disk, copy in kept:
                shutil.rmtree(disk)
                shutil.copytree(copy, disk)
            looks = 0

            def happening(first: int = first, second: int = second) -> None:
                nonlocal looks
                if looks == first:
                    appears(new)
                if looks == second:
                    goes(old)
                looks += 1

            place = opened((old, new) if is_first else (new, old), happening)
            assert place.topics() == {"t": (0,), "u": (0,)}
            bounds = place.watermarks([T0], read_committed=True)[T0]
            assert (bounds.log_start_offset, bounds.last_stable_offset) == ALL
            assert offsets_read(place, T0, ALL) == [*range(40)]


@pytest.mark.parametrize("read_committed", [False, True], ids=["read_uncommitted", "read_committed"])
def test_a_read_goes_on_on_the_other_disk(disks: tuple[Path, Path], read_committed: bool) -> None:
    old, new = disks
    place = LogDirectory.open([str(old), str(new)], slice_bytes=200)
    offsets: list[int] = []
    moves = 0
    for piece in place.fetch(Fetch(T0, ALL, read_committed=read_committed)):
        batches = batches_of(piece)
        offsets += range(int(batches.base_offset[0]), int(batches.last_offset[-1]) + 1)
        moves += 1
        source, target = (old, new) if moves % 2 else (new, old)
        if moves > 1:
            shutil.copytree(source / "t-0", target / f"t-0.{uuid.uuid4().hex}-future")
        appears(target)
        goes(source)
    assert moves > 3
    assert offsets == [*range(40)]


def test_a_marker_is_sought_on_the_other_disk(tmp_path: Path) -> None:
    """That of a transaction that is open where the first slice ends."""
    old, new = tmp_path / "a", tmp_path / "b"
    batches = [data_batch(offset, 7) for offset in range(30)]
    for start in range(0, 30, 10):
        write_segment(old / "t-0", batches[start : start + 10])
    write_segment(old / "t-0", [control_batch(30, 7, commit=False), batch(31)])
    write_segment(new / "u-0", [batch(0)])
    shutil.copytree(old / "t-0", new / f"t-0.{uuid.uuid4().hex}-future")
    place = LogDirectory.open([str(old), str(new)], slice_bytes=300)
    slices = place.fetch(Fetch(T0, OffsetRange(0, 41), read_committed=True))
    appears(new)
    goes(old)
    aborted = [(t.producer_id, t.last_offset) for piece in slices for t in piece.aborted]
    assert set(aborted) == {(7, 30)}
    assert offsets_read(place, T0, OffsetRange(0, 41), read_committed=True) == [*range(31, 41)]


def test_what_stays_in_two_roots_is_an_error(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_MOVING", 0.1)
    old, new = disks
    appears(new)
    place = LogDirectory.open([str(old), str(new)])
    with pytest.raises(LogDirectoryError, match="is in two log roots"):
        place.topics()
    with pytest.raises(LogDirectoryError, match="is in two log roots"):
        place.watermarks([T0], read_committed=False)


def test_two_topics_of_a_name_are_an_error_at_once(
    disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = disks
    for disk, topic_id in ((old, "AAAAAAAAAAAAAAAAAAAAAQ"), (new, "AAAAAAAAAAAAAAAAAAAAAw")):
        write_segment(disk / "t-0", [batch(0)])
        (disk / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    replace_sleep(monkeypatch, lambda _: pytest.fail("It looked again"))
    with pytest.raises(LogDirectoryError, match="is in two log roots"):
        LogDirectory.open([str(old), str(new)]).topics()


def test_what_is_in_no_root_is_lost(disks: tuple[Path, Path]) -> None:
    old, new = disks
    place = LogDirectory.open([str(old), str(new)], slice_bytes=200)
    slices = place.fetch(Fetch(T0, ALL))
    next(slices)
    goes(old)
    with pytest.raises(DataLossError, match="Offsets 5 to 39 are gone: the folder is gone"):
        list(slices)
    with pytest.raises(UnknownTopicOrPartitionError):
        list(place.fetch(Fetch(T0, ALL)))


def test_another_topic_on_the_other_disk_is_not_read_on(disks: tuple[Path, Path]) -> None:
    old, new = disks
    (old / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    place = LogDirectory.open([str(old), str(new)], slice_bytes=200)
    slices = place.fetch(Fetch(T0, ALL))
    next(slices)
    goes(old)
    appears(new)
    (new / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw\n")
    with pytest.raises(DataLossError, match="deleted and recreated"):
        list(slices)


PARTITIONS, RECORDS = 4, 500


@pytest.mark.long
@pytest.mark.broker
def test_a_brokers_disks(new_broker: Callable[..., Broker], tmp_path: Path, soak: bool) -> None:
    """Each look at both, while partitions are moved back and forth, finds every record."""
    disks = tmp_path / "broker-0" / "data", tmp_path / "broker-0" / "more"
    broker = new_broker({"log.dirs": ",".join(map(str, disks)), "file.delete.delay.ms": 100})
    add_disk(*disks)
    broker.start()
    connect(broker.bootstrap).topics.create([NewTopic("t", PARTITIONS)])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(PARTITIONS):
        for i in range(RECORDS):
            producer.produce("t", b"%0100d" % i, partition=number)
    assert producer.flush(30) == 0
    partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
    everything = OffsetRange(0, RECORDS)
    done = threading.Event()

    def moves() -> None:
        for round_ in range(60 if soak else 6):
            target = disks[round_ % 2]
            move(broker, target, "t", PARTITIONS)
            while sorted(path.name for path in target.glob("t-?")) != [*map(str, partitions)]:
                time.sleep(0.01)
        done.set()

    thread = threading.Thread(target=moves, daemon=True)
    thread.start()
    looks, copy = 0, tmp_path / "copy"
    while not done.is_set():
        assert done.is_set() or thread.is_alive(), "The broker moves nothing"
        place = LogDirectory.open([*map(str, disks)], slice_bytes=20_000)
        assert place.topics()["t"] == tuple(range(PARTITIONS))
        for partition, bounds in place.watermarks(partitions, read_committed=True).items():
            assert (bounds.log_start_offset, bounds.last_stable_offset) == everything
            assert offsets_read(place, partition, everything, read_committed=True) == [*range(RECORDS)]
        looks += 1
    thread.join()
    options = {"path": ",".join(map(str, disks))}
    rows = connect(options).logs.backup(str(copy), BackupRules(topics=("t",), groups=()))
    assert [row.problem for row in rows] == [None] * PARTITIONS
    assert looks > 3
