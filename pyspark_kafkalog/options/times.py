"""Points in time as people write them: ISO 8601, a time ago, or milliseconds since 1970."""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import MAX_LONG, parse_values
from pyspark_kafkalog.options.values import milliseconds, shown

TIME_FORMS = "2026-01-31T12:00:00Z, 1h or -2d for a time ago, or milliseconds since 1970"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECONDS = re.compile(r"[0-9]{1,19}", re.ASCII)
_AGO = re.compile(r"-?\s*(?P<time>[0-9]{1,18}\s*[a-z]+)", re.ASCII | re.IGNORECASE)
_ZONE = re.compile(r"([T ].*)([+-][0-9]{2})([0-9]{2})?\Z", re.ASCII)
_DATE = re.compile(r"([0-9]{4}-?[0-9]{2}-?[0-9]{2})([+-].*)", re.ASCII)
"""A date with a zone, of which fromisoformat takes the sign for a separator, and the zone for a time."""
_FRACTION = re.compile(r"\.([0-9]{1,6})[0-9]*", re.ASCII)


_USUAL = 315_532_800_000, 7_258_118_400_000
"""The years 1980 to 2200 in milliseconds since 1970. Numbers of seconds lie below."""
_FINER = 1_000, 1_000_000
"""Microseconds and nanoseconds of a millisecond."""

_FACTORS = 1_000, 1_000_000, 1_000_000_000
"""Seconds, milliseconds, microseconds and nanoseconds are so many times each other."""

_log = logging.getLogger("pyspark_kafkalog")


def in_other_unit(number: int) -> int | None:
    """The usual time that a number of milliseconds is in another unit, if there is one.

    Seconds taken for milliseconds are a day of January 1970, and nanoseconds of pandas its first hour.
    Milliseconds taken for seconds are a year such as 55840.
    """
    first, end = _USUAL
    if number < first:
        found = (number * factor for factor in _FACTORS)
    else:
        found = (number // factor for factor in (1, *_FINER))
    meant = next((ms for ms in found if first <= ms < end), number)
    return None if meant == number else meant


def _check_unit(name: str, number: int) -> None:
    """Refuse what is a usual time in another unit. Only 0, and what lies far ahead, stand for no bound.

    :raises OptionError: naming the option.
    """
    first, end = _USUAL
    if number == 0 or first <= number < end:
        return
    as_ms = number * 1_000
    if number > end:
        as_ms = next((number // unit for unit in _FINER if first <= number // unit < end), 0)
        if not as_ms:
            return
    when = "before 1980" if number < first else "after 2200"
    raise OptionError(
        f"Option {name!r}: {number} ms since 1970 is {when}. Expected ms, not seconds or microseconds",
        hint=f"Write {as_ms}, or {_iso(as_ms)}."
        if first <= as_ms < end
        else f"Write {TIME_FORMS}. 0 is the beginning.",
    )


@functools.cache
def _warn_without_zone(name: str, text: str) -> None:
    """Say once that a time has no zone: Spark's sessions and Python's datetimes have their own."""
    _log.warning("%s: %s has no time zone, and is taken as UTC. Write Z or +01:00 behind it", name, text)


@dataclass(frozen=True, slots=True)
class Ago:
    """A time before the moment at which it is asked for, in milliseconds."""

    ms: int


Moment: TypeAlias = int | Ago
"""Milliseconds since 1970, or a time ago; :func:`at` resolves it."""


def at(moment: Moment, now_ms: int) -> int:
    """Milliseconds since 1970. What lies before 1970 counts as 1970, since Kafka has no such times."""
    return max(now_ms - moment.ms, 0) if isinstance(moment, Ago) else moment


def point_in_time(name: str, text: str, now_ms: int) -> int:
    """Milliseconds since 1970; see :func:`moment`. A time ago counts back from ``now_ms``."""
    return at(moment(name, text), now_ms)


def moments(name: str, text: str) -> dict[TopicPartition, Moment]:
    """A point in time for each partition, in Spark's JSON; see :func:`moment`.

    :raises OptionError: naming the option.
    """

    def read(partition: TopicPartition, value: object) -> Moment:
        if type(value) is int or isinstance(value, str):
            return moment(name, str(value))
        raise OptionError(
            f"Option {name!r}: expected a time, got {value!r}",
            topic_partition=partition,
            hint=f"Write {TIME_FORMS}.",
        )

    example = '{"topicA":{"0":1700000000000,"1":"2026-01-31T12:00:00Z","2":"-1h"}}'
    return parse_values(text, read, option=name, example=example)


def moment(name: str, text: str) -> Moment:
    """A point in time in one of :data:`TIME_FORMS`. An ISO time without a zone is UTC.

    A time ago is written with or without a minus: ``1h`` and ``-1h`` are the same.

    :raises OptionError: naming the option.
    """
    given = text.strip()
    if _MILLISECONDS.fullmatch(given) and int(given) <= MAX_LONG:
        _check_unit(name, int(given))
        return int(given)
    if ago := _AGO.fullmatch(given):
        try:
            return Ago(milliseconds(name, ago["time"]))
        except OptionError:
            raise OptionError(
                f"Option {name!r}: expected a time ago such as 30m, 1h or -2d{shown(name, text)}",
                hint="Units are ms, s, m, h and d.",
            ) from None
    # Before Python 3.11 fromisoformat rejects Z, zones without a colon and fractions of other lengths.
    iso = given.upper().replace("Z", "+00:00")
    if date := _DATE.fullmatch(iso):
        iso = f"{date[1]}T00:00{date[2]}"
    iso = _ZONE.sub(lambda zone: f"{zone[1]}{zone[2]}:{zone[3] or '00'}", iso)
    iso = _FRACTION.sub(lambda fraction: "." + fraction[1].ljust(6, "0"), iso)
    try:
        time = datetime.fromisoformat(iso)
        if time.tzinfo is None:
            time = time.replace(tzinfo=timezone.utc)
            _warn_without_zone(name, given)
        return max((time - _EPOCH) // timedelta(milliseconds=1), 0)
    except (ValueError, OverflowError):
        raise OptionError(
            f"Option {name!r}: expected a time{shown(name, text)}", hint=f"Write {TIME_FORMS}."
        ) from None


def with_iso(timestamp: int) -> str:
    """A number of milliseconds, and the time in UTC that it is, if there is such a time."""
    try:
        return f"{timestamp} ({_iso(timestamp)})"
    except OverflowError:
        return str(timestamp)


def _iso(timestamp: int) -> str:
    time = _EPOCH + timedelta(milliseconds=timestamp)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
