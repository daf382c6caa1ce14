"""Dates and timestamps in texts as Spark's casts read them, and time zones as Java names them.

Source: Spark's SparkDateTimeUtils, and java.time.ZoneId.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import lru_cache

import numpy as np

_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?"
_DATE_AND_TIME = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_TIME})?)?)?", re.DOTALL
)
_TIME_ALONE = re.compile(_TIME, re.DOTALL)
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_WHOLE = re.compile(r"[+-]?\d+")
_TRIMMED = "".join(map(chr, [*range(0x21), 0x7F]))
_JAVA_TRIMMED = _TRIMMED[:-1]
_OFFSET = re.compile(r"([+-])(?:([0-9])|([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?)")
_OFFSET_FORMS = frozenset((2, 3, 5, 6, 7, 9))
_SHORT_HOUR = re.compile(r"([+-])(\d):", re.ASCII)
_SHORT_MINUTE = re.compile(r"([+-])(\d\d):(\d)$", re.ASCII)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_NOT_JAVAS = ("posix/", "right/", "posixrules", "localtime", "Factory", "leapseconds", "tzdata")
_SHORT_IDS = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
"""ZoneId.SHORT_IDS."""
_LONGEST_ZONE = 64
"""Characters; none has so many."""
_MICROS = 1_000_000
_DAY, _DAYS_OF_400_YEARS = 86_400, 146_097
_EPOCH = datetime.datetime(1970, 1, 1)
_BEGIN_OF_1, _END_OF_9999 = -62_135_596_800, 253_402_300_800
"""Seconds, of Python's years."""
BEGIN_OF_2037, _BEGIN_OF_2500 = 2_114_380_800, 16_725_225_600
"""Seconds. Arrow knows changes of clocks up to the last one that a file of tzdata lists, in 2037 or
later; zoneinfo knows the rule behind it, too. From 2100 on there are rules only."""
_LEAST_BETWEEN = 3 * _DAY
_MONTH = 10 * _LEAST_BETWEEN
"""Seconds. In tzdata there are almost four days between any two changes of a region's clocks."""
_FIRST_JULIAN, _JULIAN_EPOCH = -141_427, 2_440_588
"""Days before this one are of the Julian calendar; the Julian day of 1970-01-01."""

Zone = int | zoneinfo.ZoneInfo
"""Seconds east of UTC, or a region."""


def zone(name: str) -> Zone | None:
    """The time zone that Spark takes for a name; None if there is none."""
    return _zone(name) if len(name) <= _LONGEST_ZONE else None


@lru_cache(1000)
def _zone(name: str) -> Zone | None:
    name = _SHORT_HOUR.sub(r"\g<1>0\2:", name, count=1)
    name = _SHORT_MINUTE.sub(r"\1\2:0\3", name, count=1)
    name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return 0
    if name[:1] in ("+", "-"):
        return _offset(name)
    for prefix in ("UTC", "GMT", "UT"):
        if name == prefix:
            return 0
        if name.startswith(prefix) and name[len(prefix)] in "+-":
            return _offset(name[len(prefix) :])
    if not _REGION.fullmatch(name) or name.startswith(_NOT_JAVAS):
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _offset(text: str) -> int | None:
    found = _OFFSET.fullmatch(text)
    if found is None or len(text) not in _OFFSET_FORMS:
        return None
    sign, hour, *parts = found.groups()
    hours, minutes, seconds = (int(part or 0) for part in (hour or parts[0], *parts[1:]))
    colons = text.count(":")
    if colons != {6: 1, 9: 2}.get(len(text), 0) or minutes > 59 or seconds > 59:
        return None
    total = 3600 * hours + 60 * minutes + seconds
    if total > 18 * 3600:
        return None
    return -total if sign == "-" else total


def timestamp(text: str, default: Zone | None) -> int | None:
    """Microseconds since 1970, or None if ``text`` isn't a timestamp.

    :param default: the zone of a text without one. None for timestamps without zone: then it may have none.
    """
    trimmed = text.strip(_TRIMMED)
    found = _DATE_AND_TIME.fullmatch(trimmed)
    if found is not None:
        is_today = False
        sign, *date, hour, minute, second, fraction, zone_name = found.groups()
        year, month, day = (int(part or 1) for part in date)
        year = -year if sign == "-" else year
    else:
        if default is None:
            return None
        has_letter = text.startswith("T")
        found = _TIME_ALONE.fullmatch(trimmed[has_letter:])
        if found is None or not (has_letter or found.group(2)):
            return None
        hour, minute, second, fraction, zone_name = found.groups()
        is_today, year, month, day = True, 0, 0, 0
    of = default
    if zone_name is not None:
        of = zone(zone_name.strip(_JAVA_TRIMMED))
        if of is None or default is None:
            return None
    if is_today and of is not None:
        clock = datetime.timezone(datetime.timedelta(seconds=of)) if isinstance(of, int) else of
        today = datetime.datetime.now(clock)
        year, month, day = today.year, today.month, today.day
    hours, minutes, seconds = (int(part or 0) for part in (hour, minute, second))
    days = _days(year, month, day)
    if days is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    local = days * _DAY + 3600 * hours + 60 * minutes + seconds
    if of is not None:
        local -= seconds_east(of, local)
    micros = local * _MICROS + int(((fraction or "") + "000000")[:6])
    return micros if -(2**63) <= micros < 2**63 else None


