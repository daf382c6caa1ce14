"""The options about large messages, with LinkedIn's names, defaults and bounds.

What LinkedIn's consumer and producer have besides is refused, with what to do instead
(:data:`.client_settings.OF_OTHERS`). Our own are ``message.assembler.expiration.ms`` and, except ``enabled``,
those that begin with ``large.message.``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.large_messages.settings import GAP, AssemblerSettings, SplitterSettings
from pyspark_kafkalog.model import DROPPED_FIELD, CommittedOffset, Place, TopicPartition
from pyspark_kafkalog.model.groups import CommittedOffsets
from pyspark_kafkalog.model.topics import cleanup_policies
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import ReadOptions, WriteOptions
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once
from pyspark_kafkalog.read.messages import Messages, OnDropped
from pyspark_kafkalog.write.splitting import Splitting

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.large_messages.splitter import Splitter
    from pyspark_kafkalog.read.ranges import ReadRules, SplitReader

_ONLY_REASSEMBLE = "message.assembler.expiration.ms"
"""An option without effect on a read, whose rows must not depend on the clock."""
_OF_THE_SPLITTER = (
    *("max.message.segment.bytes", GAP, "header.timestamp.enabled", "li.record.header.enable"),
    "li.large.message.segment.wrapping.required",
)
"""The options of a write that have no effect if it splits nothing."""

_LEAST_OVERHEAD = 150
"""Bytes of a record batch with one message segment, besides slice and key: headers and prefix."""


@dataclass(frozen=True, slots=True)
class LargeMessageOptions(Messages):
    """The options of a reader for message segments.

    ``dead_letters`` adds dropped messages to the rows. ``safe_offsets`` commits safe offsets,
    whether the reader or another step of the query reassembles.
    """

    enabled: bool = from_option("large.message.enabled")
    dead_letters: bool = from_option("large.message.dead.letters")
    safe_offsets: bool = False
    settings: AssemblerSettings = field(default_factory=AssemblerSettings)

    @property
    def columns(self) -> Mapping[str, str]:
        """See :attr:`.contracts.ExtensionOptions.columns`."""
        return dict([DROPPED_FIELD]) if self.dead_letters else {}

    @property
    def are_joined(self) -> bool:
        """See :attr:`.messages.Messages.are_joined`."""
        return self.enabled

    @property
    def need_metadata(self) -> bool:
        """See :attr:`.messages.Messages.need_metadata`."""
        return self.enabled or self.safe_offsets

    def load(self) -> None:
        """See :meth:`.messages.Messages.load`."""
        if self.settings.deserializer is not None:
            from pyspark_kafkalog.extensions.large_messages.serializers import SegmentDeserializer

            SegmentDeserializer(self.settings.deserializer)

    def check_start(self, options: ReadOptions, place: Place) -> None:
        """See :meth:`.messages.Messages.check_start`: it refuses an offset of a compacted topic."""
        starting = options.starting
        values = starting.at(0)
        if not self.enabled or starting.are_timestamps or isinstance(values, int):
            return
        offsets = {partition: offset for partition, offset in sorted(values.items()) if offset > 0}
        topics = {partition.topic for partition in offsets}
        policies = {topic: cleanup_policies(place.topic_config(topic)) for topic in topics}
        for partition, offset in offsets.items():
            if "compact" in policies[partition.topic]:
                raise OptionError(
                    f"Option {starting.option!r} names an offset of a compacted topic, where earlier message"
                    " segments may be gone",
                    topic_partition=partition,
                    offset=offset,
                    hint="Start at earliest, latest, a timestamp or a group's committed offsets.",
                )

    def reader(self, place: Place, rules: ReadRules, on_dropped: OnDropped | None = None) -> SplitReader:
        """See :meth:`.messages.Messages.reader`."""
        if not self.enabled:
            from pyspark_kafkalog.read.ranges import RecordReader

            return RecordReader(place, rules)
        from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader

        return WholeMessageReader(place, rules, self, on_dropped)

    def start_from(self, groups: CommittedOffsets) -> CommittedOffsets:
        """See :meth:`.messages.Messages.start_from`: not the safe offset before the first wanted one."""
        if not self.enabled:
            return groups
        from pyspark_kafkalog.extensions.large_messages.safe_offsets import WantedOffsets

        return WantedOffsets(groups)

    def as_committed(
        self, open_place: Callable[[], Place], rules: ReadRules
    ) -> Callable[[Offsets], Mapping[TopicPartition, CommittedOffset]] | None:
        """See :meth:`.messages.Messages.as_committed`."""
        if not self.safe_offsets:
            return None
        from pyspark_kafkalog.extensions.large_messages.looking_back import OpenMessages
        from pyspark_kafkalog.extensions.large_messages.safe_offsets import SafeOffsets

        return SafeOffsets(OpenMessages(open_place, rules, self.settings))


@dataclass(frozen=True, slots=True)
class SplitOptions(Splitting):
    """The options of a writer that makes message segments of large values."""

    settings: SplitterSettings

    def load(self) -> None:
        """See :meth:`.splitting.Splitting.load`."""
        if self.settings.serializer is not None:
            self.splitter()

    def splitter(self) -> Splitter:
        """See :meth:`.splitting.Splitting.splitter`: with random UUIDs (version 4) as message ids."""
        from pyspark_kafkalog.extensions.large_messages.message_ids import random_ids
        from pyspark_kafkalog.extensions.large_messages.splitter import Splitter

        return Splitter(self.settings, random_ids)


def assembler_settings(user: UserOptions) -> AssemblerSettings:
    """The settings of the assembler, for a reader or for ``reassemble``.

    :raises OptionError: for a value that is malformed or out of bounds.
    """
    return AssemblerSettings(
        buffer_capacity=user.value("message.assembler.buffer.capacity"),
        expiration_offset_gap=user.value("message.assembler.expiration.offset.gap"),
        exception_on_message_dropped=user.value("exception.on.message.dropped"),
        expiration_ms=user.value("message.assembler.expiration.ms"),
        deserializer=user.value("segment.deserializer.class"),
    )


def large_message_options(user: UserOptions) -> LargeMessageOptions | None:
    """The options of a reader for large messages; None if it joins none, and does not say so.

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
            "Option 'segment.deserializer.class' is set, but this reader does not look for message segments",
            hint="Set 'large.message.enabled' to true as well.",
        )
    if not (enabled or large_messages.safe_offsets):
        _say_without_effect(user.names("message.assembler.", "segment.deserializer.class"))
    if not enabled:
        _say_without_effect(user.names("exception.on.message.dropped"))
    elif _ONLY_REASSEMBLE in user:
        log_once(
            logging.WARNING, "Option %s has no effect on a reader: only reassemble uses it", _ONLY_REASSEMBLE
        )
    is_asked = large_messages.need_metadata or "large.message.enabled" in user
    return large_messages if is_asked else None


