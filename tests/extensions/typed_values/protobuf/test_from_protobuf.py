"""Columns of protobuf are those of Spark's from_protobuf, and bodies those of its to_protobuf."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import InvalidRecordError, SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.encoder import MessageEncoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageType, parse
from pyspark_kafkalog.extensions.typed_values.protobuf.types import DURATION, TIMESTAMP, arrow_type
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from pyspark_kafkalog.spark.features import nullable
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.protobuf import generated, oracle
from tests.spark_protobuf import add_from_protobuf

VALUES = 50
TEN_BYTES = re.compile(rb"[\x80-\xff]{9}[\0\2-\x7f]")
"""What may be a number whose tenth byte Java does not look at: it takes it for 1."""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with ``from_protobuf``. To compile each query would take longer than to run it."""
    add_from_protobuf(spark)
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def options_of(rng: random.Random, text: str) -> ProtobufOptions:
    flags = [each.name for each in dataclasses.fields(ProtobufOptions) if each.type == "bool"]
    chosen = {name: rng.random() < 0.3 for name in flags}
    if re.search(r"(repeated|,) google\.protobuf\.\w+Value", text):
        # A zero would be null, which Spark's plans rule out in lists and maps: some fail, some read on.
        chosen["emits_defaults"] = True
    return ProtobufOptions(max_depth=rng.choice([0, 1, 2, 3, 4]), **chosen)


def as_given(options: ProtobufOptions) -> dict[str, str]:
    """The options by the names that users give them."""
    return {
        each.metadata["options"][0]: str(getattr(options, each.name)).lower()
        for each in dataclasses.fields(options)
    }


def read_by_spark(
    spark: SparkSession, bodies: list[bytes], descriptors: bytes, options: ProtobufOptions
) -> pa.Array:
    """The column that from_protobuf makes; null where it refuses a body."""
    given = spark.createDataFrame(pa.table({"body": pa.array(bodies, pa.binary())}))
    settings = {"mode": "PERMISSIVE", **as_given(options)}
    read = from_protobuf("body", generated.ROOT, options=settings, binaryDescriptorSet=descriptors)
    column = given.select(read.alias("value"))
    (field,) = nullable(column.schema)
    return (
        column.select(column.value.cast(field.dataType).alias("value")).toArrow().column(0).combine_chunks()
    )


def with_json(value: Any) -> Any:
    """A value in which the text of an Any is what it says: escapes and the notation of numbers differ."""
    if isinstance(value, dict):
        return {key: with_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_json(item) for item in value]
    is_any = isinstance(value, str) and value.startswith("{")
    return json.loads(value, object_pairs_hook=list) if is_any else value


def leaves_out(message: MessageType, options: ProtobufOptions) -> bool:
    """Whether the column lacks some messages that the schema has."""
    try:
        return arrow_type(message, options) != arrow_type(
            message, dataclasses.replace(options, max_depth=0, keeps_empty=True)
        )
    except SchemaError:
        return True


def is_refused_by_spark_alone(kind: type[Any], body: bytes) -> bool:
    """Whether a body lacks a required field, or has one of the message's own that is unknown, for its wire
    type or for its number of a closed enum: the documented reasons."""
    message = kind()
    try:
        message.MergeFromString(body)
    except DecodeError:
        return False
    known = message.DESCRIPTOR.fields_by_number
    unknown = any(each.field_number in known for each in UnknownFieldSet(message))
    return unknown or not message.IsInitialized()


def compare_reads(spark: SparkSession, rng: random.Random) -> int:
    """Compare all rows of a schema; the number of those that both have read."""
    text = generated.schema(rng)
    options = options_of(rng, text)
    descriptors = oracle.compiled({"made.proto": text})
    kind = oracle.class_of(descriptors, generated.ROOT)
    bodies = generated.bodies(kind, rng, VALUES, generated.anys(descriptors, rng))
    file = parse(text)
    message = file.message(generated.ROOT)
    try:
        decoder = MessageDecoder(message, options=options, types=file.types())
    except SchemaError as e:
        if "contains itself" not in str(e):
            return 0  # it has too many fields, which take Spark's memory
        with pytest.raises(AnalysisException, match="RECURSIVE_PROTOBUF_SCHEMA"):
            read_by_spark(spark, bodies, descriptors, options)
        return 0
    theirs = read_by_spark(spark, bodies, descriptors, options)
    decoded = decode_column(decoder, pa.array(bodies, pa.binary()), decoder.add(message))
    assert decoded.array.type == theirs.type
    found, expected, count = with_json(oracle.rows(decoded.array)), with_json(oracle.rows(theirs)), 0
    # What another field of its oneof replaces is not looked into here.
    passes_over = leaves_out(message, options) or "oneof" in text
    for row, body in enumerate(bodies):
        is_null = expected[row] is None
        if decoded.causes[row] or is_null:
            # Java cuts numbers of fields to 32 bits, and seconds beyond the range overflow.
            assert is_null or decoded.causes[row] in (kernels.TAG, kernels.TIME), (text, options, body)
            is_explained = decoded.causes[row] or passes_over or is_refused_by_spark_alone(kind, body)
            assert is_explained, (text, options, body, found[row])
            continue
        if found[row] != expected[row] and TEN_BYTES.search(body):
            continue
        for name, value in expected[row].items():
            assert found[row][name] == value, (text, options, body, name)
        count += 1
    return count


