"""Write batches exactly once without Spark, and look at what is there with other clients."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from kafka import KafkaConsumer, TopicPartition

from pyspark_kafkalog.extensions.exactly_once.sink import TransactionalSink
from pyspark_kafkalog.model import Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.places import open_sink
from pyspark_kafkalog.staging import Staged
from pyspark_kafkalog.write.routing import Router
from pyspark_kafkalog.write.rows import write_rows
from pyspark_kafkalog.write.splitting import splitting_of
from tests.kafka_service import KafkaService


class Query:
    """A query that writes to ``topic``, with its checkpoint in ``folder``, as one of its drivers sees it."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        folder: Path,
        *,
        query_id: str = "query",
        job: QueryBatch | None = None,
        **options: object,
    ) -> None:
        named = {name.replace("__", "."): str(value) for name, value in options.items()}
        self.options = write_options(
            {
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "delivery.guarantee": "exactly-once",
                "checkpointLocation": str(folder),
                **named,
            }
        )
        sink = open_sink(self.options, job)
        assert isinstance(sink, TransactionalSink)
        self.sink = sink
        self.query_id = query_id

    def stage(self, tasks: Iterable[pa.RecordBatch], batch_id: int | None = 0) -> list[Staged]:
        """Run the tasks of a batch, one for each of these rows."""
        staged = []
        batch = QueryBatch(self.query_id, batch_id)
        for number, rows in enumerate(tasks):
            with self.sink.open(batch, TaskAttempt(0, number, 0)) as sink:
                router = Router.to_sink(sink, self.options)
                write_rows([rows], router, sink, splitter=splitting_of(self.options).splitter())
                staged.append(sink.finish())
        return staged

    def commit(self, staged: Sequence[Staged], batch_id: int | None = 0, plan: Plan | None = None) -> None:
        self.sink.commit(QueryBatch(self.query_id, batch_id), staged, plan or Plan())

    def write(self, tasks: Iterable[pa.RecordBatch], batch_id: int | None = 0) -> None:
        """Run a batch as Spark does."""
        self.commit(self.stage(tasks, batch_id), batch_id)


def values(count: int, start: int = 0, size: int = 10) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%0*d" % (size, i) for i in range(start, start + count)]})


def shown(bootstrap: str, topic: str, partitions: int = 3) -> list[bytes]:
    """The values that librdkafka's read_committed consumer sees up to the end, partition by partition."""
    deadline = time.monotonic() + 60
    while not is_stable(bootstrap, topic):  # markers are written after EndTxn is answered
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.02)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not used",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
    )
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    try:
        consumer.assign([Assigned(topic, number, 0) for number in range(partitions)])
        at_end: set[int] = set()
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, "the end is not reached"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                at_end.add(message.partition())
            else:
                found[message.partition()].append(message.value())
    finally:
        consumer.close()
    return [value for each in found for value in each]


def stored(bootstrap: str, topic: str) -> int:
    """How many offsets the topic has taken, with aborted records and markers."""
    return sum(_ends(bootstrap, topic, "read_uncommitted").values())


def is_stable(bootstrap: str, topic: str) -> bool:
    """Whether the last stable offset of each partition is its end: no transaction is open."""
    return _ends(bootstrap, topic, "read_committed") == _ends(bootstrap, topic, "read_uncommitted")


def _ends(bootstrap: str, topic: str, isolation: str) -> Mapping[Any, int]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    try:
        numbers = consumer.partitions_for_topic(topic) or ()
        found: Mapping[Any, int] = consumer.end_offsets([TopicPartition(topic, n) for n in numbers])
        return found
    finally:
        consumer.close()


def transaction_state(service: KafkaService, transactional_id: str) -> str:
    """What Kafka's coordinator says of the transactional id, such as Ongoing or CompleteCommit."""
    with service.admin() as admin:
        found = admin.describe_transactions([transactional_id])
    state: str = found[transactional_id].state.value
    return state
