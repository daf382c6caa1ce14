"""What JSON holds where Arrow, Python and Java differ, and what it can't hold."""

from __future__ import annotations

import datetime
import json
import zoneinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import InvalidRecordError, KafkaLogError
from pyspark_kafkalog.extensions.typed_values.to_json import check_json_type, to_json


def texts(column: pa.Array) -> list[str | None]:
    return [None if text is None else text.decode() for text in to_json(column).to_pylist()]


def test_text_that_is_not_utf8() -> None:
    """As Java decodes it: a struct would be another type, and can't be the key of a map."""
    raw = pa.array([b"\xff\x0b", b"ok", None, b"\xed\xa0\x80", b"\xe2\x82"])
    strings = raw.view(pa.string())
    assert texts(strings) == ['"\ufffd\\u000B"', '"ok"', None, '"\ufffd"', '"\ufffd"']
    assert texts(strings.slice(3)) == ['"\ufffd"', '"\ufffd"']
    assert texts(pa.StructArray.from_arrays([strings.slice(1, 3)], ["s"])) == [
        '{"s":"ok"}',
        "{}",
        '{"s":"\ufffd"}',
    ]
    keys = pa.array([b"\xff", b"{"]).view(pa.string())
    assert texts(pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2]))) == [
        '{"\ufffd":1,"{":2}'
    ]


def test_control_characters() -> None:
    """Those without a letter of their own have digits in upper case, in keys of maps, too."""
    short = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    chars = [chr(code) for code in range(0x20)]
    expected = [short.get(char, f"\\u{ord(char):04X}") for char in chars]
    strings = pa.array([*(f"a{char}\x7fé" for char in chars), "".join(chars), None])
    assert texts(strings) == [*(f'"a{text}\x7fé"' for text in expected), f'"{"".join(expected)}"', None]
    keys = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), strings.slice(27, 1), pa.array([1]))
    assert texts(keys) == ['{"a\\u001B\x7fé":1}']


def as_java(value: np.floating) -> str:
    """``Double.toString`` or ``Float.toString`` since Java 19, by numpy's digits."""
    if not np.isfinite(value):
        return '"NaN"' if np.isnan(value) else f'"{"-" * bool(value < 0)}Infinity"'
    if value == 0 or 1e-3 <= abs(float(str(value))) < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    nearest = np.format_float_scientific(value, precision=1, unique=False, trim="0")
    shortest = np.format_float_scientific(value, unique=True, trim="0")
    is_one_digit = len(shortest.partition("e")[0].lstrip("-")) == 3
    mantissa, _, power = (nearest if is_one_digit and type(value)(nearest) == value else shortest).partition(
        "e"
    )
    return f"{mantissa}E{int(power)}"


@given(
    st.lists(
        st.one_of(st.floats(), st.integers(-(2**60), 2**60).map(float), st.integers(0, 2**63 - 1)),
        max_size=50,
    ),
    st.sampled_from([np.float64, np.float32]),
)
def test_numbers_with_a_point(drawn_: list[float], kind: type[np.floating]) -> None:
    """Also of random bits, which are mostly numbers with exponents."""
    bits = np.array([value for value in drawn_ if isinstance(value, int)], np.uint64)
    drawn = np.array([value for value in drawn_ if not isinstance(value, int)], np.float64)
    with np.errstate(all="ignore"):
        numbers = np.concatenate([bits.view(np.float64), drawn]).astype(kind)
        more = bits.astype(np.uint32).view(np.float32).astype(kind)
    values = np.concatenate([numbers, more])
    column = pa.array([None, *values], pa.from_numpy_dtype(kind), from_pandas=False)
    assert texts(column) == [None, *map(as_java, values)]
    assert texts(column.slice(1)) == [*map(as_java, values)]


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Gaza",
        "Asia/Kolkata",
        "Antarctica/Troll",
    ],
)
def test_clocks_of_regions(name: str) -> None:
    """Summer time goes on after 2037, the last year that files of tzdata may list."""
    region = zoneinfo.ZoneInfo(name)
    begin = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    seconds = [*range(-62_000_000_000, 253_402_200_000, 123_456_789)]
    seconds += [*range(2_100_000_000, 2_150_000_000, 40_009), 2_540_289_600, 16_725_225_600, 2_114_380_799]
    clocks = [(begin + datetime.timedelta(seconds=second)).astimezone(region) for second in seconds]
    expected = [f'"{clock.isoformat(timespec="milliseconds")}"'.replace("+00:00", "Z") for clock in clocks]
    assert texts(pa.array([10**6 * second for second in seconds], pa.timestamp("us", name))) == expected


