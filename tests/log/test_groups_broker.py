"""A real broker takes over the ``__consumer_offsets`` that we wrote, and we take over the broker's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import RetriableError
from kafka.structs import OffsetAndMetadata

from pyspark_kafkalog.codec.offsets_topic import offsets_partition
from pyspark_kafkalog.errors import LogDirectoryLockedError
from pyspark_kafkalog.extensions.log_groups import groups as groups_module
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from tests.kafka import Broker, dump_log_segments, run_kafka_class
from tests.log.writing import T0, T1, values, write

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Offsets = dict[TopicPartition, tuple[int, int, str]]
"""Offset, leader epoch, metadata."""

GROUPS = ("group", "query", "überall 😀")
"""In both partitions of the offsets topic."""


def ours(groups: DirectoryGroups, group: str) -> Offsets:
    return {
        partition: (committed.offset, committed.leader_epoch, committed.metadata)
        for partition, committed in groups.committed(group).items()
    }


def ask(broker: Broker, question: Callable[[KafkaAdminClient], Any]) -> Any:
    """The answer of kafka-python's admin client, asked again while the coordinator is created or loads."""
    answers: list[Any] = []

    def answered() -> bool:
        try:
            with broker.admin() as admin:
                answers.append(question(admin))
        except RetriableError:
            return False
        return True

    broker.wait_until(answered, "No coordinator")
    return answers[0]


def served(broker: Broker, group: str) -> Offsets:
    """The broker's answer to OffsetFetch."""
    found = ask(broker, lambda admin: admin.list_group_offsets({group: None}))[group]
    return {
        TopicPartition(*partition): (entry.offset, entry.leader_epoch, entry.metadata)
        for partition, entry in found.items()
    }


def commit_to(broker: Broker, group: str, offset: int, metadata: str, epoch: int) -> None:
    committed = {KafkaTopicPartition("t", 0): OffsetAndMetadata(offset, metadata, epoch)}
    ask(broker, lambda admin: admin.alter_group_offsets(group, committed))


def group_ids(broker: Broker) -> set[str]:
    return {group["group_id"] for group in ask(broker, lambda admin: admin.list_groups())}


def described(broker: Broker, group: str) -> list[list[str]]:
    """Topic, partition, offset, log end offset and lag, as Kafka's own tool shows them."""
    printed = run_kafka_class(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", broker.bootstrap, "--describe", "--group", group),
    ).stdout
    return sorted(line.split()[1:6] for line in printed.splitlines() if line.startswith(group + " "))


def commit_many(groups: DirectoryGroups, upto: int) -> None:
    """Enough commits for a compaction or two."""
    for number in range(60):
        for group in GROUPS:
            groups.commit(group, {T0: CommittedOffset(upto - 60 + number, metadata="m")})


def adopting(broker: Broker, root: Path) -> None:
    """Copy the directory's files to the broker under the names of its own topics."""
    broker.start()
    broker.create_topic("t", 2)
    commit_to(broker, "anyone", 0, "", -1)
    broker.stop()
    broker.plant(root)
    broker.start()


def killed_while_compacting(root: Path) -> None:
    """Leave the files like a process that dies during compaction: the log is new, its indexes are missing."""
    for log in list(root.glob(f"{OFFSETS_TOPIC}-*/*.log")):
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).rename(log.with_suffix(f"{suffix}.cleaned"))


