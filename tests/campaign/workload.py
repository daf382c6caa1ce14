"""Writes numbered records to a round's topics, and remembers which all replicas in sync acknowledged."""

from __future__ import annotations

import bisect
import contextlib
import sys
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.campaign.histories import Record, Topic
from tests.campaign.schedule import NotDone
from tests.kafka_cluster import Cluster

KEYS = 10
"""Of a topic that is compacted."""
IN_A_TRANSACTION = 5
STALLED = 60.0
"""Seconds without an acknowledgement, which is longer than any fault lasts."""
LATEST = 6000
"""Records of half a minute: longer ago no broker has any that it has not answered."""


class Topics:
    """The topics of a round, by what befalls them. Kafka's names end in the round's number."""

    def __init__(self, number: int) -> None:
        self.kept = f"kept-{number}"
        self.growing = f"growing-{number}"
        self.expiring = f"expiring-{number}"
        self.compacted = f"compacted-{number}"
        self.remade = f"remade-{number}"
        self.transacted = f"transacted-{number}"
        """Written in transactions, of which every third is aborted."""
        self.copies = f"copies-{number}"
        self.copies_once = f"copies-once-{number}"
        self.copies_shared = f"copies-shared-{number}"
        self.safe = (self.kept, self.growing)
        """They lose nothing."""
        self.side = (self.expiring, self.compacted, self.remade)
        self.partitions = {
            self.kept: 3,
            self.growing: 2,
            self.expiring: 2,
            self.compacted: 1,
            self.remade: 1,
            self.transacted: 2,
            self.copies: 8,
            self.copies_once: 8,
            self.copies_shared: 8,
        }
        self.configs: dict[str, dict[str, object]] = {
            # A segment ends every 2 s, as only what is in closed ones expires or is compacted.
            self.expiring: {"segment.ms": 2000},
            self.compacted: {"cleanup.policy": "compact", "segment.ms": 2000},
        }
        self.share = {self.kept: 8, self.growing: 4, self.expiring: 3, self.compacted: 3, self.remade: 2}
        """How many records each gets, ten times a second."""


def last_of_each_key(records: Iterable[Record]) -> set[Record]:
    """What every replica of the compacted topic has: each compacts in its own time, and may keep more."""
    return set({record.number % KEYS: record for record in sorted(records)}.values())


