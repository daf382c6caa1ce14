"""Records of a broker as Arrow without Spark, against ``confluent_kafka``'s ``consume()``: one process each.

Ours gives Arrow batches, ``consume()`` Python objects, of which it takes offset and value. Both count the
bytes of the values.
"""

from __future__ import annotations

import uuid

import pyarrow.compute as pc
from confluent_kafka import Consumer

from pyspark_kafkalog import connect
from tests.benchmarks.apart import contest, fill
from tests.benchmarks.measure import arguments, print_ratio
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker

TOPIC = "arrow"
RECORDS = 1_000_000
SIZE = 100
_AT_ONCE = 10_000


def ours(bootstrap: str, count: str, _: str) -> int:
    """The bytes of all values."""
    rows = connect(bootstrap).read(TOPIC, columns=["offset", "value"])
    sizes = [(batch.num_rows, pc.sum(pc.binary_length(batch.column("value"))).as_py()) for batch in rows]
    assert sum(number for number, _ in sizes) == int(count)
    return sum(size for _, size in sizes)


def consume(bootstrap: str, count: str, _: str) -> int:
    """The same, by librdkafka."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found = size = 0
    while found < int(count):
        for message in consumer.consume(_AT_ONCE, timeout=10):
            assert message.error() is None
            assert message.offset() >= 0
            size += len(message.value())
            found += 1
    consumer.close()
    return size


CONTESTANTS = {"ours": ours, "consume": consume}


def main() -> None:
    args = arguments(__doc__)
    count = int(RECORDS * args.scale)
    with scratch_folder(args.folder) as folder:
        broker = Broker(folder / "broker")
        broker.start()
        try:
            fill(broker, TOPIC, count, SIZE, "lz4", folder)
            runs = {name: (name, broker.bootstrap, str(count)) for name in CONTESTANTS}
            found = contest("tests.benchmarks.arrow_read", runs, args.rounds)
        finally:
            broker.stop()
    assert found["ours"]["bytes"] == found["consume"]["bytes"]
    rates = {name: count / taken["seconds"] for name, taken in found.items()}
    print_ratio(
        f"Arrow without Spark, {count:,} records of {SIZE} bytes, lz4: {rates['ours']:,.0f} rows/s,"
        f" confluent_kafka's consume() {rates['consume']:,.0f}",
        rates["ours"] / rates["consume"],
        at_least=1,
    )


if __name__ == "__main__":
    main()
