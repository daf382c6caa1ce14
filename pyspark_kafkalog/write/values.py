"""The keys and values of a write: bytes, unless an extension encodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.options.settings import WriteOptions

EncodedColumn: TypeAlias = Any
"""The encoder of one column. It is sent to the tasks, and only the extension looks into it."""


class WrittenValues(ExtensionOptions):
    """The encoding of keys and values. The core encodes none."""

    __slots__ = ()

    @property
    def encoded(self) -> Mapping[str, str]:
        """The columns of rows that are encoded, ``key`` and ``value``, each with its format."""
        return {}

    def columns_of(self, options: WriteOptions, given: pa.Schema) -> tuple[EncodedColumn, ...]:
        """The encoder of each encoded column.

        :param given: the columns of the rows.
        :raises OptionError: for columns that can't be encoded so.
        :raises SchemaError: if a column does not fit its schema; it names the field.
        :raises SchemaRegistryError: if a registry has no schema, refuses one, or does not answer.
        """
        return ()

    def encoding(self, columns: Iterable[EncodedColumn]) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        """The encoding of a task's rows; None if no column is encoded."""
        return None


def written_values_of(options: WriteOptions) -> WrittenValues:
    """The keys and values of this write."""
    return implementing(WrittenValues, options.extensions)
