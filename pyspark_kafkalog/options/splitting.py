"""The options about large messages of a writer: LinkedIn's names and defaults (LiKafkaProducerConfig)."""

from __future__ import annotations

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import SplitterSettings
from pyspark_kafkalog.options.user_options import UserOptions

_LEAST_OVERHEAD = 150
"""Bytes of a record batch of one message segment, besides its slice and its key: headers and prefix."""


def splitter_settings(
    given: UserOptions, *, compression: str, largest_batch: int, limit: str
) -> SplitterSettings | None:
    """How values are split; None where they are not, whatever else is given.

    :param largest_batch: the value of the option ``limit``, bytes.
    :raises OptionError: for what is malformed, or if no message segment could be written.
    """
    name = "max.message.segment.bytes"
    asked = given.integer(name, 1)
    timestamp_header = given.boolean("header.timestamp.enabled")
    header_only = given.boolean("li.record.header.enable")
    wrap = given.boolean("li.large.message.segment.wrapping.required")
    if not given.boolean("large.message.enabled"):
        return None
    size = min(asked, largest_batch)
    most = largest_batch - _LEAST_OVERHEAD
    if compression == "none" and size > most:
        hint = f"Raise {limit!r}"
        if most > 0:
            hint += f", or lower {name!r} to {most} at most, less what the longest key and headers take"
        raise OptionError(
            f"Option {name!r} is {asked}: message segments of {size} bytes and what a record batch adds"
            f" exceed {limit} = {largest_batch}",
            hint=f"{hint}.",
        )
    return SplitterSettings(size, timestamp_header, header_only, wrap)
