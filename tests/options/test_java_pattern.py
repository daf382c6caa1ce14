"""Java's regular expressions as Python's."""

from __future__ import annotations

import re
import sys

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.java_pattern import java_pattern

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
    with pytest.raises(OptionError, match=r"'p': .* pattern"):
        java_pattern("p", java)


def test_possessive_quantifiers_work_where_python_knows_them() -> None:
    if sys.version_info >= (3, 11):
        assert re.search(java_pattern("p", "^a++$"), "aaa")
    else:
        with pytest.raises(OptionError, match="Python does not support it"):
            java_pattern("p", "^a++$")


def test_an_escaped_backslash_escapes_nothing_else() -> None:
    assert java_pattern("p", r"\\z") == r"\\z"
