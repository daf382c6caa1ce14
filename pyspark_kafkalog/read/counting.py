"""Whether the messages of a read are counted as they pass: not, unless an extension does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.model import QueryBatch
    from pyspark_kafkalog.options.settings import ReadOptions
    from pyspark_kafkalog.read.splits import Split


class SplitCount(Protocol):
    """Counts what is read of one split."""

    @property
    def dropped(self) -> Callable[[Sequence[Any]], None]:
        """Called with messages that can't be completed."""

    def passing(self, arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, counted as they pass."""


class ReadCounting(ExtensionOptions):
    """The counting of what is read. The core counts nothing."""

    __slots__ = ()

    @property
    def is_set(self) -> bool:
        """Whether anything counts."""
        return False

    def counted_columns(self) -> Collection[str]:
        """The columns of records that the counter needs, whether or not the query reads them.

        :raises OptionError: if what counts can't be imported.
        """
        return ()

    def of_split(self, split: Split, batch: QueryBatch, number: int | None = None) -> SplitCount | None:
        """The counter of a split's rows; None if nothing counts.

        :param batch: that the split is a share of. Read again under this name, it replaces what was counted.
        :param number: of the split in a batch that counts once :meth:`all_read` is called; None where each
            split counts when it has been read.
        """
        return None

    def all_read(self, batch: QueryBatch, splits: int) -> None:
        """Count what was read of a batch of this many numbered splits.

        :raises KafkaLogError: if that can't be noted.
        """


def read_counting_of(options: ReadOptions) -> ReadCounting:
    """The counting of this read's messages."""
    return implementing(ReadCounting, options.extensions)
