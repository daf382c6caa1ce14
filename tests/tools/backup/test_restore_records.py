"""A restore that ends in the middle and goes on, from a source that has changed meanwhile."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.codec.decode import DecodeLimits, decode
from pyspark_kafkalog.codec.format import TRANSACTIONAL_BIT
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import DataLossError, OptionError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import Encoded, Fetch, OffsetRange, Origin, Slice, TopicPartition, Watermarks
from pyspark_kafkalog.tools.backup import restore_batches, restore_records
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from pyspark_kafkalog.tools.backup.restore_records import Progress, SourceRecords, TargetRecords
from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition, RestorePlan, RestoreState
from tests.log.partitions import control_batch
from tests.tools.backup.histories import RECORDS, SMALL, T0, TOPIC_ID, batch, make_log, piece, set_log_start

END = 400
PLANNED = PlannedPartition("t", 0, 0, END, "new", TOPIC_ID)
PLAN = RestorePlan("place", "cluster", 7, 0, {}, {}, [PLANNED])
_VALUES = pa.schema([("value", ROW_TYPES["value"])])


class KilledError(Exception):
    """Stands for kill -9: nothing after it is run."""


class Cluster:
    """One partition of a cluster, which takes batches until it has ``most`` records.

    ``on_append`` is called with the number behind the last record of each batch, before it is taken.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.most = END
        self.configs: dict[str, str] = {}
        self.on_append: Callable[[int], None] = lambda end: None
        monkeypatch.setattr(restore_records, "open_producer", self._open_producer)

    @contextmanager
    def _open_producer(self, *_: object) -> Iterator[Cluster]:
        yield self

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        assert partition == PLANNED.destination
        found = walk(encoded.data)
        assert found.base_sequence[0] == self.end
        if self.end + encoded.records > self.most:
            raise KilledError
        self.on_append(self.end + encoded.records)
        self.batches.append(encoded.data.tobytes())
        self.end += encoded.records

    def advance(self, *, flush: bool = False) -> None:
        """Nothing is on its way."""

    def finish(self) -> None:
        """All is there."""

    def watermarks(self, partitions: Sequence[TopicPartition], **_: bool) -> dict[TopicPartition, Watermarks]:
        return {partition: Watermarks(0, self.end, self.end) for partition in partitions}

    def topic_config(self, topic: str) -> dict[str, str]:
        return self.configs

    def fetch(self, wanted: Fetch) -> Iterator[Slice]:
        data = np.frombuffer(self.batches[-1], np.uint8).copy()
        sent = walk(data)
        bases = self.end - int(sent.count.sum()) + np.cumsum(sent.count) - sent.count
        for position, base in zip(sent.position.tolist(), bases.tolist(), strict=True):
            data[position : position + 8] = np.frombuffer(base.to_bytes(8, "big"), np.uint8)
        yield Slice(pa.py_buffer(data), walk(data).table, Origin())

    @property
    def values(self) -> list[bytes]:
        found: list[bytes] = []
        for data in self.batches:
            rows = decode(
                np.frombuffer(data, np.uint8),
                topic_partition=T0,
                offsets=OffsetRange(0, END),
                visible=None,
                schema=_VALUES,
                limits=DecodeLimits(),
                origin=Origin(),
            )
            for arrow_batch, _ in rows:
                found += arrow_batch.column(0).to_pylist()
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Batches of 20 records or so are sent at a time, and 60 are read ahead."""
    monkeypatch.setattr(restore_batches, "_AT_ONCE_BYTES", 500)
    monkeypatch.setattr(restore_records, "_AHEAD_BYTES", 1500)
    return Cluster(monkeypatch)


def nothing(done: int, total: int | None = None) -> None:
    """Ignore the progress."""


def restore(
    source: Path, cluster: Cluster, path: Path, plan: RestorePlan = PLAN, progress: Progress = nothing
) -> RestoreState:
    """One run, which ends with :class:`KilledError` if the cluster takes no more."""
    state = RestoreState.find(str(path)) or RestoreState.begin(str(path), plan)
    records = SourceRecords(LogDirectory.open(str(source)), read_committed=True)
    target: Any = cluster
    TargetRecords(target, target, state, None).write(records, progress)
    return state


def planned_from(source: Path) -> RestorePlan:
    """With the end and the open transactions that the source has now."""
    place = LogDirectory.open(str(source))
    bounds = place.watermarks([T0], read_committed=True)[T0]
    opened = SourceRecords(place, read_committed=True).open_transactions(T0, bounds, bounds.high_watermark)
    return replace(PLAN, partitions=[replace(PLANNED, end=bounds.high_watermark, open_transactions=opened)])


def values_of(offsets: Sequence[int], mark: str = "") -> list[bytes]:
    return [f"0 {offset} {mark}".encode() for offset in offsets]


def killed_in_the_middle(source: Path, cluster: Cluster, path: Path) -> int:
    """How many records the target has, of more that the file knows."""
    cluster.most = END // 2
    with pytest.raises(KilledError):
        restore(source, cluster, path)
    cluster.most = END
    assert 0 < cluster.end <= END // 2
    return cluster.end


def without(source: Path, offsets: range) -> None:
    """Compact a source: these offsets are gone."""
    shutil.rmtree(source)
    source.mkdir()
    with BackupLog.create(str(source / str(T0)), T0, SMALL, 0, TOPIC_ID) as log:
        for base_offset in range(0, END, RECORDS):
            if base_offset not in offsets:
                log.append(piece(batch(base_offset, 0)))


def test_the_file_knows_all_that_is_sent(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])

    def check(end: int) -> None:
        state = RestoreState.find(str(path))
        assert state is not None
        assert state.maps[T0].count >= end

    cluster.on_append = check
    restore(source, cluster, path)
    assert cluster.values == values_of(range(END))
    assert len(cluster.batches) > 10


def test_progress_is_of_what_is_left(cluster: Cluster, tmp_path: Path) -> None:
    """The share of the partition that is in the plan, and not yet in the target."""
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, 2 * END)])
    stored = sum(file.stat().st_size for file in source.glob("t-0/*.log"))
    written = killed_in_the_middle(source, cluster, path)
    totals: list[int] = []
    restore(source, cluster, path, progress=lambda done, total=None: total and totals.append(total))
    assert totals == [pytest.approx(stored * (END - written) / (2 * END), abs=1)]


@pytest.mark.parametrize(("segment_bytes", "most"), [("400", 400), ("300", 300), ("", 2000)])
def test_no_batch_is_larger_than_a_segment(
    segment_bytes: str, most: int, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that is joined of small ones nor one that could go as it is."""
    monkeypatch.setattr(restore_batches, "_SMALL_BYTES", 320)
    source = tmp_path / "source"
    source.mkdir()
    with BackupLog.create(str(source / str(T0)), T0, SMALL, 0, TOPIC_ID) as log:
        for base_offset in range(0, END, RECORDS):
            is_large = base_offset % (2 * RECORDS) == 0
            log.append(piece(batch(base_offset, 0, "m" * (60 if is_large else 1))))
    cluster.configs = {"segment.bytes": segment_bytes}
    restore(source, cluster, tmp_path / "state")
    assert [int(value.split()[1]) for value in cluster.values] == list(range(END))
    largest = max(int(size) for data in cluster.batches for size in walk(np.frombuffer(data, np.uint8)).size)
    assert largest <= most
    assert segment_bytes or largest > 400