def test_clocks_beyond_the_year_9999() -> None:
    """They are those of 400 years before."""
    cycle = 146_097 * 86_400
    here = [253_402_300_799 - cycle + 1_000_000 * n for n in range(100)]
    kind = pa.timestamp("s", "Europe/Berlin")
    before, behind = (texts(pa.array([at + shift for at in here], kind)) for shift in (0, cycle))
    assert [str(text)[-19:] for text in before] == [str(text)[-19:] for text in behind]


def test_days_and_times_of_all_years() -> None:
    days = pa.array([2**31 - 1, None, -(2**31), 0], pa.int32()).cast(pa.date32())
    assert texts(days) == ['"+5881580-07-11"', None, '"-5877641-06-23"', '"1970-01-01"']
    times = pa.array([2**63 - 1, -(2**63)], pa.timestamp("us", "UTC"))
    assert texts(times) == ['"+294247-01-10T04:00:54.775Z"', '"-290308-12-21T19:59:05.224Z"']


@pytest.mark.parametrize(("unit", "most"), [("s", (2**63 - 1) // 10**6), ("ms", (2**63 - 1) // 1000)])
def test_times_that_are_too_large(unit: str, most: int) -> None:
    assert texts(pa.array([most, -most, None], pa.timestamp(unit)))[2] is None
    for value in (most + 1, -most - 1, -(2**63), 2**62):
        with pytest.raises(InvalidRecordError, match="A time is too large for JSON"):
            to_json(pa.array([value], pa.timestamp(unit)))


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_microseconds_in_full(unit: str) -> None:
    factor = 1 if unit == "us" else 1000
    times = pa.array([t * factor for t in (-1, 0, 1_000, 123_456_007)], pa.timestamp(unit, "UTC"))
    column = pa.StructArray.from_arrays([times, pa.nulls(4)], ["t", "n"])
    assert texts(column)[3] == '{"t":"1970-01-01T00:02:03.456Z"}'
    assert to_json(column, in_full=True).to_pylist() == [
        b'{"t":"1969-12-31T23:59:59.999999Z","n":null}',
        b'{"t":"1970-01-01T00:00:00.000Z","n":null}',
        b'{"t":"1970-01-01T00:00:00.001Z","n":null}',
        b'{"t":"1970-01-01T00:02:03.456007Z","n":null}',
    ]


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("GMT+2", "1970-01-01T02:00:00.000+02:00"),
        ("UTC-03:30", "1969-12-31T20:30:00.000-03:30"),
        ("+5", "1970-01-01T05:00:00.000+05:00"),
        ("Z", "1970-01-01T00:00:00.000Z"),
        ("PST", "1969-12-31T16:00:00.000-08:00"),
    ],
)
def test_zones_that_only_java_knows(zone: str, text: str) -> None:
    assert texts(pa.array([0], pa.timestamp("us", zone))) == [f'"{text}"']


def test_a_zone_that_does_not_exist() -> None:
    with pytest.raises(KafkaLogError, match="Times of zone 'No/Where' can't be written"):
        check_json_type(pa.struct({"a": pa.list_(pa.timestamp("us", "No/Where"))}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5e-324, "4.9E-324"),
        (-1e-323, "-9.9E-324"),
        (1.5e-323, "1.5E-323"),
        (2e23, "2.0E23"),
        (np.float32(1e-45), "1.4E-45"),
        (np.float32(3e-45), "2.8E-45"),
        (np.float16(60000), "60000.0"),
    ],
)
def test_small_numbers_have_two_digits(value: Any, text: str) -> None:
    assert texts(pa.array([value])) == [text]


