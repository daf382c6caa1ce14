"""Decoding JSON: values/s of one core, from bytes to typed columns.

Then whole queries from a broker to ``noop``, against Spark's ``kafka`` and ``from_json``.

The values are flat, with 5 fields, all of them or 2, and nested, with structs, an array of 3 structs and a
map; then those of :mod:`tests.benchmarks.json_idioms`.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql.functions import expr, from_json
from pyspark.sql.types import StructType

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json.decoder import Decoder
from tests.benchmarks.avro import BODIES, MADE, nested, rate
from tests.benchmarks.json_idioms import IDIOMS, Idiom
from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, seconds_by_turns
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.extensions.typed_values.columns import decode_column
from tests.kafka import Broker

NESTED = (
    "id bigint, customer struct<name: string, mail: string, address: struct<street: string, zip: string>>,"
    " items array<struct<sku: string, count: int, price: double>>, tags map<string, string>, ok boolean,"
    " note string"
)


def _flat(number: int) -> str:
    return json.dumps(
        {
            "id": number * 7919,
            "name": f"user-{number % 1000}",
            "amount": number / 7,
            "note": None if number % 3 else f"note {number}",
            "at": f"2024-05-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00.{number % 1000:03}Z",
        }
    )


FLAT = Idiom("flat", "id bigint, name string, amount double, note string, at timestamp", _flat)
QUERIES = [
    (FLAT, 3.5),
    (FLAT._replace(name="2 of 5 fields", fields="id bigint, note string"), 5.0),
    (Idiom("nested", NESTED, lambda number: json.dumps(nested(number))), 1.5),
    *((idiom, 2.0) for idiom in IDIOMS),
]
"""Values, and the bar against Spark's."""
BYTES, MADE_BYTES, LARGEST = 200_000_000, 10_000_000, 10_000_000
"""Of all values of a query, of different ones, and of one record batch."""


def values_of(idiom: Idiom, count: int) -> pa.Array:
    """Different values, as many as ``count`` if they are not large."""
    size = len(idiom.make(1))
    return pa.array(
        [idiom.make(number).encode() for number in range(max(min(count, MADE_BYTES // size), 1))], pa.binary()
    )


def measure_queries(folder: Path, scale: float, rounds: int) -> None:
    """Print the rates of whole queries. The broker adopts the log that the values are written to."""
    broker = Broker(folder / "broker")
    queries = {f"query-{number}": each for number, each in enumerate(QUERIES)}
    rows: dict[str, int] = {}
    of_topics = {"numPartitions": str(PARTITIONS), "max.message.bytes": str(LARGEST)}
    with benchmark_session(folder) as spark:
        for topic, (idiom, _) in queries.items():
            values = values_of(idiom, MADE)
            times = max(int(BYTES * scale) // values.nbytes, 1)
            rows[topic] = len(values) * times
            repeated = pa.concat_tables([pa.table({"value": values})] * times)
            connect(folder / "kafka-logs").write(repeated, topic, options=of_topics)
        broker.start()
        try:
            for topic in queries:
                broker.create_topic(topic, PARTITIONS)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            for topic, (idiom, bar) in queries.items():
                given = {"subscribe": topic, "kafka.bootstrap.servers": broker.bootstrap}
                ours = spark.read.format("kafkalog").options(**given).option("value.format", "json")
                theirs = spark.read.format("kafka").options(**given).load()
                row = from_json(expr("CAST(value AS STRING)"), StructType.fromDDL(idiom.fields))
                frames = {
                    "ours": ours.schema(f"value struct<{idiom.fields}>").load().select("value.*"),
                    "kafka + from_json": theirs.select(row.alias("value")).select("value.*"),
                }
                seconds = seconds_by_turns(
                    {
                        each: frame.write.format("noop").mode("overwrite").save
                        for each, frame in frames.items()
                    },
                    rounds,
                )
                print_rate(f"json, {idiom.name}, whole query", rows[topic], seconds, "kafka + from_json", bar)
        finally:
            broker.stop()


def main() -> None:
    """Measure all kinds of values."""
    options = arguments(__doc__)
    for idiom, _ in QUERIES:
        column = values_of(idiom, max(int(BODIES * options.scale), 100))
        decoder = Decoder(parse_ddl(idiom.fields), 0, "_corrupt_record")
        assert not decode_column(decoder, column).slow
        found = rate(partial(decode_column, decoder, column), len(column), 5 * options.rounds)
        print(f"{idiom.name}: {found:.4g} M values/s")
    with scratch_folder(options.folder) as folder:
        measure_queries(folder, options.scale, options.rounds)


if __name__ == "__main__":
    main()
