"""The options about large messages: LinkedIn's names, defaults and bounds for what assembles them.

The names are those of LiKafkaConsumerConfig of li-apache-kafka-clients 1.0.66, so that what was
written for its consumer can be handed on; ``message.assembler.expiration.ms`` and the two that
begin with ``large.message.`` besides ``enabled`` are ours.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import AssemblerSettings
from pyspark_kafkalog.options.names import Use, suggestion
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_CAPACITY = "message.assembler.buffer.capacity"
_GAP = "message.assembler.expiration.offset.gap"
_TRACKED = "max.tracked.messages.per.partition"
_RAISES = "exception.on.message.dropped"
_EXPIRATION_MS = "message.assembler.expiration.ms"
ASSEMBLER_OPTIONS = (_CAPACITY, _GAP, _TRACKED, _RAISES, _EXPIRATION_MS)
"""The names of all settings of the assembler."""

_NOT_IN_THE_SOURCE = (_RAISES, _EXPIRATION_MS)
"""A split evicts nothing, and its rows must not depend on the clock."""


@dataclass(frozen=True, slots=True)
class LargeMessageOptions:
    """What a reader does with message segments: nothing, unless it is asked.

    ``dead_letters`` adds dropped messages to the rows; ``safe_offsets`` is set where safe
    offsets are committed, be it that the reader reassembles or another step of the query.
    """

    enabled: bool = False
    dead_letters: bool = False
    safe_offsets: bool = False
    settings: AssemblerSettings = field(default_factory=AssemblerSettings)


def assembler_settings(
    given: UserOptions | Mapping[str, object], *, others: Collection[str] | None = None
) -> AssemblerSettings:
    """The settings of the assembler among ``given``, with LinkedIn's defaults.

    :param given: options by name, in any case; values or their texts.
    :param others: names that may also be given; any other is refused. None refuses none.
    :raises OptionError: for a value that is malformed or out of bounds.
    """
    if not isinstance(given, UserOptions):
        if others is not None:
            _check_names(given, (*ASSEMBLER_OPTIONS, *others))
        given = UserOptions(
            {name: str(value) for name, value in given.items() if value is not None}, Use.READ
        )
    return AssemblerSettings(
        buffer_capacity=given.integer(_CAPACITY, 1, MAX_INT),
        expiration_offset_gap=given.integer(_GAP, 1, MAX_INT),
        max_tracked_messages=given.integer(_TRACKED, 1, MAX_INT),
        exception_on_message_dropped=given.boolean(_RAISES),
        expiration_ms=given.limit(_EXPIRATION_MS, MAX_LONG),
    )


def large_message_options(given: UserOptions) -> LargeMessageOptions:
    """What a reader is told of large messages.

    :raises OptionError: for what is malformed, and for dead letters of a reader that reassembles nothing.
    """
    enabled = given.boolean("large.message.enabled")
    dead_letters = given.boolean("large.message.dead.letters")
    if dead_letters and not enabled:
        raise OptionError(
            "Option 'large.message.dead.letters' is set, and the reader reassembles nothing",
            hint="Set 'large.message.enabled' to true, too.",
        )
    safe_offsets = (
        given.boolean("large.message.safe.offsets") if "large.message.safe.offsets" in given else enabled
    )
    for name in _NOT_IN_THE_SOURCE:
        if enabled and name in given:
            log_once(logging.WARNING, "Option %s has no effect on a reader, which drops nothing for it", name)
    return LargeMessageOptions(enabled, dead_letters, safe_offsets, assembler_settings(given))


def _check_names(given: Mapping[str, object], allowed: Collection[str]) -> None:
    lower = {name.lower() for name in allowed}
    for name in given:
        if name.lower() not in lower:
            raise OptionError(f"Unknown option {name!r}", hint=suggestion(name, allowed))
