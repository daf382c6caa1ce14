"""Records that can't be decoded as dead letters: in one write with good rows, and as Connect writes them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, struct, to_json

from pyspark_kafkalog import NewTopic, OptionError, connect, dead_letters
from tests.broker.producing import unused_topic
from tests.confluent import body, record
from tests.kafka import Broker
from tests.kafka_jars import java, kafka_jars
from tests.tools.redrive.test_redrive import HEADERS, records

ORDER = record("Order", id="long", item="string")
WHEN = 1_700_000_000_000
WHY = "The value can't be decoded: item: the value ends too early, at byte 1"


def fill(place: str, topic: str, count: int, *, start: int = 0) -> None:
    """Orders, of which each third has a value that ends too early, and each fifth a broken key."""
    numbers = range(start, start + count)
    columns = {
        "key": pa.array([b"\xff" if n % 5 == 4 else body("string", f"k{n}") for n in numbers]),
        "value": pa.array(
            [body(ORDER, {"id": n, "item": "a"})[: 1 if n % 3 == 2 else None] for n in numbers]
        ),
        "headers": pa.array([[{"key": "n", "value": b"%d" % n}] for n in numbers], HEADERS),
        "timestamp": pa.array([WHEN + n for n in numbers], pa.timestamp("ms", "UTC")),
    }
    connect(place).write(pa.table(columns), topic)


def options(place: str, topic: str, **more: str) -> dict[str, str]:
    where = {"kafka.bootstrap.servers": place} if ":" in place else {"path": place}
    decoding = {
        "value.format": "avro",
        "value.schema": json.dumps(ORDER),
        "key.format": "avro",
        "key.schema": '"string"',
        "includeCorrupt": "true",
    }
    return {**where, **decoding, "subscribe": topic, "startingOffsets": "earliest", **more}


def both(orders: DataFrame, good: str, dead: str) -> DataFrame:
    value = to_json(col("value"))
    return dead_letters(orders, dead, {"topic": lit(good), "key": col("key"), "value": value})


def numbers(place: str, topic: str) -> list[int]:
    """Those of dead letters by their headers, and of good rows by their values."""
    return sorted(
        int(row["headers"][0]["value"]) if row["headers"] else json.loads(row["value"])["id"]
        for row in records(place, topic)
    )


BAD = [n for n in range(30) if n % 3 == 2 or n % 5 == 4]


@pytest.mark.parametrize("where", ["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def test_a_stream_writes_good_rows_and_dead_letters(
    spark: SparkSession, tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    """In one write. What is sent back then comes again as it was."""
    place, sink = str(tmp_path), {"path": str(tmp_path)}
    if where == "brokers":
        place = request.getfixturevalue("broker").bootstrap
        sink = {"kafka.bootstrap.servers": place, "delivery.guarantee": "exactly-once"}
    source, good, dead = (unused_topic() for _ in range(3))
    connect(place).topics.create([NewTopic(name, partitions=2) for name in (source, good, dead)])
    fill(place, source, 30)
    orders = spark.readStream.format("kafkalog").options(**options(place, source)).load()
    assert orders.columns[-1] == "corrupt"
    writer = both(orders, good, dead).writeStream.format("kafkalog").options(**sink)
    writer = writer.option("checkpointLocation", str(tmp_path.with_suffix(".query"))).trigger(
        availableNow=True
    )
    writer.start().awaitTermination()
    assert numbers(place, good) == [n for n in range(30) if n not in BAD]
    assert numbers(place, dead) == BAD
    before = {row["headers"][0]["value"]: row for row in records(place, source)}
    for row in records(place, dead):
        number, *errors = row["headers"]
        same = before[number["value"]]
        assert [row[name] for name in ("key", "value", "timestamp")] == [
            same[name] for name in ("key", "value", "timestamp")
        ]
        named = {
            header["key"].removeprefix("__connect.errors."): header["value"].decode() for header in errors
        }
        assert (named["topic"], named["partition"]) == (source, str(same["partition"]))
        is_key = int(number["value"]) % 5 == 4
        assert named["stage"] == ("KEY_CONVERTER" if is_key else "VALUE_CONVERTER")
    connect(place).records.redrive(dead, first=True, execute=True)
    writer.start().awaitTermination()
    assert numbers(place, dead) == sorted(2 * BAD)
    assert sorted(numbers(place, source)) == sorted([*range(30), *BAD])


LARGE = {"large.message.enabled": "true"}


def values(place: str, topic: str) -> Counter[bytes]:
    """Those of whole messages."""
    found = connect(place).read(topic, columns=["value"], options=LARGE).read_all()
    return Counter(found.column("value").to_pylist())


def names(place: str, topic: str) -> set[str]:
    """Those of the headers of records without ``_lm``; no such header is a copy."""
    headers = [row["headers"] for row in records(place, topic)]
    marks = [[each for each in row if each["key"] == "_lm"] for row in headers]
    alone = [row for row, found in zip(headers, marks, strict=True) if not found]
    numbers = [int.from_bytes(found[-1]["value"][17:21], "big", signed=True) for found in marks if found]
    assert all(number >= 0 for number in numbers)
    return {each["key"] for row in alone for each in row if not each["key"].startswith("__connect.errors.")}


@pytest.mark.parametrize("where", ["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def test_large_messages_come_back(
    spark: SparkSession, tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    """Whether they were split before, are split as dead letters, both, or neither, and by which scheme."""
    place, at, more = str(tmp_path), {"path": str(tmp_path)}, {}
    if where == "brokers":
        place = request.getfixturevalue("broker").bootstrap
        at, more = {"kafka.bootstrap.servers": place}, {"delivery.guarantee": "exactly-once"}
    source, dead, dead_again = (unused_topic() for _ in range(3))
    connect(place).topics.create([NewTopic(name) for name in (source, dead, dead_again)])
    bad = []
    for scheme in ("false", "true"):
        found = [scheme.encode() * size for size in (40, 80, 130, 600)]
        headers = pa.array([[{"key": "n", "value": b"1"}]] * len(found), HEADERS)
        split = {**LARGE, "max.message.segment.bytes": "500", "li.record.header.enable": scheme}
        connect(place).write(pa.table({"value": found, "headers": headers}), source, options=split)
        bad += found
    decoded = {"value.format": "json", "value.schema": "id int", "includeCorrupt": "true"}

    def move(topic: str, to: str, segment_bytes: str, scheme: str) -> None:
        frame = spark.readStream.format("kafkalog").options(**at, **LARGE, **decoded)
        letters = dead_letters(frame.options(subscribe=topic, startingOffsets="earliest").load(), to)
        writer = letters.writeStream.format("kafkalog").options(**at, **more, **LARGE)
        writer = writer.option("checkpointLocation", f"{tmp_path}-{to}").trigger(availableNow=True)
        writer = writer.option("li.record.header.enable", scheme)
        writer.option("max.message.segment.bytes", segment_bytes).start().awaitTermination()

    move(source, dead, "600", "true")
    assert values(place, dead) == Counter(bad)
    assert names(place, dead) == {"n", "_t"}
    move(dead, dead_again, "300", "false")
    assert values(place, dead_again) == Counter(bad)
    for topic in (dead_again, dead):
        connect(place).records.redrive(topic, group=topic, first=True, execute=True)
    assert values(place, dead) == Counter([*bad, *bad])
    assert values(place, source) == Counter([*bad, *bad, *bad])
    assert names(place, source) == {"n", "_t"}


def test_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Without good rows, and what a read without Spark gives."""
    place = str(tmp_path)
    fill(place, "orders", 30)
    given = options(place, "orders")
    frame = spark.read.format("kafkalog").options(**given).load()
    letters = dead_letters(frame, "dead")
    assert letters.columns == ["topic", "key", "value", "headers", "timestamp"]
    letters.write.format("kafkalog").mode("append").save(place)
    assert numbers(place, "dead") == BAD
    found = frame.where("corrupt IS NOT NULL").select("corrupt").orderBy("corrupt.offset").collect()
    there = connect(place).read(options=given, filters=[("corrupt", "!=", None)]).read_all()
    assert [row.corrupt.reason for row in found] == [
        row["reason"] for row in there.column("corrupt").to_pylist()
    ]
    assert found[0].corrupt.asDict(recursive=True) | {"timestamp": None} == {
        "reason": WHY,
        "column": "value",
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "timestamp": None,
        "key": body("string", "k2"),
        "value": b"\x04",
        "headers": [{"key": "n", "value": b"2"}],
    }
    alone = spark.read.format("kafkalog").options(**given)
    kind = frame.schema["corrupt"].dataType.simpleString()
    assert dead_letters(alone.schema(f"corrupt {kind}").load(), "dead").count() == len(BAD)


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path)
    fill(place, "orders", 3)
    frame = spark.read.format("kafkalog").options(**options(place, "orders")).load()
    with pytest.raises(OptionError, match="Column 'corrupt' is not there, expected that of a reader with"):
        dead_letters(frame.drop("corrupt"), "dead")
    with pytest.raises(OptionError, match="Column 'corrupt' has type string"):
        dead_letters(frame.withColumn("corrupt", lit("")), "dead")
    with pytest.raises(OptionError, match="Unknown column 'offset'"):
        dead_letters(frame, "dead", {"topic": lit("a"), "value": lit(""), "offset": lit(0)})
    with pytest.raises(OptionError, match=r"'value' of the good rows has type .*, expected binary or string"):
        dead_letters(frame, "dead", {"topic": lit("a"), "value": struct(lit(1))})
    with pytest.raises(OptionError, match="Column 'topic' of the good rows is not given"):
        dead_letters(frame, "dead", {"value": lit("")})
    with pytest.raises(OptionError, match="Illegal topic"):
        dead_letters(frame, "no topic")


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_headers_are_those_of_kafka_connect(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    """In their order; those that only Connect has are left out, and classes are our own."""
    place, source, dead, theirs = broker.bootstrap, *(unused_topic() for _ in range(3))
    connect(place).topics.create([NewTopic(source, partitions=2), NewTopic(dead)])
    fill(place, source, 3)
    frame = spark.read.format("kafkalog").options(**options(place, source)).load()
    letters = dead_letters(frame, dead).write.format("kafkalog").mode("append")
    letters.option("kafka.bootstrap.servers", place).save()
    (bad,) = frame.where("corrupt IS NOT NULL").select("corrupt").collect()
    program = Path(__file__).with_name("ReportDeadLetter.java")
    subprocess.run(["javac", "-cp", f"{kafka_jars()}/*", "-d", str(tmp_path), str(program)], check=True)
    words = [source, bad.corrupt.partition, bad.corrupt.offset, WHEN + 2, "\x04k2", "\x04", "n", "2", WHY]
    command = [java(), "-cp", f"{tmp_path}:{kafka_jars()}/*", "ReportDeadLetter", place, theirs]
    subprocess.run([*command, *map(str, words)], check=True)
    (ours,), (connects,) = records(place, dead), records(place, theirs)
    assert [ours[name] for name in ("key", "value", "timestamp")] == [
        connects[name] for name in ("key", "value", "timestamp")
    ]
    own = {"connector.name", "task.id", "exception.stacktrace"}
    ours, connects = (
        [(header["key"].removeprefix("__connect.errors."), header["value"]) for header in each["headers"]]
        for each in (ours, connects)
    )
    assert own <= {name for name, _ in connects}
    connects = [(name, value) for name, value in connects if name not in own]
    assert [name for name, _ in ours] == [name for name, _ in connects]
    classes = {"class.name", "exception.class.name"}
    assert {each for each in ours if each not in connects} == {
        ("class.name", b"pyspark_kafkalog.DefaultSource"),
        ("exception.class.name", b"pyspark_kafkalog.CorruptRecordError"),
    }
    assert {name for name, _ in set(connects) - set(ours)} == classes
