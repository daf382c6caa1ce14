"""What may be wanted of a type."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.columns import GrowingRows, check_part
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl

FULL = "a int, b struct<x: int, y: string>, c array<struct<z: int, w: int>>, m map<string, struct<v: int>>"


@pytest.mark.parametrize(
    "wanted",
    [FULL, "b struct<y: string>, a int", "c array<struct<w: int>>", "m map<string, struct<v: int>>"],
)
def test_structs_may_have_some_fields(wanted: str) -> None:
    check_part(parse_ddl(wanted), parse_ddl(FULL), "value")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("aa int", r"There is no field 'aa' in value\. Give some of a, b, c, m\."),
        ("b struct<z: int>", r"There is no field 'z' in value\.b\. Give some of x, y\."),
        ("c array<struct<x: int>>", r"There is no field 'x' in value\.c\.element\. Give some of w, z\."),
        ("m map<string, struct<w: int>>", r"There is no field 'w' in value\.m\.value"),
        (
            "a bigint",
            r"Expected int for value\.a, got bigint\. Read it as int, .*: CAST\(value\.a AS bigint\)\.$",
        ),
        ("c array<int>", r"Expected struct<.*> for value\.c\.element, got int\. Read it as struct<.*>\.$"),
        ("c map<string, int>", r"Expected array<.*> for value\.c, got map<string, int>"),
        ("m map<int, struct<v: int>>", r"Expected map<string, .*> for value\.m, got map<int, "),
        ("int", "Expected struct<.*> for value, got int"),
    ],
)
def test_what_is_no_part(wanted: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_part(parse_ddl(wanted), parse_ddl(FULL), "value")


def test_rows_are_added_without_copying_all_of_them() -> None:
    """As many times as they double: a topic with a thousand schemas adds to them a thousand times."""
    rows, moves, parts = GrowingRows(np.zeros((1, 3), np.int64)), 0, []
    for number in range(1000):
        before = rows.rows
        parts.append(np.full((50, 3), number, np.int64))
        rows.add(parts[-1])
        moves += not np.shares_memory(before, rows.rows)
    assert moves < 20
    assert rows.count == 50_001
    np.testing.assert_array_equal(rows.rows[1:], np.concatenate(parts))
