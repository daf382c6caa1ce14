"""A topic that old and new consumers read by turns, as one group."""

from __future__ import annotations

import pyarrow as pa
from kafka import KafkaConsumer

from pyspark_kafkalog import connect
from tests.broker.producing import unused_topic
from tests.kafka_old import OldBroker


class Topic:
    """A topic of two partitions that gets numbers, and a group of the same name."""

    def __init__(self, broker: OldBroker) -> None:
        self.broker = broker
        self.name = unused_topic()
        self.produced: list[str] = []
        broker.make_topic(self.name, 2)

    def produce(self, count: int) -> None:
        new = [str(len(self.produced) + number) for number in range(count)]
        partitions = pa.array([int(value) % 2 for value in new], pa.int32())
        with connect(self.broker.bootstrap) as kafka:
            kafka.write(
                pa.table({"value": pa.array(new).cast(pa.binary()), "partition": partitions}), self.name
            )
        self.produced += new

    def read_by_the_old_consumer(self, count: int, *properties: str) -> list[str]:
        return self.broker.consume(self.name, self.name, count, *properties)

    def read_by_a_new_consumer(self, count: int) -> list[str]:
        """It commits to the brokers what it has read, and reads no more than that."""
        consumer = KafkaConsumer(
            self.name,
            bootstrap_servers=self.broker.bootstrap,
            group_id=self.name,
            auto_offset_reset="none",
            enable_auto_commit=False,
        )
        try:
            values: list[str] = []
            while len(values) < count:
                for records in consumer.poll(500, max_records=count - len(values)).values():
                    values += [record.value.decode() for record in records]
            consumer.commit()
            return values
        finally:
            consumer.close()