_LEAVES: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.decimal128(10, 2), st.decimals(-1000, 1000, places=2)),
    (pa.decimal128(30, 9), st.decimals(-1000, 1000, places=9)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=3)),
    (pa.null(), st.none()),
)


def _nested(
    inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def struct(fields: list[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> Any:
        names = [f"f{number}" for number in range(len(fields))]
        kind = pa.struct([(name, field[0]) for name, field in zip(names, fields, strict=True)])
        return kind, st.fixed_dictionaries(dict(zip(names, (field[1] for field in fields), strict=True)))

    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(struct),
        inner.map(lambda item: (pa.list_(item[0]), st.lists(item[1], max_size=3))),
        inner.map(
            lambda item: (
                pa.map_(pa.string(), item[0]),
                st.dictionaries(st.text(max_size=2), item[1], max_size=3).map(lambda d: [*d.items()]),
            )
        ),
    )


_kinds = st.recursive(
    st.sampled_from(_LEAVES).map(lambda leaf: (leaf[0], st.none() | leaf[1])),
    lambda inner: _nested(inner).map(lambda kind: (kind[0], st.none() | kind[1])),
    max_leaves=6,
)


def _as_python(kind: pa.DataType, value: Any, in_full: bool) -> str:
    """JSON by Python, row by row."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        fields = [
            f'"{field.name}":{_as_python(field.type, value[field.name], in_full)}'
            for field in kind
            if in_full or value[field.name] is not None
        ]
        return f"{{{','.join(fields)}}}"
    if pa.types.is_list(kind):
        return f"[{','.join(_as_python(kind.value_type, item, in_full) for item in value)}]"
    if pa.types.is_map(kind):
        items = [f"{_quoted(key)}:{_as_python(kind.item_type, item, in_full)}" for key, item in value]
        return f"{{{','.join(items)}}}"
    if pa.types.is_decimal(kind):
        return pa.array([value], kind).cast(pa.string())[0].as_py()
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return to_json(pa.array([text]))[0].as_py().decode()


@given(st.data(), _kinds, st.integers(0, 5), st.booleans())
def test_nested_values(
    data: st.DataObject, of: tuple[pa.DataType, st.SearchStrategy[Any]], skipped: int, in_full: bool
) -> None:
    """Of every shape, with nulls at any depth, also in a slice of a longer column."""
    kind, values = of
    column = pa.array(data.draw(st.lists(values, max_size=8)), kind).slice(skipped)
    found = to_json(column, in_full=in_full).to_pylist()
    expected = [None if row is None else _as_python(kind, row, in_full) for row in column.to_pylist()]
    assert [None if text is None else text.decode() for text in found] == expected


def test_lists_that_are_null_may_have_items() -> None:
    offsets, items = pa.array([0, 2, 3, 3], pa.int32()), pa.array([1, 2, 3])
    column = pa.ListArray.from_arrays(offsets, items, mask=pa.array([False, True, False]))
    assert texts(column) == ["[1,2]", None, "[]"]
    assert texts(column.slice(1)) == [None, "[]"]


@pytest.mark.parametrize("seed", range(5))
def test_fields_that_few_rows_have(seed: int) -> None:
    """Fields that are null in some rows, in most, or in all, in any order."""
    random, rows = np.random.default_rng(seed), 300
    shares = random.permutation([0.0, 0.3, 0.7, 0.7, 0.99, 0.99, 1.0, 1.0])
    given = [random.random(rows) >= share for share in shares]
    numbers = [pa.array(np.arange(rows), mask=~has) for has in given]
    names = [f"f{number}" for number in range(len(shares))]
    column = pa.StructArray.from_arrays(
        [pa.StructArray.from_arrays(numbers, names), *numbers], ["inner", *names]
    ).slice(3)
    expected = [_as_python(column.type, row, False) for row in column.to_pylist()]
    assert texts(column) == expected