def test_reads(session: SparkSession, chance: random.Random) -> None:
    read = [compare_reads(session, chance) for _ in range(12)]
    assert sum(read) > len(read) * VALUES / 2


@pytest.mark.long
def test_reads_of_many_schemas(session: SparkSession, chance: random.Random) -> None:
    read = [compare_reads(session, chance) for _ in range(200)]
    assert sum(read) > len(read) * VALUES / 2


def compare_writes(spark: SparkSession, rng: random.Random) -> int:
    """Compare all bodies of a schema; the number of those that are written. Times have their own test."""
    text = re.sub(r"google\.protobuf\.(Timestamp|Duration)", "google.protobuf.Any", generated.schema(rng))
    text = text.replace(".made.M0.Timestamp", "int32")
    options = dataclasses.replace(options_of(rng, text), max_depth=3, keeps_empty=False, any_as_json=False)
    if (
        options.unwraps or "uint64" in text.lower()
    ):  # to_protobuf has no wrappers of larger types, and no 1 << 63
        options = dataclasses.replace(options, upcasts_unsigned=False)
    descriptors = oracle.compiled({"made.proto": text})
    kind = oracle.class_of(descriptors, generated.ROOT)
    bodies = generated.bodies(kind, rng, VALUES, [], damaged=0)
    bodies = [body for body in bodies if kind.FromString(body).IsInitialized()]
    message = parse(text).message(generated.ROOT)
    column = read(message, bodies, options)
    if not column.type.num_fields:
        return 0
    names = read(message, bodies, dataclasses.replace(options, enums_as_ints=False)).to_pylist()
    # to_protobuf refuses numbers that an enum has not.
    column = column.filter(pa.array(["UNKNOWN_ENUM_VALUE" not in str(row) for row in names], pa.bool_()))
    given = spark.createDataFrame(pa.table({"value": column}))
    written = to_protobuf(given.value, generated.ROOT, binaryDescriptorSet=descriptors)
    theirs = given.select(written.alias("body")).toArrow().column("body").to_pylist()
    ours = MessageEncoder(message, column.type, "value").encode(column).to_pylist()
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other or parsed(kind, mine) == parsed(kind, other), (text, options, mine, other)
    return len(ours)


def test_times_are_written_to_the_microsecond(session: SparkSession) -> None:
    """to_protobuf cuts them to milliseconds, and nanoseconds of times before 1970 are negative there."""
    text = 'syntax = "proto3"; package made; import "google/protobuf/timestamp.proto";'
    text += 'import "google/protobuf/duration.proto";'
    text += "message M0 { google.protobuf.Timestamp at = 1; google.protobuf.Duration took = 2; }"
    descriptors = oracle.compiled({"made.proto": text})
    kind = oracle.class_of(descriptors, generated.ROOT)
    micros = [0, 1_700_000_000_123_456, -1_500_001, 2_000_000]
    type_ = pa.struct([("at", TIMESTAMP), ("took", DURATION)])
    column = pa.array([{"at": each, "took": each} for each in micros], type_)
    given = session.createDataFrame(pa.table({"value": column}))
    written = to_protobuf(given.value, generated.ROOT, binaryDescriptorSet=descriptors)
    theirs = given.select(written.alias("body")).toArrow().column("body").to_pylist()
    ours = MessageEncoder(parse(text).message(generated.ROOT), type_, "value").encode(column).to_pylist()
    found = [times_of(kind.FromString(body)) for body in ours]
    assert found == [
        (0, 0, 0, 0),
        (1_700_000_000, 123_456_000, 1_700_000_000, 123_456_000),
        (-2, 499_999_000, -1, -500_001_000),
        (2, 0, 2, 0),
    ]
    expected = [times_of(kind.FromString(body)) for body in theirs]
    assert expected == [
        (0, 0, 0, 0),
        (1_700_000_000, 123_000_000, 1_700_000_000, 123_000_000),
        (-1, -501_000_000, -1, -501_000_000),
        (2, 0, 2, 0),
    ]


UINT64 = pa.decimal128(20, 0)
WRAPPER = "google.protobuf.UInt32Value a = 1;"


