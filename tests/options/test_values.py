"""What single option values may look like."""

from __future__ import annotations

import re
import sys

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.values import (
    boolean,
    choice,
    integer,
    java_pattern,
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


TOPICS = ["test", "latest-1", "a.b", "a-b", "axb", "A_9", "aa", "ab"]


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ("test.*", ["test", "latest-1"]),
        ("^test$", ["test"]),
        (r"\Atest\z", ["test"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.", ["a.b"]),
        (r"^a\.b$", ["a.b"]),
        (r"^\p{Upper}", ["A_9"]),
        (r"\P{Lower}$", ["latest-1", "A_9"]),
        (r"[\p{Punct}]", ["latest-1", "a.b", "a-b", "A_9"]),
        (r"^\pL\pL$", ["aa", "ab"]),
        (r"^(?<x>a)\k<x>", ["aa"]),
        (r"^(?<x>.)\1$", ["aa"]),
        (r"(?i)^a_", ["A_9"]),
        (r"^(?:a|A)[^.\]-]b?$", ["axb", "aa", "ab"]),
        (r"\d$", ["latest-1", "A_9"]),
        ("nothing", []),
    ],
)
def test_java_patterns(java: str, found: list[str]) -> None:
    pattern = java_pattern("p", java)
    assert [topic for topic in TOPICS if re.search(pattern, topic, re.ASCII)] == found


@pytest.mark.parametrize(
    "java",
    [
        "*",
        "(",
        "[a",
        r"\h",
        "a(?i)b",
        "(?u)a",
        "(?P<n>a)",
        "(?P=n)",
        "(?#c)",
        "a{",
        "a{,2}",
        r"\0141",
        r"[\0141]",
        "[a-z&&[^b]]",
        "[a[b]]",
        r"\p{Greek}",
    ],
)
def test_bad_or_untranslatable_java_patterns(java: str) -> None:
    with pytest.raises(OptionError, match="'p' has a pattern"):
        java_pattern("p", java)


def test_possessive_quantifiers_work_where_python_knows_them() -> None:
    if sys.version_info >= (3, 11):
        assert re.search(java_pattern("p", "^a++$"), "aaa")
    else:
        with pytest.raises(OptionError, match="unknown to Python"):
            java_pattern("p", "^a++$")


def test_an_escaped_backslash_escapes_nothing_else() -> None:
    assert java_pattern("p", r"\\z") == r"\\z"
