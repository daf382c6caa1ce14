"""What single option values may look like."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.values import (
    boolean,
    integer,
    milliseconds,
    not_blank,
    one_of,
    one_of_these,
    shown,
    size_in_bytes,
    some_of,
    stripped,
    unless_blank,
)


def test_booleans() -> None:
    assert boolean("b", "TRUE") is True
    assert boolean("b", " false ") is False
    for text in ("", "1", "yes"):
        with pytest.raises(OptionError, match=f"'b': expected true or false, got '{text}'"):
            boolean("b", text)


def test_integers() -> None:
    assert integer(1, 10)("i", "+7") == 7
    assert integer(1, 2**63 - 1)("i", str(2**63 - 1)) == 2**63 - 1
    for text in ("", "0", "-1", "11", "1.0", "a", "1_0", "\u0667", "1" * 5000):
        with pytest.raises(OptionError, match="'i': expected a whole number from 1 to 10, got"):
            integer(1, 10)("i", text)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("waitMs", "30s", "from 1 on, got '30s'. Write 30000.$"),
        ("a.timeout.ms", "1 day", "from 1 on, got '1 day'. Write 86400000.$"),
        ("maxBytes", "64m", "from 1 on, got '64m'. Write 67108864.$"),
        ("rows", "10k", "from 1 on, got '10k'. Write 10000.$"),
        ("rows", "1e5", "from 1 on, got '1e5'. Write 100000.$"),
        ("rows", "100_000", "from 1 on, got '100_000'. Write 100000.$"),
        ("rows", "2.5", "from 1 on, got '2.5'$"),
        ("rows", "30s", "from 1 on, got '30s'$"),
        ("rows", "0", "from 1 on, got '0'$"),
        ("rows", "3000000k", "from 1 on, got '3000000k'$"),
        ("rows", "2147483648", "from 1 to 2147483647, got '2147483648'$"),
        ("kafka.sasl.rows", "10k", "from 1 on$"),
    ],
)
def test_the_integer_that_was_meant(name: str, text: str, says: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}': expected a whole number {says}"):
        integer(1)(name, text)


def test_choices_in_any_case_come_back_as_kafka_writes_them() -> None:
    assert one_of("CreateTime", "LogAppendTime")("c", "logappendtime") == "LogAppendTime"
    with pytest.raises(OptionError, match="'c': expected one of a, b, got 'd'"):
        one_of("a", "b")("c", "d")


def test_single_numbers_may_stand_for_something_else() -> None:
    assert integer(-1, 5, {-1: None})("i", "-1") is None
    assert integer(-1, 5, {-1: None})("i", "5") == 5


def test_words_may_stand_for_values_the_empty_one_too() -> None:
    check = one_of_these({"https": True, "": False})
    assert (check("o", "HTTPS"), check("o", " ")) == (True, False)
    with pytest.raises(OptionError, match="'o': expected one of https, an empty text, got 'ftp'"):
        check("o", "ftp")


def test_some_words() -> None:
    assert some_of("a", "b")("o", " b, a,") == ("b", "a")
    for text in ("", ",", "a,c", "A"):
        with pytest.raises(OptionError, match="'o': expected some of a, b, separated by commas"):
            some_of("a", "b")("o", text)


def test_white_space_around_and_nothing_else() -> None:
    assert unless_blank(stripped)("o", " a ") == not_blank(stripped)("o", " a ") == "a"
    assert unless_blank(stripped)("o", " \t") is None
    with pytest.raises(OptionError, match="'o' is empty"):
        not_blank(stripped)("o", " \t")


def test_what_may_be_secret_is_not_shown() -> None:
    assert shown("kafka.acks", "2") == ", got '2'"
    for name in ("kafka.sasl.mechanism", "KAFKA.SSL.protocol", "kafka.security.protocol"):
        assert shown(name, "2") == ""
    assert shown("kafka.acks", 'x.PlainLoginModule required password="p";') == ""


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
    with pytest.raises(OptionError, match="'t': expected a time such as"):
        milliseconds("t", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("10b", 10), ("64m", 64 << 20), ("64 MB", 64 << 20), ("2g", 2 << 30), ("1k", 1024)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size_in_bytes("s", text) == expected


@pytest.mark.parametrize("text", ["", "0", "0m", "-1m", "1.5g", "64 minutes"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(OptionError, match="'s': expected a size"):
        size_in_bytes("s", text)
