"""Values of many shapes, whole queries: JSON and Avro written to a broker, and Avro read from it.

Against ``to_json`` and ``to_avro`` with Spark's ``kafka`` sink, and its source with ``from_avro``. Ratios are
of time: below 1 ours is faster. Beside each write are two floors, which take the same rows over from Spark: a
Python sink that only counts them, and this sink with values of the same sizes that cost nothing to encode.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import col, length, to_json
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafkalog.extensions.typed_values.avro.encoder import schema_of
from tests.benchmarks.measure import PARTITIONS, arguments, print_ratio, seconds_by_turns
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.benchmarks.trivial import Trivial
from tests.kafka import Broker
from tests.kafka_service import running

_OURS, _PEER = FORMATS
_FLOORS = _COUNTING, _UNENCODED = "a sink that counts", "with nothing to encode"
_NAME = "concat('user-', id % 1000)"
_ITEMS = "struct(concat('sku-', id + n) AS sku, int(n) AS count, n * 1.5D AS price)"
_AFTER = f"struct(id, {_NAME} AS name, CAST(id % 100000 / 100.0 AS decimal(10, 2)) AS amount)"
_SOURCE = "struct('shop' AS db, id AS lsn)"
_MICROS = "timestamp_micros(1700000000000000 + id * 997)"
_DAYS = "make_interval(0, 0, 0, {})"


class Shape(NamedTuple):
    """Rows of one kind: the expression of their value, from ``id``, and how many there are."""

    name: str
    value: str
    rows: int = 1_000_000


def _fields(count: int, field: str) -> str:
    return f"struct({', '.join(f'{field.format(n)} AS f{n}' for n in range(count))})"


SHAPES = (
    Shape("flat", f"struct(id, {_NAME} AS name, id / 7D AS amount, {_MICROS} AS at, id % 2 = 0 AS ok)"),
    Shape("texts with escapes", "struct(id, concat('\\u001b[31m', id, '\\n\\t\"\\\\ é') AS line)"),
    Shape("texts of 1 kB", "struct(id, repeat('abcd\"\\n', 170) AS text)", 300_000),
    Shape("texts of 100 kB", "struct(id, repeat('abcdefgh', 12800) AS text)", 4000),
    Shape("doubles of every size", _fields(3, "(id + {}) * pow(10D, id % 600 - 300)")),
    Shape("epoch seconds as doubles", _fields(3, "1.7e9D + id / 1000D + {}")),
    Shape("timestamps", _fields(3, f"{_MICROS} + {_DAYS}")),
    Shape(
        "times without a zone", _fields(3, f"CAST({_MICROS} AS timestamp_ntz) + make_interval(0, 0, 0, {{}})")
    ),
    Shape("dates", _fields(3, "date_add(date'1990-01-01', int(id % 20000) + {})")),
    Shape("decimals", _fields(3, "CAST(id * 1.37BD + {} AS decimal(20, 2))")),
    Shape("maps", f"struct(id, map('colour', 'red', concat('key-', id % 10), {_NAME}) AS tags)"),
    Shape("arrays of numbers", "struct(id, sequence(id, id + 20) AS numbers)", 600_000),
    Shape("arrays of structs", f"struct(id, transform(sequence(0, 2), n -> {_ITEMS}) AS items)", 600_000),
    Shape(
        "Debezium envelopes",
        f"struct(if(id % 2 = 0, {_AFTER}, null) AS before, {_AFTER} AS after, {_SOURCE} AS source)",
        800_000,
    ),
    Shape("50 fields, half null", _fields(50, "if((id + {}) % 2 = 0, id, null)"), 300_000),
    Shape("300 fields of which 5 are given", _fields(300, "if({} < 5, id, null)"), 100_000),
    Shape("300 fields of which each row has 5", _fields(300, "if((id + {}) % 60 = 0, id, null)"), 100_000),
    Shape("500 fields", _fields(500, "id + {}"), 30_000),
)
WRITE_BAR, READ_BAR = 0.7, 0.5


def main() -> None:
    args = arguments(__doc__)
    with (
        scratch_folder(args.folder) as folder,
        running(Broker(folder / "broker", {"log.segment.delete.delay.ms": 0})) as broker,
        benchmark_session(folder, {"spark.sql.session.timeZone": "Europe/Berlin"}) as spark,
    ):
        spark.dataSource.register(Trivial)
        for shape in SHAPES:
            _contests(spark, broker, shape, max(int(shape.rows * args.scale), PARTITIONS), args.rounds)


def _contests(spark: SparkSession, broker: Broker, shape: Shape, count: int, rounds: int) -> None:
    data = spark.range(0, count, 1, PARTITIONS).selectExpr(f"{shape.value} AS value").cache()
    assert data.count() == count
    schema = schema_of(to_arrow_type(data.schema["value"].dataType, timezone="UTC"), "value")
    value = col("value")
    json = {"value.format": "json"}
    avro = {"value.format": "avro", "value.schema": schema}
    _written(f"json written, {shape.name}", broker, data, json, to_json(value), rounds)
    _written(f"avro written, {shape.name}", broker, data, avro, to_avro(value, schema), rounds)
    topic = f"avro-{SHAPES.index(shape)}"
    broker.create_topic(topic, PARTITIONS)
    _writer(broker, data.select(to_avro(value, schema).alias("value")), "kafka", {}, topic)()
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    ours = spark.read.format("kafkalog").options(**given, **avro).load()
    theirs = spark.read.format("kafka").options(**given).load()
    frames = {_OURS: ours, _PEER: theirs.select(from_avro("value", schema).alias("value"))}
    runs = {
        name: frame.select("value.*").write.format("noop").mode("overwrite").save
        for name, frame in frames.items()
    }
    _print(f"avro read, {shape.name}", seconds_by_turns(runs, rounds), READ_BAR)
    broker.delete_topic(topic)
    data.unpersist()


def _written(
    what: str, broker: Broker, data: DataFrame, typed: Mapping[str, str], made: Column, rounds: int
) -> None:
    """Write the rows by turns, each time to a new topic."""
    numbers = itertools.count()
    encoded = data.select(made.alias("value"))
    sized = data.withColumn("size", length(made)).cache()
    sized.count()
    unencoded = {"transform": "tests.benchmarks.trivial:made_before"}
    frames: dict[str, tuple[DataFrame, str, Mapping[str, str]]] = {
        _OURS: (data, "kafkalog", typed),
        _PEER: (encoded, "kafka", {}),
        _COUNTING: (data, "trivial", {}),
        _UNENCODED: (sized, "kafkalog", unencoded),
    }
    topic = ""

    def renew(name: str = "") -> None:
        nonlocal topic
        if topic:
            broker.delete_topic(topic)
        topic = re.sub(r"\W+", "-", f"{what} {next(numbers)}")
        broker.create_topic(topic, PARTITIONS)

    def run(name: str) -> Callable[[], None]:
        frame, kind, options = frames[name]
        return lambda: _writer(broker, frame, kind, options, topic)()

    renew()
    _print(what, seconds_by_turns({name: run(name) for name in frames}, rounds, after=renew), WRITE_BAR)
    broker.delete_topic(topic)
    sized.unpersist()


def _writer(
    broker: Broker, frame: DataFrame, kind: str, options: Mapping[str, str], topic: str
) -> Callable[[], None]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **options}
    return frame.write.format(kind).options(**given).mode("append").save


def _print(what: str, seconds: Mapping[str, float], bar: float) -> None:
    ours, theirs = seconds[_OURS], seconds[_PEER]
    floors = "".join(f", {name} {seconds[name] / theirs:.2f} of it" for name in _FLOORS if name in seconds)
    print_ratio(f"{what}: {ours:.2f} s, {_PEER} {theirs:.2f}{floors}", ours / theirs, at_most=bar)


if __name__ == "__main__":
    main()
