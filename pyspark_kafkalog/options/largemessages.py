"""The options about large messages, with LinkedIn's names, defaults and bounds.

What was written for LinkedIn's consumer and producer can be handed on. Our own are
``message.assembler.expiration.ms`` and those that begin with ``large.message.``, but for ``enabled``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import AssemblerSettings, SplitterSettings
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_ONLY_REASSEMBLE = ("exception.on.message.dropped", "message.assembler.expiration.ms")
"""A read evicts nothing, and its rows must not depend on the clock."""

_LEAST_OVERHEAD = 150
"""Bytes of a record batch of one message segment, besides its slice and its key: headers and prefix."""


@dataclass(frozen=True, slots=True)
class LargeMessageOptions:
    """What a reader does with message segments: nothing by default.

    ``dead_letters`` adds dropped messages to the rows. ``safe_offsets`` is set where safe offsets
    are committed, whether the reader reassembles or another step of the query does.
    """

    enabled: bool = from_option("large.message.enabled")
    dead_letters: bool = from_option("large.message.dead.letters")
    safe_offsets: bool = False
    settings: AssemblerSettings = field(default_factory=AssemblerSettings)


def assembler_settings(user: UserOptions) -> AssemblerSettings:
    """The settings of the assembler, for a reader or for ``reassemble``.

    :raises OptionError: for a value that is malformed or out of bounds.
    """
    return AssemblerSettings(
        buffer_capacity=user.value("message.assembler.buffer.capacity"),
        expiration_offset_gap=user.value("message.assembler.expiration.offset.gap"),
        max_tracked_messages=user.value("max.tracked.messages.per.partition"),
        exception_on_message_dropped=user.value("exception.on.message.dropped"),
        expiration_ms=user.value("message.assembler.expiration.ms"),
    )


def large_message_options(user: UserOptions) -> LargeMessageOptions:
    """What a reader does with large messages.

    :raises OptionError: for what is malformed, and for dead letters of a reader that reassembles nothing.
    """
    enabled = user.value("large.message.enabled")
    safe_offsets = user.value("large.message.safe.offsets")
    large_messages = user.fill(
        LargeMessageOptions,
        safe_offsets=enabled if safe_offsets is None else safe_offsets,
        settings=assembler_settings(user),
    )
    if large_messages.dead_letters and not enabled:
        raise OptionError(
            "Option 'large.message.dead.letters' is set, but this reader reassembles nothing",
            hint="Set 'large.message.enabled' to true as well.",
        )
    for name in _ONLY_REASSEMBLE:
        if enabled and name in user:
            log_once(logging.WARNING, "Option %s has no effect on a reader: only reassemble uses it", name)
    return large_messages


def splitter_settings(
    user: UserOptions, *, compression: str, largest_batch: int, limit: str
) -> SplitterSettings | None:
    """How a writer makes message segments of large values; None if it does not.

    :param largest_batch: the value of the option ``limit``, bytes.
    :raises OptionError: for what is malformed, or if no message segment could be written.
    """
    name = "max.message.segment.bytes"
    wanted = user.value(name)
    size = min(wanted, largest_batch)
    settings = SplitterSettings(
        size,
        timestamp_header=user.value("header.timestamp.enabled"),
        header_only=user.value("li.record.header.enable"),
        wrap=user.value("li.large.message.segment.wrapping.required"),
    )
    if not user.value("large.message.enabled"):
        return None
    most = largest_batch - _LEAST_OVERHEAD
    if compression == "none" and size > most:
        hint = f"Raise {limit!r}"
        if most > 0:
            hint += f", or lower {name!r} to {most} at most, less what the longest key and headers take"
        raise OptionError(
            f"Option {name!r} is {wanted}: message segments of {size} bytes and what a record batch adds"
            f" exceed {limit} = {largest_batch}",
            hint=f"{hint}.",
        )
    return settings
