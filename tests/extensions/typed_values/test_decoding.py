"""Values with the ids of their schemas, as columns: several writers, headers, and what can't be decoded."""

from __future__ import annotations

import json
import pickle
import struct
import uuid
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import CorruptRecordError, OptionError, SchemaError, SchemaRegistryError
from pyspark_kafkalog.extensions.large_messages.segments import find
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_kafkalog.options.user_options import log_once_for
from pyspark_kafkalog.spark.source import KafkaLogDataSource
from tests.confluent import body, guid_header, prefixed, record

ITEM = record("Item", id="long", name=(["null", "string"], None))
PRICED = record("Item", id="long", price=("double", 1.5), name=(["null", "string"], None))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GUID = "89791762-2336-4186-9674-299b90a802e2"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
NULLS = {"id": None, "price": None, "name": None}


class Schemas:
    """What stands for a registry: schemas by id, GUID and subject."""

    def __init__(self) -> None:
        self.by_key: dict[Any, RegisteredSchema] = {}
        self.asked: list[int] = []
        """Whether they are known."""

    def add(self, key: int | str, schema: Any, kind: str = "AVRO") -> None:
        number = key if isinstance(key, int) else None
        self.by_key[key] = RegisteredSchema(json.dumps(schema), kind, (), number)


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> Schemas:
    found = Schemas()

    def find(_: SchemaRegistry, key: Any, **__: Any) -> RegisteredSchema:
        if key not in found.by_key:
            raise SchemaRegistryError(f"The schema registry does not know {key!r}", hint="Check it.")
        return found.by_key[key]

    for name in ("by_id", "by_guid", "latest"):
        monkeypatch.setattr(SchemaRegistry, name, find)

    def knows(_: SchemaRegistry, key: int) -> bool:
        found.asked.append(key)
        return key in found.by_key

    monkeypatch.setattr(SchemaRegistry, "knows", knows)
    found.add(1, ITEM)
    found.add(2, PRICED)
    found.add("items-value", PRICED)
    return found


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def write(root: str, values: list[bytes | None], topic: str = "items", **columns: list[Any]) -> None:
    arrays = {"value": pa.array(values, pa.binary()), **columns}
    connect(root).write(pa.table(arrays), topic)


def read(root: str, topics: str = "items", columns: list[str] | None = None, **options: str) -> list[Any]:
    named = {name.replace("__", "."): text for name, text in options.items()}
    given = {
        "subscribe": topics,
        "value.format": "confluent-avro",
        "schema.registry.url": "http://registry.invalid",
        **named,
    }
    rows = connect(root).read(columns=columns, options=given).read_all()
    return rows.column("value").to_pylist() if columns is None else rows.to_pylist()


def test_splits_keep_the_schema_of_their_plan(schemas: Schemas, root: str) -> None:
    """Each is read by another process, maybe after the subject has a newer schema."""
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"})])
    options = {"value.format": "confluent-avro", "schema.registry.url": "http://registry.invalid"}
    splits = pickle.dumps(connect(root).plan("items", columns=["value"], options=options))
    schemas.add("items-value", record("Item", id="string"))
    (split,) = pickle.loads(splits)
    assert split.read().read_all().to_pylist() == [{"value": {"id": 1, "price": 1.5, "name": "a"}}]


def test_each_value_is_read_by_the_schema_of_its_writer(schemas: Schemas, root: str) -> None:
    values = [
        prefixed(1, ITEM, {"id": 1, "name": "a"}),
        prefixed(2, PRICED, {"id": 2, "price": 9.0, "name": None}),
        None,
        prefixed(1, ITEM, {"id": 3, "name": None}),
    ]
    write(root, values * 100)
    assert (
        read(root)
        == [
            {"id": 1, "price": 1.5, "name": "a"},
            {"id": 2, "price": 9.0, "name": None},
            None,
            {"id": 3, "price": 1.5, "name": None},
        ]
        * 100
    )


