"""Structs are written as Avro and JSON, by schemas that a registry has or gets; misfits are refused."""

from __future__ import annotations

import datetime
import json
import pickle
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import InvalidRecordError, OptionError, SchemaError, SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.ddl import ddl
from pyspark_kafkalog.extensions.typed_values.json import writing
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.write.columns import Shaped
from tests.confluent import body, prefixed, record

ITEM = record("Item", id="long", name=["null", "string"])
KIND = pa.struct([("id", pa.int64()), ("name", pa.string())])
_TAGGED = pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})
_VARIANT = pa.struct([("value", pa.binary()), _TAGGED])
"""As PySpark has it in Arrow."""
VARIANT = pa.struct({"l": pa.list_(pa.field("element", pa.struct({"v": _VARIANT})))})
ROWS = [{"id": 1, "name": "a"}, None, {"id": 2, "name": None}]
REGISTRY = {"schema.registry.url": "http://me:hidden@registry.invalid"}
CONFLUENT = {"value.format": "confluent-avro", **REGISTRY}


class Schemas:
    """What stands for a registry: the ids of schemas by subject and text; the last one is the newest."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str], int] = {}
        self.registered: list[str] = []
        self.guid: uuid.UUID | None = None

    def add(self, subject: str, schema: Any) -> int:
        return self.ids.setdefault((subject, json.dumps(schema)), len(self.ids) + 1)


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> Schemas:
    found = Schemas()

    def latest(_: SchemaRegistry, subject: str) -> RegisteredSchema:
        known = [(number, text) for (name, text), number in found.ids.items() if name == subject]
        if not known:
            raise SchemaRegistryError(f"does not know subject {subject!r}")
        return RegisteredSchema(known[-1][1], schema_id=known[-1][0], guid=found.guid)

    def find(_: SchemaRegistry, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        if (subject, schema.text) not in found.ids:
            raise SchemaRegistryError(f"does not know this schema of subject {subject!r}")
        return replace(schema, schema_id=found.ids[subject, schema.text], guid=found.guid)

    def register(_: SchemaRegistry, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        found.registered.append(schema.text)
        found.ids.setdefault((subject, schema.text), len(found.ids) + 1)
        return find(_, subject, schema)

    monkeypatch.setattr(SchemaRegistry, "latest", latest)
    monkeypatch.setattr(SchemaRegistry, "find", find)
    monkeypatch.setattr(SchemaRegistry, "register", register)
    return found


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def write(root: str, rows: Any, topic: str | None = "items", **options: str) -> list[Any]:
    """What is in the topic then."""
    table = rows if isinstance(rows, (pa.Table, list)) else pa.table({"value": rows})
    connect(root).write(table, topic, options={k.replace("__", "."): v for k, v in options.items()})
    return values(root, topic or "items")


def values(root: str, topic: str = "items", column: str = "value") -> list[Any]:
    return connect(root).read(topic).read_all().column(column).to_pylist()  # type: ignore[no-any-return]


def test_by_the_newest_schema(schemas: Schemas, root: str) -> None:
    schemas.add("items-value", "string")
    number = schemas.add("items-value", ITEM)
    found = write(root, pa.array(ROWS, KIND), **CONFLUENT)
    assert found == [None if row is None else prefixed(number, ITEM, row) for row in ROWS]
    assert not schemas.registered


def test_by_a_schema_that_is_given(schemas: Schemas, root: str) -> None:
    given = {**CONFLUENT, "value.schema": json.dumps(ITEM)}
    with pytest.raises(SchemaRegistryError, match="does not know this schema"):
        write(root, pa.array(ROWS, KIND), **given)
    number = schemas.add("items-value", ITEM)
    schemas.add("items-value", "string")
    assert write(root, pa.array(ROWS[:1], KIND), **given) == [prefixed(number, ITEM, ROWS[0])]
    other = json.dumps(record("Item", id="long", name=["null", "string"], more=("int", 3)))
    write(root, pa.array(ROWS[:1], KIND), **{**given, "value.schema": other}, auto__register__schemas="true")
    assert schemas.registered == [other]


def test_a_schema_that_is_registered(schemas: Schemas, root: str) -> None:
    (value,) = write(root, pa.array(ROWS[:1], KIND), **CONFLUENT, auto__register__schemas="true")
    (text,) = schemas.registered
    assert value == prefixed(1, json.loads(text), ROWS[0])
    assert json.loads(text)["fields"][0] == {"name": "id", "type": ["null", "long"], "default": None}


def test_keys_of_schemas_in_headers(schemas: Schemas, root: str) -> None:
    """As HeaderSchemaIdSerializer writes them: a GUID, and the value as it is."""
    in_header = {
        **CONFLUENT,
        "value.schema.id.serializer": "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer",
    }
    schemas.add("items-value", ITEM)
    rows = pa.table({"value": pa.array([*ROWS[:1], None], KIND)})
    with pytest.raises(SchemaRegistryError, match="no GUID"):
        connect(root).write(rows, "items", options=in_header)
    schemas.guid = uuid.UUID(int=7)
    connect(root).write(rows, "items", options=in_header)
    headers = [[{"key": "a", "value": b"1"}, {"key": "__value_schema_id", "value": b"old"}], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    connect(root).write(rows.append_column("headers", pa.array(headers, kind)), "items", options=in_header)
    found = connect(root).read("items", columns=["value", "headers"]).read_all().to_pylist()
    guid = {"key": "__value_schema_id", "value": b"\1" + schemas.guid.bytes}
    assert [row["value"] for row in found] == [body(ITEM, ROWS[0]), None] * 2
    assert [row["headers"] for row in found] == [[guid], None, [headers[0][0], guid], None]


def test_what_does_not_fit_is_refused_before_any_row(schemas: Schemas, root: str) -> None:
    schemas.add("items-value", record("Item", id="int", name=["null", "string"]))
    with pytest.raises(SchemaError, match=r"newest schema of subject 'items-value': value\.id: the schema"):
        write(root, pa.array(ROWS, KIND), **CONFLUENT)
    with pytest.raises(SchemaError, match=r"give a struct of its fields: struct\(\.\.\.\) AS value"):
        write(root, pa.array(["Ada"]), **CONFLUENT)
    schemas.add("items-value", record("Item", id="long", name="string"))
    with pytest.raises(InvalidRecordError, match=r"value\.name: a row has null"):
        write(root, pa.array(ROWS, KIND), **CONFLUENT)
    column = pa.array([{"a": 1}], pa.struct({"a": pa.duration("us")}))
    with pytest.raises(OptionError, match=r"value\.a: Avro has no type for duration"):
        write(root, column, **CONFLUENT, auto__register__schemas="true")
    assert not schemas.registered
    assert not [*Path(root).glob("items*")]


def test_avro_without_a_registry(root: str) -> None:
    given = {"value.format": "avro", "value.schema": json.dumps(ITEM)}
    assert write(root, pa.array(ROWS, KIND), **given) == [None if r is None else body(ITEM, r) for r in ROWS]
    read = connect(root).read("items", options=given).read_all()
    assert read.column("value").to_pylist() == ROWS


def test_json(root: str) -> None:
    kind = pa.struct([*KIND, ("at", pa.timestamp("us", "Europe/Berlin"))])
    at = datetime.datetime(2024, 7, 1, 10, 0, 0, 123456, tzinfo=datetime.timezone.utc)
    rows = [{"id": 1, "name": None, "at": at}, None, {"id": None, "name": 'ä"', "at": None}]
    expected = [b'{"id":1,"at":"2024-07-01T12:00:00.123+02:00"}', None, '{"name":"ä\\""}'.encode()]
    assert write(root, pa.array(rows, kind), value__format="json") == expected
    assert (
        write(root, [pa.record_batch({"value": pa.array(rows, kind)})], value__format="json")[3:] == expected
    )
    (found,) = write(root, pa.array([[1, None]], pa.list_(pa.int8())), "lists", value__format="json")
    assert found == b"[1,null]"


def test_other_forms_of_the_same_types(root: str) -> None:
    """As Polars and others have them."""
    text = pa.dictionary(pa.int32(), pa.large_string())
    fixed = pa.binary(3)
    inner = pa.struct([("x", pa.string_view()), ("t", text)])
    kind = pa.struct(
        [
            ("l", pa.large_list(inner)),
            ("m", pa.map_(pa.large_string(), pa.binary_view())),
            ("b", pa.large_binary()),
            ("f", fixed),
        ]
    )
    rows = [{"l": [{"x": "a", "t": "b"}, None], "m": [("k", b"v")], "b": b"c", "f": b"xyz"}, None]
    column = pa.array(rows, kind)
    expected = [b'{"l":[{"x":"a","t":"b"},null],"m":{"k":"dg=="},"b":"Yw==","f":"eHl6"}', None]
    assert write(root, column, value__format="json") == expected
    inner_schema = record("Inner", x="string", t="string")
    schema = record(
        "A",
        l={"type": "array", "items": ["null", inner_schema]},
        m={"type": "map", "values": "bytes"},
        b="bytes",
        f={"type": "fixed", "name": "F", "size": 3},
    )
    given = {"value.format": "avro", "value.schema": json.dumps(schema)}
    write(root, column, "avro", **given)
    assert connect(root).read("avro", options=given).read_all().column("value").to_pylist() == rows


def test_dictionaries_of_views(root: str) -> None:
    """Polars has them."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"]).cast(pa.string_view())
    )
    column = pa.StructArray.from_arrays([texts], ["c"])
    assert write(root, column, value__format="json") == [b'{"c":"b"}', b"{}", b'{"c":"a"}']


