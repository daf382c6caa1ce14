"""A leader that was behind is elected: real brokers truncate, and the backup says what it has too much."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.errors import KafkaError

from pyspark_kafkalog import BackedUpPartition, BackupRules, connect
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.kafka_cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.long
def test_what_it_lost_is_told_and_cut_off(cluster: Cluster, tmp_path: Path) -> None:
    topic = unused_topic()
    partition = TopicPartition(topic, 0)
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1}
    cluster.create_topic(topic, 1, configs, replication_factor=2)
    leader = cluster.leader(topic)
    follower = next(node for node in cluster._partition(topic, 0)["replica_nodes"] if node != leader)
    options = {"kafka.bootstrap.servers": cluster.bootstrap}

    def run(**rules: bool) -> BackedUpPartition:
        (row,) = connect(options).logs.backup(str(tmp_path), BackupRules((topic,), groups=(), **rules))
        return row

    def write(count: int) -> None:
        produce(connected(cluster.bootstrap), topic, [numbered(count)], enable_idempotence=False)

    def is_elected() -> bool:
        try:
            return cluster.leader(topic) == follower
        except KafkaError:  # its admin client may ask the killed one
            return False

    write(50)
    cluster.kill(follower)
    write(100)  # acknowledged when the follower no longer counts
    assert (run().log_end_offset, run().problem) == (150, None)
    cluster.kill(leader)
    cluster.brokers[follower].start()
    cluster.wait_until(is_elected, "It was not elected")
    write(10)
    held = (tmp_path / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    row = run(allow_gaps=True)
    assert "Offsets 50 to 149 are not those of the source" in (row.problem or "")
    assert (tmp_path / f"{topic}-0" / "00000000000000000000.log").read_bytes() == held
    row = run(truncate=True)
    assert (row.problem, row.truncated, row.log_end_offset) == (None, [OffsetRange(50, 150)], 60)
    ours, theirs = (
        b"".join(
            bytes(piece.buffer) for piece in connect(at).place.fetch(Fetch(partition, OffsetRange(0, 60)))
        )
        for at in ({"path": str(tmp_path)}, options)
    )
    assert ours == theirs