def seconds_east(of: Zone, local: int) -> int:
    """The seconds by which a zone is east of UTC at a second of its clocks, as ZonedDateTime.of decides."""
    if isinstance(of, int):
        return of
    # Weekdays are the same after 400 years; before the year 1 clocks followed the sun.
    if local >= _END_OF_9999:
        cycle = _DAY * _DAYS_OF_400_YEARS
        local -= ((local - _END_OF_9999) // cycle + 1) * cycle
    local = max(local, _BEGIN_OF_1)
    there = _EPOCH + datetime.timedelta(seconds=local)
    return _seconds(there.replace(tzinfo=of).utcoffset())


def seconds_east_of_clocks(of: Zone, local: np.ndarray) -> np.ndarray:
    """The seconds east of UTC at each of many seconds, as :func:`seconds_east` gives them; at least one."""
    months = np.unique(local // _MONTH).tolist()
    starts, offsets = np.array([each for month in months for each in _changes_in(of, month)], np.int64).T
    found: np.ndarray = offsets[np.searchsorted(starts, local, side="right") - 1]
    return found


@lru_cache(10_000)
def _changes_in(of: Zone, month: int) -> list[tuple[int, int]]:
    """The seconds of a region's clocks from which on it has another offset from UTC, and the offsets; the
    first one is that at the begin of this month of 30 days.
    """
    begin = month * _MONTH
    changes = [(begin, seconds_east(of, begin))]
    for end in range(begin + _LEAST_BETWEEN, begin + _MONTH + 1, _LEAST_BETWEEN):
        before, after = changes[-1][1], seconds_east(of, end)
        if before != after:
            low, high = end - _LEAST_BETWEEN, end
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if seconds_east(of, middle) == before else (low, middle)
            changes.append((high, after))
    return changes


def _seconds(offset: datetime.timedelta | None) -> int:
    assert offset is not None, "a region has one at any time"
    return round(offset.total_seconds())


@lru_cache(100)
def _changes(of: zoneinfo.ZoneInfo) -> tuple[np.ndarray, np.ndarray]:
    """The seconds since 1970, from :data:`BEGIN_OF_2037` to that of 2500, at which a region's offset from UTC
    changes, and the offsets from then on.
    """

    def east(at: int) -> int:
        found = (_EPOCH.replace(tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=at)).astimezone(of)
        return _seconds(found.utcoffset())

    starts, offsets = [BEGIN_OF_2037], [east(BEGIN_OF_2037)]
    for week in range(BEGIN_OF_2037, _BEGIN_OF_2500, 7 * _DAY):
        end = week + 7 * _DAY
        if (after := east(end)) == offsets[-1]:
            continue
        before = week
        while end - before > 1:
            middle = (before + end) // 2
            if east(middle) == offsets[-1]:
                before = middle
            else:
                end = middle
        starts.append(end)
        offsets.append(after)
    return np.array(starts, np.int64), np.array(offsets, np.int64)


def seconds_east_of_utc(of: zoneinfo.ZoneInfo, at: np.ndarray) -> np.ndarray:
    """The seconds by which a region is east of UTC at seconds since 1970, from :data:`BEGIN_OF_2037` on."""
    starts, offsets = _changes(of)
    cycle = _DAY * _DAYS_OF_400_YEARS
    within = np.where(at < _BEGIN_OF_2500, at, (at - _BEGIN_OF_2500) % cycle + _BEGIN_OF_2500 - cycle)
    found: np.ndarray = offsets[np.searchsorted(starts, within, side="right") - 1]
    return found


def date(text: str) -> int | None:
    """Days since 1970, or None if ``text`` isn't a date."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, *parts = found.groups()
    year, month, day = (int(part or 1) for part in parts)
    return _int32(_days(-year if sign == "-" else year, month, day))


def days_as_number(text: str) -> int | None:
    """A date as Spark 1.5 wrote it: the number of its days since 1970, before 1582 by the Julian calendar."""
    if not _WHOLE.fullmatch(text) or any(char > "\uffff" for char in text):
        return None
    days = _int32(int(text)) if len(text) <= 1000 else None
    if days is None or days >= _FIRST_JULIAN:
        return days
    # Richards' algorithm for the Julian calendar.
    shifted = days + _JULIAN_EPOCH + 1401
    shifted = 4 * shifted + 3
    of_year = 5 * (shifted % 1461 // 4) + 2
    day, month = of_year % 153 // 5 + 1, (of_year // 153 + 2) % 12 + 1
    year = shifted // 1461 - 4716 + (14 - month) // 12
    first = _days(year, month, 1)
    assert first is not None
    return _int32(first + day - 1)


def _int32(days: int | None) -> int | None:
    return days if days is not None and -(2**31) <= days < 2**31 else None


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in the proleptic Gregorian calendar; None if there is no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if (day > (29 if is_leap else 28) and month == 2) or (day > 30 and month in (4, 6, 9, 11)):
        return None
    since_march = year - (month <= 2)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * since_march + since_march // 4 - since_march // 100 + since_march // 400 + of_year - 719_468
