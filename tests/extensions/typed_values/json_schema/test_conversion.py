"""Kafka Connect's forms in JSON as values, and back."""

from __future__ import annotations

import base64
import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json_schema.conversion import Faults, converted, unconverted
from pyspark_kafkalog.extensions.typed_values.json_schema.decoder import part_of
from pyspark_kafkalog.extensions.typed_values.json_schema.types import JsonType
from tests.extensions.typed_values.json_schema.oracle import decode

EXACT = decimal.Context(prec=60)


def as_base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def of_base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError:
        return None


def two_s_complement(number: int) -> bytes:
    """As Java's BigInteger.toByteArray gives it."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


@given(
    st.lists(st.none() | st.binary(max_size=20).map(as_base64) | st.text("QA=+/-_ é\n", max_size=9)),
    st.integers(0, 3),
)
@example(["====", "A===", "AB==", "AB=C", "", "=", "QQ"], 0)
def test_base64(texts: list[str | None], start: int) -> None:
    """As Python's strict decoder has it, in slices, too."""
    faults, column = Faults(), pa.array(texts, pa.string()).slice(start)
    found = converted(column, pa.binary(), faults)
    found.validate(full=True)
    expected = [of_base64(text) for text in texts[start:]]
    assert found.to_pylist() == expected
    wrong = [row for row, text in enumerate(texts[start:]) if text is not None and expected[row] is None]
    assert sorted(faults.reasons) == wrong


def numbers(digits: int) -> st.SearchStrategy[tuple[int, list[int | None]]]:
    """Of at most so many digits."""
    most = 10**digits - 1
    return st.tuples(st.just(digits), st.lists(st.none() | st.integers(-most, most)))


@given(st.integers(1, 38).flatmap(numbers))
@example((38, [0, -1, 127, 128, -128, -129, 10**38 - 1, 1 - 10**38]))
def test_decimals(given: tuple[int, list[int | None]]) -> None:
    digits, unscaled = given
    kind = pa.decimal128(digits, digits // 2)
    values = [None if n is None else decimal.Decimal(n).scaleb(-kind.scale, EXACT) for n in unscaled]
    column = pa.array(values, kind)
    raw = [None if number is None else two_s_complement(number) for number in unscaled]
    assert unconverted(column, pa.string()).to_pylist() == raw
    assert unconverted(column[1:], pa.string()).to_pylist() == raw[1:]
    faults = Faults()
    found = converted(pa.array([*map(as_base64, raw)], pa.string()), kind, faults)
    found.validate(full=True)
    assert found.equals(column)
    assert not faults.reasons


@pytest.mark.parametrize("digits", [1, 18, 19, 20, 37, 38])
def test_decimals_that_are_too_large(digits: int) -> None:
    most = 10**digits
    raw = [number.to_bytes(16, "big", signed=True) for number in (most, -most, 2**127 - 1, -(2**127))]
    raw += [b"", bytes(17)]
    faults = Faults()
    found = converted(pa.array([*map(as_base64, raw)]), pa.decimal128(digits, 0), faults)
    assert found.null_count == len(faults.reasons) == len(raw)
    assert faults.reasons[0] == ("", f"expected base64 of a number that fits into decimal({digits},0)")


def test_nested() -> None:
    read_as = parse_ddl(
        "l array<struct<d int, b string>>, m array<struct<key bigint, value string>>, x map<string, bigint>"
    )
    kind = parse_ddl("l array<struct<d date, b binary>>, m map<bigint, binary>, x map<string, timestamp>")
    values: list[Any] = [
        {"l": [{"d": 1, "b": "QQ=="}, None], "m": [{"key": 1, "value": "QQ=="}], "x": {"a": 1}},
        None,
        {"l": [], "x": {"a": None}},
        {"m": [{"key": 2, "value": None}, {"key": None}]},
        {"l": [{"b": "QQ=="}, {"d": 2, "b": "!"}], "x": {"b": 0, "c": 2**62}},
    ]
    found = decode(JsonType(kind, read_as), values)
    found.array.validate(full=True)
    assert found.corrupt.tolist() == [3, 4]
    assert found.reason(3) == "m.key: expected a key that is not null"
    assert found.reason(4) == "l.element.b: expected base64"
    at = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    assert found.array.to_pylist() == [
        {
            "l": [{"d": datetime.date(1970, 1, 2), "b": b"A"}, None],
            "m": [(1, b"A")],
            "x": [("a", at + datetime.timedelta(milliseconds=1))],
        },
        None,
        {"l": [], "m": None, "x": [("a", None)]},
        {"l": None, "m": [(2, None), (0, None)], "x": None},
        {
            "l": [{"d": None, "b": b"A"}, {"d": datetime.date(1970, 1, 3), "b": None}],
            "m": None,
            "x": [("b", at), ("c", None)],
        },
    ]


def test_a_corrupt_value_keeps_the_reason_of_the_reader() -> None:
    found = decode(
        JsonType(parse_ddl("b binary, n int"), parse_ddl("b string, n int")), [{"b": "!", "n": "x"}, b"["]
    )
    assert found.corrupt.tolist() == [0, 1]
    assert found.reason(0) == "b: expected base64"
    assert found.reason(1).startswith("expected an object, at byte 0")


def test_a_part() -> None:
    whole = JsonType(
        parse_ddl("a struct<x date, y binary, z string>, l array<struct<d date, e int>>, m map<int, date>"),
        parse_ddl(
            "a struct<x int, y string, z string>, l array<struct<d int, e int>>,"
            " m array<struct<key int, value int>>"
        ),
    )
    wanted = parse_ddl(
        "l array<struct<d date>>, a struct<z string, x date>, _corrupt_record string, m map<int, date>"
    )
    found = part_of(whole, wanted)
    assert found.type == wanted
    assert found.read_as == parse_ddl(
        "l array<struct<d int>>, a struct<z string, x int>, _corrupt_record string,"
        " m array<struct<key int, value int>>"
    )
    array = decode(found, [{"a": {"x": 0}, "m": [{"key": 1, "value": 2}]}, b"{"]).array
    assert array.type == wanted
    assert array.field("_corrupt_record").to_pylist() == [None, "{"]
    assert array.field("m").to_pylist()[0] == [(1, datetime.date(1970, 1, 3))]


def test_the_last_time() -> None:
    """A timestamp has room for so many milliseconds, and no more."""
    most, kind, faults = (2**63 - 1) // 1000, pa.timestamp("us", tz="UTC"), Faults()
    found = converted(pa.array([most, -most, most + 1, -(2**63)], pa.int64()), kind, faults)
    assert found.cast(pa.int64()).to_pylist() == [most * 1000, -most * 1000, None, None]
    assert sorted(faults.reasons) == [2, 3]


def test_times_are_cut_down_to_milliseconds() -> None:
    """As Avro's writers have it: to the earlier one."""
    micros = pa.array([1999, -1, 0, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    assert unconverted(micros, pa.int64()).to_pylist() == [1, -1, 0, None]
    assert unconverted(pa.array(np.array([1], "datetime64[D]")), pa.int32()).to_pylist() == [1]
