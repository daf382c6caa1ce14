"""JSON as Spark's own to_json writes it, of every type, in several time zones."""

from __future__ import annotations

import datetime
import decimal
import random
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import to_json as spark_to_json

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.to_json import check_json_type, to_json
from pyspark_kafkalog.spark.features import spark_schema
from tests.kafka_jars import java

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1)
TEXTS = ["", "a", "ünï😀", 'q"b\\s/', "".join(map(chr, range(0x20))), "\x7f\x80\u2028\ufeff", "x" * 300]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -7.5,
    1e-3,
    9.999e-4,
    1e7,
    9999999.999,
    1e10,
    -1e-5,
    5e-324,
    1.7976931348623157e308,
]
DOUBLES += [float("nan"), float("inf"), float("-inf"), 0.1, 1 / 3, 123456.789, 2**53, 1e100]
MICROS = [0, -1, -1001, 1, 999, 1_700_000_000_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999]
MICROS += [-2_890_000_000_000_000, 1_711_846_800_000_000, 253_402_300_800_000_000 + 86_400_000_000]
MICROS += range(-65_000_000_000_000_000, 253_000_000_000_000_000, 3_600_123_456_789_012)
_INNER = pa.struct([("x", pa.int32()), ("y", pa.string()), ("it's", pa.float32())])
KIND = pa.struct(
    [
        ("first", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("number", pa.int32()),
        ("big", pa.int64()),
        ("ratio", pa.float32()),
        ("exact", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(12, 3)),
        ("fine", pa.decimal128(38, 18)),
        ("inner", _INNER),
        ("items", pa.list_(_INNER)),
        ("lists", pa.list_(pa.list_(pa.int64()))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("maps", pa.map_(pa.int32(), _INNER)),
        ('na"me', pa.string()),
    ]
)
_RANGES = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def value_of(kind: pa.DataType, chance: random.Random, nulls: float = 0.25) -> Any:
    if chance.random() < nulls:
        return None

    def inner(kind: pa.DataType, nulls: float = nulls) -> Any:
        return value_of(kind, chance, nulls)

    if pa.types.is_struct(kind):
        return {field.name: inner(field.type) for field in kind}
    if pa.types.is_map(kind):
        keys = {inner(kind.key_type, 0): inner(kind.item_type) for _ in range(chance.randrange(4))}
        return list(keys.items())
    if pa.types.is_list(kind):
        return [inner(kind.value_type) for _ in range(chance.randrange(4))]
    if kind in _RANGES:
        most = 1 << _RANGES[kind]
        return chance.choice([0, -most, most - 1, chance.randrange(-most, most)])
    if pa.types.is_decimal(kind):
        digits = chance.choice([0, 1, 10 ** chance.randrange(kind.precision), 10**kind.precision - 1])
        return decimal.Decimal((chance.randrange(2), [*map(int, str(digits))], -kind.scale))
    if kind == pa.date32():
        return datetime.date(1970, 1, 1) + datetime.timedelta(chance.choice([0, -1, 19000, -700000, 2900000]))
    if pa.types.is_timestamp(kind):
        return chance.choice([*MICROS, chance.randrange(0, 2 * 10**15)])
    found: dict[pa.DataType, Callable[[], Any]] = {
        pa.bool_(): lambda: chance.random() < 0.5,
        pa.float32(): lambda: chance.choice(
            [0.0, -0.5, 0.001, 9.5e-4, 1e10, float("nan"), 0.1, 123.456, 1e38]
        ),
        pa.float64(): lambda: chance.choice([*DOUBLES, round(chance.uniform(-1e6, 1e6), 3)]),
        pa.string(): lambda: chance.choice(TEXTS),
        pa.binary(): lambda: chance.randbytes(chance.randrange(6)),
    }
    return found[kind]()


def shortest(text: str) -> str:
    """With numbers that have an exponent read and written again: Java had digits too many before 19."""
    return re.sub(r"(?<=[:\[,])-?[0-9.]+E-?[0-9]+", lambda found: repr(float(found[0])), text)


def java_version() -> int:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', said)
    assert found is not None, said
    return int(found[1])


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "+05:30"])
def test_what_to_json_writes(spark: SparkSession, chance: random.Random, zone: str) -> None:
    values = [value_of(KIND, chance, chance.choice([0.0, 0.1, 0.9])) for _ in range(400)]
    table = pa.table({"v": pa.array(values, KIND)})
    frame = spark.createDataFrame(table, spark_schema(table.schema)).coalesce(1)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = frame.select("v", spark_to_json("v").alias("json")).toArrow().combine_chunks()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    kinds = [(f.name, pa.timestamp("us", zone) if f.name == "at" else f.type) for f in KIND]
    column = rows.column("v").combine_chunks().cast(pa.struct(kinds))  # as Spark gives it to a sink
    found = [None if text is None else text.decode() for text in to_json(column).to_pylist()]
    expected = rows.column("json").to_pylist()
    assert len(found) == 400
    as_shown = shortest if java_version() < 19 else str
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or as_shown(mine) == as_shown(theirs)
    assert to_json(column.slice(100, 50)).to_pylist() == to_json(column).to_pylist()[100:150]


def test_types_that_have_no_json() -> None:
    check_json_type(KIND)
    kind = pa.struct([("a", pa.list_(pa.struct([("b", pa.duration("us"))])))])
    with pytest.raises(OptionError, match=r"no form for a\.element\.b, which is duration"):
        check_json_type(kind)
    with pytest.raises(OptionError, match=r"no form for m\.key, which is date32"):
        check_json_type(pa.struct([("m", pa.map_(pa.date32(), pa.int8()))]))
