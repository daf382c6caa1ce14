"""``backup(spark, ...)``: tasks copy, one for each partition, and the driver keeps the directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import BackupRules, OptionError, backup, connect
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.kafka import Broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.long
def test_it_goes_on_where_it_stopped(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, group = unused_topic(), unused_topic()
    broker.create_topic(topic, 3)
    options, rules = {"kafka.bootstrap.servers": broker.bootstrap}, BackupRules((topic,), groups=(group,))
    connect(options).groups.commit(group, {TopicPartition(topic, 1): CommittedOffset(0, metadata="m")})
    for records in 300, 0, 30:
        produce(connected(broker.bootstrap), topic, [numbered(records)] if records else [])
        rows = backup(spark, options, str(tmp_path), rules)
        assert [(row.topic, row.partition, row.problem) for row in rows] == [
            (topic, number, None) for number in range(3)
        ]
        assert all(row.log_end_offset == row.high_watermark for row in rows)
        for row in rows:
            theirs, ours = (
                b"".join(f.read_bytes() for f in sorted((root / f"{topic}-{row.partition}").glob("*.log")))
                for root in (broker.log_dir, tmp_path)
            )
            assert ours == theirs
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        assert not [*tmp_path.glob(".kafkalog-lock-*")]
    committed = connect(tmp_path).groups.committed(group)
    assert committed[TopicPartition(topic, 1)].metadata == "m"
    with pytest.raises(OptionError, match="Tasks only copy what follows"):
        backup(spark, options, str(tmp_path), BackupRules(allow_gaps=True))


def test_damage_in_one_partition_hinders_no_other(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 3)
    options, rules = {"kafka.bootstrap.servers": broker.bootstrap}, BackupRules((topic,), groups=())
    to_each = pa.array([0, 1, 2] * 10, pa.int32())
    for _ in range(3):
        records = numbered(30).append_column("partition", to_each)
        produce(connected(broker.bootstrap), topic, [records])
    assert not [row for row in backup(spark, options, str(tmp_path), rules) if row.problem]
    (tmp_path / ".kafka_cleanshutdown").unlink()
    segment = tmp_path / f"{topic}-2" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.write_bytes(data)
    produce(connected(broker.bootstrap), topic, [records])
    rows = backup(spark, options, str(tmp_path), rules)
    assert [(row.log_end_offset, row.high_watermark) for row in rows] == [(40, 40), (40, 40), (30, 40)]
    assert [bool(row.problem) for row in rows] == [False, False, True]
    assert str(segment) in (rows[2].problem or "")
    assert segment.read_bytes() == data
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
