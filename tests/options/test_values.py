"""What single option values may look like."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.values import (
    boolean,
    choice,
    integer,
    milliseconds,
    size_in_bytes,
)


def test_booleans() -> None:
    assert boolean("b", "TRUE") is True
    assert boolean("b", " false ") is False
    for text in ("", "1", "yes"):
        with pytest.raises(OptionError, match="'b' must be true or false"):
            boolean("b", text)


def test_integers() -> None:
    assert integer("i", "+7", 1, 10) == 7
    assert integer("i", str(2**63 - 1), 1, 2**63 - 1) == 2**63 - 1
    for text in ("", "0", "-1", "11", "1.0", "a", "1_0", "\u0667", "1" * 5000):
        with pytest.raises(OptionError, match="'i' must be a whole number from 1 to 10"):
            integer("i", text, 1, 10)


def test_choices_in_any_case_come_back_as_kafka_writes_them() -> None:
    assert choice("c", "logappendtime", ["CreateTime", "LogAppendTime"]) == "LogAppendTime"
    with pytest.raises(OptionError, match="'c' must be one of a, b, not 'd'"):
        choice("c", "d", ["a", "b"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", 900_000),
        ("500", 500),
        ("500ms", 500),
        ("30 S", 30_000),
        ("10 minutes", 600_000),
        ("interval 2 hours", 7_200_000),
        ("1min", 60_000),
        ("1d", 86_400_000),
        ("0", 0),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert milliseconds("t", text) == expected


@pytest.mark.parametrize("text", ["", "m", "-1m", "1.5m", "1 month", "15m 3s", "\u0663m"])
def test_bad_times(text: str) -> None:
    with pytest.raises(OptionError, match="'t' must be a time such as"):
        milliseconds("t", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("10b", 10), ("64m", 64 << 20), ("64 MB", 64 << 20), ("2g", 2 << 30), ("1k", 1024)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size_in_bytes("s", text) == expected


@pytest.mark.parametrize("text", ["", "0", "0m", "-1m", "1.5g", "64 minutes"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(OptionError, match="'s' must be"):
        size_in_bytes("s", text)
