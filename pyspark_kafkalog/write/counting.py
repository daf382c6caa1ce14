"""Whether the messages of a write are counted: not, unless an extension does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pyspark_kafkalog.model import QueryBatch, TaskAttempt, TopicPartition
    from pyspark_kafkalog.options.settings import WriteOptions


class CountsRows(Protocol):
    """Counts the rows of a write."""

    def attempted(self, partition: TopicPartition, records: pa.RecordBatch, rows: np.ndarray | None) -> None:
        """Count these rows of ``records``, as the encoder takes them; None for all."""


class WriteCounting(ExtensionOptions):
    """The counting of what is written. The core counts nothing."""

    __slots__ = ()

    def load(self) -> None:
        """Import what counts.

        :raises OptionError: if that can't be imported.
        """

    def of_task(
        self, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool
    ) -> AbstractContextManager[CountsRows | None]:
        """The counter of the rows that a task writes within the context; None if nothing counts.

        :param awaits_commit: whether they are visible only once :meth:`committed` is called.
        """
        return nullcontext()

    def counted(self, count: CountsRows | None) -> Any:
        """The counts of a task for :meth:`committed`, once its context has ended well; they are pickled."""
        return None

    def committed(self, batch: QueryBatch, tasks: int, counted: Sequence[Any], *, is_new: bool) -> None:
        """Count a batch, written by this many tasks, as visible.

        :param counted: the counts of the tasks.
        :param is_new: whether their rows are what is visible; if not, the batch was visible before, and what
            was counted of it then stands.
        :raises KafkaLogError: if that can't be noted.
        """


def write_counting_of(options: WriteOptions) -> WriteCounting:
    """The counting of this write's messages."""
    return implementing(WriteCounting, options.extensions)
