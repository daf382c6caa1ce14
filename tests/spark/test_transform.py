"""``transform`` through Spark: the columns that it makes, streams that filter on both ends, errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import connect, register
from pyspark_kafkalog.spark.features import HAS_FILTERS
from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.writing import shown
from tests.kafka import Broker
from tests.spark.conftest import numbered

COUNT = 20
Read = Callable[..., DataFrame]


def using(name: str) -> dict[str, str]:
    return {"transform": f"tests.plugins:{name}"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Numbers as values, in two partitions."""
    import pyarrow as pa

    folder = str(tmp_path_factory.mktemp("transform") / "log")
    rows = pa.table({"value": [b"%d" % n for n in range(COUNT)], "partition": [n % 2 for n in range(COUNT)]})
    connect(folder).write(rows, "t", options={"numPartitions": "2"})
    return folder


def test_the_columns_are_those_that_it_returns(read: Read, path: str) -> None:
    rows = read(path, **using("numbers"))
    assert rows.schema.simpleString() == "struct<topic:string,offset:bigint,number:bigint>"
    assert [tuple(row) for row in rows.where("number < 3").orderBy("number").collect()] == [
        ("t", 0, 0),
        ("t", 0, 1),
        ("t", 1, 2),
    ]
    assert rows.count() == COUNT
    assert rows.select("offset").distinct().count() == COUNT // 2


