"""The options of callbacks and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.filesystem.hadoop import check_outside
from pyspark_kafkalog.options.settings import log_directories
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import METRICS
from pyspark_kafkalog.write.listening import Listening

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.callbacks.listener import CallbackListener, Heard, TaskListener
    from pyspark_kafkalog.model import QueryBatch, TaskAttempt
    from pyspark_kafkalog.model.listening import WriteListener


@dataclass(frozen=True, slots=True)
class CallbackOptions(Listening):
    """``callback`` is ``module:name``, or None if only metrics are counted; without a ``location`` they are
    only logged.

    The location is not shown, because a URI may hold a secret.
    """

    callback: str | None = None
    location: str | None = field(default=None, repr=False)

    def load(self) -> None:
        """See :meth:`.listening.Listening.load`.

        :raises LogDirectoryError: if the location can't be opened.
        """
        from pyspark_kafkalog.extensions.callbacks.listener import load_callback
        from pyspark_kafkalog.filesystem.locate import locate

        if self.callback is not None:
            load_callback(self.callback)
        if self.location is not None:
            locate(self.location)

    def of_task(
        self, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool
    ) -> AbstractContextManager[TaskListener]:
        """See :meth:`.listening.Listening.of_task`.

        :raises OptionError: if the class can't be imported here.
        """
        from pyspark_kafkalog.extensions.callbacks.listener import listener_of_task

        return listener_of_task(self, batch, attempt, awaits_commit=awaits_commit)

    def heard(self, listener: WriteListener | None) -> Heard:
        """See :meth:`.listening.Listening.heard`."""
        from pyspark_kafkalog.extensions.callbacks.listener import TaskListener

        assert isinstance(listener, TaskListener), "of_task has made it"
        return listener.heard()

    def of_commit(self, batch: QueryBatch, heard: Sequence[Any]) -> AbstractContextManager[CallbackListener]:
        """See :meth:`.listening.Listening.of_commit`."""
        from pyspark_kafkalog.extensions.callbacks.listener import listener_of_commit

        return listener_of_commit(self, batch, heard)


def callback_options(user: UserOptions) -> CallbackOptions:
    """The options of a write that has some.

    :raises OptionError: for malformed values.
    """
    given, location = user.value("callback.class"), user.value("metricsLocation")
    if location is not None:
        check_outside(log_directories(user), location, "metricsLocation")
    return CallbackOptions(None if given == METRICS else given, location)
