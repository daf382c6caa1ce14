"""JSON as columns without Spark: schemas, corrupt values, and what is refused before anything is read."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import CorruptRecordError, OptionError
from pyspark_kafkalog.extensions.typed_values import decoding
from pyspark_kafkalog.options.user_options import log_once_for
from pyspark_kafkalog.spark.source import KafkaLogDataSource
from pyspark_kafkalog.spark.writer import batch_writer

FIELDS = "id bigint, name string, _corrupt_record string"
GOOD = b'{"id":1,"name":"a"}'


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def write(root: str, values: list[bytes | None], **columns: list[Any]) -> None:
    connect(root).write(pa.table({"value": pa.array(values, pa.binary()), **columns}), "items")


def read(root: str, columns: list[str] | None = None, **options: str) -> list[Any]:
    named = {name.replace("__", "."): text for name, text in options.items()}
    given = {"subscribe": "items", "value.format": "json", "value.schema": FIELDS, **named}
    rows = connect(root).read(columns=columns, options=given).read_all()
    return rows.column("value").to_pylist() if columns is None else rows.to_pylist()


def test_values_are_structs(root: str) -> None:
    write(root, [GOOD, None, b"", b'{"id":"x","name":"b"}', b'{"more":[],"id":2}'] * 100)
    found = {"id": 1, "name": "a", "_corrupt_record": None}
    bad = {"id": None, "name": "b", "_corrupt_record": '{"id":"x","name":"b"}'}
    assert read(root) == [found, None, None, bad, {**found, "id": 2, "name": None}] * 100
    assert read(root, value__schema="id int")[:4] == [{"id": 1}, None, None, {"id": None}]
    other = read(root, columnNameOfCorruptRecord="name")[3]
    assert other == {"id": None, "name": '{"id":"x","name":"b"}', "_corrupt_record": None}


def test_batches_of_wide_structs_have_fewer_rows(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [*[b'{"id":%d,"inner":{"x":%d}}' % (number, number) for number in range(20)], b"", b"[", None]
    write(root, values)
    options = {"value__schema": "id int, inner struct<x: int, y: int>, _corrupt_record string"}
    whole = read(root, **options)
    assert [row and row["id"] for row in whole] == [*range(20), None, None, None]
    monkeypatch.setattr(decoding, "_MOST_VALUES", 15)
    assert read(root, **options) == whole
    given = {"subscribe": "items", "value.format": "json", "value.schema": options["value__schema"]}
    sizes = [batch.num_rows for batch in connect(root).read(options=given)]
    assert (max(sizes), sum(sizes)) == (3, len(values))


def test_corrupt_values(root: str, caplog: pytest.LogCaptureFixture) -> None:
    write(root, [GOOD, b'{"id":1.5}', b"[1]"])
    assert [row["_corrupt_record"] for row in read(root)] == [None, '{"id":1.5}', "[1]"]
    (said,) = [line.getMessage() for line in caplog.records if "can't be decoded" in line.getMessage()]
    assert "id: expected a whole number of 64 bits, at byte 6 (partition items-0, offset 1)" in said
    assert "this one and others are read as far as possible, with nulls for the rest" in said
    with pytest.raises(
        CorruptRecordError, match=r"id: expected .* at byte 6 \(partition items-0, offset 1\)"
    ):
        read(root, mode="FAILFAST")
    with pytest.raises(CorruptRecordError, match=r"expected an object, at byte 0.*offset 2"):
        read(root, mode="FAILFAST", startingOffsets='{"items":{"0":2}}')
    write(root, [b"\0\0\0\0\1" + GOOD])
    with pytest.raises(CorruptRecordError, match="begins like a value of Confluent's serializers"):
        read(root, mode="FAILFAST", startingOffsets='{"items":{"0":3}}')


def test_corrupt_records_among_good_rows_are_told(root: str, caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    write(root, [GOOD, b"[", b"?"])
    read(root, ["value", "corrupt"], includeCorrupt="true")
    (said,) = caplog.messages
    assert said.startswith("Records whose value can't be decoded are in the column corrupt. These values are")


def test_corrupt_records_in_a_column(root: str) -> None:
    bad = b'{"id":1.5,"name":"b"}'
    write(root, [GOOD, bad, None, b"[", b""])
    given = {"includeCorrupt": "true", "value__schema": "id bigint, name string"}
    rows = read(root, ["value", "corrupt"], **given)
    assert [row["value"] for row in rows if row["corrupt"] is None] == [{"id": 1, "name": "a"}, None, None]
    assert rows[1]["value"] == {"id": None, "name": "b"}
    found = [row["corrupt"] for row in rows if row["corrupt"] is not None]
    assert [(each["column"], each["offset"], each["value"]) for each in found] == [
        ("value", 1, bad),
        ("value", 3, b"["),
    ]
    said = "The value can't be decoded: id: expected a whole number of 64 bits, at byte 6"
    assert found[0]["reason"] == said
    assert [row["corrupt"] for row in read(root, ["corrupt"], **given)] == [row["corrupt"] for row in rows]


def test_keys_too(root: str) -> None:
    write(root, [GOOD], key=[b'{"k":[1,null]}'])
    rows = read(
        root,
        ["key", "value"],
        key__format="json",
        key__schema="struct<k: array<int>>",
        value__schema="id int",
    )
    assert rows == [{"key": {"k": [1, None]}, "value": {"id": 1}}]


def test_times_without_a_zone(root: str) -> None:
    write(root, [b'{"at":"2024-07-01T12:00:00"}'])
    fields = "at timestamp"
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
    assert read(root, value__schema=fields) == [{"at": noon}]
    found = read(root, value__schema=fields, timeZone="Europe/Berlin")
    assert found == [{"at": noon - datetime.timedelta(hours=2)}]
    with pytest.raises(OptionError, match="Option 'timeZone': there is no time zone 'Europe/Nowhere'"):
        read(root, value__schema=fields, timeZone="Europe/Nowhere")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"value__schema": "id foo"},
            "'value.schema': expected a type such as bigint or string, got 'foo', at character 4",
        ),
        ({"value__schema": '{"type":"record"}'}, "A JSON Schema is not valid at #/type"),
        ({"value__schema": "id binary"}, "can't be read as binary, the type of 'id'"),
        ({"value__schema": "array<int>"}, "JSON is read as a struct, got array<int>"),
        ({"value__schema": "_corrupt_record int"}, "so it must be a string, got int"),
        ({"mode": "DROPMALFORMED"}, "expected one of PERMISSIVE, FAILFAST"),
        ({"timestampFormat": "yyyy"}, "'timestampFormat' of from_json is not supported"),
        ({"dateFormat": "yyyy"}, "'dateFormat' of from_json is not supported"),
        ({"allowcomments": "true"}, "'allowComments' of from_json is not supported"),
        (
            {"value__format": "avro", "value__schema": "{}", "timeZone": "UTC"},
            "'timeZone' needs 'value.format=json'",
        ),
    ],
)
def test_what_is_refused(root: str, options: dict[str, str], said: str) -> None:
    write(root, [GOOD])
    with pytest.raises(OptionError, match=said):
        read(root, **options)


def test_values_that_take_long_are_told_once(root: str, caplog: pytest.LogCaptureFixture) -> None:
    write(root, [GOOD] * 1000 + [b'{"name":+Infinity}'] * 1000 + [None] * 9)
    read(root)
    assert not caplog.records
    write(root, [b'{"%s":1}' % (b"x" * 10_001)] * 9)
    read(root)
    (said,) = caplog.messages
    assert "items-0: 1009 of 2009 JSON values of column 'value' are of a rare form" in said
    assert "1000 of them for field 'name', of type string" in said


def test_types_of_spark_that_json_does_not_have(root: str) -> None:
    """Or Arrow, where rows are written."""
    for kind, said in (
        (VariantType(), "JSON can't be read as variant, the type of 'a'"),
        (LongType(), "'value' must be nullable, with all that is in it"),
    ):
        value = StructType([StructField("a", kind, isinstance(kind, VariantType))])
        source = KafkaLogDataSource({"subscribe": "items", "value.format": "json", "path": root})
        with pytest.raises(OptionError, match=said):
            source.reader(StructType([StructField("value", value)]))
    for wrong in (YearMonthIntervalType(), MapType(NullType(), NullType())):
        schema = StructType([StructField("value", StructType([StructField("a", wrong)]))])
        with pytest.raises(OptionError, match=r"'value'|value\.a|a\.key"):
            batch_writer({"path": root, "topic": "t", "value.format": "json"}, schema, overwrite=False)


def test_json_needs_fields(root: str) -> None:
    options = {"subscribe": "items", "value.format": "json"}
    with pytest.raises(OptionError, match=r"'value.format' is json, which needs to know the fields\. Give"):
        connect(root).read(options=options)
    source = KafkaLogDataSource({**options, "path": root})
    with pytest.raises(OptionError, match=r"needs to know the fields"):
        source.schema()
    value = StructType([StructField("id", LongType()), StructField("_corrupt_record", StringType())])
    source.reader(StructType([StructField("value", value), StructField("offset", LongType())]))
    given = {**options, "value.schema": "id int", "path": root, "includeCorrupt": "true"}
    whole = KafkaLogDataSource(given).schema()
    assert isinstance(whole, StructType)
    del given["value.schema"]
    with pytest.raises(OptionError, match=r"needs to know the fields"):
        KafkaLogDataSource(given).reader(StructType([whole["corrupt"]]))
    with pytest.raises(OptionError, match=r"'value.format' is json, which needs to know the fields"):
        KafkaLogDataSource({**options, "path": root, "transform": "tests.plugins:same"}).reader(
            StructType([StructField("value", value)])
        )