def test_records_that_are_sent_may_be_compacted(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    without(source, range(10, written - 20))
    state = restore(source, cluster, path)
    assert cluster.values == values_of(range(END))
    assert [state.maps[T0].target_of(offset) for offset in range(END)] == list(range(END))


def test_records_that_were_about_to_be_sent_may_not(cluster: Cluster, tmp_path: Path) -> None:
    """A request of the killed run may still come, and their numbers would be others'."""
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    known = RestoreState.find(str(path))
    assert known is not None
    assert known.maps[T0].count > written
    without(source, range(written, written + RECORDS))
    with pytest.raises(DataLossError, match=f"record {written} was at offset {written}"):
        restore(source, cluster, path)
    assert cluster.end == written


def test_records_that_no_run_has_read_may_be_compacted(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    killed_in_the_middle(source, cluster, path)
    without(source, range(END - 50, END - 10))
    restore(source, cluster, path)
    assert cluster.values == values_of([*range(END - 50), *range(END - 10, END)])


def test_records_that_no_run_has_read_may_be_deleted(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As by retention, before a partition's turn comes; a run that is killed then changes nothing."""
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    plan = planned_from(source)
    RestoreState.begin(str(path), plan)
    for start in (100, 150):
        set_log_start(source, start)
        cluster.most = END // 4
        with pytest.raises(KilledError):
            restore(source, cluster, path)
        assert "t-0: offsets 0 to 99 were deleted before they were restored" in caplog.text
    cluster.most = END
    state = restore(source, cluster, path)
    assert cluster.values == values_of(range(100, END))
    assert state.maps[T0].target_of(0) == state.maps[T0].target_of(100) == 0


def test_records_behind_those_that_are_sent_may_be_deleted(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])

    def kill(done: int, total: int | None = None) -> None:
        if cluster.end:
            raise KilledError

    with pytest.raises(KilledError):
        restore(source, cluster, path, progress=kill)
    written = cluster.end
    set_log_start(source, written + 20)
    restore(source, cluster, path)
    assert cluster.values == values_of([*range(written), *range(written + 20, END)])


def test_records_that_were_about_to_be_sent_may_not_be_deleted(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    set_log_start(source, written + 1)
    with pytest.raises(DataLossError, match=r"are gone.*delete what it has made and its file"):
        restore(source, cluster, path)
    assert cluster.end == written


def test_a_file_that_is_not_the_newest(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(
        OptionError, match=f"has {written} records of this restore, and its file .* knows of 0"
    ):
        restore(source, cluster, path)


def transactional(base_offset: int, producer_id: int = 9) -> bytes:
    """A batch of a transaction."""
    data = batch(base_offset, 0, "in a transaction")
    attributes = int.from_bytes(data[21:23], "big") | TRANSACTIONAL_BIT
    summed = attributes.to_bytes(2, "big") + data[23:43] + struct.pack(">qhi", producer_id, 0, 0) + data[57:]
    return data[:17] + struct.pack(">I", crc32c(summed)) + summed


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_ends_between_two_runs_stays_left_out(
    cluster: Cluster, tmp_path: Path, commit: bool
) -> None:
    source, path, in_transaction = tmp_path / "source", tmp_path / "state", (50, 300)
    with_transaction = [*range(50, 50 + RECORDS), *range(300, 300 + RECORDS)]
    source.mkdir()
    with BackupLog.create(str(source / str(T0)), T0, SMALL, 0, TOPIC_ID) as log:
        for base_offset in range(0, END, RECORDS):
            log.append(piece((transactional if base_offset in in_transaction else batch_of_0)(base_offset)))
    plan = planned_from(source)
    assert plan.partitions[0].open_transactions == ((9, 50),)
    cluster.most = END // 2
    with pytest.raises(KilledError):
        restore(source, cluster, path, plan)
    cluster.most = END
    with BackupLog.open(str(source / str(T0)), T0, SMALL, 0) as log:
        log.append(piece(control_batch(END, 9, commit=commit)))
        log.append(piece(batch(END + 1, 0)))
    state = restore(source, cluster, path, plan)
    assert cluster.values == values_of([n for n in range(END) if n not in with_transaction])
    assert state.maps[T0].target_of(60) == 60 - RECORDS


def test_transactions_that_the_end_would_cut(tmp_path: Path) -> None:
    """A part of one is not restored, though it was committed later. One that lacks its marker is whole."""
    with BackupLog.create(str(tmp_path / str(T0)), T0, SMALL, 0, TOPIC_ID) as log:
        log.append(piece(transactional(0)))
        log.append(piece(control_batch(5, 9, commit=True)))
        log.append(piece(transactional(6)))
        log.append(piece(transactional(11, 8)))
        log.append(piece(transactional(16)))
        log.append(piece(control_batch(21, 9, commit=True)))
        log.append(piece(batch(22, 0)))
        log.append(piece(transactional(27)))
        log.append(piece(batch(32, 0)))
        log.append(piece(control_batch(37, 9, commit=False)))
    place = LogDirectory.open(str(tmp_path))
    bounds = place.watermarks([T0], read_committed=True)[T0]
    assert bounds == Watermarks(0, 38, 11)
    records = SourceRecords(place, read_committed=True)

    def opened(end: int) -> dict[int, int]:
        return dict(records.open_transactions(T0, bounds, end))

    assert opened(0) == opened(5) == opened(6) == {}
    assert opened(3) == {9: 0}
    assert opened(7) == opened(11) == {9: 6}
    assert opened(12) == opened(20) == {9: 6, 8: 11}
    assert opened(21) == opened(22) == opened(27) == {8: 11}
    assert opened(30) == opened(37) == {8: 11, 9: 27}
    assert opened(38) == {8: 11}
    assert SourceRecords(place, read_committed=False).open_transactions(T0, bounds, 7) == ()


def test_a_source_that_went_back(cluster: Cluster, tmp_path: Path) -> None:
    """As a disk that was restored from an older copy: its id is the same, and its records are not."""
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    shutil.rmtree(source)
    make_log(source, [(0, END)], mark="other")
    with pytest.raises(DataLossError, match=r"it has another record at offset"):
        restore(source, cluster, path)
    shutil.rmtree(source)
    make_log(source, [(0, written - RECORDS)])
    with pytest.raises(DataLossError, match=f"it ends at offset {written - RECORDS}, before the record at"):
        restore(source, cluster, path)
    assert cluster.end == written
    shutil.rmtree(source)
    make_log(source, [(0, END)])
    restore(source, cluster, path)
    assert cluster.values == values_of(range(END))


def test_the_last_records_that_are_sent_may_be_compacted(cluster: Cluster, tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    without(source, range(written - 40, written))
    restore(source, cluster, path)
    assert cluster.values == values_of(range(END))


def batch_of_0(base_offset: int) -> bytes:
    return batch(base_offset, 0)


@pytest.mark.parametrize("topic_id", ["AAAAAAAAAAAAAAAAAAAAAg", ""])
def test_a_topic_made_anew(cluster: Cluster, tmp_path: Path, topic_id: str) -> None:
    source, path = tmp_path / "source", tmp_path / "state"
    make_log(source, [(0, END)])
    written = killed_in_the_middle(source, cluster, path)
    shutil.rmtree(source)
    make_log(source, [(0, END)], mark="other", topic_id=topic_id)
    with pytest.raises(DataLossError, match="not the one from which this restore began"):
        restore(source, cluster, path)
    assert cluster.end == written


def test_a_topic_made_anew_while_it_is_read(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is asked for the planned topic, so that it can tell."""
    source = tmp_path / "source"
    make_log(source, [(0, END)])
    asked: list[str] = []
    fetch = LogDirectory.fetch

    def watched(self: LogDirectory, wanted: Fetch) -> Iterator[Slice]:
        asked.append(wanted.topic_id)
        return fetch(self, wanted)

    monkeypatch.setattr(LogDirectory, "fetch", watched)
    restore(source, cluster, tmp_path / "state")
    assert asked == [TOPIC_ID]
