"""The settings by which large messages are joined and split, with LinkedIn's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafkalog.options.table import from_option

GAP = "message.assembler.expiration.offset.gap"


@dataclass(frozen=True, slots=True)
class AssemblerSettings:
    """The limits of message segments that wait for the rest of their message (LargeMessageBufferPool).

    Bytes, offsets and milliseconds. With an ``expiration_ms`` of None they wait for ever on a partition
    that gets no more records. The first two are at least 1. ``deserializer`` is ``module:name``.
    """

    buffer_capacity: int = from_option("message.assembler.buffer.capacity")
    expiration_offset_gap: int = from_option(GAP)
    exception_on_message_dropped: bool = from_option("exception.on.message.dropped")
    expiration_ms: int | None = from_option("message.assembler.expiration.ms")
    deserializer: str | None = from_option("segment.deserializer.class")


@dataclass(frozen=True, slots=True)
class SplitterSettings:
    """The settings of the splitter of large messages (LinkedIn's LiKafkaProducerConfig).

    Values above ``segment_bytes`` are split. With ``header_only`` values get no prefix. With ``wrap`` a
    smaller message becomes one message segment. ``serializer`` is ``module:name``. Readers wait
    ``expiration_offset_gap`` offsets for the rest of a message.
    """

    segment_bytes: int = from_option("max.message.segment.bytes")
    timestamp_header: bool = from_option("header.timestamp.enabled")
    header_only: bool = from_option("li.record.header.enable")
    wrap: bool = from_option("li.large.message.segment.wrapping.required")
    serializer: str | None = from_option("segment.serializer")
    expiration_offset_gap: int = from_option(GAP)
