"""Topics of every kind in a real broker, written by librdkafka's and kafka-python's producers."""

from __future__ import annotations

import random
import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka import Broker

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
EVERY_KIND = ("plain", "compressed", "transactions", "compacted", "deleted", "appended", "empty", "large")
_FIRST = 1_600_000_000_000


def fill(broker: Broker, chance: random.Random) -> None:
    """Make the topics of :data:`EVERY_KIND`, each of three partitions."""
    configs = {
        "compacted": {
            "cleanup.policy": "compact",
            "segment.ms": 100,
            "min.cleanable.dirty.ratio": 0.01,
            "min.compaction.lag.ms": 0,
        },
        "appended": {"message.timestamp.type": "LogAppendTime"},
        "large": {"max.message.bytes": 3_000_000},
        "plain": {"retention.ms": -1, "segment.bytes": 1 << 20},
    }
    for topic in EVERY_KIND:
        broker.make_topic(topic, PARTITIONS, configs.get(topic))
    for topic in ("plain", "deleted", "appended"):
        _produce(broker, topic, 300, chance)
    for compression in COMPRESSIONS:
        _produce(broker, "compressed", 200, chance, compression=compression)
    _produce(broker, "large", 4, chance, size=1_000_000, message_max_bytes=2_000_000)
    for number in range(PARTITIONS - 1):
        broker.delete_records("deleted", 37 + number, number)
    _transactions(broker, chance)
    _compacted(broker, chance)


def _producer(broker: Broker, **settings: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0, **given})


def _produce(
    broker: Broker,
    topic: str,
    count: int,
    chance: random.Random,
    *,
    producer: Producer | None = None,
    compression: str = "none",
    size: int = 100,
    **settings: object,
) -> None:
    """Records with and without keys, values and headers, with times that don't rise."""
    own = producer or _producer(broker, compression_type=compression, **settings)
    for number in range(count):
        headers = [("a", b"1"), ("b", None), ("a", uuid.UUID(int=number).bytes)][: number % 4]
        key = None if number % 5 == 0 else b"key-%d" % chance.randrange(40)
        own.produce(
            topic,
            None if number % 7 == 0 else chance.randbytes(size) if size > 1000 else b"%d" % number * 5,
            b"key-0" if topic == "compacted" and key is None else key,
            chance.randrange(PARTITIONS),
            timestamp=_FIRST + chance.randrange(10**6),
            headers=headers,
        )
    if producer is None:
        own.flush()


def _transactions(broker: Broker, chance: random.Random) -> None:
    """Committed, aborted, open for ever, and records between them that belong to none."""
    producers = [
        _producer(broker, transactional_id=uuid.uuid4().hex, transaction_timeout_ms=900_000) for _ in range(3)
    ]
    for producer in producers:
        producer.init_transactions()
    for turn in range(6):
        for number, producer in enumerate(producers[:2]):
            producer.begin_transaction()
            _produce(broker, "transactions", 20, chance, producer=producer)
            producer.flush()
            _produce(broker, "transactions", 5, chance)
            if (turn + number) % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        if turn == 3:
            producers[2].begin_transaction()
            _produce(broker, "transactions", 30, chance, producer=producers[2])
            producers[2].flush()
    # What librdkafka does not end stays open.
    _open.append(producers[2])


_open: list[Producer] = []


def _compacted(broker: Broker, chance: random.Random) -> None:
    """Overwrite keys until the broker's cleaner has left gaps."""
    for _ in range(4):
        _produce(broker, "compacted", 200, chance)
        time.sleep(0.3)
    folders = [broker.partition_folder("compacted", number) for number in range(PARTITIONS)]

    def is_cleaned() -> bool:
        _produce(broker, "compacted", 3, chance)
        path = broker.log_dir / "cleaner-offset-checkpoint"
        return path.exists() and all(folder.name.replace("-", " ") in path.read_text() for folder in folders)

    broker.wait_until(is_cleaned, "the cleaner has cleaned nothing", 60)
    broker.stop_cleaning("compacted")


def commit(broker: Broker, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets as a group's consumer does."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()
