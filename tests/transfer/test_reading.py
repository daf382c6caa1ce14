"""Ranges of a place become rows: open ends, what is gone, what goes while it is read, what is broken."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, UnknownTopicOrPartitionError
from pyspark_kafkalog.log.directory import LogDirectory
from pyspark_kafkalog.log.layout import format_partition_metadata
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, Seen, TopicPartition, Watermarks
from pyspark_kafkalog.planning.splitting import Split
from pyspark_kafkalog.transfer.reading import ReadRules, read_range, read_split
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
    batches = read_range(place, T0, wanted, rules(fail_on_data_loss=fail_on_data_loss))
    return [offset for arrow_batch in batches for offset in arrow_batch.column("offset").to_pylist()]


def test_open_ends_are_looked_up_when_they_are_read(root: Path) -> None:
    assert offsets(root, ALL) == list(range(60))
    (root / "t-0" / f"{0:020}.log").unlink()
    with (root / "t-0" / f"{40:020}.log").open("ab") as log:
        log.write(batch(60))
    assert offsets(root, ALL) == list(range(20, 70))
    assert offsets(root, OffsetRange(35, LATEST)) == list(range(35, 70))


def test_offsets_below_the_log_start_are_data_loss(root: Path) -> None:
    (root / "t-0" / f"{0:020}.log").unlink()
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE: offsets 5 to 19 "):
        offsets(root, OffsetRange(5, 30))
    assert offsets(root, OffsetRange(5, 30), fail_on_data_loss=False) == list(range(20, 30))
    assert offsets(root, OffsetRange(5, 15), fail_on_data_loss=False) == []


def test_a_partition_that_is_gone_is_data_loss(root: Path, tmp_path: Path) -> None:
    place = LogDirectory.open(str(root))
    (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
    with pytest.raises(DataLossError, match=r"The partition is gone \(partition t-0, offset 5\)"):
        list(read_range(place, T0, OffsetRange(5, 10), rules()))
    assert list(read_range(place, T0, OffsetRange(5, 10), rules(fail_on_data_loss=False))) == []


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_partition_goes_before_it_is_fetched(root: Path, fail_on_data_loss: bool) -> None:
    class Racing(LogDirectory):
        def watermarks(self, *args: Any, **kwargs: Any) -> dict[TopicPartition, Watermarks]:
            found = super().watermarks(*args, **kwargs)
            if found:
                (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
                self._partitions.clear()
            return found

    reading = read_range(Racing.open(str(root)), T0, ALL, rules(fail_on_data_loss=fail_on_data_loss))
    if fail_on_data_loss:
        with pytest.raises(UnknownTopicOrPartitionError):
            list(reading)
    else:
        assert list(reading) == []


def test_only_what_is_wanted_is_read_but_all_must_exist(root: Path) -> None:
    place = LogDirectory.open(str(root))

    def read(wanted: OffsetRange, within: OffsetRange) -> list[int]:
        batches = read_range(place, T0, wanted, rules(), within=within)
        return [offset for arrow_batch in batches for offset in arrow_batch.column("offset").to_pylist()]

    assert read(ALL, OffsetRange(15, 33)) == list(range(15, 33))
    assert read(ALL, OffsetRange(70, 90)) == read(ALL, OffsetRange(0, 0)) == []
    (root / "t-0" / f"{0:020}.log").unlink()
    assert read(ALL, OffsetRange(15, 33)) == list(range(20, 33)), "nobody asked for what is gone"
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE"):
        read(OffsetRange(5, 40), OffsetRange(30, 33))


def test_a_topic_made_anew_is_not_read_for_the_old_one(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    place = LogDirectory.open(str(root))

    def read(topic_id: str, *, fail_on_data_loss: bool = True) -> int:
        split = Split(T0, ALL, seen=Seen(topic_id))
        return sum(
            rows.num_rows for rows in read_split(place, split, rules(fail_on_data_loss=fail_on_data_loss))
        )

    assert read(old) == 60, "it has no id"
    (root / "t-0" / "partition.metadata").write_bytes(format_partition_metadata(new))
    assert read(new) == read("") == 60
    with pytest.raises(DataLossError, match=r"TOPIC_RECREATED.*partition t-0"):
        read(old)
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert read(old, fail_on_data_loss=False) == 0
    assert "TOPIC_RECREATED" in caplog.text


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_retention_overtakes_the_reader(root: Path, fail_on_data_loss: bool) -> None:
    place = LogDirectory.open(str(root), slice_bytes=1)
    reading = read_range(place, T0, ALL, rules(fail_on_data_loss=fail_on_data_loss))
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
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        found = offsets(root, ALL, fail_on_data_loss=False)
    assert found == [*range(20), *range(30, 60)]
    assert "t-0: 1 broken stretches left out" in caplog.text
