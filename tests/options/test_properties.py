"""Properties files as java.util.Properties reads them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a : b \n! no\n#no\n\nc d", {"a": "b ", "c": "d"}),
        ("a=1\r\na=2\rb", {"a": "2", "b": ""}),
        ("a=x \\\n    y \\\n z", {"a": "x y z"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00e9\\t\\q\\", {"a": "é\tq"}),
        ("a==b", {"a": "=b"}),
        (
            'sasl.jaas.config=org.x.PlainLoginModule required \\\n  username="u" password="p";',
            {"sasl.jaas.config": 'org.x.PlainLoginModule required username="u" password="p";'},
        ),
    ],
)
def test_as_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_refused_line_is_not_shown() -> None:
    with pytest.raises(OptionError, match=r"line 2: expected four hexadecimal digits") as caught:
        parse_properties("a=1\npassword=secret\\u12")
    assert "secret" not in str(caught.value)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(OptionError):
        parse_properties(text)
