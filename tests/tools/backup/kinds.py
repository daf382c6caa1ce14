"""A cluster with every kind of topic, and producers that keep on writing to them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaProducer

from pyspark_kafkalog import connect
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.kafka import Broker

COMPRESSIONS = (None, "gzip", "snappy", "lz4", "zstd")
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": 200,
    "message.max.bytes": 4 << 20,
    # No file of deleted records goes while it is compared.
    "log.initial.task.delay.ms": 3_600_000,
}
SMALL_SEGMENTS = {"internal.segment.bytes": 100_000}
OFTEN_CLEANED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 20_000,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 3_600_000,
}
"""No tombstone goes before it is copied: a backup that may lack one has a problem."""
GROUPS = {"readers": {"none": 7, "gzip": 3}, "others": {"transactions": 10}}
"""Offsets that groups have committed for the first partitions of topics."""
MANY = 200


def name_of(compression: str | None) -> str:
    return compression or "none"


def make_topics(broker: Broker, *, many: int = MANY) -> list[str]:
    """Create the topics, empty."""
    topics = {name_of(compression): (2, SMALL_SEGMENTS) for compression in COMPRESSIONS}
    topics |= {
        "transactions": (1, SMALL_SEGMENTS),
        "compacted": (1, OFTEN_CLEANED),
        "deleted": (1, SMALL_SEGMENTS),
        "headers": (1, {}),
        "large": (1, {"max.message.bytes": 4 << 20}),
        "empty": (2, {}),
        "many": (many, {}),
    }
    for topic, (partitions, configs) in topics.items():
        broker.create_topic(topic, partitions, configs)
    return list(topics)


def fill(broker: Broker, chance: random.Random) -> None:
    """Put something of each kind into the topics; a transaction stays open."""
    bootstrap = {"bootstrap_servers": broker.bootstrap}
    for compression in COMPRESSIONS:
        with closing(KafkaProducer(**bootstrap, compression_type=compression)) as producer:
            for number in range(2000):
                producer.send(
                    name_of(compression), _value(number, chance), b"%d" % number, partition=number % 2
                )
    with closing(KafkaProducer(**bootstrap)) as producer:
        for number in range(3000):
            producer.send("compacted", _value(number, chance) if number % 7 else None, b"%d" % (number % 50))
            producer.send("deleted", _value(number, chance))
            producer.send(
                "headers", b"v", headers=[("h", b"%d" % number), ("é", b""), ("h", b"2")][: number % 4]
            )
    with closing(KafkaProducer(**bootstrap, max_request_size=4 << 20)) as producer:
        for number in range(3):
            producer.send("large", chance.randbytes(1 << 20), b"%d" % number)
    producer = KafkaProducer(**bootstrap, transactional_id="ends")
    producer.init_transactions()
    for number in range(10):
        producer.begin_transaction()
        for _ in range(20):
            producer.send("transactions", _value(number, chance))
        producer.flush()
        producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
    producer.close()
    broker.delete_records("deleted", 1234)
    groups = connect(broker.bootstrap).groups
    for group, offsets in GROUPS.items():
        committed = {
            TopicPartition(topic, 0): CommittedOffset(offset, metadata="kept")
            for topic, offset in offsets.items()
        }
        groups.commit(group, committed)


@contextmanager
def producers(broker: Broker, *, many: int = MANY) -> Iterator[threading.Event]:
    """Producers that write until the end, and a transaction that stays open. The event stops them early."""
    stop = threading.Event()
    open_transaction = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="stays-open")
    open_transaction.init_transactions()
    open_transaction.begin_transaction()
    open_transaction.send("transactions", b"open").get(30)
    threads = [
        threading.Thread(target=_produce, args=(broker, compression, stop, many))
        for compression in COMPRESSIONS
    ]
    threads.append(threading.Thread(target=_produce_transactions, args=(broker, stop)))
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        open_transaction.close()


def _produce(broker: Broker, compression: str | None, stop: threading.Event, many: int) -> None:
    chance = random.Random(name_of(compression))
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=compression)) as producer:
        number = 0
        while not stop.is_set():
            for _ in range(20):
                number += 1
                producer.send(name_of(compression), _value(number, chance), partition=number % 2)
                producer.send("many", b"%d" % number, partition=chance.randrange(many))
                producer.send("compacted", _value(number, chance), b"%d" % (number % 50))
            producer.flush()
            time.sleep(0.02)


def _produce_transactions(broker: Broker, stop: threading.Event) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="goes-on")
    producer.init_transactions()
    number = 0
    while not stop.is_set():
        number += 1
        producer.begin_transaction()
        producer.send("transactions", b"%d" % number)
        producer.flush()
        producer.abort_transaction() if number % 3 == 1 else producer.commit_transaction()
        time.sleep(0.02)
    producer.close()


@contextmanager
def closing(producer: KafkaProducer) -> Iterator[KafkaProducer]:
    try:
        yield producer
        producer.flush()
    finally:
        producer.close()


def _value(number: int, chance: random.Random) -> bytes:
    return b"%d " % number + chance.randbytes(20).hex().encode() * 3
