"""Decoding JSON: values/s of one core, from bytes to typed columns.

Then whole queries from a broker to ``noop``, against Spark's ``kafka`` and ``from_json``.

The values are flat, with 5 fields, all of them or 2, and nested, with structs, an array of 3 structs and a
map.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.functions import expr, from_json
from pyspark.sql.types import StructType

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json.decoder import Decoder
from tests.benchmarks.avro import BODIES, MADE, nested, rate
from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, seconds_by_turns
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.extensions.typed_values.columns import decode_column
from tests.kafka import Broker

FLAT = "id bigint, name string, amount double, note string, at timestamp"
TWO = "id bigint, note string"
NESTED = (
    "id bigint, customer struct<name: string, mail: string, address: struct<street: string, zip: string>>,"
    " items array<struct<sku: string, count: int, price: double>>, tags map<string, string>, ok boolean,"
    " note string"
)


def flat(number: int) -> dict[str, Any]:
    """A value of :data:`FLAT`."""
    return {
        "id": number * 7919,
        "name": f"user-{number % 1000}",
        "amount": number / 7,
        "note": None if number % 3 else f"note {number}",
        "at": f"2024-05-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00.{number % 1000:03}Z",
    }


QUERIES: tuple[tuple[str, str, str, Callable[[int], dict[str, Any]], int, float], ...] = (
    ("flat", "flat", FLAT, flat, 2_000_000, 3.5),
    ("2 of 5 fields", "flat", TWO, flat, 2_000_000, 5.0),
    ("nested", "nested", NESTED, nested, 500_000, 1.5),
)
"""Name, topic, fields, what makes values, how many, bar against Spark's."""


def values_of(make: Callable[[int], dict[str, Any]], count: int) -> pa.Array:
    """Values as ``json.dumps`` writes them."""
    return pa.array([json.dumps(make(number)).encode() for number in range(count)], pa.binary())


def measure_queries(folder: Path, scale: float, rounds: int) -> None:
    """Print the rates of whole queries. The broker adopts the log that the values are written to."""
    broker = Broker(folder / "broker")
    counts = {topic: max(int(count * scale) // MADE, 1) for _, topic, _, _, count, _ in QUERIES}
    with benchmark_session(folder) as spark:
        for topic, make in {topic: make for _, topic, _, make, _, _ in QUERIES}.items():
            repeated = pa.concat_tables([pa.table({"value": values_of(make, MADE)})] * counts[topic])
            connect(folder / "kafka-logs").write(repeated, topic, options={"numPartitions": str(PARTITIONS)})
        broker.start()
        try:
            for topic in counts:
                broker.create_topic(topic, PARTITIONS)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            for name, topic, fields, _, _, bar in QUERIES:
                given = {"subscribe": topic, "kafka.bootstrap.servers": broker.bootstrap}
                ours = spark.read.format("kafkalog").options(**given).option("value.format", "json")
                theirs = spark.read.format("kafka").options(**given).load()
                row = from_json(expr("CAST(value AS STRING)"), StructType.fromDDL(fields))
                frames = {
                    "ours": ours.schema(f"value struct<{fields}>").load().select("value.*"),
                    "kafka + from_json": theirs.select(row.alias("value")).select("value.*"),
                }
                seconds = seconds_by_turns(
                    {
                        each: frame.write.format("noop").mode("overwrite").save
                        for each, frame in frames.items()
                    },
                    rounds,
                )
                print_rate(
                    f"json, {name}, whole query", counts[topic] * MADE, seconds, "kafka + from_json", bar
                )
        finally:
            broker.stop()


def main() -> None:
    """Measure all kinds of values."""
    options = arguments(__doc__)
    count = max(int(BODIES * options.scale), 100)
    for name, _, fields, make, _, _ in QUERIES:
        column = values_of(make, count)
        decoder = Decoder(parse_ddl(fields), 0, "_corrupt_record")
        assert not decode_column(decoder, column).corrupt.size
        found = rate(partial(decode_column, decoder, column), count, 5 * options.rounds)
        print(f"{name}: {found:.2f} M values/s")
    with scratch_folder(options.folder) as folder:
        measure_queries(folder, options.scale, options.rounds)


if __name__ == "__main__":
    main()