@pytest.mark.long
def test_a_broker_serves_what_we_committed_and_we_what_it_did(
    tmp_path: Path, new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    monkeypatch.setattr(groups_module, "_CLEAN_BYTES", 4096)
    root = tmp_path / "root"
    root.mkdir()
    write(root, {T0: values(100), T1: values(10)})
    groups = DirectoryGroups.open([str(root)], num_partitions=2)
    assert {offsets_partition(group, 2) for group in GROUPS} == {0, 1}
    groups.commit("deleted", {T0: CommittedOffset(1)})
    commit_many(groups, 90)
    groups.commit("query", {T1: CommittedOffset(10, metadata="x" * 4096)})
    groups.commit("group", {T1: CommittedOffset(3)})
    groups.delete_offsets("group", [T1])
    groups.delete_group("deleted")
    logs = [*root.glob(f"{OFFSETS_TOPIC}-*/*.log")]
    assert 0 < sum(path.stat().st_size for path in logs) < 20_000, "Nothing was compacted"
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    dump_log_segments(*indexes)
    dump_log_segments(*indexes, sanity=True)
    expected = {group: ours(groups, group) for group in GROUPS}
    assert expected["query"] == {T0: (89, 0, "m"), T1: (10, 0, "x" * 4096)}

    broker = new_broker()
    adopting(broker, root)
    assert {group: served(broker, group) for group in GROUPS} == expected
    assert described(broker, "query") == [["t", "0", "89", "100", "11"], ["t", "1", "10", "10", "0"]]
    assert group_ids(broker) == set(GROUPS)
    commit_to(broker, "query", 95, "theirs", 0)
    commit_to(broker, "their own", 7, "", -1)
    broker_dir = DirectoryGroups.open([str(broker.log_dir)], lock_timeout=0.1)
    expected["query"][T0] = (95, 0, "theirs")
    assert broker_dir.group_ids() == tuple(sorted((*GROUPS, "their own")))
    assert {group: ours(broker_dir, group) for group in GROUPS} == expected
    with pytest.raises(LogDirectoryLockedError):
        broker_dir.commit("query", {T0: CommittedOffset(1)})

    for kill in (False, True) if soak else (True,):
        broker.stop(kill=kill)
        commit_many(broker_dir, 100)
        assert ours(broker_dir, "their own") == {T0: (7, -1, "")}
        expected = {group: ours(broker_dir, group) for group in (*GROUPS, "their own")}
        killed_while_compacting(broker.log_dir)
        assert expected["query"] == {T0: (99, 0, "m"), T1: (10, 0, "x" * 4096)}
        broker.start()
        assert {group: served(broker, group) for group in expected} == expected
    broker.stop()
    broker_dir.delete_group("query")
    broker.start()
    left = {*GROUPS, "their own"} - {"query"}
    # While a broker loads its groups, it lists none.
    broker.wait_until(lambda: group_ids(broker) == left, "Other groups are listed")


def staging(broker: Broker, group: str, offset: int) -> KafkaProducer:
    """A producer whose transaction holds a commit of the group."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"of-{group}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        {KafkaTopicPartition("t", 0): OffsetAndMetadata(offset, "", -1)}, group
    )
    return producer


@pytest.mark.long
def test_a_deleted_group_stays_deleted_whatever_transactions_hold(
    new_broker: Callable[[], Broker],
) -> None:
    """Deleted by the broker, and by us while it is down: both agree on what is left."""
    broker = new_broker()
    broker.start()
    broker.create_topic("t", 1)
    commit_to(broker, "theirs", 60, "", -1)
    producers = [staging(broker, "theirs", 50), staging(broker, "ours", 50), staging(broker, "kept", 50)]
    ask(broker, lambda admin: admin.delete_group_offsets("theirs", [KafkaTopicPartition("t", 0)]))
    broker.stop()
    groups = DirectoryGroups.open([str(broker.log_dir)])
    assert groups.group_ids() == ("kept", "ours")
    groups.delete_group("ours")
    broker.start()
    for producer in producers:
        producer.commit_transaction()
        producer.close()
    # The broker lists a group without offsets until it next cleans up.
    broker.wait_until(lambda: group_ids(broker) - {"theirs"} == {"kept"}, "Other groups are listed")
    assert {group: served(broker, group) for group in ("theirs", "ours")} == {"theirs": {}, "ours": {}}
    assert served(broker, "kept") == {T0: (50, -1, "")}
    broker.stop()
    groups = DirectoryGroups.open([str(broker.log_dir)])
    assert groups.group_ids() == ("kept",)
    assert ours(groups, "kept") == {T0: (50, -1, "")}
