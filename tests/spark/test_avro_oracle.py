"""Avro as Spark's own reader gives it: types of any schema, and rows of any value, also of hostile ones."""

from __future__ import annotations

import datetime
import decimal
import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    _parse_datatype_json_string,
)

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.decoder import DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from pyspark_kafkalog.extensions.typed_values.avro.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.columns import DecodedBodies
from pyspark_kafkalog.extensions.typed_values.ddl import ddl
from tests.extensions.typed_values.avro import fuzz, oracle
from tests.extensions.typed_values.avro.strategies import Case, cases
from tests.extensions.typed_values.avro.test_schema import logical, record
from tests.extensions.typed_values.columns import decode_column

CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)


def types_by_spark(spark: SparkSession, schemas: Sequence[oracle.Json]) -> list[DataType]:
    """The types that from_avro gives in PERMISSIVE mode."""
    jvm: Any = spark._jvm
    parser = jvm.org.apache.avro.Schema.Parser
    convert = jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType
    found = [convert(parser().parse(json.dumps(schema))).dataType().asNullable() for schema in schemas]
    return [_parse_datatype_json_string(kind.json()) for kind in found]


def ours(column: pa.Array, writer: oracle.Json, reader: oracle.Json) -> tuple[list[Any], list[int]]:
    """Rows, and causes."""
    decoder = DatumDecoder(parse(json.dumps(reader)))
    decoded = decode_column(decoder, column, decoder.add(parse(json.dumps(writer))))
    return oracle.shown(decoded.array), decoded.causes.tolist()


def theirs(
    spark: SparkSession, columns: Sequence[tuple[pa.Array, oracle.Json, oracle.Json]]
) -> list[list[Any]]:
    """What from_avro gives for columns of bodies, each of one writer and for one reader: in one query."""
    names = [f"c{number}" for number in range(len(columns))]
    rows = max(len(column) for column, *_ in columns)
    padded = [pa.concat_arrays([column, pa.nulls(rows - len(column), pa.binary())]) for column, *_ in columns]
    frame = spark.createDataFrame(pa.table(dict(zip(names, padded, strict=True)))).coalesce(1)
    decoded = [
        from_avro(name, json.dumps(writer), {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}).alias(
            name
        )
        for name, (_, writer, reader) in zip(names, columns, strict=True)
    ]
    found = frame.select(*decoded)
    kinds = [field.dataType for field in found.schema]
    return [
        [shown(value, kind) for value in values[: len(column)]]
        for values, kind, (column, *_) in zip(zip(*found.collect(), strict=True), kinds, columns, strict=True)
    ]


