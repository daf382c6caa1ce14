"""Ranges of a place become rows: open ends, what is gone, what goes while it is read, what is broken."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import (
    CorruptRecordError,
    DataLossError,
    LogDirectoryError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.log.layout import format_partition_metadata
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.model import EARLIEST, LATEST, Fetch, OffsetRange, Seen, TopicPartition, Watermarks
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.log.partitions import batch

T0 = TopicPartition("t", 0)
ALL = OffsetRange(EARLIEST, LATEST)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three segments of two batches of ten records each: offsets 0 to 59."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base_offset in (0, 20, 40):
        data = batch(base_offset) + batch(base_offset + 10)
        (folder / f"{base_offset:020}.log").write_bytes(data)
    return tmp_path


def rules(*, fail_on_data_loss: bool = True) -> ReadRules:
    schema = pa.schema([pa.field("offset", pa.int64())])
    return ReadRules(schema, read_committed=False, fail_on_data_loss=fail_on_data_loss, limits=DecodeLimits())


def offsets(root: Path, wanted: OffsetRange, *, fail_on_data_loss: bool = True) -> list[int]:
    place = LogDirectory.open(str(root))
    batches = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss)).read(Split(T0, wanted))
    return [offset for arrow_batch in batches for offset in arrow_batch.column("offset").to_pylist()]


def test_open_ends_are_looked_up_when_they_are_read(root: Path) -> None:
    assert offsets(root, ALL) == list(range(60))
    (root / "t-0" / f"{0:020}.log").unlink()
    with (root / "t-0" / f"{40:020}.log").open("ab") as log:
        log.write(batch(60))
    assert offsets(root, ALL) == list(range(20, 70))
    assert offsets(root, OffsetRange(35, LATEST)) == list(range(35, 70))


@pytest.mark.parametrize("wanted", [ALL, OffsetRange(EARLIEST, 60)], ids=["latest", "planned"])
def test_a_log_that_ends_before_the_plan_saw_it_end_is_not_read_short(
    root: Path, wanted: OffsetRange, caplog: pytest.LogCaptureFixture
) -> None:
    """An older copy of the directory, with the same topic id, on the machine of the task."""
    set_topic_id(root / "t-0", OLD_ID)
    split = Split(T0, wanted, seen=Seen(OLD_ID, end=60))
    (root / "t-0" / f"{40:020}.log").unlink()
    with pytest.raises(DataLossError, match=r"ends at 40, before offset 60, .* same log on every machine\?"):
        count(root, split)
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert count(root, split, fail_on_data_loss=False) == 40
    assert "the log ends at 40, before offset 60" in caplog.text


def test_a_log_that_seems_to_end_sooner_is_listed_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a mount that does not maintain times of change."""
    listed = Partition.segments
    monkeypatch.setattr(
        Partition, "segments", lambda self, *, fresh=False: listed(self, fresh=True)[: None if fresh else -1]
    )
    place, split = LogDirectory.open(str(root)), Split(T0, ALL, seen=Seen(end=60))
    assert place.end_offsets([T0], read_committed=False) == {T0: 40}
    assert sum(rows.num_rows for rows in RecordReader(place, rules()).read(split)) == 60


def test_offsets_below_the_log_start_are_data_loss(root: Path) -> None:
    (root / "t-0" / f"{0:020}.log").unlink()
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE: offsets 5 to 19 "):
        offsets(root, OffsetRange(5, 30))
    assert offsets(root, OffsetRange(5, 30), fail_on_data_loss=False) == list(range(20, 30))
    assert offsets(root, OffsetRange(5, 15), fail_on_data_loss=False) == []


def test_a_partition_that_is_gone_is_data_loss(root: Path, tmp_path: Path) -> None:
    place = LogDirectory.open(str(root))
    (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
    with pytest.raises(DataLossError, match=r"The partition no longer exists \(partition t-0, offset 5\)"):
        list(RecordReader(place, rules()).read(Split(T0, OffsetRange(5, 10))))
    assert list(RecordReader(place, rules(fail_on_data_loss=False)).read(Split(T0, OffsetRange(5, 10)))) == []


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_partition_goes_before_it_is_fetched(root: Path, fail_on_data_loss: bool) -> None:
    class Racing(LogDirectory):
        def watermarks(self, *args: Any, **kwargs: Any) -> dict[TopicPartition, Watermarks]:
            found = super().watermarks(*args, **kwargs)
            if found:
                (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
                self._partitions.clear()
            return found

    place = Racing.open(str(root))
    reading = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss)).read(Split(T0, ALL))
    if fail_on_data_loss:
        with pytest.raises(UnknownTopicOrPartitionError):
            list(reading)
    else:
        assert list(reading) == []