def test_a_row_that_can_not_be_written_leaves_nothing(root: str) -> None:
    given = {"value.format": "avro", "value.schema": json.dumps(record("Item", id="long", name="string"))}
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"v"}]], kind)
    table = pa.table({"value": pa.array(ROWS[:1], KIND), "headers": headers})
    assert len(write(root, table, **given)) == 1
    (found,) = connect(root).read("items", columns=["headers"]).read_all().to_pylist()
    assert found == {"headers": [{"key": "h", "value": b"v"}]}
    with pytest.raises(InvalidRecordError, match=r"value\.name: a row has null"):
        write(root, pa.array([*ROWS[:1] * 1000, ROWS[-1]], KIND), **given)
    assert len(values(root)) == 1


@pytest.mark.parametrize("given", [CONFLUENT, {"value.format": "json"}])
def test_a_column_of_nulls_needs_no_schema(root: str, given: dict[str, str]) -> None:
    assert write(root, pa.nulls(2), **given) == [None, None]


def test_what_is_said_of_schemas(schemas: Schemas, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SchemaError, match="Give the text of an Avro schema"):
        write(root, pa.array(ROWS, KIND), **{"value.format": "avro", "value.schema": "id bigint"})
    column = pa.array([{"a": 120}], pa.struct({"a": pa.decimal128(4, -1)}))
    with pytest.raises(SchemaError, match=r"by the schema that is made of it: value\.a: the schema expects"):
        write(root, column, **CONFLUENT, auto__register__schemas="true")
    monkeypatch.setattr(SchemaRegistry, "latest", lambda *_: RegisteredSchema(json.dumps(ITEM)))
    with pytest.raises(SchemaRegistryError, match="gave no id of the newest schema of subject 'items-value'"):
        write(root, pa.array(ROWS, KIND), **CONFLUENT)