@pytest.mark.parametrize(
    ("fields", "kind", "value", "theirs", "ours"),
    [
        ("repeated int32 a = 1;", pa.list_(pa.int32()), [1, None], None, "value.a.element: a row has null"),
        (
            "map<int32, string> a = 1;",
            pa.map_(pa.int32(), pa.string()),
            [(1, None)],
            b"\x0a\4\x08\1\x12\0",
            "value.a.value: a row has null",
        ),
        ("required int32 a = 1;", pa.int32(), None, b"\x08\0", "value.a: a row has null"),
        ("E a = 1; enum E { A = 0; }", pa.int32(), 5, None, b"\x08\5"),
        ("uint64 a = 1;", UINT64, (1 << 64) - 1, None, b"\x08" + b"\xff" * 9 + b"\1"),
        (WRAPPER, pa.int64(), 7, None, b"\x0a\2\x08\7"),
        ("google.protobuf.ListValue a = 1;", pa.string(), "[null]", None, b"\x0a\4\x0a\2\x08\0"),
    ],
)
def test_writes_that_differ(
    session: SparkSession, fields: str, kind: pa.DataType, value: Any, theirs: bytes | None, ours: bytes | str
) -> None:
    """They are in the docs."""
    syntax = "proto2" if "required" in fields else "proto3"
    imports = "".join(f'import "google/protobuf/{name}.proto";' for name in ("wrappers", "struct"))
    text = f'syntax = "{syntax}"; package made; {imports} message M0 {{ {fields} }}'
    column = pa.array([{"a": value}], pa.struct([("a", kind)]))
    compare_one(session, text, column, theirs, ours)


def test_two_fields_of_a_oneof(session: SparkSession) -> None:
    text = 'syntax = "proto3"; package made; message M0 { oneof o { int32 a = 1; int32 b = 2; } }'
    column = pa.array([{"a": 1, "b": 2}], pa.struct([("a", pa.int32()), ("b", pa.int32())]))
    compare_one(session, text, column, b"\x10\2", "value.b: a row has another field of o, too")


def compare_one(
    spark: SparkSession, text: str, column: pa.Array, theirs: bytes | None, ours: bytes | str
) -> None:
    """Compare what both write of one row with what is expected, None or a text for an error."""
    given = spark.createDataFrame(pa.table({"value": column}))
    descriptors = oracle.compiled({"made.proto": text})

    def written() -> Any:
        body = to_protobuf(given.value, generated.ROOT, binaryDescriptorSet=descriptors)
        return given.select(body.alias("body")).first().body

    if theirs is None:
        with pytest.raises((PySparkException, Py4JJavaError)):
            written()
    else:
        assert written() == theirs
    encoder = MessageEncoder(parse(text).message(generated.ROOT), column.type, "value")
    if isinstance(ours, str):
        with pytest.raises(InvalidRecordError, match=ours):
            encoder.encode(column)
    else:
        assert encoder.encode(column)[0].as_py() == ours


def times_of(message: Any) -> tuple[int, ...]:
    return message.at.seconds, message.at.nanos, message.took.seconds, message.took.nanos


def test_modes(session: SparkSession, tmp_path: Path) -> None:
    """The names and what they do are Spark's, except for the default and for what is left of a value."""
    text = 'syntax = "proto3"; package made; message M0 { int32 a = 1; }'
    connect(tmp_path).write(pa.table({"value": [b"\x08\1", b"\x08"]}), "t")
    given = {"value.format": "protobuf", "value.schema": text, "subscribe": "t"}
    values = session.read.format("kafkalog").options(subscribe="t").load(str(tmp_path)).select("value")
    descriptors = oracle.compiled({"made.proto": text})
    for mode in ("PERMISSIVE", "FAILFAST"):
        ours = session.read.format("kafkalog").options(mode=mode, **given).load(str(tmp_path)).select("value")
        read = from_protobuf("value", generated.ROOT, options={"mode": mode}, binaryDescriptorSet=descriptors)
        theirs = values.select(read.alias("value"))
        if mode == "FAILFAST":
            with pytest.raises(PySparkException, match="the value ends too early"):
                ours.collect()
            # PySpark can't load the class of its cause.
            with pytest.raises(Py4JJavaError):
                theirs.collect()
        else:
            assert ours.select("value.a").collect() == theirs.select("value.a").collect() == [(1,), (None,)]
            assert ours.collect()[1].value == (None,)
            assert theirs.collect()[1].value is None


def read(message: MessageType, bodies: list[bytes], options: ProtobufOptions) -> pa.Array:
    decoder = MessageDecoder(message, options=options)
    return decode_column(decoder, pa.array(bodies, pa.binary()), decoder.add(message)).array


def parsed(kind: type[Any], body: bytes) -> bytes:
    return bytes(kind.FromString(body).SerializeToString(deterministic=True))


def test_writes(session: SparkSession, chance: random.Random) -> None:
    assert sum(compare_writes(session, chance) for _ in range(12)) > 12 * VALUES / 2


@pytest.mark.long
def test_writes_of_many_schemas(session: SparkSession, chance: random.Random) -> None:
    assert sum(compare_writes(session, chance) for _ in range(200)) > 200 * VALUES / 2
