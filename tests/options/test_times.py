"""Times as people write them."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.times import point_in_time

NOW = 1_600_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2020-09-13T12:26:40.5", NOW + 500),
        ("2020-09-13T12:26:40.001Z", NOW + 1),
        ("2020-09-13T12:26:40.123456789Z", NOW + 123),
        ("2020-09-13 14:26:40+02", NOW),
        ("2020-09-13T14:26:40.000+0200", NOW),
        ("2020-09-13", 1_599_955_200_000),
        ("2020-09-13Z", 1_599_955_200_000),
        ("2020-09-13+05:00", 1_599_937_200_000),
        ("20200913-0500", 1_599_973_200_000),
        ("1969-12-31T23:59:59.999", 0),
        ("1600000000000", NOW),
        ("1h", NOW - 3_600_000),
        ("-1h", NOW - 3_600_000),
        (" -2 days ", NOW - 2 * 86_400_000),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert point_in_time("--since", text, NOW) == ms


@pytest.mark.parametrize("text", ["", "-5", "tomorrow", "1x", "2020-13-01", "2020-09-13T25:00", "+1h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(OptionError, match="'--since'"):
        point_in_time("--since", text, NOW)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("1700000000000", ""),
        ("9999999999999", ""),
        ("253402300799000", ""),
        ("9223372036854775807", ""),
        ("0", ""),
        ("1970-01-01T00:00Z", ""),
        ("2026-01-31", "has no time zone"),
        ("2026-01-31Z", ""),
        ("2026-01-31+01:00", ""),
    ],
)
def test_times_that_are_taken(text: str, warning: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those without a zone with a warning, once; those far ahead stand for no end."""
    name = f"startingTimestamp {text}"
    for _ in range(2):
        point_in_time(name, text, NOW)
    assert caplog.text.count(name) == (1 if warning else 0)
    assert warning in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1700000000", "is before 1980. Expected ms, not seconds or microseconds. Write 1700000000000, or"),
        ("1500", "is before 1980. Expected ms, not seconds or microseconds. Write 2026-01-31T12:00:00Z, 1h"),
        (
            "1700000000000000",
            "is after 2200. Expected ms, .* Write 1700000000000, or 2023-11-14T22:13:20.000Z",
        ),
        ("1700000000000000000", "is after 2200. Expected ms, .* Write 1700000000000, or 2023-11-14T22:13:20"),
    ],
)
def test_times_in_another_unit(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=f"'startingTimestamp': {text} ms since 1970 {says}"):
        point_in_time("startingTimestamp", text, NOW)