def test_a_type_that_the_schema_does_not_have_comes_with_a_remedy(schemas: Schemas, root: str) -> None:
    """The error has the column, both types, the cast, and the option."""
    schemas.add("items-value", record("Item", id="int"))
    rows = pa.array([{"id": "x"}])
    with pytest.raises(SchemaError) as caught:
        write(root, rows, "items", **CONFLUENT)
    assert str(caught.value) == (
        "Column 'value' can't be written by the newest schema of subject 'items-value': value.id: the schema"
        " expects int, the column is string. Convert it where the struct is made: CAST(id AS int) AS id. With"
        " auto.register.schemas=true a schema of the column's own types is registered, if it is compatible."
    )
    given = {"value.format": "avro", "value.schema": json.dumps(record("Item", id="int"))}
    with pytest.raises(SchemaError, match=r"CAST\(id AS int\) AS id\. Another value\.schema may fit\.$"):
        write(root, rows, "items", **given)


def test_keys_decide_the_partition_by_their_bytes(schemas: Schemas, root: str) -> None:
    number = schemas.add("items-key", "string")
    keys = pa.array([f"k{n}" for n in range(20)] * 2)
    options = {"key.format": "confluent-avro", **REGISTRY, "value.format": "json", "numPartitions": "4"}
    table = pa.table({"key": keys, "value": pa.array([{"n": n} for n in range(40)])})
    connect(root).write(table, "items", options=options)
    as_bytes = pa.array([prefixed(number, "string", key) for key in keys.to_pylist()], pa.binary())
    connect(root).write(
        pa.table({"key": as_bytes, "value": as_bytes}), "bytes", options={"numPartitions": "4"}
    )
    found, expected = (connect(root).read(topic).read_all() for topic in ("items", "bytes"))
    for name in ("key", "partition", "offset"):
        assert found.column(name).equals(expected.column(name))
    assert len(set(found.column("partition").to_pylist())) == 4


