"""Lets queries with ``Trigger.AvailableNow`` end even if they may have processing-time timers.

With such timers Spark's ``shouldRunAnotherBatch`` asks for one micro-batch without data after
another, whatever the trigger, and a query with ``availableNow`` ends only when nothing asks for another
micro-batch. The conf that turns this off must be set before the query starts, but only the listener
that Spark calls meanwhile knows the trigger. So the listener sets it, on the query's own session.
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
    """Watches the queries of one session."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self.metrics: set[str] = set()
        """The names of observed metrics in the plans of queries that have timers."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Set the conf; Spark reads it after this returns."""
        try:
            query = self._manager.get(str(event.id)).streamingQuery()
            if query.trigger().toString() != _AVAILABLE_NOW:
                return
            plan = query.analyzedPlan().toString()
            if any(metric in plan for metric in self.metrics):
                query.sparkSessionForStream().conf().set(_NO_DATA, "false")
        except Exception as error:  # A release of Spark may lack these names.
            _log_conf(logging.WARNING, f" ({error})")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""


_listeners: WeakKeyDictionary[SparkSession, _AvailableNow] = WeakKeyDictionary()


def end_with_data(spark: SparkSession, metric: str) -> None:
    """Let queries that observe ``metric`` end with their data, if their trigger is ``availableNow``.

    Under Spark Connect this is impossible, so the conf to set is logged.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        _log_conf(logging.INFO)
        return
    if spark not in _listeners:
        _listeners[spark] = _AvailableNow(session.streams())
        spark.streams.addListener(_listeners[spark])
    _listeners[spark].metrics.add(metric)


def _log_conf(level: int, why: str = "") -> None:
    log_once(
        level,
        "If large messages expire by time, a query with availableNow ends only if started with %s=false%s",
        _NO_DATA,
        why,
    )
