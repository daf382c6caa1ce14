"""The division of a write's records: none is divided, unless an extension says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pyspark_kafkalog.model import TopicPartition
    from pyspark_kafkalog.options.settings import WriteOptions


class Divided(Protocol):
    """Records, of which one may be written as several."""

    @property
    def whole(self) -> pa.RecordBatch:
        """A row for each record, by which it gets its partition."""

    def check_uncut(self, rows: np.ndarray | None, partition: TopicPartition) -> None:
        """See that compaction would take nothing away of these rows; None for all.

        :raises RecordTooLargeError: naming one that is written as several records.
        """

    def of(
        self, rows: np.ndarray | None, partition: TopicPartition
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray | None]]:
        """The records to write for these rows, in parts, and the numbers of the wanted ones; None for all."""


class AsTheyAre:
    """Records that nothing divides, as the encoder takes them: see :class:`Divided`."""

    def __init__(self, whole: pa.RecordBatch) -> None:
        self.whole = whole

    def check_uncut(self, rows: np.ndarray | None, partition: TopicPartition) -> None:
        """Accept all rows: as nothing is cut, compaction takes nothing away."""

    def of(
        self, rows: np.ndarray | None, partition: TopicPartition
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray | None]]:
        """The records, and the numbers of the wanted ones; None for all."""
        yield self.whole, rows


class RecordSplitter(Protocol):
    """Divides the records of one task."""

    def split(self, records: pa.RecordBatch) -> Divided:
        """Divide records with the columns key, value, headers and timestamp, as the encoder takes them.

        :raises RecordTooLargeError: for a value that can't be divided.
        """


class Splitting(ExtensionOptions):
    """Whether values are split. The core splits none."""

    __slots__ = ()

    def load(self) -> None:
        """Import what the options name.

        :raises OptionError: if that can't be imported.
        """

    def splitter(self) -> RecordSplitter | None:
        """The splitter of one task's values; None if nothing splits them."""
        return None


def splitting_of(options: WriteOptions) -> Splitting:
    """The splitting of this write's values."""
    return implementing(Splitting, options.extensions)
