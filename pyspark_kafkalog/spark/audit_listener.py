"""Reports on the driver, after every micro-batch, what streaming queries wrote and read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_kafkalog.errors import KafkaLogError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("pyspark_kafkalog")


class AuditListener(StreamingQueryListener):
    """Reports the counts of each micro-batch: ``spark.streams.addListener(AuditListener("/audit"))``.

    :param location: the ``auditLocation`` of the queries.
    :param echo: called with each count as one line, for example ``print``; None logs it at INFO.
    """

    def __init__(self, location: str, *, echo: Callable[[str], object] | None = None) -> None:
        self._location = location
        self._echo = echo

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to report yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report what the tasks of the micro-batch counted."""
        from pyspark_kafkalog.audit.counting import CONSUMER, PRODUCER, batch_report

        progress = event.progress
        try:
            for side in PRODUCER, CONSUMER:
                for line in batch_report(self._location, side, str(progress.id), progress.batchId):
                    if self._echo is None:
                        _log.info("%s", line)
                    else:
                        self._echo(line)
        except (KafkaLogError, OSError, ValueError):  # files that something else may have put there
            _log.warning("Cannot read the audit of query %s", progress.id, exc_info=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """No micro-batch, no counts."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """All counts have been reported already."""
