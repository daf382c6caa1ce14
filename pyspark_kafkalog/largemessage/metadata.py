"""The metadata beside a committed offset: the message at which a group goes on reading.

Source: LiKafkaClientsUtils of li-apache-kafka-clients. The committed offset is the safe one, from
which message segments are read again. A *consumer high watermark* is the next offset that the
application wants: messages below it were delivered before and are skipped.
"""

from __future__ import annotations

import re

_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})\Z")
_UNKNOWN = -1


def commit_metadata(high_watermark: int, text: str = "") -> str:
    """The metadata to commit beside a safe offset: the consumer high watermark and the user's text."""
    return f"{high_watermark},{text}"


def parse_metadata(metadata: str | None) -> tuple[int | None, str]:
    """The consumer high watermark and the user's text; None and all the text of a plain consumer's commit."""
    number, comma, text = (metadata or "").partition(",")
    digits = _INTEGER.match(number)
    if comma and digits and (watermark := int("".join(digits.groups()))) in _INT64:
        return watermark, text
    return None, metadata or ""


def consumer_high_watermark(metadata: str | None) -> int | None:
    """The first offset whose messages are wanted; None if the metadata has none."""
    number, _ = parse_metadata(metadata)
    return None if number == _UNKNOWN else number