def test_ids_in_headers(schemas: Schemas, root: str) -> None:
    schemas.add(GUID, ITEM)
    value = body(ITEM, {"id": 1, "name": "a"})
    by_id = ("__value_schema_id", b"\0" + struct.pack(">I", 1))
    headers = [
        [guid_header(GUID)],
        None,
        [("other", b"x"), by_id],
        [guid_header(str(uuid.UUID(int=7))), guid_header(GUID)],
        [("__value_schema_id", b"\x02abcd"), ("__key_schema_id", b"\0\0\0\0\x09")],
        [("__value_schema_id", None)],
    ]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    of_rows = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in headers]
    prefix = prefixed(2, PRICED, {"id": 2, "price": 9.0, "name": None})
    values = [value, prefix, value, value, prefix, prefix]
    write(root, values, headers=pa.array(of_rows, kind))
    found, priced = {"id": 1, "price": 1.5, "name": "a"}, {"id": 2, "price": 9.0, "name": None}
    assert read(root) == [found, priced, found, found, priced, priced]


def test_the_ids_of_schemas(schemas: Schemas, root: str) -> None:
    """Made if it is asked for, or named; alone, it asks the registry for no schema of a writer."""
    schemas.add(GUID, ITEM)
    schemas.add("items-key", "string")
    value = body(ITEM, {"id": 1, "name": "a"})
    by_id = ("__value_schema_id", b"\0" + struct.pack(">I", 2**32 - 2))
    headers = [None, None, None, [by_id], [guid_header(GUID)], [by_id], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    of_rows = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in headers]
    keys = pa.array([prefixed(4, "string", "k")] * len(headers), pa.binary())
    good, bad = prefixed(2, PRICED, {"id": 2, "price": 9.0, "name": None}), prefixed(1, ITEM, {"id": 1})
    values = [good, bad + b"!", b"\0\0", value, value, None, None]
    write(root, values, headers=pa.array(of_rows, kind), key=keys)
    ids = [2, 1, None, -2, None, None, None]
    assert [row["schemaId"] for row in read(root, columns=["schemaId"])] == ids
    schemas.add(2**32 - 2, ITEM)
    rows = read(root, columns=["value", "schemaId", "offset"])
    assert list(rows[0]) == ["value", "schemaId", "offset"]
    assert [row["schemaId"] for row in rows] == ids
    assert rows[0]["value"] == {"id": 2, "price": 9.0, "name": None}
    assert rows[4]["value"] == {"id": 1, "price": 1.5, "name": "a"}
    guids = [row["schemaGuid"] for row in read(root, columns=["schemaGuid"])]
    assert guids == [GUID if number == 4 else None for number in range(len(ids))]
    rows = read(root, columns=["keySchemaId"], key__format="confluent-avro")
    assert rows == [{"keySchemaId": 4}] * len(ids)
    given = {
        "subscribe": "items",
        "value.format": "confluent-avro",
        "schema.registry.url": "http://registry.invalid",
    }
    assert "schemaId" not in connect(root).read(options=given).schema.names
    shown = connect(root).read(options={**given, "includeSchemaId": "true"})
    assert shown.schema.names[-2:] == ["schemaId", "schemaGuid"]
    assert shown.schema.types[-2:] == [pa.int32(), pa.string()]
    found = connect(root).read(columns=["offset"], filters=[("schemaId", "=", 1)], options=given)
    assert found.read_all().to_pylist() == [{"offset": 1}]
    options = {**given, "includeSchemaId": "true", "transform": "tests.plugins:same"}
    assert connect(root).read(options=options).read_all().column("schemaId").to_pylist() == ids


