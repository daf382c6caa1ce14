"""dump shows of every log what Kafka's DumpLogSegments shows, and the records of its consumer."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import UnknownTopicOrPartitionError
from pyspark_kafkalog.log.layout import parse_partition_folder
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.tools.records.dump import DumpedBatch, dump
from tests.fixtures_dir import CASES, Case, case, same_bytes

NAMES = {"compression": "compresscodec", "isValid": "isvalid"}
UNDAMAGED = [fixture for fixture in CASES if not fixture.damaged and fixture.batches]


def as_the_tool_says(batch: DumpedBatch) -> dict[str, object]:
    return {
        "file": None if batch.file is None else "/".join(batch.file.split("/")[-2:]),
        "offset": batch.last_offset,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "position": batch.position,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": batch.compression,
        "crc": batch.crc,
        "isvalid": batch.is_valid,
    }


@pytest.mark.parametrize("fixture", UNDAMAGED, ids=lambda fixture: fixture.name)
def test_batches_are_those_of_the_dump_tool(fixture: Case) -> None:
    place = LogDirectory.open(str(fixture.directory))
    found = {}
    for folder in fixture.partitions:
        partition = parse_partition_folder(folder)
        assert partition is not None
        for batch in dump(place, partition):
            says = as_the_tool_says(batch)
            found[says["file"], says["position"]] = says
    for line in fixture.batches:
        says = found.get((line["file"], line["position"]))
        if says is not None:  # batches below the log start offset lie there, and are not read
            assert {name: says[name] for name in line} == line


@pytest.mark.parametrize("fixture", UNDAMAGED, ids=lambda fixture: fixture.name)
def test_records_are_those_of_a_consumer(fixture: Case) -> None:
    place = LogDirectory.open(str(fixture.directory))
    for folder in fixture.partitions:
        partition = parse_partition_folder(folder)
        assert partition is not None
        found = {
            record.offset: record
            for batch in dump(place, partition, records=True)
            for record in batch.records or ()
            if not batch.is_control
        }
        for record in fixture.records:
            if (record["topic"], record["partition"]) == partition:
                dumped = found.pop(record["offset"])
                assert same_bytes(record, "key", dumped.key)
                assert same_bytes(record, "value", dumped.value)
                assert record["timestamp"] == dumped.timestamp
                assert len(record["headers"]) == len(dumped.headers)


def test_markers() -> None:
    place = LogDirectory.open(str(case("txn-basic").directory))
    partition = TopicPartition("txn-basic", 0)
    control = [batch for batch in dump(place, partition, records=True) if batch.is_control]
    kinds = [record.control_type for batch in control for record in batch.records or ()]
    assert len(kinds) == len(control)
    assert set(kinds) == {"COMMIT", "ABORT"}


def test_a_range_takes_whole_batches() -> None:
    place = LogDirectory.open(str(case("txn-basic").directory))
    partition = TopicPartition("txn-basic", 0)
    every = list(dump(place, partition))
    assert list(dump(place, partition, OffsetRange(9, 11))) == every[:2]
    assert list(dump(place, partition, OffsetRange(5, 5))) == []
    assert list(dump(place, partition, OffsetRange(-5, 10**9))) == every
    with pytest.raises(UnknownTopicOrPartitionError, match="txn-basic-7"):
        list(dump(place, TopicPartition("txn-basic", 7)))


def test_a_wrong_checksum_is_shown() -> None:
    place = LogDirectory.open(str(case("bad-flipped-byte").directory))
    bad = [
        batch
        for batch in dump(place, TopicPartition("bad-flipped-byte", 0), records=True)
        if not batch.is_valid
    ]
    assert [(batch.position, batch.size, batch.records) for batch in bad] == [(206, 292, None)]