def test_only_what_is_wanted_is_read_but_all_must_exist(root: Path) -> None:
    place = LogDirectory.open(str(root))

    def read(wanted: OffsetRange, within: OffsetRange) -> list[int]:
        batches = RecordReader(place, rules()).read(Split(T0, wanted, within))
        return [offset for arrow_batch in batches for offset in arrow_batch.column("offset").to_pylist()]

    assert read(ALL, OffsetRange(15, 33)) == list(range(15, 33))
    assert read(ALL, OffsetRange(70, 90)) == read(ALL, OffsetRange(0, 0)) == []
    (root / "t-0" / f"{0:020}.log").unlink()
    assert read(ALL, OffsetRange(15, 33)) == list(range(20, 33)), "what is gone was not wanted"
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        read(OffsetRange(5, 40), OffsetRange(30, 33))


def test_a_topic_made_anew_is_not_read_for_the_old_one(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    place = LogDirectory.open(str(root))

    def read(topic_id: str, *, fail_on_data_loss: bool = True) -> int:
        split = Split(T0, ALL, seen=Seen(topic_id))
        return sum(
            rows.num_rows
            for rows in RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss)).read(split)
        )

    assert read(old) == 60, "it has no id"
    (root / "t-0" / "partition.metadata").write_bytes(format_partition_metadata(new))
    assert read(new) == read("") == 60
    with pytest.raises(DataLossError, match=r"TOPIC_RECREATED.*partition t-0"):
        read(old)
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert read(old, fail_on_data_loss=False) == 0
    assert "TOPIC_RECREATED" in caplog.text


OLD_ID, NEW_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def count(root: Path, split: Split, *, fail_on_data_loss: bool = True) -> int:
    reader = RecordReader(LogDirectory.open(str(root)), rules(fail_on_data_loss=fail_on_data_loss))
    return sum(rows.num_rows for rows in reader.read(split))


def set_topic_id(folder: Path, topic_id: str) -> None:
    (folder / "partition.metadata").write_bytes(format_partition_metadata(topic_id))


