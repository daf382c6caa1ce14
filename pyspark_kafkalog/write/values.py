"""What the keys and values of a write are: bytes, unless an extension encodes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.options.settings import WriteOptions

EncodedColumn: TypeAlias = Any
"""What encodes one column. It is sent to the tasks, and only the extension looks into it."""


class WrittenValues(ExtensionOptions):
    """How keys and values are encoded. The core encodes none."""

    __slots__ = ()

    @property
    def encoded(self) -> Collection[str]:
        """The columns of rows that are encoded: ``key``, ``value``."""
        return ()

    def columns_of(self, options: WriteOptions, given: pa.Schema) -> tuple[EncodedColumn, ...]:
        """What encodes each of them.

        :param given: the columns of the rows.
        :raises OptionError: for columns that can't be encoded so.
        :raises SchemaError: if a column does not fit its schema; it names the field.
        :raises SchemaRegistryError: if a registry has no schema, refuses one, or does not answer.
        """
        return ()

    def encoding(self, columns: Iterable[EncodedColumn]) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        """What encodes the rows of a task; None if nothing does."""
        return None


def written_values_of(options: WriteOptions) -> WrittenValues:
    """What the keys and values of this write are."""
    return implementing(WrittenValues, options.extensions)
