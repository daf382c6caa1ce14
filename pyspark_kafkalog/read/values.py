"""The keys and values of a read: bytes, unless an extension decodes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.model import TopicPartition
    from pyspark_kafkalog.options.settings import ReadOptions

    Decode: TypeAlias = Callable[[Iterable[pa.RecordBatch], TopicPartition], Iterator[pa.RecordBatch]]
    """Decodes the rows of one partition."""


class DecodedColumn(Protocol):
    """The decoder of one column. It is sent to the tasks."""

    @property
    def name(self) -> str:
        """The column."""

    @property
    def reads(self) -> Sequence[str]:
        """The columns of records that it needs."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The columns that it makes.

        :raises OptionError: if the type of one is not known.
        """

    @property
    def ids(self) -> Mapping[str, pa.DataType]:
        """The columns with the ids of schemas."""

    def part(self, wanted: pa.Schema) -> DecodedColumn | None:
        """The decoder of these columns, or of the parts of structs in them; None for other columns.

        :raises OptionError: if what is wanted isn't a part of what it makes.
        """


class Values(ExtensionOptions):
    """The decoding of keys and values. The core decodes none."""

    __slots__ = ()

    @property
    def decoded(self) -> Collection[str]:
        """The columns of records that are decoded: ``key``, ``value``."""
        return ()

    def columns_of(self, options: ReadOptions) -> tuple[DecodedColumn, ...]:
        """The decoder of each decoded column.

        :raises OptionError: for a schema that can't be read, or is that of several topics.
        :raises SchemaRegistryError: if a registry is asked, and has none.
        """
        return ()

    def decoding(self, columns: Iterable[DecodedColumn], zone: str = "UTC") -> Decode | None:
        """The decoding of a task's rows; None if no column is decoded.

        :param zone: the name of the time zone of times that have none.
        """
        return None


def values_of(options: ReadOptions) -> Values:
    """The keys and values of this read."""
    return implementing(Values, options.extensions)
