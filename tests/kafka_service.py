"""What tests do with anything that serves Kafka's protocol: a broker, an old broker, a cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError


class KafkaService:
    """Topics by kafka-python's admin client; ``bootstrap`` is an address without injected faults."""

    bootstrap: str

    def output_tail(self, lines: int = 100) -> str:
        """The last lines of its log."""
        raise NotImplementedError

    @contextlib.contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """kafka-python's admin client, for a ``with`` block."""
        client = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield client
        finally:
            client.close()

    def answers(self) -> bool:
        """Whether it answers a metadata request."""
        try:
            with self.admin() as admin:
                admin.list_topics()
        except (OSError, KafkaError):
            return False
        return True

    def make_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = 1,
    ) -> None:
        """Create a topic, and wait until each of its partitions has a leader."""
        settings = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": {name: str(value) for name, value in (configs or {}).items()},
        }
        with self.admin() as admin:
            admin.create_topics({topic: settings})

            def is_led() -> bool:
                (described,) = admin.describe_topics([topic])
                found = described["partitions"]
                return len(found) == partitions and all(partition["leader_id"] >= 0 for partition in found)

            self.wait_until(is_led, f"{topic} has partitions without a leader")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone from metadata."""
        with self.admin() as admin:
            admin.delete_topics([topic])
            self.wait_until(lambda: topic not in admin.list_topics(), f"{topic} is still there")

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Move the log start offset, as retention would in its own time."""
        with self.admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    @contextlib.contextmanager
    def member(self, group: str, topic: str) -> Iterator[KafkaConsumer]:
        """A consumer that has joined ``group`` and has partitions of ``topic``, for a ``with`` block."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)
        try:
            # kafka-python never gets an assignment if it joins before it knows the topic.
            self.wait_until(lambda: bool(consumer.partitions_for_topic(topic)), f"{topic} is not known")
            consumer.subscribe([topic])
            self.wait_until(
                lambda: bool(consumer.poll(100) or consumer.assignment()), f"{group} is assigned nothing", 90
            )
            yield consumer
        finally:
            consumer.close()

    def wait_until(self, done: Callable[[], bool], complaint: str, timeout: float = 30) -> None:
        """Poll until a condition holds; if it never does, raise TimeoutError with the log's tail."""
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{complaint}:\n{self.output_tail()}")
            time.sleep(0.02)


@contextlib.contextmanager
def running(service: Any) -> Iterator[Any]:
    """A broker or a cluster, started, and killed at the end."""
    try:
        service.start()
        yield service
    finally:
        service.discard()