def test_large_messages_and_transforms(schemas: Schemas, root: str) -> None:
    number = schemas.add("items-value", ITEM)
    large = {"large.message.enabled": "true", "max.message.segment.bytes": "1000"}
    rows = [{"id": 1, "name": "x" * 5000}]
    connect(root).write(pa.table({"value": pa.array(rows, KIND)}), "items", options={**CONFLUENT, **large})
    found = connect(root).read("items", options={"large.message.enabled": "true"}).read_all()
    assert found.column("value").to_pylist() == [prefixed(number, ITEM, rows[0])]
    path = "tests.plugins:same"
    assert write(root, pa.array(ROWS, KIND), "items", **CONFLUENT, transform=path)[-1] == prefixed(
        number, ITEM, ROWS[-1]
    )


def test_nothing_secret_is_sent_to_tasks(schemas: Schemas) -> None:
    schemas.add("items-value", ITEM)
    options = write_options({"path": "/log", "topic": "items", **CONFLUENT})
    assert "hidden" not in repr(options)
    encoded = Shaped(options, pa.schema({"value": KIND})).encoded
    assert b"hidden" in pickle.dumps(options)
    assert b"hidden" not in pickle.dumps((options.for_tasks, encoded))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"value.format": "confluent-avro"}, "which needs 'schema.registry.url'"),
        ({"value.format": "avro"}, "which needs 'value.schema'"),
        ({"value.format": "json", "value.schema": "id bigint"}, "'value.schema' is not for writing json"),
        ({"value.format": "json", "auto.register.schemas": "true"}, "applies only to"),
        ({"value.format": "json", "key.format": "json"}, "there is no column 'key'"),
        ({"value.format": "json", "mode": "FAILFAST"}, "'mode' applies only to reading|mode"),
        ({"value.format": "avro", "value.schema": '"string"'}, "value: the schema expects string"),
    ],
)
def test_options_that_are_refused(root: str, options: dict[str, str], text: str) -> None:
    with pytest.raises((OptionError, SchemaError), match=text):
        write(root, pa.array(ROWS, KIND), **options)


