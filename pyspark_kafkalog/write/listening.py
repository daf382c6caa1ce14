"""Whether anything listens to a write: nothing does, unless an extension does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    from pyspark_kafkalog.model import QueryBatch, TaskAttempt
    from pyspark_kafkalog.model.listening import WriteListener
    from pyspark_kafkalog.options.settings import WriteOptions


class Listening(ExtensionOptions):
    """The listeners of a write. The core has none."""

    __slots__ = ()

    def load(self) -> None:
        """Import what the options name, before any work begins.

        :raises OptionError: if that can't be imported, or nothing could call it.
        """

    def of_task(
        self, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool
    ) -> AbstractContextManager[WriteListener | None]:
        """The listener of one task, while the context lasts; None if nothing listens.

        :param awaits_commit: whether the task only stages record batches.
        """
        return nullcontext()

    def heard(self, listener: WriteListener | None) -> Any:
        """The news of a task for :meth:`of_commit`, once its context has ended well; it is pickled."""
        return None

    def of_commit(
        self, batch: QueryBatch, heard: Sequence[Any]
    ) -> AbstractContextManager[WriteListener | None]:
        """The listener of a commit on the driver, while the context lasts; None if nothing listens.

        The context never raises at its end: a batch that is committed must not fail.

        :param heard: the news of the tasks whose record batches are committed.
        """
        return nullcontext()


def listening_of(options: WriteOptions) -> Listening:
    """The listeners of this write."""
    return implementing(Listening, options.extensions)
