"""Lets queries with ``Trigger.AvailableNow`` end although timers of processing time may be set in them.

Where such timers are possible Spark's ``shouldRunAnotherBatch`` asks for one micro-batch without data
after the other, whatever the trigger is, and a query with ``availableNow`` ends when nothing asks for
another micro-batch. Spark's own conf against it has to be set before a query starts, and only there the
trigger is known: in the listener that Spark calls while it starts a query, on the query's own session.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_kafkalog.options.user_options import log_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_AVAILABLE_NOW = "AvailableNowTrigger"


class _AvailableNow(StreamingQueryListener):
    """For the queries of one session."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self.metrics: set[str] = set()
        """Names of the observed metrics in the plans of queries that have timers."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark waits for this before it looks at the conf."""
        try:
            query = self._manager.get(str(event.id)).streamingQuery()
            if query.trigger().toString() != _AVAILABLE_NOW:
                return
            plan = query.analyzedPlan().toString()
            if any(metric in plan for metric in self.metrics):
                query.sparkSessionForStream().conf().set(_NO_DATA, "false")
        except Exception as error:  # Of whatever release of Spark has these names no more.
            _tell(logging.WARNING, f" ({error})")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing."""


_listeners: WeakKeyDictionary[SparkSession, _AvailableNow] = WeakKeyDictionary()


def end_with_data(spark: SparkSession, metric: str) -> None:
    """Let queries in whose plan ``metric`` is observed end with their data, if that is their trigger.

    Spark Connect has no way to do so: what to set is logged.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        _tell(logging.INFO)
        return
    if spark not in _listeners:
        _listeners[spark] = _AvailableNow(session.streams())
        spark.streams.addListener(_listeners[spark])
    _listeners[spark].metrics.add(metric)


def _tell(level: int, why: str = "") -> None:
    log_once(
        level,
        "Where large messages expire by time, a query with availableNow ends only if it was started with"
        " %s=false%s",
        _NO_DATA,
        why,
    )