def shown(value: Any, kind: DataType) -> Any:
    """A value of Spark's as the oracle shows it."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: shown(value[field.name], field.dataType) for field in kind}
    if isinstance(kind, ArrayType):
        return [shown(item, kind.elementType) for item in value]
    if isinstance(kind, MapType):
        return {key: shown(item, kind.valueType) for key, item in value.items()}
    if isinstance(kind, TimestampType):
        return value.astimezone(datetime.timezone.utc)
    return "NaN" if value != value else value


@pytest.mark.long
def test_types_are_those_of_spark_avro(spark: SparkSession, soak: bool) -> None:
    schemas: list[oracle.Json] = []

    @settings(max_examples=2000 if soak else 100, suppress_health_check=CHECKS, phases=[Phase.generate])
    @given(cases())
    def collect(case: Case) -> None:
        schemas.extend([case.writer, case.reader])

    collect()
    for schema, expected in zip(schemas, types_by_spark(spark, schemas), strict=True):
        kind = ddl(arrow_type(parse(json.dumps(schema))))
        assert StructType.fromDDL(f"c {kind}") == StructType([StructField("c", expected)]), schema


@pytest.mark.long
def test_rows_are_those_of_from_avro(spark: SparkSession, soak: bool) -> None:
    found: list[Case] = []

    @settings(max_examples=1000 if soak else 40, suppress_health_check=CHECKS, phases=[Phase.generate])
    @given(cases().filter(lambda case: case.values and not isinstance(case.reader, list)))
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    for first in range(0, len(found), 40):
        columns = []
        for case in found[first : first + 40]:
            writer = oracle.parsed(case.writer)
            bodies = [oracle.encoded(writer, value) for value in case.values]
            columns.append((pa.array([*bodies, None], pa.binary()), case.writer, case.reader))
        for column, expected in zip(columns, theirs(spark, columns), strict=True):
            rows, causes = ours(*column)
            assert {*causes} <= {kernels.FINE, kernels.NO_BRANCH, kernels.NO_SYMBOL}
            assert rows == expected, column


STRICTER = {
    kernels.TRAILING: ("int", b"\x02\x02", 1),
    kernels.BOOLEAN: ("boolean", b"\x02", False),
    kernels.INT: ("int", b"\x82\x80\x80\x80\x10", 1),
    kernels.VARINT: ("long", b"\x82" + b"\x80" * 8 + b"\x02", 1),
    kernels.DECIMAL: (logical("bytes", "decimal", precision=9), b"\x12\x01" + bytes(7) + b"\x07", 7),
}
"""What is corrupt to us, where from_avro drops bits or the rest: a schema, a body, and what it reads."""
LARGE = 1 << 16
"""Java allocates as many bytes or entries as a value says it has: an OutOfMemoryError of a few bytes."""


def test_what_is_corrupt_to_us_alone(spark: SparkSession) -> None:
    columns = []
    for schema, body, _ in STRICTER.values():
        around = record(("x", schema))
        columns.append((pa.array([body], pa.binary()), around, around))
    for (cause, (*_, expected)), column, found in zip(
        STRICTER.items(), columns, theirs(spark, columns), strict=True
    ):
        assert found == [{"x": expected}]
        assert ours(*column) == ([{"x": None}], [cause])


def test_from_avro_takes_numbers_in_the_readers_unit(spark: SparkSession) -> None:
    """Ours are in the writer's, or refused where that can't be read."""
    millis, micros = (record(("x", logical("long", f"timestamp-{unit}"))) for unit in ("millis", "micros"))
    column = pa.array([b"\xd0\x0f"], pa.binary())
    second, third = (
        datetime.datetime(1970, 1, 1, 0, 0, *at, tzinfo=datetime.timezone.utc) for at in ((1,), (0, 1000))
    )
    scales = [record(("x", logical("bytes", "decimal", precision=9, scale=scale))) for scale in (2, 3)]
    found = theirs(spark, [(column, millis, micros), (pa.array([b"\x02\x07"], pa.binary()), *scales)])
    assert found == [[{"x": third}], [{"x": decimal.Decimal("0.007")}]]
    assert ours(column, millis, micros)[0] == [{"x": second}]
    with pytest.raises(
        SchemaError, match=r"expects bytes decimal\(9,3\), the writer's has bytes decimal\(9,2\)"
    ):
        ours(column, *scales)


def test_hostile_rows_are_those_of_from_avro(spark: SparkSession, soak: bool, chance: random.Random) -> None:
    count = 20_000 if soak else 1000
    columns = []
    for writer in range(fuzz.COMPARED):
        for reader in fuzz.READERS:
            decoder = DatumDecoder(parse(json.dumps(reader)))
            entry = decoder.add(parse(json.dumps(fuzz.WRITERS[writer])))
            bodies = [fuzz.mutated(chance.choice(fuzz.bodies()[writer]), chance) for _ in range(count)]
            decoded = decode_column(decoder, pa.array(bodies, pa.binary()), entry)
            kept = [body for row, body in enumerate(bodies) if is_for_java(body, decoder, decoded, row)]
            assert len(kept) > 0.5 * count
            columns.append((pa.array(kept, pa.binary()), fuzz.WRITERS[writer], reader))
    for (column, writer, reader), expected in zip(columns, theirs(spark, columns), strict=True):
        rows, causes = ours(column, writer, reader)
        nulls = dict.fromkeys(expected[0])
        for body, mine, cause, other in zip(column.to_pylist(), rows, causes, expected, strict=True):
            assert mine == other or (cause == kernels.TRAILING and mine == nulls), (body, mine, cause, other)
        assert 0.2 < sum(mine == nulls for mine in rows) / len(rows) < 0.8


def is_for_java(body: bytes, decoder: DatumDecoder, decoded: DecodedBodies, row: int) -> bool:
    """Whether Java reads no further than we do, and allocates little."""
    cause, step, at = (int(number) for number in decoded._faults[:, row])
    if cause in (kernels.FINE, kernels.TRAILING):
        return True
    number = 0
    for place, byte in enumerate(body[at : at + 10]):
        number |= (byte & 127) << (7 * place)
        if byte < 128:
            break
    operation = decoder._program.rows[step, kernels.OPERATION]
    goes_on = operation == kernels.BLOCK or (operation == kernels.SKIP_BYTES and cause == kernels.LENGTH)
    return cause not in STRICTER and not goes_on and number <= LARGE