class Workload:
    """A thread that produces, with idempotence and acks=all, to brokers that no proxy is before."""

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self.sent = 0
        self.lossy: set[str] = set()
        """Topics of which records were deleted on purpose that streams may not have read."""
        self.shrunk: set[str] = {topics.compacted}
        """Others of which records are gone."""
        self._cluster = cluster
        self._topics = topics
        self._acknowledged: dict[str, dict[int, tuple[int, int, float]]] = defaultdict(dict)
        """By topic and number: partition, offset, and when."""
        self._last_acknowledged = self._opened = time.time()
        self.stalled = ""
        """Where the thread that produces hung, if it did: then streams had nothing to do."""
        self._numbers = dict.fromkeys(topics.share, 0)
        self._made = {topic: [0] for topic in (*topics.share, topics.transacted)}
        """The first number of each making of a topic."""
        self._over = threading.Event()
        self._producing = threading.Lock()
        self._producer: Any = None
        self._latest: deque[Any] = deque(maxlen=LATEST)
        """What became of the last records."""
        self.aborted: set[int] = set()
        """Numbers of the transacted topic of which the coordinator said so."""
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._run, self._transact)]

    @property
    def acknowledged(self) -> int:
        """How many records were."""
        return sum(map(len, self._acknowledged.values()))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, when what was sent is acknowledged or has failed."""
        if time.time() - self._last_acknowledged > STALLED:
            frame = sys._current_frames().get(self._threads[0].ident or 0)
            self.stalled = " ".join(traceback.format_stack(frame)[-4:])
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._close(30)

    @contextlib.contextmanager
    def making_anew(self, topic: str) -> Iterator[None]:
        """Nothing is sent within; what is sent afterwards belongs to another topic of the name.

        :raises NotDone: if something is still on its way, which might reach the next one.
        """
        with self._producing:
            if self._producer is not None:
                try:
                    self._producer.flush(5)
                except KafkaError as e:
                    raise NotDone("records are on their way") from e
            if any(future.failed() for future in self._latest):
                raise NotDone("a broker may still have records that failed")
            self._close(5)
            self.lossy.add(topic)
            try:
                yield
            finally:
                self._made[topic].append(self._numbers[topic])

    def label(self, topic: str, number: int) -> str:
        """The name for histories of the topic that got this number: each making has its own."""
        made = self._made.get(topic, [0])
        return f"{topic}#{bisect.bisect(made, number)}" if len(made) > 1 else topic

    def acknowledged_before(self, moment: float) -> dict[tuple[str, int], int]:
        """The greatest offset that each safe partition had acknowledged at a time of ``time.time()``."""
        greatest: dict[tuple[str, int], int] = {}
        for topic in self._topics.safe:
            for partition, offset, when in list(self._acknowledged[topic].values()):
                if when < moment:
                    greatest[topic, partition] = max(offset, greatest.get((topic, partition), -1))
        return greatest

    def known(self) -> dict[str, Topic]:
        """All topics as histories know them, with what their logs have now."""
        numbers: dict[str, set[int]] = defaultdict(set)
        stored: dict[str, set[Record]] = defaultdict(set)
        for topic in self._made:
            for making in self._made[topic]:
                numbers[self.label(topic, making)] = set()
            for number in self._acknowledged[topic]:
                numbers[self.label(topic, number)].add(number)
            committed = topic == self._topics.transacted
            records = stored_records(self._cluster.bootstrap, topic, read_committed=committed)
            for record in last_of_each_key(records) if topic == self._topics.compacted else records:
                label = self.label(topic, record.number)
                stored[label].add(record._replace(topic=label))
        lossy = self.lossy | {self._topics.compacted}
        known = {}
        for label, acknowledged in numbers.items():
            topic = label.split("#")[0]
            known[label] = Topic(
                frozenset(acknowledged),
                frozenset(stored[label]),
                whole=topic not in self.shrunk | self.lossy,
                may_lose=topic in lossy,
            )
        return known

    def _run(self) -> None:
        while not self._over.wait(0.1):
            with self._producing:
                try:
                    if time.time() - max(self._last_acknowledged, self._opened) > STALLED / 2:
                        # kafka-python's producer may wait for good when a leader was paused.
                        self._close(0)
                    for topic, count in self._topics.share.items():
                        for _ in range(count):
                            self._send(topic)
                except KafkaError:
                    # It cannot go on: what is under way may be there or not, and is not acknowledged.
                    self._close(0)

    def numbers(self) -> dict[str, set[int]]:
        """The numbers of each topic that were acknowledged, or committed."""
        return {topic: set(known) for topic, known in self._acknowledged.items()}

    def _transact(self) -> None:
        """One transaction after the other, by one transactional id."""
        producer, number = None, 0
        while not self._over.wait(0.5):
            numbers = range(number, number + IN_A_TRANSACTION)
            number += IN_A_TRANSACTION
            self.sent += IN_A_TRANSACTION
            try:
                if producer is None:
                    producer = self._transactional()
                self._transact_once(producer, numbers)
            except KafkaException:
                # What the coordinator made of it is unknown; the next producer ends it.
                producer = None
        with contextlib.suppress(KafkaException):
            # Nothing stays open.
            self._transactional()

    def _transactional(self) -> Any:
        topic = self._topics.transacted
        settings = {"bootstrap.servers": self._cluster.bootstrap, "transactional.id": topic, "log_level": 0}
        producer = Producer({**settings, "transaction.timeout.ms": 10_000, "message.timeout.ms": 9_000})
        producer.init_transactions(30)
        return producer

    def _transact_once(self, producer: Any, numbers: range) -> None:
        topic = self._topics.transacted
        places: dict[int, tuple[int, int, float]] = {}

        def acknowledge(error: Any, message: Any) -> None:
            if error is None:
                places[int(message.value())] = message.partition(), message.offset(), time.time()

        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, b"%d" % number, partition=number % 2, on_delivery=acknowledge)
        producer.flush(20)
        if numbers.start // IN_A_TRANSACTION % 3 == 2 or len(places) < len(numbers):
            producer.abort_transaction(20)
            self.aborted.update(numbers)
        else:
            producer.commit_transaction(20)
            self._acknowledged[topic].update(places)

    def _send(self, topic: str) -> None:
        if self._producer is None:
            self._opened = time.time()
            self._producer = KafkaProducer(
                bootstrap_servers=self._cluster.bootstrap,
                acks="all",
                linger_ms=20,
                max_block_ms=5000,
                request_timeout_ms=5000,
                delivery_timeout_ms=20_000,
            )
        number = self._numbers[topic]
        self._numbers[topic] += 1
        key = b"%d" % (number % KEYS) if topic == self._topics.compacted else None
        sent = self._producer.send(topic, b"%d" % number, key)
        self._latest.append(sent.add_callback(self._acknowledge, topic, number))
        self.sent += 1

    def _acknowledge(self, topic: str, number: int, metadata: Any) -> None:
        self._last_acknowledged = time.time()
        self._acknowledged[topic][number] = metadata.partition, metadata.offset, self._last_acknowledged

    def _close(self, seconds: float) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):
                producer.close(timeout=seconds)
            # That leaves it running if its records are not sent by then.
            producer._sender.force_close()
            producer._sender.join(seconds)


def stored_records(bootstrap: str, topic: str, *, read_committed: bool = False) -> Iterator[Record]:
    """What a topic's log has, numbers as values, as kafka-python's consumer reads it."""
    for partition, offset, value in stored_values(bootstrap, topic, read_committed=read_committed):
        yield Record(topic, partition, offset, int(value))


def stored_values(
    bootstrap: str, topic: str, *, read_committed: bool = False
) -> Iterator[tuple[int, int, bytes]]:
    """Partition, offset and value of each record of a topic, partitions in order."""
    isolation = "read_committed" if read_committed else "read_uncommitted"
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level=isolation)
    try:
        for number in sorted(consumer.partitions_for_topic(topic) or ()):
            partition = TopicPartition(topic, number)
            end = consumer.end_offsets([partition])[partition]
            consumer.assign([partition])
            consumer.seek_to_beginning()
            while consumer.position(partition) < end:
                for record in consumer.poll(timeout_ms=1000).get(partition, ()):
                    yield number, record.offset, record.value
    finally:
        consumer.close()


def end_offsets(bootstrap: str, topics: list[str]) -> dict[tuple[str, int], int]:
    """Where each partition ends."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in consumer.partitions_for_topic(topic) or ()
        ]
        return {
            (partition.topic, partition.partition): end
            for partition, end in consumer.end_offsets(partitions).items()
        }
    finally:
        consumer.close()
