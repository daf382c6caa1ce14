"""Applications go on in a broker that has adopted a backup, whose producers had the same ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.tools.care.verify import verify
from tests.broker.producing import connected, numbered, produce
from tests.kafka import Broker
from tests.tools.backup.consuming import consume

pytestmark = [pytest.mark.broker, pytest.mark.soak]

TOPICS = ("open", "plain")


def producer(broker: Broker, **settings: Any) -> Producer:
    """One that asks the cluster for an id now."""
    made = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, **settings})
    if settings:
        made.init_transactions(30)
    return made


def send(made: Producer, topic: str, *values: str) -> None:
    """Each in a batch of its own."""
    failed = []
    for value in values:
        made.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
        assert made.flush(30) == 0
    assert failed == [None] * len(values)


def values(broker: Broker, topic: str, *, committed: bool = True) -> list[str]:
    found = consume(broker.bootstrap, topic, [0], committed=committed)[0]
    return [(record.value or b"").decode() for record in found.values()]


def test_the_same_applications_go_on(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """Also after a recovery that reads all batches, from which a broker learns of all producers."""
    old, new, directory = new_broker(), new_broker(), tmp_path / "backup"
    of_transactions = {"transactional.id": "app-1"}
    of_idempotence = {"enable.idempotence": True}
    old.start()
    for topic in TOPICS:
        old.create_topic(topic)
    first = producer(old, **of_transactions)
    first.begin_transaction()
    send(first, "open", "done")
    first.commit_transaction(30)
    send(Producer({"bootstrap.servers": old.bootstrap, **of_idempotence}), "plain", "a", "b")
    # The next block of ids, as in a broker that has been started twice.
    old.stop()
    old.start()
    send(Producer({"bootstrap.servers": old.bootstrap, **of_idempotence}), "plain", "c")
    left = producer(old, **{"transactional.id": "app-2"})
    left.begin_transaction()
    send(left, "open", "never-1", "never-2")
    rows = connect(old.bootstrap).logs.backup(str(directory), BackupRules(groups=()))
    assert not [row for row in rows if row.problem]
    old.stop(kill=True)

    new.start()
    for topic in TOPICS:
        new.create_topic(topic)
    new.stop()
    looked = connect(directory).logs.adopt(str(new.log_dir), groups=False)
    adopted = connect(directory).logs.adopt(str(new.log_dir), groups=False, execute=True)
    assert looked == adopted
    ended = {row.topic: [(t.first_offset, t.last_offset) for t in row.aborted] for row in adopted}
    assert ended == {"open": [(2, 4)], "plain": []}
    place = connect(new.log_dir).place
    held = [TopicPartition(topic, 0) for topic in TOPICS]
    assert not [found.damages for found in verify(place, held) if found.damages]
    new.start()
    assert "recovering segment" not in new.output.read_text().lower()
    assert values(new, "open") == ["done"]
    assert values(new, "open", committed=False) == ["done", "never-1", "never-2"]
    again = producer(new, **of_transactions)
    again.begin_transaction()
    send(again, "open", "new-1")
    again.commit_transaction(30)
    send(Producer({"bootstrap.servers": new.bootstrap, **of_idempotence}), "plain", "d", "e")
    assert values(new, "open") == ["done", "new-1"]
    assert values(new, "plain") == ["a", "b", "c", "d", "e"]

    new.stop(kill=True)
    (new.log_dir / "recovery-point-offset-checkpoint").unlink()
    new.start()
    assert values(new, "open") == ["done", "new-1"]
    send(Producer({"bootstrap.servers": new.bootstrap, **of_idempotence}), "plain", "f", "g")
    again = producer(new, **{"transactional.id": "app-2"})
    again.begin_transaction()
    send(again, "open", "new-2")
    again.commit_transaction(30)
    assert values(new, "open") == ["done", "new-1", "new-2"]
    assert values(new, "plain") == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_broker_does_not_show_what_was_deleted(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """The gap of the backup ends within a batch, which the broker loads, and recovers after a kill."""
    old, new, directory = new_broker(), new_broker(), tmp_path / "backup"
    old.start()
    old.create_topic("t")
    produce(connected(old.bootstrap), "t", [numbered(10)])
    connect(old.bootstrap).logs.backup(str(directory), BackupRules(groups=()))
    produce(connected(old.bootstrap), "t", [numbered(100, start=10)])
    old.delete_records("t", 60)
    (row,) = connect(old.bootstrap).logs.backup(str(directory), BackupRules(groups=(), allow_gaps=True))
    assert (row.problem, row.gaps) == (None, [OffsetRange(10, 60)])
    old.stop(kill=True)
    new.start()
    new.create_topic("t")
    new.stop()
    connect(directory).logs.adopt(str(new.log_dir), groups=False, execute=True)
    kept = {at: b"%010d" % at for at in (*range(10), *range(60, 110))}
    for _ in range(2):
        new.start()
        found = consume(new.bootstrap, "t", [0])[0]
        assert {at: record.value for at, record in found.items()} == kept
        new.stop(kill=True)
        (new.log_dir / "recovery-point-offset-checkpoint").unlink()