@pytest.mark.parametrize(
    ("rows", "options", "text"),
    [
        (pa.array(["a"]), {"value.format": "json"}, "has type string, expected a struct"),
        (pa.array(ROWS, KIND), {}, "has type struct"),
        (
            pa.array([{"l": [{"v": {"value": b"", "metadata": b""}}]}], VARIANT),
            {"value.format": "json"},
            r"value\.l\.element\.v is of type variant",
        ),
        (
            pa.table({"v": ["a"]}),
            {"value.format": "json"},
            r"Required column 'value' not found\. Add one for value\.format=json, .*to_struct_array\(\)\)\.$",
        ),
        (pa.table({"v": ["a"]}), CONFLUENT, r"Add one for value\.format=confluent-avro, "),
        (
            pa.table({"value": pa.array(ROWS, KIND), "topic": ["t"] * 3}),
            {"topic": None, **CONFLUENT},
            "which needs the option 'topic'",
        ),
    ],
)
def test_columns_that_are_refused(root: str, rows: Any, options: dict[str, str | None], text: str) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    with pytest.raises(OptionError, match=text):
        write(root, rows, topic=None if "topic" in options else "items", **given)


def test_a_record_in_itself(root: str) -> None:
    """Avro may have one that Spark has no type for; the struct ends somewhere."""
    node = record("Node", v="int", next=["null", "Node"])
    column = pa.array([{"v": 1, "next": {"v": 2}}, {"v": 3, "next": None}])
    column = column.cast(pa.struct({"v": pa.int32(), "next": pa.struct({"v": pa.int32()})}))
    found = write(root, column, value__format="avro", value__schema=json.dumps(node))
    rows = [{"v": 1, "next": {"v": 2, "next": None}}, {"v": 3, "next": None}]
    assert found == [body(node, row) for row in rows]


def test_json_is_read_as_it_was_written(root: str) -> None:
    write(root, pa.array(ROWS, KIND), value__format="json")
    given = {"value.format": "json", "value.schema": ddl(KIND)}
    read = connect(root).read("items", options=given).read_all()
    assert read.column("value").to_pylist() == ROWS


STRATEGIES = [("RecordNameStrategy", "shop.Item"), ("TopicRecordNameStrategy", "items-shop.Item")]


@pytest.mark.parametrize(("strategy", "subject"), STRATEGIES)
def test_subjects_by_the_name_of_the_record(schemas: Schemas, root: str, strategy: str, subject: str) -> None:
    """Such as Java's class, by its whole name."""
    item = json.dumps({**ITEM, "namespace": "shop"})
    strategy = f"io.confluent.kafka.serializers.subject.{strategy}"
    given = {**CONFLUENT, "value.schema": item, "value.subject.name.strategy": strategy}
    with pytest.raises(SchemaRegistryError, match=f"does not know this schema of subject '{subject}'"):
        write(root, pa.array(ROWS, KIND), **given)
    write(root, pa.array(ROWS, KIND), **given, auto__register__schemas="true")
    assert [*schemas.ids] == [(subject, item)]
    write(root, pa.array(ROWS, KIND), **given)
    unnamed = {name: text for name, text in given.items() if name != "value.schema"}
    with pytest.raises(OptionError, match="RecordNameStrategy, which needs a schema with a name"):
        write(root, pa.array(ROWS, KIND), **unnamed)


@pytest.mark.long
def test_a_batch_whose_json_takes_more_than_2_gib(root: str) -> None:
    """Each control character becomes six, so 400 MB do."""
    text = pa.array(["\x01" * 100_000]).take(pa.array(np.zeros(4000, np.int64)))
    table = pa.table({"value": pa.StructArray.from_arrays([text], ["text"])})
    given = {"value.format": "json", "compression.type": "zstd"}
    assert connect(root).write(table, "items", options=given) == 4000


def test_a_value_whose_json_takes_2_gib(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = pa.py_buffer(np.array([0, 2**31]))
    untouched = pa.py_buffer(np.zeros(2**31, np.uint8))
    large = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, untouched])
    monkeypatch.setattr(writing, "to_json", lambda column: large)
    with pytest.raises(InvalidRecordError, match="A value takes 2 GiB or more as JSON"):
        write(root, pa.array([{"id": 1}]), value__format="json")
