"""Decoding Protobuf: records/s of one core, from bodies to typed columns; google.protobuf makes objects.

Then whole queries from a broker to ``noop``, against Spark's ``kafka`` source with ``from_protobuf`` behind
it, or without where its jar is not at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader
from pyspark.sql.protobuf.functions import from_protobuf
from pyspark.sql.types import StructField, StructType

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import parse
from tests.benchmarks.avro import MADE, rate
from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, print_ratio, seconds_by_turns
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.protobuf.oracle import class_of, compiled
from tests.kafka import Broker
from tests.spark_protobuf import spark_protobuf_jars

_WIDE = " ".join(f"optional string w{n} = {n};" for n in range(3, 21))
TEXT = f"""syntax = "proto3"; package bench;
message Flat {{ int64 id = 1; string name = 2; double amount = 3; optional string note = 4; int64 at = 5; }}
message Nested {{
  int64 id = 1; Customer customer = 2; repeated Item items = 3; map<string, string> tags = 4; bool ok = 5;
  message Customer {{ string name = 1; string mail = 2; Address address = 3; }}
  message Address {{ string street = 1; string zip = 2; }}
  message Item {{ string sku = 1; int32 count = 2; double price = 3; }}
}}
message Wide {{ int64 id = 1; string name = 2; {_WIDE} }}
"""


def _flat(message: Any, number: int) -> None:
    message.id, message.name, message.amount = number * 7919, f"user-{number % 1000}", number / 7
    message.at = 1_700_000_000_000_000 + number
    if number % 3 == 0:
        message.note = f"note {number}"


def _nested(message: Any, number: int) -> None:
    message.id, message.ok = number, True
    message.customer.name, message.customer.mail = f"name {number}", f"a{number}@example.org"
    message.customer.address.street, message.customer.address.zip = f"street {number}", "12345"
    for n in range(3):
        message.items.add(sku=f"sku-{number + n}", count=n, price=n * 1.5)
    message.tags.update({"colour": "red", "size": "large", f"key-{number % 10}": "value"})


def _wide(message: Any, number: int) -> None:
    message.id, message.name = number, f"user-{number % 1000}"
    for n in range(3, 21):
        setattr(message, f"w{n}", f"value {number + n}")


KINDS: tuple[tuple[str, str, Callable[[Any, int], None], int, float | None], ...] = (
    ("Flat", "*", _flat, 2_000_000, 3),
    ("Nested", "*", _nested, 500_000, 3),
    ("Wide", "*", _wide, 500_000, None),
    ("Wide", "id, w9", _wide, 500_000, 5),
)
"""Message, selected fields, what fills it, how many, the bar against ``from_protobuf``."""


def _bodies(name: str, fill: Callable[[Any, int], None]) -> list[bytes]:
    kind = class_of(compiled({"bench.proto": TEXT}), f"bench.{name}")
    found = []
    for number in range(MADE):
        message = kind()
        fill(message, number)
        found.append(message.SerializeToString())
    return found


def measure(name: str, selected: str, fill: Callable[[Any, int], None], rounds: int) -> None:
    """Print what is decoded of one kind of messages."""
    bodies, message = _bodies(name, fill), parse(TEXT).message(name)
    whole, wanted = MessageDecoder(message), None
    if selected != "*":
        wanted = pa.struct([whole.type.field(field) for field in selected.split(", ")])
    decoder, column = MessageDecoder(message, wanted), pa.array(bodies, pa.binary())
    entry = decoder.add(message)
    assert not decode_column(decoder, column, entry).corrupt.size
    ours = rate(partial(decode_column, decoder, column, entry), len(bodies), 5 * rounds)
    kind = class_of(compiled({"bench.proto": TEXT}), f"bench.{name}")
    theirs = rate(lambda: [kind.FromString(body) for body in bodies], len(bodies), rounds)
    print(f"{name}, {selected}: {ours:.2f} M records/s, google.protobuf's objects {theirs:.2f}")
    print_ratio(f"protobuf, {name}, {selected}, to google.protobuf", ours / theirs)


def _of_value(reader: DataFrameReader, selected: str) -> DataFrame:
    """The rows with these fields of the value only: Spark pushes no columns down to Python sources."""
    kind = reader.load().schema["value"].dataType
    assert isinstance(kind, StructType)
    part = [each for each in kind if selected == "*" or each.name in selected.split(", ")]
    return reader.schema(StructType([StructField("value", StructType(part))])).load()


def _jars() -> list[Path]:
    try:
        return spark_protobuf_jars()
    except KafkaLogError as e:
        print(f"Without from_protobuf: {e}")
        return []


def measure_queries(folder: Path, scale: float, rounds: int) -> None:
    """Print the rates of whole queries. The broker adopts the log that the values are written to."""
    broker = Broker(folder / "broker")
    topics = {name: (fill, max(int(count * scale) // MADE, 1)) for name, _, fill, count, _ in KINDS}
    jars, descriptors = _jars(), compiled({"bench.proto": TEXT})
    with benchmark_session(folder, jars=jars) as spark:
        for name, (fill, times) in topics.items():
            table = pa.table({"value": pa.array(_bodies(name, fill), pa.binary())})
            repeated = pa.concat_tables([table] * times)
            connect(folder / "kafka-logs").write(repeated, name, options={"numPartitions": str(PARTITIONS)})
        broker.start()
        try:
            for name in topics:
                broker.create_topic(name, PARTITIONS)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            for name, selected, _, _, bar in KINDS:
                given = {"subscribe": name, "kafka.bootstrap.servers": broker.bootstrap}
                typed = {"value.format": "protobuf", "value.schema": TEXT, "value.message": name}
                fields = [f"value.{field}" for field in selected.split(", ")]
                ours = _of_value(spark.read.format("kafkalog").options(**given, **typed), selected)
                ours = ours.select(*fields)
                theirs = spark.read.format("kafka").options(**given).load().select("value")
                frames = {"ours": ours, "kafka, not decoded": theirs}
                if jars:
                    read = from_protobuf("value", f"bench.{name}", binaryDescriptorSet=descriptors)
                    frames["from_protobuf"] = theirs.select(read.alias("value")).select(*fields)
                runs = {
                    each: frame.write.format("noop").mode("overwrite").save for each, frame in frames.items()
                }
                what = f"protobuf, {name}, {selected}, whole query"
                seconds = seconds_by_turns(runs, rounds)
                for peer in [*frames][1:]:
                    print_rate(
                        what, topics[name][1] * MADE, seconds, peer, bar if peer == "from_protobuf" else None
                    )
        finally:
            broker.stop()


def main() -> None:
    """Measure all kinds of messages."""
    options = arguments(__doc__)
    for name, selected, fill, _, _ in KINDS:
        measure(name, selected, fill, options.rounds)
    with scratch_folder(options.folder) as folder:
        measure_queries(folder, options.scale, options.rounds)


if __name__ == "__main__":
    main()
