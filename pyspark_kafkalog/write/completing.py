"""Completes a batch: the sink commits it, and what listens and what counts hear of that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafkalog.model.rows import time_text
from pyspark_kafkalog.options.times import in_other_unit, with_iso
from pyspark_kafkalog.write.counting import write_counting_of
from pyspark_kafkalog.write.listening import listening_of

if TYPE_CHECKING:
    from pyspark_kafkalog.model import Plan, QueryBatch
    from pyspark_kafkalog.model.sinks import Sink
    from pyspark_kafkalog.options.settings import WriteOptions

_log = logging.getLogger("pyspark_kafkalog")


class TaskNews(NamedTuple):
    """The news of a task for the commit: for the sink, of its listener, and of its counter. Pickled.

    A ``doubtful_time`` is a timestamp of a row that looks like one in another unit.
    """

    finished: Any
    heard: Any = None
    counted: Any = None
    doubtful_time: int | None = None


def complete(
    options: WriteOptions,
    sink: Sink[Any],
    batch: QueryBatch,
    news: Sequence[TaskNews],
    plan: Plan,
    *,
    tasks: int,
) -> None:
    """Commit what the tasks of a batch have written, and count it as visible.

    A count that fails is only logged: it must not make anyone write all rows again.

    :param tasks: how many there were.
    :raises KafkaLogError: if the sink can't commit.
    """
    with listening_of(options).of_commit(batch, [of_task.heard for of_task in news]) as listener:
        is_new = sink.commit(batch, [of_task.finished for of_task in news], plan, listener)
        if listener is not None and not is_new:
            listener.found_there()
    try:
        counted = [of_task.counted for of_task in news]
        write_counting_of(options).committed(batch, tasks, counted, is_new=is_new)
    except Exception:
        _log.warning("%s was written, but its audit is incomplete", batch.job, exc_info=True)
    doubtful = (of_task.doubtful_time for of_task in news if of_task.doubtful_time is not None)
    for timestamp in islice(doubtful, 1):
        _warn_of_unit(batch, timestamp)


_warned: set[str] = set()
"""The queries of which :func:`_warn_of_unit` has spoken."""


def _warn_of_unit(batch: QueryBatch, timestamp: int) -> None:
    """Say once of a query, or of a batch, that a timestamp looks like one in another unit."""
    meant = in_other_unit(timestamp)
    if meant is None or batch.query_id in _warned:
        return
    if batch.batch_id is not None:
        _warned.add(batch.query_id)
    _log.warning(
        "Column timestamp has %s. If a number was taken in the wrong unit, %s is meant: write"
        " timestamp_seconds(n) or timestamp_millis(n) in SQL, pa.timestamp('s', 'UTC') or"
        " pa.timestamp('ms', 'UTC') in Arrow, and milliseconds in lines of JSON",
        with_iso(timestamp),
        time_text(meant),
    )