@pytest.mark.long
def test_a_schema_chooses_among_them(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("kafkalog").options(**using("numbers"))
    rows = reader.schema("number bigint, topic string").load(path)
    assert sorted(rows.collect()) == [(n, "t") for n in range(COUNT)]
    for schema, said in (
        ("value binary", "Unknown column 'value': the transform 'tests.plugins:numbers' does not return it"),
        ("number int", "Column 'number' has type int, but the transform .* returns bigint"),
        ("number bigint NOT NULL", "Column 'number' must be nullable"),
        ("number bigint, number bigint", "Column 'number' occurs twice"),
    ):
        with pytest.raises(PySparkException, match=said):
            reader.schema(schema).load(path).collect()


def test_types_are_those_of_spark(write: Callable[..., str], read: Read) -> None:
    log = write([('{"item": "pen", "price": 1.5}',), ('{"item": null, "price": null}',)])
    rows = read(log, **using("orders"))
    assert rows.schema.simpleString() == (
        "struct<order:struct<item:string,price:double>,name:string,at:timestamp>"
    )
    (pen,) = rows.selectExpr("order.*", "name", "CAST(at AS STRING) AS at").where("name = 'pen'").collect()
    assert tuple(pen) == ("pen", 1.5, "pen", "2017-07-14 02:40:00.123456")
    assert rows.where("order.item IS NULL AND name IS NULL").count() == 1


def test_types_that_spark_names_otherwise(read: Read, path: str) -> None:
    rows = read(path, **using("nested"))
    assert rows.schema.simpleString() == (
        "struct<few:array<int>,many:array<string>,structs:array<struct<a:float>>,pairs:map<string,bigint>,"
        "sure:struct<b:tinyint>,day:date,amount:decimal(10,2),naive:timestamp_ntz,flag:boolean>"
    )
    row = rows.selectExpr("*", "CAST(day AS STRING) AS d", "CAST(naive AS STRING) AS n").first()
    assert row is not None
    assert (row.few, row.many, row.structs, row.pairs) == ([1, None], ["a"], [(1.5,)], {"k": 1})
    assert (row.sure, row.amount, row.flag) == ((None,), None, True)
    assert (row.d, row.n) == ("2024-10-04", "1970-01-01 00:00:01")
    letters = {"large.message.enabled": "true", "large.message.dead.letters": "true"}
    whole = read(path, includeHeaders="true", **letters, **using("same"))
    plain = read(path, includeHeaders="true", **letters)
    assert whole.schema == plain.schema
    assert sorted(whole.collect()) == sorted(plain.collect())


@pytest.mark.skipif(not HAS_FILTERS, reason="this Spark pushes no filters down")
def test_filters_hold_for_what_it_returns(spark: SparkSession, read: Read, path: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = read(path, **using("shifted")).where("offset >= 1008")
        assert sorted(row.offset for row in rows.collect()) == [1008, 1008, 1009, 1009]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[None]:
    """Settings by which Spark hands tasks other Arrow types than it plans with."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_a_write_takes_any_columns(spark: SparkSession, read: Read, tmp_path: Path, zone: None) -> None:
    rows = spark.range(4).selectExpr(
        "CAST(id AS INT) AS id",
        "'x' AS text",
        "array(struct(id AS a, 'b' AS b)) AS nested",
        "map('k', id) AS pairs",
        "TIMESTAMP '2026-01-01 09:00:00' AS at",
        "CAST(id AS DECIMAL(10, 2)) AS amount",
    )
    log, audit = str(tmp_path / "log"), str(tmp_path / "audit")
    writer = rows.coalesce(1).write.format("kafkalog").mode("append").options(topic="t", auditLocation=audit)
    writer.options(**using("to_json")).save(log)
    found = [json.loads(row.value) for row in read(log).orderBy("offset").collect()]
    assert [row["id"] for _, row in found] == [0, 2]
    types, row = found[1]
    assert (types["text"], types["at"]) == ("string", "timestamp[us, tz=UTC]")
    assert (row["text"], row["nested"], row["amount"]) == ("x", [{"a": 2, "b": "b"}], "2.00")
    assert (row["pairs"], row["at"]) == ([["k", 2]], "2026-01-01 00:00:00+00:00")
    counts = spark.read.format("kafkalog").option("view", "audit").load(audit).groupBy("kind").sum("messages")
    assert {tuple(row) for row in counts.collect()} == {("ATTEMPT", 2), ("SUCCESS", 2)}


def test_an_audit_counts_what_is_in_the_log(
    spark: SparkSession, read: Read, path: str, tmp_path: Path
) -> None:
    audit = str(tmp_path / "audit")
    read(path, auditLocation=audit, **using("evens")).foreach(lambda row: None)
    counted = spark.read.format("kafkalog").option("view", "audit").load(audit).groupBy().sum("messages")
    assert counted.collect() == [(COUNT,)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "no_such",
            "cannot be imported: its module has no such callable. Give package.module:function, which",
        ),
        ("fails_at_once", "raised KeyError"),
        ("gives_unsigned_numbers", "returned column 'n' of type uint64, which Spark does not have"),
        (
            "gives_long_decimals",
            r"returned column 'd' of type decimal256\(60, 10\), which Spark does not have",
        ),
    ],
)
def test_a_read_is_refused_before_any_row(spark: SparkSession, path: str, name: str, said: str) -> None:
    for reader in spark.read, spark.readStream:
        with pytest.raises(PySparkException, match=rf"The transform 'tests.plugins:{name}' {said}"):
            reader.format("kafkalog").options(**using(name)).load(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails_at_three", r"raised ValueError \(line \d+ of .*\): three \(partition t-1, offset 0\)"),
        ("ends_the_process", "raised SystemExit"),
        ("gives_negative_sizes", r"returned a broken batch: .* \(partition t-\d, offset 0\)"),
    ],
)
def test_an_error_of_a_task_says_where(read: Read, path: str, name: str, said: str) -> None:
    with pytest.raises(PySparkException, match=rf"The transform 'tests.plugins:{name}' {said}"):
        read(path, **using(name)).collect()


@pytest.mark.parametrize("name", ["fails_at_three", "sizes", "gives_negative_sizes", "fails_at_once"])
def test_a_write_that_fails_leaves_nothing(write: Callable[..., str], tmp_path: Path, name: str) -> None:
    with pytest.raises(PySparkException, match=f"The transform 'tests.plugins:{name}' "):
        write(numbered(5), **using(name))
    assert not list(tmp_path.rglob("*.log"))
    assert not list(tmp_path.rglob(".kafkalog-staged*"))


@pytest.mark.slow
def test_a_view_has_none(read: Read, path: str) -> None:
    with pytest.raises(PySparkException, match="Option 'transform' does not apply to view=topics"):
        read(path, view="topics", **using("evens"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
def test_a_stream_that_filters_on_both_ends_is_exactly_once(
    spark: SparkSession, broker: Broker, path: str, tmp_path: Path
) -> None:
    """Offsets count records, so a micro-batch of which nothing is left goes by like any other."""
    topic, checkpoint = unused_topic(), tmp_path / "checkpoint"
    source = unused_topic()
    for name in topic, source:
        broker.create_topic(name, 1)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    group = f"{source}-etl"

    def run(numbers: range) -> list[dict[str, Any]]:
        import pyarrow as pa

        connect(servers).write(pa.table({"value": [b"%d" % number for number in numbers]}), source)
        read = spark.readStream.format("kafkalog").options(
            subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="5", **servers
        )
        query = (
            read.options(**{"kafka.group.id": group}, **using("evens"))
            .load()
            .select("value")
            .writeStream.format("kafkalog")
            .options(topic=topic, checkpointLocation=str(checkpoint), **servers, **using("twice"))
            .option("delivery.guarantee", "exactly-once")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress]

    def values() -> list[int]:
        return sorted(int(value) for value in shown(broker.bootstrap, topic, partitions=1))

    progress = run(range(10))
    assert values() == sorted([0, 2, 4, 6, 8] * 2)
    assert sum(each["numInputRows"] for each in progress) == 5, "rows that the transform has left"
    run(range(11, 20, 2))
    assert values() == sorted([0, 2, 4, 6, 8] * 2)
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    run(range(20, 23))
    assert values() == sorted([0, 2, 4, 6, 8, 20, 22] * 2)
    (committed,) = connect(servers).groups.offsets([group])
    assert committed.offset == 18, "all records, with those that are left out"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("is_zipped", [False, True])
def test_a_stream_finds_what_is_added_to_the_session(
    spark: SparkSession, path: str, tmp_path: Path, is_zipped: bool
) -> None:
    name = f"added_{'zip' if is_zipped else 'module'}"
    module = tmp_path / f"{name}.py"
    module.write_text("def same(rows):\n    return rows\n")
    if is_zipped:
        added = tmp_path / f"{name}.zip"
        with ZipFile(added, "w") as file:
            file.write(module, module.name)
        spark.sparkContext.addPyFile(str(added))
        register(spark)
    else:
        spark.sparkContext.addPyFile(str(module))
    query = (
        spark.readStream.format("kafkalog")
        .options(startingOffsets="earliest", transform=f"{name}:same")
        .load(path)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(progress.numInputRows for progress in query.recentProgress) == COUNT


@pytest.mark.slow
def test_a_stream_leaves_few_rows_to_a_task(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """Only there is the user's code run; and a stream ends with its error."""

    def run(name: str) -> list[int]:
        query = (
            spark.readStream.format("kafkalog")
            .options(startingOffsets="earliest", **using(name))
            .load(path)
            .writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(int(row.value) for row in spark.table(name).collect())

    assert run("evens") == list(range(0, COUNT, 2))
    with pytest.raises(PySparkException, match=r"raised ValueError .*three \(partition t-1, offset 0\)"):
        run("fails_at_three")
