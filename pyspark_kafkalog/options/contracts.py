"""The contracts between the core and the options of extensions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.errors import KafkaLogError
    from pyspark_kafkalog.model import QueryBatch
    from pyspark_kafkalog.model.groups import GroupOffsets
    from pyspark_kafkalog.model.sinks import Sink
    from pyspark_kafkalog.options.brokers import ConnectionOptions
    from pyspark_kafkalog.options.settings import ReadOptions, WriteOptions

_Contract = TypeVar("_Contract", bound="ExtensionOptions")


class ExtensionOptions:
    """The options of one extension, which implement contracts of the rooms that call it.

    A contract is a class below this one. Its own methods do what the core does without extensions.
    """

    __slots__ = ()

    @property
    def columns(self) -> Mapping[str, str]:
        """Name and Spark type of the columns that it adds to those of records."""
        return {}

    @property
    def for_tasks(self) -> ExtensionOptions:
        """The part of the options that is sent to the tasks of a write."""
        return self

    def check(self, read: ReadOptions) -> None:
        """Refuse what can't go together in a batch or a stream.

        :raises OptionError: naming an option.
        """


def implementing(contract: type[_Contract], extensions: Iterable[ExtensionOptions]) -> _Contract:
    """The implementation of a contract: that of the one extension that has it, or else the core's."""
    return next((found for found in extensions if isinstance(found, contract)), None) or contract()


class RowTransform(Protocol):
    """A function that takes rows as an Arrow batch, and returns them changed."""

    path: str
    """The import path of the function, for errors."""
    given: list[str]
    """The names of the columns that it gets."""
    schema: pa.Schema
    """The columns that it returns, all nullable."""

    def __call__(
        self, rows: pa.RecordBatch, *, topic_partition: object | None = None, offset: int | None = None
    ) -> pa.RecordBatch:
        """The transformed ``rows``: any number of rows, all of :attr:`schema`.

        :param topic_partition: where the rows are from, and ``offset`` that of the first one, for errors.
        :raises KafkaLogError: if it raises anything, or returns something else.
        """

    def error(self, did: str, **place: Any) -> KafkaLogError:
        """The error that it ``did`` this, at a place."""


class Transforms(ExtensionOptions):
    """Whether a function changes rows: last in a read, first in a write. The core has none."""

    __slots__ = ()

    @property
    def is_set(self) -> bool:
        """Whether one does."""
        return False

    def load(self, given: pa.Schema, promised: pa.Schema | None = None) -> RowTransform | None:
        """The function; None without one.

        :param given: the columns that it gets.
        :param promised: the columns that it returned where the query was planned; None there.
        :raises OptionError: if it can't be imported, or returns no columns, or others than promised, when it
            is called with no rows.
        """
        return None


def transforms_of(options: ReadOptions | WriteOptions) -> Transforms:
    """Whether a function changes the rows of this read or write."""
    return implementing(Transforms, options.extensions)


class Delivery(ExtensionOptions):
    """The delivery of rows to brokers: at least once, unless an extension does it exactly once."""

    __slots__ = ()

    @property
    def source_group(self) -> str | None:
        """The group that gets the offsets that a micro-batch has read, with its rows; None for none."""
        return None

    def check_stream(self) -> None:
        """Check the options of a streaming query.

        :raises OptionError: if one is missing.
        """

    def open_sink(self, options: WriteOptions, batch: QueryBatch | None) -> Sink[Any] | None:
        """The sink of the brokers that the options name; None for one that shows rows as they are written.

        :param batch: of a job, which begins now; None for a query.
        :raises KafkaLogError: if rows can't be kept where the options say.
        """
        return None


def delivery_of(options: WriteOptions) -> Delivery:
    """The delivery of this write's rows to brokers."""
    return implementing(Delivery, options.extensions)


class OffsetsStore(ExtensionOptions, ABC):
    """A store of groups' offsets beside Kafka, or instead of it."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_alone(self) -> bool:
        """Whether the offsets are here alone."""

    @abstractmethod
    def bootstrap_servers(self, brokers: ConnectionOptions) -> tuple[str, ...]:
        """The brokers of the cluster, ``host:port``, for options that name none.

        :raises BrokerConnectionError: if there are none.
        """

    @abstractmethod
    def open_groups(self, brokers: ConnectionOptions, *, timeout: float | None) -> GroupOffsets:
        """The groups of the cluster, for this thread.

        :param timeout: seconds that one call may take; None for the options' own.
        """
