"""Whether the messages of a query are counted as they pass: not, unless an extension does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.model import QueryBatch, TaskAttempt
    from pyspark_kafkalog.options.settings import ReadOptions, WriteOptions
    from pyspark_kafkalog.read.splits import Split
    from pyspark_kafkalog.write.rows import CountsRows


@dataclass(frozen=True, slots=True)
class QueryRun:
    """The name of a query, which Spark may run several times; ``streaming`` if it runs in micro-batches."""

    name: str
    streaming: bool


class SplitCount(Protocol):
    """Counts what a task reads of one split."""

    @property
    def dropped(self) -> Callable[[Sequence[Any]], None]:
        """Called with messages that can't be completed."""

    def passing(self, arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, counted as they pass."""


class Counting(ExtensionOptions):
    """The counting of messages. The core counts none."""

    __slots__ = ()

    def of_split(self, split: Split, run: QueryRun) -> SplitCount | None:
        """The counter of a split's rows; None if nothing counts them."""
        return None

    def of_task(
        self, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool
    ) -> AbstractContextManager[CountsRows | None]:
        """The counter of the rows that a task writes within the context; None if nothing counts them.

        :param awaits_commit: whether they are visible only once :meth:`committed` is called.
        """
        return nullcontext()

    def committed(self, batch: QueryBatch, tasks: int) -> None:
        """Count a batch, written by this many tasks, as visible.

        :raises KafkaLogError: if that can't be noted.
        """


def counting_of(options: ReadOptions | WriteOptions) -> Counting:
    """The counting of this read's or write's messages."""
    return implementing(Counting, options.extensions)