def test_values_that_are_not_of_a_serializer(
    schemas: Schemas, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = prefixed(1, ITEM, {"id": 1, "name": "a"})
    write(root, [good, b"", b"\0\0\0\0", b"\x01" + good[1:], good + b"!", good[:-1], good])
    found = {"id": 1, "price": 1.5, "name": "a"}
    assert read(root) == [found, NULLS, NULLS, NULLS, NULLS, NULLS, found]
    (said,) = [line.getMessage() for line in caplog.records if "can't be decoded" in line.getMessage()]
    assert "(partition items-0, offset 1)" in said
    with pytest.raises(CorruptRecordError, match=r"expected the key of a .*\(partition items-0, offset 1\)"):
        read(root, mode="FAILFAST")
    with pytest.raises(CorruptRecordError, match=r"goes on behind its last field.*offset 4"):
        read(root, mode="FAILFAST", startingOffsets='{"items":{"0":4}}')


def test_a_null_needs_no_schema(schemas: Schemas, root: str) -> None:
    key, value = guid_header(str(uuid.UUID(int=1)))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    write(root, [None], headers=pa.array([[{"key": key, "value": value}]], kind))
    assert read(root) == [None]


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_values_of_serializers_that_are_read_without_their_id(
    root: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"})])
    options = {"subscribe": "items", "value.format": "avro", "value.schema": json.dumps(ITEM), "mode": mode}
    said = ""
    try:
        connect(root).read(options=options).read_all()
    except CorruptRecordError as e:
        said = str(e)
    assert "it begins like a value of Confluent's serializers: give confluent-avro" in said + caplog.text
    assert bool(said) == (mode == "FAILFAST")


@pytest.mark.parametrize("text", ["id long, name string", "/tmp/item.avsc"])
def test_a_schema_that_is_none(root: str, text: str) -> None:
    options = {"subscribe": "items", "value.format": "avro", "value.schema": text}
    with pytest.raises(OptionError, match="Give the text of an Avro schema"):
        connect(root).read(options=options)


def test_an_id_that_the_registry_does_not_know(schemas: Schemas, root: str) -> None:
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"}), prefixed(99, ITEM, {"id": 1, "name": "a"})])
    with pytest.raises(SchemaRegistryError, match=r"know 99 \(partition items-0, offset 1\)\. Check"):
        read(root)


def test_a_guid_that_the_registry_does_not_know(schemas: Schemas, root: str) -> None:
    key, value = guid_header(GUID)
    headers = pa.array([None, [{"key": key, "value": value}]], HEADERS)
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"}), b"x"], headers=headers)
    with pytest.raises(SchemaRegistryError, match=rf"know '{GUID}' \(partition items-0, offset 1\)\. Check"):
        read(root)


def test_message_segments_have_no_ids(schemas: Schemas, root: str, caplog: pytest.LogCaptureFixture) -> None:
    """No registry is asked for what looks like one, for a minute."""
    large = {"large.message.enabled": "true", "max.message.segment.bytes": "1000"}
    values = [prefixed(1, ITEM, {"id": n, "name": "x" * size}) for n, size in enumerate((5, 5000, 5))]
    connect(root).write(pa.table({"value": values}), "items", options=large)
    found = read(root, columns=["value", "schemaId"])
    assert len(found) > 5
    assert [row["value"]["id"] for row in found if row["schemaId"] == 1] == [0, 2]
    assert all(row["value"] == NULLS for row in found if row["schemaId"] is None)
    (said,) = [line.getMessage() for line in caplog.records if "can't be decoded" in line.getMessage()]
    assert "; it is a segment of a large message: give large.message.enabled=true (--large-messages)" in said
    assert len(schemas.asked) == 1
    assert [row["id"] for row in read(root, large__message__enabled="true")] == [0, 1, 2]
    assert len(schemas.asked) == 1


def test_a_value_that_looks_like_a_message_segment(schemas: Schemas, root: str) -> None:
    """By chance: its id is the sum of what would be parts of the segment's."""
    zeros = record("Zeros", **{f"f{n}": "int" for n in range(40)})
    schemas.add(5, zeros)
    schemas.add("items-value", zeros)
    row = {f"f{n}": {15: -3, 23: -1, 27: 12}.get(n, 0) for n in range(40)}
    values = [prefixed(5, zeros, row)] * 3
    assert find(pa.record_batch({"value": pa.array(values, pa.binary())})) is not None
    write(root, values)
    assert read(root) == [row] * 3
    assert schemas.asked == [5, 5, 5]


def test_a_writer_whose_schema_does_not_fit(schemas: Schemas, root: str) -> None:
    other = record("Item", id="string", name=(["null", "string"], None))
    schemas.add(3, other)
    write(root, [prefixed(3, other, {"id": "x", "name": None})])
    with pytest.raises(SchemaError, match=r"schema id 3: .*id.*\(partition items-0, offset 0\)"):
        read(root)
    schemas.add(3, {"type": "object"}, kind="JSON")
    with pytest.raises(SchemaError, match=r"of type JSON, expected AVRO.*Give confluent-json as"):
        read(root)


def test_keys_have_schemas_of_their_own(schemas: Schemas, root: str) -> None:
    schemas.add(4, "string")
    schemas.add("items-key", "string")
    key = prefixed(4, "string", "k")
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"})], key=pa.array([key], pa.binary()))
    rows = read(root, columns=["key", "offset"], key__format="confluent-avro")
    assert rows == [{"key": "k", "offset": 0}]


@pytest.mark.parametrize(
    ("reader", "value", "expected"),
    [
        ("bytes", b"\x04ab", b"\x04ab"),
        ("bytes", b"", b""),
        ("string", b"hello", "hello"),
        (["null", "bytes"], b"\xff\x01", b"\xff\x01"),
        (["int", "bytes"], b"abc", {"member0": None, "member1": b"abc"}),
        (DECIMAL, b"\xff\x00", Decimal("-2.56")),
    ],
)
def test_bytes_have_no_length(schemas: Schemas, root: str, reader: Any, value: bytes, expected: Any) -> None:
    """As AbstractKafkaAvroSerializer writes them: the rest of the value."""
    schemas.add(7, "bytes")
    write(root, [b"\0\0\0\0\x07" + value])
    assert read(root, value__schema=json.dumps(reader)) == [expected]


def test_several_topics_need_a_schema(schemas: Schemas, root: str) -> None:
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"})])
    write(root, [prefixed(2, PRICED, {"id": 2, "price": 9.0, "name": None})], topic="others")
    with pytest.raises(OptionError, match=r"not of one topic\. Give the schema of all"):
        read(root, topics="items,others")
    only_id = json.dumps(record("Item", id="long"))
    assert sorted(row["id"] for row in read(root, topics="items,others", value__schema=only_id)) == [1, 2]


def test_avro_without_a_registry(root: str) -> None:
    write(root, [body(ITEM, {"id": 1, "name": "a"}), None])
    options = {"subscribe": "items", "value.format": "avro", "value.schema": json.dumps(ITEM)}
    rows = connect(root).read(options=options).read_all()
    assert rows.column("value").to_pylist() == [{"id": 1, "name": "a"}, None]


def test_the_readers_schema_is_that_of_load(schemas: Schemas, root: str) -> None:
    """Spark makes the reader later, from a copy of the source."""
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"})])
    options = {"subscribe": "items", "value.format": "confluent-avro", "path": root}
    source = KafkaLogDataSource({**options, "schema.registry.url": "http://registry.invalid"})
    schema = source.schema()
    schemas.add("items-value", record("Item", number=("int", 0)))
    copy = pickle.loads(pickle.dumps(source))
    assert isinstance(schema, StructType)
    for reader in (copy.reader(schema), copy.streamReader(schema)):
        assert "price" in str(reader._shaping.decoded)


def test_records_that_can_not_be_decoded_are_kept(
    schemas: Schemas, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole: the bytes of key and value, headers and timestamp. The key is decoded first."""
    log_once_for.cache_clear()
    good = prefixed(1, ITEM, {"id": 1, "name": "a"})
    moment = datetime(2024, 5, 6, 7, 8, 9, 123000, timezone.utc)
    schemas.add(4, "string")
    schemas.add("items-key", "string")
    key = prefixed(4, "string", "k")
    write(
        root,
        [good, b"?", None, good[:-1], good],
        key=pa.array([key, key, key, b"!", b"!"], pa.binary()),
        headers=pa.array([None, [{"key": "a", "value": b"b"}, {"key": "a"}], None, None, None], HEADERS),
        timestamp=pa.array([moment] * 5, pa.timestamp("ms", "UTC")),
    )
    options = {"includeCorrupt": "true", "key.format": "confluent-avro"}
    rows = read(root, columns=["offset", "key", "value", "corrupt"], **options)
    assert [row["offset"] for row in rows if row["corrupt"] is None] == [0, 2]
    why = "expected the key of a schema, as the registry's serializers write it, at byte 0"
    assert rows[1]["corrupt"] == {
        "reason": f"The value can't be decoded: {why}",
        "column": "value",
        "topic": "items",
        "partition": 0,
        "offset": 1,
        "timestamp": moment,
        "key": key,
        "value": b"?",
        "headers": [{"key": "a", "value": b"b"}, {"key": "a", "value": None}],
    }
    assert (rows[1]["key"], rows[1]["value"]) == ("k", NULLS)
    found = [(row["corrupt"]["column"], row["corrupt"]["value"]) for row in rows[3:]]
    assert found == [("key", good[:-1]), ("key", good)]
    assert rows[4]["corrupt"]["reason"] == f"The key can't be decoded: {why}"
    told = "Records whose %s can't be decoded are in the column corrupt. "
    assert sorted(line.split("These")[0] for line in caplog.messages) == [told % "key", told % "value"]
    alone = read(root, columns=["corrupt"], **options)
    assert alone == [{"corrupt": row["corrupt"]} for row in rows]
    kept = connect(root).read(
        options={
            "subscribe": "items",
            "value.format": "confluent-avro",
            "schema.registry.url": "http://registry.invalid",
            "includeCorrupt": "true",
            "transform": "tests.plugins:same",
        },
    )
    assert kept.read_all().column("corrupt").null_count == 3


def test_a_transform_gets_columns(schemas: Schemas, root: str) -> None:
    write(root, [prefixed(1, ITEM, {"id": n, "name": "a"}) for n in range(5)])
    options = {
        "subscribe": "items",
        "value.format": "confluent-avro",
        "schema.registry.url": "http://registry.invalid",
        "transform": "tests.plugins:fields_of_value",
    }
    rows = connect(root).read(options=options).read_all()
    assert rows.column_names == ["id", "price", "name"]
    assert rows.column("id").to_pylist() == [0, 1, 2, 3, 4]
    rows = connect(root).read(options={**options, "transform": "tests.plugins:same"}).read_all()
    assert rows.column_names == list(connect(root).read(options={"subscribe": "items"}).schema.names)
    assert rows.column("value").to_pylist()[0] == {"id": 0, "price": 1.5, "name": "a"}


def test_filters_of_records(schemas: Schemas, root: str) -> None:
    write(root, [prefixed(1, ITEM, {"id": n, "name": "a"}) for n in range(5)])
    given = {
        "subscribe": "items",
        "value.format": "confluent-avro",
        "schema.registry.url": "http://registry.invalid",
    }
    rows = connect(root).read(options=given, columns=["value"], filters=[("offset", ">=", 3)]).read_all()
    assert [row["id"] for row in rows.column("value").to_pylist()] == [3, 4]


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (None, "does not know 'items-value'"),
        ({"type": "record"}, "The schema of column 'value' can't be used"),
        ({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}, "contains itself"),
    ],
)
def test_subjects_that_can_not_be_used(schemas: Schemas, root: str, subject: Any, text: str) -> None:
    write(root, [b"x"])
    if subject is None:
        del schemas.by_key["items-value"]
    else:
        schemas.add("items-value", subject)
    with pytest.raises((OptionError, SchemaRegistryError), match=text):
        read(root)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"value.schema": "{}"}, "'value.schema' needs 'value.format'"),
        ({"value.format": "avro"}, "which needs 'value.schema'"),
        ({"value.format": "confluent-avro"}, "which needs 'schema.registry.url'"),
        ({"value.format": "protobuf"}, "needs 'value.schema'. Give the text of the .proto file"),
        ({"value.format": "thrift"}, "expected one of"),
        ({"schema.registry.url": "http://h"}, "applies only to"),
        ({"mode": "FAILFAST"}, "'mode' needs 'value.format'"),
        ({"includeSchemaId": "true"}, "'includeSchemaId' applies only to"),
        ({"includeCorrupt": "true"}, "'includeCorrupt' needs 'value.format'"),
        (
            {"value.format": "avro", "value.schema": "{", "mode": "FAILFAST", "includeCorrupt": "true"},
            "'mode' is FAILFAST",
        ),
        ({"value.format": "avro", "value.schema": "{", "mode": "x"}, "expected one of PERMISSIVE, FAILFAST"),
        ({"value.format": "avro", "value.schema": "{"}, "The option 'value.schema' can't be used: An Avro"),
        ({"value.format": "avro", "value.schema": "[]"}, "it is a union of no types, which has no values"),
        (
            {"value.subject.name.strategy": "x"},
            "'value.subject.name.strategy': expected a class of Kafka's, TopicNameStrategy or ",
        ),
        ({"value.format": "azure-avro", "schema.registry.url": "http://h"}, "which needs 'value.schema'"),
        ({"key.format": "azure-avro", "schema.registry.url": "http://h"}, "which only values have"),
        ({"value.format": "apicurio-avro"}, "which needs 'apicurio.registry.url'"),
        (
            {"value.format": "apicurio-avro", "apicurio.registry.url": "h:a-secret"},
            "'apicurio.registry.url': expected a URL",
        ),
        ({"apicurio.registry.url": "http://h"}, "'apicurio.registry.url' applies only to"),
        (
            {"value.format": "glue-avro", "schema.registry.url": "http://h"},
            "needs .value.format=confluent",
        ),
        (
            {"value.format": "glue-avro", "bearer.auth.token": "a-secret"},
            "needs 'value.format=confluent-avro",
        ),
        ({"region": "eu-west-1"}, "'region' needs 'value.format=glue-avro'"),
        (
            {"value.format": "glue-avro", "key.subject.name.strategy": "RecordNameStrategy"},
            "'key.subject.name.strategy' needs 'key.format=confluent-avro'",
        ),
        (
            {"value.format": "glue-avro", "key.format": "confluent-avro"},
            "are of two registries, confluent and glue",
        ),
        ({"specific.avro.reader": "true"}, "'specific.avro.reader' is not supported.*Leave it out"),
        ({"value.deserializer": "x"}, "'value.deserializer' is not supported.*give key.format"),
    ],
)
def test_options_that_are_refused(root: str, options: dict[str, str], text: str) -> None:
    write(root, [b"x"])
    with pytest.raises(OptionError, match=text) as caught:
        connect(root).read(options={"subscribe": "items", **options})
    assert "a-secret" not in str(caught.value)


def test_subjects_by_the_name_of_the_record(schemas: Schemas, root: str) -> None:
    """They need the schema, which has the name, and then no subject is asked for."""
    write(root, [prefixed(1, ITEM, {"id": 1, "name": "a"})])
    given = {"value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy"}
    with pytest.raises(OptionError, match="RecordNameStrategy, which needs a schema with a name"):
        read(root, **given)
    assert read(root, **given, value__schema=json.dumps(ITEM)) == [{"id": 1, "name": "a"}]
