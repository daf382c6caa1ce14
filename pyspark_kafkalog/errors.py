"""Every error that pyspark-kafkalog raises on purpose.

An error says what was wrong, where (topic-partition, offset, file, byte
position, broker) and what to do. The place is kept in attributes and is part of
the text, because only the text crosses from a Python worker to the user.
Messages never quote option values that may be secret.
"""

from __future__ import annotations

from typing import Any


class KafkaLogError(Exception):
    """Base of all errors of this package.

    :param message: what was wrong, one sentence without a final full stop.
    :param topic_partition: where, as ``topic-partition`` or anything whose str() is that.
    :param offset: the record offset concerned, or the next offset that was expected.
    :param file: path or URI of the file.
    :param position: byte position in ``file``, or in the buffer where there is no file.
    :param broker: ``host:port`` of the broker concerned.
    :param hint: what the user can do, a full sentence.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: object | None = None,
        offset: int | None = None,
        file: str | None = None,
        position: int | None = None,
        broker: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.topic_partition = None if topic_partition is None else str(topic_partition)
        self.offset = offset
        self.file = file
        self.position = position
        self.broker = broker
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        place = [
            f"{name} {value}"
            for name, value in (
                ("partition", self.topic_partition),
                ("offset", self.offset),
                ("file", self.file),
                ("byte", self.position),
                ("broker", self.broker),
            )
            if value is not None
        ]
        text = self.message + (f" ({', '.join(place)})" if place else "")
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            self.message,
            {
                "topic_partition": self.topic_partition,
                "offset": self.offset,
                "file": self.file,
                "position": self.position,
                "broker": self.broker,
                "hint": self.hint,
            },
        )


def _rebuild(kind: type[KafkaLogError], message: str, place: dict[str, Any]) -> KafkaLogError:
    return kind(message, **place)


class OptionError(KafkaLogError, ValueError):
    """A user option, column or schema that cannot be used; raised before any work starts."""


class CorruptRecordError(KafkaLogError):
    """Bytes that are not a valid record batch or message set (Kafka's CorruptRecordException)."""


class DataLossError(KafkaLogError):
    """Records that the query was to read are gone; see the option ``failOnDataLoss``.

    :param next_offset: the first offset behind them that is there; None if all the rest is gone.
    """

    def __init__(self, message: str, *, next_offset: int | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.next_offset = next_offset


class UnconfirmedError(KafkaLogError):
    """What was planned to be read may not be there any more: whoever reads has to look. No user sees it."""


class LogDirectoryError(KafkaLogError):
    """A log directory that cannot be read or written as one: layout, names, checkpoints."""


class LogDirectoryLockedError(LogDirectoryError):
    """Another writer, or a running broker, holds the ``.lock`` of the log directory."""


class UnknownTopicOrPartitionError(KafkaLogError):
    """A topic or partition that was named and does not exist."""


class RecordTooLargeError(KafkaLogError):
    """A record that does not fit ``max.message.bytes`` (Kafka's RecordTooLargeException)."""


class InvalidRecordError(KafkaLogError):
    """A row that cannot be stored as a record: null topic, unknown partition, bad timestamp."""


class BrokerError(KafkaLogError):
    """A broker that answers with an error, or with what cannot be understood."""


class BrokerConnectionError(BrokerError):
    """A broker that cannot be reached, whose connection broke, or that does not answer in time."""


class AuthenticationError(BrokerError):
    """Credentials or a certificate that one side does not accept; trying again does not help."""


class AuthorizationError(BrokerError):
    """The cluster's ACLs deny what was asked."""


class UnsupportedVersionError(BrokerError):
    """A request that the broker does not know, or in other versions only."""


class GroupError(KafkaLogError):
    """A consumer group that does not allow what was asked, by its live members or its state."""


class LargeMessageDroppedError(KafkaLogError):
    """An incomplete large message that the full buffer had to drop; see ``exception.on.message.dropped``."""
