"""The text of sasl.jaas.config, as Kafka's JaasConfig reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} REQUIRED username='u' password=p1.x;", {"username": "u", "password": "p1.x"}),
        (f'\n {PLAIN}\n required\n username = "u"\n ;\n', {"username": "u"}),
        (
            f'{PLAIN} required // who\n username="u" /* and\n with */ password="p" ;',
            {"username": "u", "password": "p"},
        ),
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required a="1" a="2";', {"a": "2"}),
        (f'{PLAIN} required a="";', {"a": ""}),
        (f'{PLAIN} sufficient a="// no comment";', {"a": "// no comment"}),
    ],
)
def test_a_module_and_its_options(text: str, options: dict[str, str]) -> None:
    module = parse_jaas("o", text)
    assert module.name == PLAIN
    assert module.options == options


def test_escapes_are_javas() -> None:
    module = parse_jaas("o", r'M required a="\"\\\n\t\x\101\0\777";')
    assert module.options["a"] == '"\\\n\txA\0?7'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the name of a login module at the end"),
        ("; ", "expected the name of a login module at character 1"),
        (PLAIN, "expected a control flag such as required at"),
        (f"{PLAIN} username='u';", "expected a control flag such as required after"),
        (f"{PLAIN} required", "expected a semicolon at the end"),
        (f"{PLAIN} required a='u'", "expected a semicolon at the end"),
        (f"{PLAIN} required a;", "expected = at character"),
        (f"{PLAIN} required a b='c';", "expected = at character"),
        (f"{PLAIN} required a=;", "expected a quoted value at character"),
        (f"{PLAIN} required a=", "expected a quoted value at the end"),
        (f"{PLAIN} required ='b';", "expected the name of an option at"),
        (f'{PLAIN} required a="b;', "open quote"),
        (f'{PLAIN} required a="b\n";', "open quote"),
        (f"{PLAIN} required a=b@c;", "unquoted special character"),
        (f"{PLAIN} required a=12;", "unquoted number"),
        (f"{PLAIN} required a=-1x;", "unquoted number"),
        (f"{PLAIN} required a=.5;", "unquoted number"),
        (f"{PLAIN} required a=b; {PLAIN} required;", "expected one login module, got more"),
    ],
)
def test_other_texts(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"'o'.*{message}"):
        parse_jaas("o", text)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (PLAIN, True),
        (f"kafkashaded.{PLAIN}", True),
        ("PlainLoginModule", False),
        (f"com.example.{PLAIN}", False),
        ("org.apache.kafka.common.security.scram.ScramLoginModule", False),
    ],
)
def test_modules_are_known_by_their_full_name(name: str, known: bool) -> None:
    assert parse_jaas("o", f"{name} required;").is_a("plain.PlainLoginModule") is known


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
def test_any_value_can_be_quoted(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas("o", f'M required a="{quoted}";').options == {"a": value}
