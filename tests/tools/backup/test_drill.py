"""The drill: a cluster with topics of every kind is backed up beside its producers, and destroyed.

What is restored from the backup, and what a broker of another cluster adopts, is held against what the
cluster had, record by record; its producers, idempotent ones and those of transactions, go on in both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog import BackupRules, RestoreSettings, connect
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_service import KafkaService, running
from tests.tools.backup.consuming import Record, consume, next_of_group
from tests.tools.backup.kinds import BROKER_SETTINGS, GROUPS, closing, fill, make_topics, producers

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.soak]

MANY = 30
RENEWED = BackupRules(renew_compacted=True)
"""Tombstones of the compacted topic go within a second, and so between any two runs."""
SEGMENT_BYTES = "internal.segment.bytes"
COMPACTED = "compacted"
Records = dict[str, dict[int, dict[int, Record]]]
"""By topic, partition and offset."""


def options(service: KafkaService) -> dict[str, str]:
    return {"kafka.bootstrap.servers": service.bootstrap}


def is_decided(service: KafkaService, topic: str) -> bool:
    """Whether no transaction is open in a topic of one partition."""
    place = TopicPartition(topic, 0)
    bounds = connect(options(service)).place.watermarks([place], read_committed=True)[place]
    return bounds.last_stable_offset == bounds.high_watermark


def records_of(service: KafkaService, topics: Mapping[str, range]) -> Records:
    """What librdkafka's consumer reads of these partitions, committed records alone."""
    return {topic: consume(service.bootstrap, topic, partitions) for topic, partitions in topics.items()}


def test_a_destroyed_cluster_comes_back(
    new_broker: Callable[..., Broker], tmp_path: Path, chance: random.Random
) -> None:
    backup = tmp_path / "backup"
    with running(Cluster(tmp_path / "cluster", BROKER_SETTINGS)) as cluster:
        topics = make_topics(cluster, many=MANY)
        fill(cluster, chance)
        with producers(cluster, many=MANY):
            for _ in range(3):
                time.sleep(2)
                connect(options(cluster)).logs.backup(str(backup), RENEWED)
        rows = connect(options(cluster)).logs.backup(str(backup), RENEWED)
        assert not [row for row in rows if row.problem]
        assert all(row.log_end_offset == row.high_watermark for row in rows)
        partitions = {
            topic: range(len(numbers))
            for topic, numbers in connect(options(cluster)).place.topics(topics).items()
        }
        # The coordinator aborts the transaction that stays open, as a copy has to.
        cluster.wait_until(lambda: is_decided(cluster, "transactions"), "A transaction stays open", 120)
        expected = records_of(cluster, partitions)
        configs = connect(options(cluster)).topics.configs(topics)
    assert sum(len(found) for each in expected.values() for found in each.values()) > 20_000
    check_adopted(new_broker(BROKER_SETTINGS), backup, expected, configs)
    check_restored(new_broker(BROKER_SETTINGS), backup, expected, configs, tmp_path / "state")


def check_adopted(
    broker: Broker, backup: Path, expected: Records, configs: Mapping[str, Mapping[str, str]]
) -> None:
    """A broker of another cluster has all of it, also after a crash."""
    broker.start()
    for topic, partitions in expected.items():
        broker.create_topic(topic, len(partitions), configs[topic])
    # A broker has the topic of its groups only when one has committed.
    connect(options(broker)).groups.commit("first", {TopicPartition("none", 0): CommittedOffset(0)})
    broker.stop()
    adopted = connect(backup).logs.adopt(str(broker.log_dir), execute=True)
    assert not [row for row in adopted if row.problem]
    broker.start()
    for crash in (False, True):
        if crash:
            broker.stop(kill=True)
            broker.start()
        found = records_of(broker, {topic: range(len(each)) for topic, each in expected.items()})
        for topic in expected.keys() - {COMPACTED}:
            assert found[topic] == expected[topic], (topic, crash)
        assert last_values(found[COMPACTED][0]) == last_values(expected[COMPACTED][0])
    check_groups(broker, expected)
    assert connect(options(broker)).topics.configs(list(expected)) == configs
    check_producers_go_on(broker)


def check_restored(
    broker: Broker,
    backup: Path,
    expected: Records,
    configs: Mapping[str, Mapping[str, str]],
    state: Path,
) -> None:
    """Another cluster has the same records in the same order."""
    broker.start()
    # Segments that are smaller than the batches of a restore are the tests' own.
    settings = RestoreSettings(tuple(expected), configs={SEGMENT_BYTES: ""}, state=str(state))
    connect(backup).logs.restore(connect(options(broker)), settings, execute=True)
    found = records_of(broker, {topic: range(len(each)) for topic, each in expected.items()})
    for topic, partitions in expected.items():
        for number, records in partitions.items():
            theirs, ours = records, found[topic][number]
            if topic == COMPACTED:
                assert last_values(ours) == last_values(theirs)
            else:
                assert list(ours.values()) == list(theirs.values()), (topic, number)
    check_groups(broker, expected)
    own = connect(options(broker)).topics.configs(list(expected))
    for topic, theirs in configs.items():
        assert own[topic] == {name: value for name, value in theirs.items() if name != SEGMENT_BYTES}
    check_producers_go_on(broker)


def last_values(records: Mapping[int, Record]) -> dict[bytes | None, bytes | None]:
    """Of a log that may be compacted: what is left for each key."""
    values = {record.key: record.value for record in records.values()}
    return {key: value for key, value in values.items() if value is not None}


def check_groups(broker: Broker, expected: Records) -> None:
    """Each group goes on with the record with which it would have gone on in the cluster."""
    for group, offsets in GROUPS.items():
        for topic, offset in offsets.items():
            later = [record for at, record in expected[topic][0].items() if at >= offset]
            assert next_of_group(broker.bootstrap, group, topic, 0) == (later[0] if later else None)


def check_producers_go_on(broker: Broker) -> None:
    """Those of transactions by their ids, idempotent ones from their first sequence number on."""
    for name in ("goes-on", "stays-open", "ends"):
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("transactions", name.encode()).get(30)
        producer.commit_transaction()
        producer.close()
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)) as producer:
        for number in range(3):
            producer.send("none", b"again %d" % number, partition=0).get(30)
    found = list(consume(broker.bootstrap, "transactions", [0])[0].values())
    assert [record.value for record in found[-3:]] == [b"goes-on", b"stays-open", b"ends"]
    found = list(consume(broker.bootstrap, "none", [0])[0].values())
    assert [record.value for record in found[-3:]] == [b"again 0", b"again 1", b"again 2"]
