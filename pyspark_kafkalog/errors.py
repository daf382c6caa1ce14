"""Every error that pyspark-kafkalog raises on purpose.

An error says what was wrong, where (topic-partition, offset, file, byte
position, broker) and what to do. The place is in attributes and in the text,
because only the text gets from a Python worker to the user. Messages never quote
option values that may be secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_LONGEST = 2000
"""Characters of a message about a schema."""
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""The errors of parsing stored JSON that this package has not written."""


class KafkaLogError(Exception):
    """Base of all errors of this package.

    :param message: what was wrong, one sentence without a final full stop.
    :param topic_partition: where: ``topic-partition``, or anything whose str() gives that.
    :param offset: the offset of the record, or the next expected offset.
    :param file: path or URI of the file.
    :param position: byte position in ``file``, or in the buffer where there is no file.
    :param broker: ``host:port`` of the broker.
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
                ("partition", None if self._names_partition else self.topic_partition),
                ("offset", self.offset),
                ("file", self.file),
                ("byte", self.position),
                ("broker", self.broker),
            )
            if value is not None
        ]
        text = self.message + (f" ({', '.join(place)})" if place else "")
        return f"{text}. {self.hint}" if self.hint else text

    @property
    def _names_partition(self) -> bool:
        """Whether the message ends with the partition, so that the place need not name it again."""
        return self.topic_partition is not None and self.message.endswith(f": {self.topic_partition}")

    def with_hint(self, hint: str | None) -> KafkaLogError:
        """The same error, at the same place, with another hint or none."""
        _, (kind, message, place) = self.__reduce__()
        return _rebuild(kind, message, {**place, "hint": hint})

    def as_public(self) -> KafkaLogError:
        """The same error as the class of this module that it belongs to: others are internal."""
        kind = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        if kind is type(self):
            return self
        _, (_, message, place) = self.__reduce__()
        assert issubclass(kind, KafkaLogError), "it is one itself"
        return _rebuild(kind, message, place)

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


class RegistrationError(KafkaLogError):
    """Spark's workers can't load this package."""


class OptionError(KafkaLogError, ValueError):
    """An option, column or schema of the user cannot be used; raised before any work starts."""


class CorruptRecordError(KafkaLogError):
    """Bytes are not a valid record batch or message set (Kafka's CorruptRecordException)."""


class OversizedRecordError(KafkaLogError):
    """A compressed record is larger than ``maxRecordBytes``. It may be valid, so nothing skips it.

    :param next_offset: the first offset after its record batch.
    """

    def __init__(self, message: str, *, next_offset: int | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.next_offset = next_offset

    def within(self, topic_partition: object, file: str | None, begin: int) -> OversizedRecordError:
        """The same error of a record in a buffer, which begins at the position ``begin`` of ``file``."""
        return OversizedRecordError(
            self.message,
            topic_partition=topic_partition,
            offset=self.offset,
            file=file,
            position=begin + (self.position or 0),
            hint=self.hint,
            next_offset=self.next_offset,
        )


class DataLossError(KafkaLogError):
    """Records that the query should read are gone; see the option ``failOnDataLoss``.

    :param next_offset: the first later offset that exists; None if all the rest is gone. The same as
        ``offset`` if nothing is gone, but the log is no longer the planned one.
    """

    def __init__(self, message: str, *, next_offset: int | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.next_offset = next_offset


class UnconfirmedError(KafkaLogError):
    """Planned records may be gone: the reader must look them up. Users never see this."""


class OverlapError(KafkaLogError):
    """A record batch begins before a log's end, and ends behind it. Users never see this."""


class LogDirectoryError(KafkaLogError):
    """A log directory cannot be read or written: its layout, names or checkpoints are wrong."""


class LogDirectoryLockedError(LogDirectoryError):
    """The ``.lock`` of the log directory is held by another writer, or by a running broker."""


class UnknownTopicOrPartitionError(KafkaLogError):
    """A named topic or partition does not exist."""


class TopicExistsError(KafkaLogError):
    """A topic cannot be created, as it exists already."""


class RecordTooLargeError(KafkaLogError):
    """A record exceeds ``max.message.bytes`` (Kafka's RecordTooLargeException)."""


class InvalidRecordError(KafkaLogError):
    """A row cannot be stored as a record: null topic, unknown partition, bad timestamp."""


class BrokerError(KafkaLogError):
    """A broker answered with an error, or with an answer that cannot be understood."""


class BrokerConnectionError(BrokerError):
    """A broker cannot be reached, its connection broke, or it did not answer in time."""


class AuthenticationError(BrokerError):
    """Credentials or a certificate were not accepted; trying again does not help."""


class AuthorizationError(BrokerError):
    """The cluster's ACLs deny a request."""


class UnsupportedVersionError(BrokerError):
    """The broker does not know a request, or only other versions of it."""


class FencedError(BrokerError):
    """Another producer has taken over the producer or transactional id (Kafka's ProducerFencedException)."""


class TransactionError(KafkaLogError):
    """A batch could not be committed as one transaction, or it is uncertain what was committed before."""


class GroupError(KafkaLogError):
    """A consumer group does not allow a request, because of its live members or its state."""


class ZooKeeperError(KafkaLogError):
    """ZooKeeper cannot be reached, denies a request, or holds what cannot be understood."""


class SchemaRegistryError(KafkaLogError):
    """A schema registry cannot be reached, denies a request, or does not know a schema."""


class SchemaError(KafkaLogError, ValueError):
    """A schema of values is not valid, has no type in Spark, or does not fit the reader's schema.

    Schemas are of any size, so a long message is cut off.
    """

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(message[:_LONGEST], **place)


class LargeMessageDroppedError(KafkaLogError):
    """A large message was dropped by a full buffer, or has contradictory message segments; see the option
    ``exception.on.message.dropped``."""


def why(error: KafkaLogError) -> str:
    """The reason why one of several partitions can't be used: the message and place, without a hint."""
    where = error.file if error.broker is None else f"broker {error.broker}"
    return error.message if where is None else f"{error.message} ({where})"


def together(errors: Mapping[Any, KafkaLogError]) -> KafkaLogError:
    """A single error for all of these partitions: that of the first, whose hint names the others."""
    first, *others = sorted(errors)
    error, reasons = errors[first], dict[str, list[Any]]()
    for partition in others:
        reasons.setdefault(why(errors[partition]), []).append(partition)
    if not reasons:
        return error
    named = "; ".join(f"{listed(partitions, 20)}: {reason}" for reason, partitions in reasons.items())
    return error.with_hint(f"Nor can be used {named}.{f' {error.hint}' if error.hint else ''}")


def no_such_partition(
    partitions: Collection[Any], *, hint: str | None = None, file: str | None = None
) -> UnknownTopicOrPartitionError:
    """The error of partitions that do not exist.

    :param hint: which partitions exist, as :func:`.options.user_options.partitions_like` says it.
    :param file: the path or URI of the log directory.
    """
    first = min(partitions)
    return UnknownTopicOrPartitionError(
        f"No such partition: {listed(partitions, 20)}",
        topic_partition=first if len(partitions) == 1 else None,
        file=file,
        hint=hint,
    )


def numbered(count: int) -> str:
    """The number of partitions for a message, and how they count."""
    return f"{count} partitions, 0 to {count - 1}" if count > 1 else "1 partition, 0" if count else "none"


def listed(partitions: Collection[Any], limit: int) -> str:
    """The ``partitions`` for a message: at most ``limit`` of them, in order, and how many more there are."""
    names = ", ".join(map(str, sorted(partitions)[:limit]))
    return names if len(partitions) <= limit else f"{names} and {len(partitions) - limit} more"
