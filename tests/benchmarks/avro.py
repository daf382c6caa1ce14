"""Decoding Avro: records/s of one core, from bodies to typed columns; fastavro makes dicts of the same.

Then whole queries from a broker to ``noop``, with the ids of a registry, against Spark's ``kafka`` and
``from_avro`` of what stands behind the id.

The records are flat, with 5 fields, and nested, with structs, an array of 3 structs and a map.
"""

from __future__ import annotations

import io
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.typed_values.avro.decoder import DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, print_ratio, seconds_by_turns
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.confluent import prefixed
from tests.extensions.typed_values.columns import decode_column
from tests.kafka import Broker
from tests.schema_registry import schema_registry

BODIES = 20_000
"""A batch."""
_TEXT = ["null", "string"]
FLAT = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": _TEXT},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
_ADDRESS = [{"name": "street", "type": "string"}, {"name": "zip", "type": "string"}]
_CUSTOMER = [
    {"name": "name", "type": "string"},
    {"name": "mail", "type": _TEXT},
    {"name": "address", "type": {"type": "record", "name": "Address", "fields": _ADDRESS}},
]
_ITEM = [
    {"name": "sku", "type": "string"},
    {"name": "count", "type": "int"},
    {"name": "price", "type": "double"},
]
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": _CUSTOMER}},
        {
            "name": "items",
            "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": _ITEM}},
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "ok", "type": "boolean"},
        {"name": "note", "type": _TEXT},
    ],
}


def flat(number: int) -> dict[str, Any]:
    """A record of :data:`FLAT`."""
    note = None if number % 3 else f"note {number}"
    at = 1_700_000_000_000_000 + number
    return {
        "id": number * 7919,
        "name": f"user-{number % 1000}",
        "amount": number / 7,
        "note": note,
        "at": at,
    }


def nested(number: int) -> dict[str, Any]:
    """A record of :data:`NESTED`."""
    address = {"street": f"street {number}", "zip": "12345"}
    return {
        "id": number,
        "customer": {"name": f"name {number}", "mail": f"a{number}@example.org", "address": address},
        "items": [{"sku": f"sku-{number + i}", "count": i, "price": i * 1.5} for i in range(3)],
        "tags": {"colour": "red", "size": "large", f"key-{number % 10}": "value"},
        "ok": True,
        "note": f"some longer text {number}",
    }


def rate(call: Callable[[], object], records: int, rounds: int) -> float:
    """Million records/s of CPU time; the median of some rounds."""
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return records / statistics.median(times) / 1e6


def measure(name: str, schema: Any, make: Callable[[int], dict[str, Any]], records: int, rounds: int) -> None:
    """Print what is decoded of one kind of records."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    bodies = []
    for number in range(records):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, make(number))
        bodies.append(out.getvalue())
    column = pa.array(bodies, pa.binary())
    ours = parse(json.dumps(schema))
    full = DatumDecoder(ours)
    two = DatumDecoder(ours, pa.struct([full.type.field("id"), full.type.field("note")]))
    rates = {}
    for columns, decoder in (("all columns", full), ("two columns", two)):
        entry = decoder.add(ours)
        assert not decode_column(decoder, column, entry).corrupt.size
        rates[columns] = rate(partial(decode_column, decoder, column, entry), records, 5 * rounds)
    some = bodies[:2000]
    rates["fastavro"] = rate(
        lambda: [fastavro.schemaless_reader(io.BytesIO(body), parsed, None) for body in some],
        len(some),
        rounds,
    )
    print(f"{name}: {', '.join(f'{what} {each:.2f}' for what, each in rates.items())} M records/s")
    print_ratio(f"avro, {name}, to fastavro", rates["all columns"] / rates["fastavro"])


def measure_queries(folder: Path, scale: float, rounds: int) -> None:
    """Print the rates of whole queries. The broker adopts the log that the values are written to."""
    broker = Broker(folder / "broker")
    with benchmark_session(folder) as spark, schema_registry(folder / "registry") as registry:
        for topic, schema, make, count, _ in QUERIES:
            schema_id = registry.register(f"{topic}-value", schema)
            values = [prefixed(schema_id, schema, make(number)) for number in range(MADE)]
            table = pa.table({"value": pa.array(values, pa.binary())})
            repeated = pa.concat_tables([table] * max(int(count * scale) // MADE, 1))
            connect(folder / "kafka-logs").write(repeated, topic, options={"numPartitions": str(PARTITIONS)})
        broker.start()
        try:
            for topic, *_ in QUERIES:
                broker.create_topic(topic, PARTITIONS)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            for topic, schema, _, count, bar in QUERIES:
                given = {"subscribe": topic, "kafka.bootstrap.servers": broker.bootstrap}
                typed = {"value.format": "confluent-avro", "schema.registry.url": registry.url}
                ours = spark.read.format("kafkalog").options(**given, **typed).load()
                theirs = spark.read.format("kafka").options(**given).load()
                body = expr("substring(value, 6, length(value) - 5)")
                theirs = theirs.select(from_avro(body, json.dumps(schema)).alias("value"))
                frames = {"ours": ours.select("value.*"), "kafka + from_avro": theirs.select("value.*")}
                seconds = seconds_by_turns(
                    {
                        name: frame.write.format("noop").mode("overwrite").save
                        for name, frame in frames.items()
                    },
                    rounds,
                )
                records = max(int(count * scale) // MADE, 1) * MADE
                print_rate(f"avro, {topic}, whole query", records, seconds, "kafka + from_avro", bar)
        finally:
            broker.stop()


QUERIES = (("flat", FLAT, flat, 2_000_000, 1.5), ("nested", NESTED, nested, 500_000, 2.0))
"""Topic, schema, what makes values, how many, bar against Spark's."""
MADE = 10_000
"""Values that are made once, and repeated."""


def main() -> None:
    """Measure both kinds of records."""
    options = arguments(__doc__)
    records = max(int(BODIES * options.scale), 100)
    measure("flat", FLAT, flat, records, options.rounds)
    measure("nested", NESTED, nested, records, options.rounds)
    with scratch_folder(options.folder) as folder:
        measure_queries(folder, options.scale, options.rounds)


if __name__ == "__main__":
    main()
