"""The metadata beside a committed offset: from which message on a group wants to read.

Theirs, of li-apache-kafka-clients: LiKafkaClientsUtils. A *consumer high watermark* is the next
offset that the application wants: messages below it were given to it before, and are skipped when
their message segments are read again, from the safe offset on, which is what is committed.
"""

from __future__ import annotations

import re

_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})\Z")
_UNKNOWN = -1


def commit_metadata(high_watermark: int, text: str = "") -> str:
    """The metadata to commit beside a safe offset: the consumer high watermark, and a text of the user's."""
    return f"{high_watermark},{text}"


def parse_metadata(metadata: str | None) -> tuple[int | None, str]:
    """The consumer high watermark and the user's text; None and all of it if a plain consumer committed."""
    number, comma, text = (metadata or "").partition(",")
    digits = _INTEGER.match(number)
    if comma and digits and (watermark := int("".join(digits.groups()))) in _INT64:
        return watermark, text
    return None, metadata or ""


def consumer_high_watermark(metadata: str | None) -> int | None:
    """The offset from which on messages are wanted; None if the metadata tells none."""
    number, _ = parse_metadata(metadata)
    return None if number == _UNKNOWN else number