@pytest.mark.parametrize(
    "split",
    [
        Split(T0, ALL, seen=Seen(OLD_ID)),
        Split(T0, OffsetRange(10, 30), seen=Seen(OLD_ID, end=60)),
        Split(T0, OffsetRange(60, LATEST), seen=Seen(OLD_ID, end=60)),
    ],
    ids=["open", "fixed", "empty"],
)
def test_a_split_looks_at_its_own_folder_alone(
    root: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else lies in the root, of which an earlier look has shown that it is one."""
    (root / "t-0").rename(root / "t-7")
    set_topic_id(root / "t-7", OLD_ID)
    (root / "t-8").mkdir()
    split = replace(split, partition=TopicPartition("t", 7))
    listed: list[str] = []
    for name in ("listdir", "scandir"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, real=real: listed.append(str(path)) or real(path))
    place = LogDirectory.open(str(root), check=False)
    assert sum(rows.num_rows for rows in RecordReader(place, rules()).read(split)) in (60, 20, 0)
    assert set(listed) <= {str(root / "t-7")}


def test_a_folder_of_another_topic_is_noticed_by_its_own_id_and_the_topics(root: Path) -> None:
    other = root / "t-1"
    shutil.copytree(root / "t-0", other)
    for split in (Split(TopicPartition("t", 1), ALL, seen=Seen(OLD_ID)), Split(T0, ALL, seen=Seen(OLD_ID))):
        fixed = replace(split, offsets=OffsetRange(0, 60), seen=Seen(OLD_ID, end=60))
        set_topic_id(root / "t-0", OLD_ID)
        set_topic_id(other, NEW_ID)
        assert count(root, split) == count(root, fixed) == 60, "partition 0 says what the topic's id is"
        set_topic_id(root / "t-0", NEW_ID)
        for either in (split, fixed):
            with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
                count(root, either)
            assert count(root, either, fail_on_data_loss=False) == 0


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("seen", [Seen(OLD_ID), Seen(OLD_ID, end=60)], ids=["open", "fixed"])
def test_a_folder_made_anew_while_it_is_read_is_not_read_on(
    root: Path, seen: Seen, fail_on_data_loss: bool
) -> None:
    """Though the new topic has all the offsets, and in segments of other names."""
    set_topic_id(root / "t-0", OLD_ID)
    place = LogDirectory.open(str(root), slice_bytes=1)
    its = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss))
    reading = its.read(Split(T0, OffsetRange(0, 60) if seen.end else ALL, seen=seen))
    found = next(reading).column("offset").to_pylist()
    (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
    (root / "t-0").mkdir()
    set_topic_id(root / "t-0", NEW_ID)
    (root / "t-0" / f"{0:020}.log").write_bytes(b"".join(map(batch, range(0, 80, 10))))
    if fail_on_data_loss:
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            list(reading)
        return
    for arrow_batch in reading:
        found += arrow_batch.column("offset").to_pylist()
    assert found == list(range(20)), "what is open can be read to its end"


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_partition_that_moves_to_another_root_and_back_is_read_on(
    root: Path, tmp_path_factory: pytest.TempPathFactory, fail_on_data_loss: bool
) -> None:
    """As by kafka-reassign-partitions: the replica is copied, and takes the place of the one before it."""
    other = tmp_path_factory.mktemp("other-root")
    set_topic_id(root / "t-0", OLD_ID)
    place = LogDirectory.open([str(root), str(other)], slice_bytes=1, check=False)
    its = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss))
    found = []
    moves = {9: (root, other), 29: (other, root)}
    for arrow_batch in its.read(Split(T0, OffsetRange(0, 60), seen=Seen(OLD_ID, end=60))):
        found += arrow_batch.column("offset").to_pylist()
        if found[-1] in moves:
            old, new = moves[found[-1]]
            shutil.copytree(old / "t-0", new / "t-0")
            shutil.rmtree(old / "t-0")
    assert found == list(range(60))


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("seen", [Seen(), Seen(OLD_ID), Seen(OLD_ID, end=60)])
def test_a_folder_that_is_no_log_root_is_an_error_not_data_loss(
    root: Path, tmp_path_factory: pytest.TempPathFactory, seen: Seen, fail_on_data_loss: bool
) -> None:
    """As where a worker has something else mounted at the path that the driver has looked at."""
    other = tmp_path_factory.mktemp("elsewhere")
    (other / "photos").mkdir()
    place = LogDirectory.open(str(other), check=False)
    its = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss))
    with pytest.raises(LogDirectoryError, match="holds no partition"):
        list(its.read(Split(T0, OffsetRange(0, 60), seen=seen)))


@pytest.mark.parametrize("slice_bytes", [1, 400, 8 << 20])
@pytest.mark.parametrize("read_committed", [True, False])
def test_the_headers_of_a_slice_are_those_of_its_batches_and_are_not_read_again(
    root: Path, slice_bytes: int, read_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LogDirectory.open(str(root), slice_bytes=slice_bytes)
    pieces = list(place.fetch(Fetch(T0, OffsetRange(15, 45), read_committed=read_committed)))
    for piece in pieces:
        assert (piece.headers == walk(piece.buffer).table).all()
    assert sum(piece.headers.shape[1] for piece in pieces) == 4
    monkeypatch.delattr("pyspark_kafkalog.codec.decode.walk")
    reading = RecordReader(place, replace(rules(), read_committed=read_committed))
    assert sum(rows.num_rows for rows in reading.read(Split(T0, OffsetRange(15, 45)))) == 30


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("topic_id", ["", OLD_ID])
def test_a_root_that_vanishes_while_it_is_read_is_an_error_not_data_loss(
    root: Path, topic_id: str, fail_on_data_loss: bool
) -> None:
    """As where a disk is unmounted: what was on it may come back."""
    set_topic_id(root / "t-0", OLD_ID)
    place = LogDirectory.open(str(root), slice_bytes=1, check=False)
    its = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss))
    reading = its.read(Split(T0, OffsetRange(0, 60), seen=Seen(topic_id, end=60)))
    next(reading)
    root.rename(root.with_name(f"{root.name}-unmounted"))
    with pytest.raises(LogDirectoryError, match="The log directory does not exist"):
        list(reading)


@pytest.mark.parametrize("seen", [Seen(), Seen(OLD_ID), Seen(OLD_ID, end=60)])
@pytest.mark.parametrize("check", [True, False])
def test_a_partitions_own_folder_that_is_named_and_gone_is_an_error(
    root: Path, seen: Seen, check: bool
) -> None:
    folder = root / "t-0"
    set_topic_id(folder, OLD_ID)
    place = LogDirectory.open(str(folder), check=check)
    its = RecordReader(place, rules(fail_on_data_loss=False))
    split = Split(T0, OffsetRange(0, 60), seen=seen)
    assert sum(rows.num_rows for rows in its.read(split)) == 60
    folder.rename(root / f"t-0.{'0' * 32}-delete")
    with pytest.raises(LogDirectoryError, match="The log directory does not exist"):
        list(its.read(split))


def test_an_empty_folder_of_another_topic_is_noticed(root: Path) -> None:
    for log in (root / "t-0").iterdir():
        log.unlink()
    set_topic_id(root / "t-0", OLD_ID)
    assert count(root, Split(T0, ALL, seen=Seen(OLD_ID))) == 0
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        count(root, Split(T0, ALL, seen=Seen(NEW_ID)))


@pytest.mark.parametrize("topic_id", ["", OLD_ID])
def test_a_log_that_ends_before_the_range_is_data_loss(root: Path, topic_id: str) -> None:
    set_topic_id(root / "t-0", OLD_ID)
    for offsets in (OffsetRange(50, 70), OffsetRange(70, 80), OffsetRange(70, LATEST)):
        for end in (0, 60, 80):
            split = Split(T0, offsets, seen=Seen(topic_id, end=end))
            with pytest.raises(
                DataLossError, match="COULD_NOT_READ_OFFSET_RANGE: the log ends at 60"
            ) as lost:
                count(root, split)
            assert ("If you gave this end, give 60 at most. Set failOnDataLoss" in str(lost.value)) == (
                end <= 60
            )
            assert count(root, split, fail_on_data_loss=False) == max(60 - offsets.start, 0)


@pytest.mark.parametrize("seen", [Seen(), Seen(OLD_ID), Seen(OLD_ID, end=60)])
def test_what_is_not_published_is_not_read(root: Path, seen: Seen) -> None:
    """Even if the plan says that it was there."""
    set_topic_id(root / "t-0", OLD_ID)
    journal = root / ".kafkalog-publish"
    journal.write_text('{"partitions": {"t-0": {"log_end_offset": 40}}}\n\n')
    split = Split(T0, OffsetRange(0, 60), seen=seen)
    with pytest.raises(DataLossError, match="the log ends at 40, before offset 60"):
        count(root, split)
    assert count(root, split, fail_on_data_loss=False) == 40
    assert count(root, replace(split, offsets=OffsetRange(0, 40))) == 40
    journal.write_text('{"partitions": {"t-0": {"created": true}}}\n\n')
    with pytest.raises(DataLossError, match="The partition no longer exists"):
        count(root, split)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_retention_overtakes_the_reader(root: Path, fail_on_data_loss: bool) -> None:
    place = LogDirectory.open(str(root), slice_bytes=1)
    reading = RecordReader(place, rules(fail_on_data_loss=fail_on_data_loss)).read(Split(T0, ALL))
    found = next(reading).column("offset").to_pylist()
    for base_offset in (0, 20):
        (root / "t-0" / f"{base_offset:020}.log").unlink()
    if fail_on_data_loss:
        with pytest.raises(DataLossError):
            list(reading)
        return
    for arrow_batch in reading:
        found += arrow_batch.column("offset").to_pylist()
    # The first segment was open, and an open file can be read to its end.
    assert found in (list(range(20)) + list(range(40, 60)), list(range(10)) + list(range(40, 60)))


def test_broken_bytes_are_an_error_or_left_out_and_counted(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = root / "t-0" / f"{20:020}.log"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptRecordError) as caught:
        offsets(root, ALL)
    assert (caught.value.offset, caught.value.file, caught.value.position) == (20, str(file), 0)
    assert caught.value.hint == "Set failOnDataLoss=false to continue at the next valid batch."
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        found = offsets(root, ALL, fail_on_data_loss=False)
    assert found == [*range(20), *range(30, 60)]
    assert "t-0: skipped 1 corrupt stretch in offsets " in caplog.text
    assert "OffsetRange" not in caplog.text
