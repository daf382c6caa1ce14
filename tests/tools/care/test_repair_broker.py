"""A real broker starts on what was repaired, without recovery, and serves it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog import connect
from pyspark_kafkalog.log.layout import CLEAN_SHUTDOWN_FILE
from pyspark_kafkalog.model import TopicPartition
from tests.fixtures_dir import CASES, requires_fixtures
from tests.kafka import Broker, dump_log_segments
from tests.log.partitions import copy
from tests.tools.care.test_repair import readable

pytestmark = [pytest.mark.broker, pytest.mark.slow, requires_fixtures]

DAMAGED = [fixture for fixture in CASES if fixture.damaged]


def served(broker: Broker, partition: KafkaTopicPartition) -> list[int]:
    """The offsets of the records that a consumer gets."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    try:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        found: list[int] = []
        while consumer.position(partition) < end:
            found += [record.offset for record in consumer.poll(2000).get(partition, [])]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("salvage", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_broker_starts_without_recovery(
    salvage: bool, new_broker: Callable[[], Broker], tmp_path: Path
) -> None:
    assert DAMAGED
    broker = new_broker()
    broker.start()
    for fixture in DAMAGED:
        broker.create_topic(fixture.name, 1, {"retention.ms": -1})
    broker.stop()
    for fixture in DAMAGED:
        broker.plant(copy(fixture, tmp_path / fixture.name))
    (broker.log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    partitions = [TopicPartition(fixture.name, 0) for fixture in DAMAGED]
    expected = {
        partition: [row["offset"] for row in readable(broker.log_dir, partition)] for partition in partitions
    }
    done = connect(broker.log_dir).logs.repair(execute=True, salvage=salvage)
    assert done.clean_shutdown
    indexes = [
        path for p in partitions for s in ("index", "timeindex") for path in broker.log_dir.glob(f"{p}/*.{s}")
    ]
    assert len(indexes) > 2 * len(DAMAGED)
    dump_log_segments(*indexes, sanity=True)
    if not salvage:
        expected = {
            partition: [row["offset"] for row in fixture.records]
            for partition, fixture in zip(partitions, DAMAGED, strict=True)
        }
        # Offsets of a compacted log have gaps, and Kafka 0.10 indexed the first ones of appends.
        whole = [path for path in indexes if "compacted" not in str(path) and "-v1-" not in str(path)]
        dump_log_segments(*whole)
    before = broker.output.stat().st_size
    broker.start()
    logged = broker.output.read_text()[before:]
    assert "Skipping recovery of" in logged
    # A repair does not touch KRaft's own log, which has no clean shutdown.
    loading = [line for line in logged.splitlines() if "LogLoader" in line and "__cluster" not in line]
    assert len(loading) > len(DAMAGED)
    assert not [line for line in loading if "ecovering" in line or "orrupt" in line]
    for partition in partitions:
        assert served(broker, KafkaTopicPartition(*partition)) == expected[partition], partition
    broker.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)
