"""The options about large messages, with LinkedIn's names, defaults and bounds.

Settings of LinkedIn's consumer and producer can be used unchanged. Our own are
``message.assembler.expiration.ms`` and, except ``enabled``, those that begin with ``large.message.``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import AssemblerSettings, SplitterSettings
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_ONLY_REASSEMBLE = ("exception.on.message.dropped", "message.assembler.expiration.ms")
"""Without effect on a read: it evicts nothing, and its rows must not depend on the clock."""
_UNTRACKED = "max.tracked.messages.per.partition"

_LEAST_OVERHEAD = 150
"""Bytes of a record batch with one message segment, besides slice and key: headers and prefix."""


@dataclass(frozen=True, slots=True)
class LargeMessageOptions:
    """What a reader does with message segments; by default nothing.

    ``dead_letters`` adds dropped messages to the rows. ``safe_offsets`` commits safe offsets,
    whether the reader or another step of the query reassembles.
    """

    enabled: bool = from_option("large.message.enabled")
    dead_letters: bool = from_option("large.message.dead.letters")
    safe_offsets: bool = False
    settings: AssemblerSettings = field(default_factory=AssemblerSettings)


def assembler_settings(user: UserOptions) -> AssemblerSettings:
    """The settings of the assembler, for a reader or for ``reassemble``.

    :raises OptionError: for a value that is malformed or out of bounds.
    """
    _ = user.value(_UNTRACKED)
    if _UNTRACKED in user:
        log_once(logging.WARNING, "Option %s has no effect: no start needs what it tracks", _UNTRACKED)
    return AssemblerSettings(
        buffer_capacity=user.value("message.assembler.buffer.capacity"),
        expiration_offset_gap=user.value("message.assembler.expiration.offset.gap"),
        exception_on_message_dropped=user.value("exception.on.message.dropped"),
        expiration_ms=user.value("message.assembler.expiration.ms"),
        deserializer=user.value("segment.deserializer"),
    )


def large_message_options(user: UserOptions) -> LargeMessageOptions:
    """What a reader does with large messages.

    :raises OptionError: for malformed values, and for dead letters or a deserializer without reassembly.
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
            "Option 'large.message.dead.letters' is set, but this reader does not reassemble messages",
            hint="Set 'large.message.enabled' to true as well.",
        )
    if large_messages.settings.deserializer is not None and not (enabled or large_messages.safe_offsets):
        raise OptionError(
            "Option 'segment.deserializer' is set, but this reader does not look for message segments",
            hint="Set 'large.message.enabled' to true as well.",
        )
    if not (enabled or large_messages.safe_offsets):
        for name in user.names("message.assembler."):
            log_once(logging.WARNING, "Option %s has no effect without large.message.enabled", name)
    for name in _ONLY_REASSEMBLE:
        if enabled and name in user:
            log_once(logging.WARNING, "Option %s has no effect on a reader: only reassemble uses it", name)
    return large_messages


def splitter_settings(
    user: UserOptions, *, compression: str, largest_batch: int, limit: str
) -> SplitterSettings | None:
    """How a writer makes message segments of large values; None if it does not.

    :param largest_batch: the value of the option ``limit``, bytes.
    :raises OptionError: for malformed values, a serializer of nothing, or if no message segment could fit.
    """
    name = "max.message.segment.bytes"
    wanted = user.value(name)
    size, gap = min(wanted, largest_batch), "message.assembler.expiration.offset.gap"
    settings = SplitterSettings(
        size,
        timestamp_header=user.value("header.timestamp.enabled"),
        header_only=user.value("li.record.header.enable"),
        wrap=user.value("li.large.message.segment.wrapping.required"),
        serializer=user.value("segment.serializer"),
        expiration_offset_gap=user.value(gap),
    )
    enabled = user.value("large.message.enabled")
    if settings.serializer is not None and not enabled:
        raise OptionError(
            "Option 'segment.serializer' is set, but this writer makes no message segments",
            hint="Set 'large.message.enabled' to true as well.",
        )
    if settings.serializer is not None and settings.header_only:
        raise OptionError(
            "Option 'segment.serializer' can't be given with 'li.record.header.enable', by which values hold"
            " nothing but their slices"
        )
    if not enabled:
        for given in (name, gap):
            if given in user:
                log_once(logging.WARNING, "Option %s has no effect without large.message.enabled", given)
        return None
    most = largest_batch - _LEAST_OVERHEAD
    if compression == "none" and size > most:
        hint = f"Raise {limit!r}"
        if most > 0:
            hint += f", or lower {name!r} to at most {most} minus the size of the longest key and headers"
        raise OptionError(
            f"Option {name!r} is {wanted}: record batches with message segments of {size} bytes exceed"
            f" {limit} = {largest_batch}",
            hint=f"{hint}.",
        )
    return settings
