"""Types in Spark's DDL: what is written is read, and what isn't a type is refused with its place."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.ddl import ddl, parse_ddl
from tests.extensions.typed_values.json.cases import KIND
from tests.extensions.typed_values.json.values import KINDS


@pytest.mark.parametrize("kind", [*KINDS, KIND, pa.int32(), pa.map_(pa.string(), pa.decimal128(38, 3))])
def test_what_is_written_is_read(kind: pa.DataType) -> None:
    assert parse_ddl(ddl(kind)) == kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id LONG, name string", "struct<`id`: bigint, `name`: string>"),
        (
            "a: int NOT NULL COMMENT 'x, y', `b ``c` array< short >",
            "struct<`a`: int, `b ``c`: array<smallint>>",
        ),
        ("struct<a:byte,b:map<string,real>>", "struct<`a`: tinyint, `b`: map<string, float>>"),
        ("d decimal, e dec(5), f numeric(5, 2)", None),
        ("t timestamp, l timestamp_ltz, n timestamp_ntz", None),
        ("Struct struct<map: map<string, int>>", None),
        (" int ", "int"),
    ],
)
def test_other_ways_to_write_them(text: str, expected: str | None) -> None:
    found = ddl(parse_ddl(text))
    assert expected is None or found == expected


def test_decimals_and_timestamps() -> None:
    found = parse_ddl("d decimal, e dec(5), f numeric(5, 2), t timestamp, n timestamp_ntz")
    utc, local = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
    assert [f.type for f in found] == [
        *(pa.decimal128(*each) for each in ((10, 0), (5, 0), (5, 2))),
        utc,
        local,
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a type such as bigint or string, got the end, at character 1"),
        ("a foo", "expected a type such as bigint or string, got 'foo', at character 3"),
        ("a int,", "expected the name of a field, got the end, at character 7"),
        ("a int b int", "expected a comma or the end, got 'b', at character 7"),
        ("struct<a: int", "expected '>', got the end, at character 14"),
        ("a map<string>", "expected ',', got '>', at character 13"),
        ("a decimal(39)", "expected a decimal of at most 38 digits, at character 3"),
        ("a decimal(x)", "expected a number, got 'x', at character 11"),
        ('{"type":"struct"}', "unexpected '{', at character 1"),
        ("array<" * 200, "expected at most 100 types in one another, at character 601"),
    ],
)
def test_what_is_no_type(text: str, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_ddl(text)
    assert caught.value.message == said