def split_options(user: UserOptions, write: WriteOptions) -> SplitOptions | None:
    """The options of a writer for large messages; None if it splits none.

    :raises OptionError: for malformed values, a serializer of nothing, or if no message segment could fit.
    """
    encode, name = write.encode_settings, "max.message.segment.bytes"
    largest_batch, wanted = encode.max_message_bytes, user.value(name)
    size = min(wanted, largest_batch)
    settings = SplitterSettings(
        size,
        timestamp_header=user.value("header.timestamp.enabled"),
        header_only=user.value("li.record.header.enable"),
        wrap=user.value("li.large.message.segment.wrapping.required"),
        serializer=user.value("segment.serializer"),
        expiration_offset_gap=user.value(GAP),
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
        _say_without_effect(given for given in (*_OF_THE_SPLITTER, "segment.serializer") if given in user)
        return None
    most = largest_batch - _LEAST_OVERHEAD
    if write.compression == "none" and size > most:
        to_brokers = write.brokers is not None
        limit = "kafka.max.request.size" if to_brokers else encode.limit.removeprefix("the option ")
        hint = f"Raise {limit!r}"
        if most > 0:
            hint += f", or lower {name!r} to at most {most} minus the size of the longest key and headers"
        raise OptionError(
            f"Option {name!r} is {wanted}: record batches with message segments of {size} bytes exceed"
            f" {limit} = {largest_batch}",
            hint=f"{hint}.",
        )
    return SplitOptions(settings)


def _say_without_effect(names: Iterable[str]) -> None:
    for name in names:
        log_once(logging.WARNING, "Option %s has no effect without large.message.enabled", name)
