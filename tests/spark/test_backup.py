"""``backup(spark, ...)``: tasks copy, one for each partition, and the driver keeps the directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import OptionError, backup
from pyspark_kafkalog.admin import BackupRules, groups_of
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.kafka import Broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_it_goes_on_where_it_stopped(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, group = unused_topic(), unused_topic()
    broker.create_topic(topic, 3)
    options, rules = {"kafka.bootstrap.servers": broker.bootstrap}, BackupRules((topic,), groups=(group,))
    groups_of(options).commit(group, {TopicPartition(topic, 1): CommittedOffset(0, metadata="m")})
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
    committed = groups_of({"path": str(tmp_path)}).committed(group)
    assert committed[TopicPartition(topic, 1)].metadata == "m"
    with pytest.raises(OptionError, match="Tasks only copy what follows"):
        backup(spark, options, str(tmp_path), BackupRules(allow_gaps=True))
