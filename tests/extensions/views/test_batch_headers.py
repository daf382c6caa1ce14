"""Headers of record batches as Arrow: those that dump shows, however the work is cut."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.codec.format import RECORDS_V2
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.views.batch_headers import batches, batches_of_split, plan_batches
from pyspark_kafkalog.extensions.views.views import VIEWS
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.tools.records.dump import dump
from tests.codec.raw import message
from tests.fixtures_dir import CASES, Case, case

Row = dict[str, Any]


def rows_of(arrow_batches: list[pa.RecordBatch]) -> list[Row]:
    """With timestamps as microseconds, since Python's dates end before Kafka's."""
    if not arrow_batches:
        return []
    table = pa.Table.from_batches(arrow_batches)
    kinds = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in table.schema]
    numbers = pa.schema(list(zip(table.schema.names, kinds, strict=True)))
    return table.cast(numbers).to_pylist()


def open_case(fixture: Case) -> LogDirectory:
    return LogDirectory.open(str(fixture.directory))


@pytest.mark.parametrize("fixture", CASES, ids=lambda fixture: fixture.name)
def test_rows_are_those_of_dump(fixture: Case) -> None:
    place = open_case(fixture)
    found = list(batches(place))
    dumped = [
        batch for partition in partitions_of(place) for batch in dump(place, partition, on_corrupt=print)
    ]
    assert all(arrow_batch.schema.names == list(VIEWS["batches"]) for arrow_batch in found)
    for row, batch in zip(rows_of(found), dumped, strict=True):
        assert batch.file is not None
        time = row.pop("maxTimestamp")
        within = 0 <= batch.max_timestamp <= 2**63 // 1000
        assert time == (batch.max_timestamp * 1000 if within else None)
        if batch.delete_horizon_ms is not None:
            assert row["firstTimestamp"] is None
        del row["firstTimestamp"]
        assert row == {
            "topic": batch.topic,
            "partition": batch.partition,
            "segment": Path(batch.file).name,
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "records": batch.count,
            "storedBytes": batch.size,
            "compression": batch.compression,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "position": batch.position,
            "magic": batch.magic,
            "valid": batch.is_valid,
        }


@pytest.mark.parametrize("least", [None, 1, 7, 1000])
@pytest.mark.parametrize("name", ["txn-basic", "v1-snappy", "v2-compacted-tombstones", "v0-gzip"])
def test_however_it_is_cut_each_batch_comes_once(name: str, least: int | None) -> None:
    place = open_case(case(name))
    splits = plan_batches(place, min_partitions=least)
    for partition in partitions_of(place):
        own = [split.offsets for split in splits if split.partition == partition]
        assert (own[0].start, own[-1].end) == (EARLIEST, LATEST)
    parts = [rows_of(list(batches_of_split(place, split))) for split in splits]
    # Where a compressed message of magic 0 or 1 begins is only known as a lower bound.
    whole, cut = (
        [
            {name: value for name, value in row.items() if row["magic"] == 2 or name != "baseOffset"}
            for row in rows
        ]
        for rows in (rows_of(list(batches(place))), [row for part in parts for row in part])
    )
    assert cut == whole
    assert len(splits) >= min(least or 1, 7)


def test_only_named_columns_are_made_in_their_order() -> None:
    place = open_case(case("v2-headers"))
    (arrow_batch,) = batches(place, columns=["storedBytes", "topic"])
    assert arrow_batch.schema.names == ["storedBytes", "topic"]
    with pytest.raises(OptionError, match="Unknown column 'sizeBytes'"):
        list(batches(place, columns=["sizeBytes"]))
    (arrow_batch,) = batches(place, columns=["valid"], check_crcs=False)
    assert arrow_batch.column("valid").null_count == arrow_batch.num_rows > 0


def test_a_flipped_byte_makes_one_batch_invalid(tmp_path: Path) -> None:
    shutil.copytree(case("v2-headers").directory, tmp_path / "log")
    place = LogDirectory.open(str(tmp_path / "log"))
    rows = rows_of(list(batches(place)))
    (file,) = (tmp_path / "log").glob(f"*/{rows[3]['segment']}")
    data = bytearray(file.read_bytes())
    data[rows[3]["position"] + RECORDS_V2 + 3] ^= 1
    file.write_bytes(data)
    found = rows_of(list(batches(place)))
    assert [row["valid"] for row in found] == [number != 3 for number in range(len(rows))]
    assert [{**row, "valid": True} for row in found] == rows


def test_bytes_that_are_no_batch_are_skipped_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = open_case(case("hurt-magic"))
    assert rows_of(list(batches(place)))
    assert "skipped bytes that are not a record batch" in caplog.text
    assert "from byte 2104 on" in caplog.text


def test_a_topic_can_be_named_and_old_messages_have_rows(tmp_path: Path) -> None:
    folder = tmp_path / "old-0"
    folder.mkdir()
    messages = message(b"v", magic=0) + message(b"v", offset=1, timestamp=5)
    (folder / "00000000000000000000.log").write_bytes(messages)
    place = LogDirectory.open(str(tmp_path))
    first, second = rows_of(list(batches(place, Selection(topics=("old",)))))
    assert (first["firstTimestamp"], first["records"], first["producerId"]) == (None, 1, -1)
    assert (second["firstTimestamp"], second["valid"]) == (5000, True)
