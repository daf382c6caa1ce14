"""Points in time as people write them: ISO 8601, a time ago, or milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.values import milliseconds, shown

TIME_FORMS = "2026-01-31T12:00:00Z, 1h or -2d for a time ago, or milliseconds since 1970"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECONDS = re.compile(r"[0-9]{1,18}", re.ASCII)
_AGO = re.compile(r"-?\s*(?P<time>[0-9]{1,18}\s*[a-z]+)", re.ASCII | re.IGNORECASE)
_ZONE = re.compile(r"([T ].*)([+-][0-9]{2})([0-9]{2})?\Z", re.ASCII)
_FRACTION = re.compile(r"\.([0-9]{1,6})[0-9]*", re.ASCII)


def point_in_time(name: str, text: str, now_ms: int) -> int:
    """Milliseconds since 1970, from one of :data:`TIME_FORMS`. An ISO time without a zone is UTC.

    A time ago is written with or without a minus: ``1h`` and ``-1h`` are an hour before ``now_ms``.

    :raises OptionError: naming the option.
    """
    given = text.strip()
    if _MILLISECONDS.fullmatch(given):
        return int(given)
    if ago := _AGO.fullmatch(given):
        return now_ms - milliseconds(name, ago["time"])
    # Before Python 3.11 fromisoformat rejects Z, zones without a colon and fractions of other lengths.
    iso = given.upper().replace("Z", "+00:00")
    iso = _ZONE.sub(lambda zone: f"{zone[1]}{zone[2]}:{zone[3] or '00'}", iso)
    iso = _FRACTION.sub(lambda fraction: "." + fraction[1].ljust(6, "0"), iso)
    try:
        time = datetime.fromisoformat(iso)
        time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
        return (time - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise OptionError(
            f"Option {name!r}: expected a time{shown(name, text)}", hint=f"Write {TIME_FORMS}."
        ) from None
