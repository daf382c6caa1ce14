"""Listeners on the driver: lag, which Spark's progress does not report for Python sources, and audits."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_kafkalog.errors import KafkaLogError, OptionError, listed
from pyspark_kafkalog.extensions.large_messages.reassemble import DROPS_METRIC
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions, log_once
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.saying import show_warnings
from pyspark_kafkalog.spark.features import HAS_LATEST_OFFSETS
from pyspark_kafkalog.tools.groups.lag import QueryLag, SourceLag, source_lag
from pyspark_kafkalog.tools.groups.lag_history import as_html, as_pandas, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from pyspark.sql import Row
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
        StreamingQueryProgress,
    )

_log = logging.getLogger("pyspark_kafkalog")

_MAX_QUERIES = 1000
_NAMED = 5
"""The number of partitions that a warning lists."""
_SPARKS_OWN = "KafkaV2["
"""The beginning of the description of Spark's own Kafka source."""
_RECORD_BYTES_SECONDS = 60.0
"""The time for which the mean sizes of records are cached."""


class LagListener(StreamingQueryListener):
    """Collects the lag of streaming queries: ``spark.streams.addListener(LagListener())``.

    Works for ``format("kafkalog")`` and for Spark's own ``kafka``.

    :param options: the options of the reader. With them the listener asks the place about once a minute how
        large records are, and also reports bytes. Where Spark does not report the latest offsets of Python
        sources, any lag needs the options: the listener then looks up the ends at each event.
    :param keep: how many progress events to keep for each query.
    :param echo: called with each event as one line, for example ``print``.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        keep: int = 100,
        echo: Callable[[str], object] | None = None,
    ) -> None:
        show_warnings()
        self._place = None if options is None else _ReaderPlace(options)
        self._keep = keep
        self._echo = echo
        self._history: dict[str, deque[QueryLag]] = {}

    def __repr__(self) -> str:
        return "\n".join(map(str, self.latest.values())) or "LagListener: no progress of any query yet"

    def _repr_html_(self) -> str:
        return as_html(self.latest.values())

    @property
    def latest(self) -> dict[str, QueryLag]:
        """The last progress of each query, by its id."""
        return {query_id: events[-1] for query_id, events in list(self._history.items())}

    def history(self, query_id: object) -> list[QueryLag]:
        """The kept events of a query, oldest first; ``query_id`` is its ``StreamingQuery.id``."""
        return list(self._history.get(str(query_id), ()))

    def to_pandas(self, query_id: object | None = None) -> DataFrame:
        """The kept events of a query, or of all, as a pandas DataFrame: a row for each partition of each.

        Its columns are ``queryId``, ``name``, ``batchId``, ``timestamp`` (when the trigger began), ``source``
        (its number in the query), ``topic``, ``partition``, ``lag`` (offsets behind the latest), ``rows`` and
        ``processedRowsPerSecond``. The last two are those of the whole micro-batch, in each of its rows.

        :raises ImportError: without pandas.
        """
        return as_pandas(self._events(query_id))

    def plot(self, query_id: object | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the lag of a query, or of all, over time: in total and, if there are few, of each partition.

        :param ax: where to draw, instead of a new figure.
        :raises ImportError: without matplotlib: ``pip install matplotlib``.
        """
        return draw(self._events(query_id), ax)

    def _events(self, query_id: object | None) -> list[QueryLag]:
        if query_id is not None:
            return self.history(query_id)
        return [event for known in list(self._history) for event in self.history(known)]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Record nothing yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Record the progress of the query."""
        lag = self._query_lag(event.progress)
        self._history.setdefault(lag.query_id, deque(maxlen=self._keep)).append(lag)
        while len(self._history) > _MAX_QUERIES:
            del self._history[next(iter(self._history))]
        if self._echo is not None:
            self._echo(str(lag))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Record nothing: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The recorded events stay available."""

    def _query_lag(self, progress: StreamingQueryProgress) -> QueryLag:
        sources = tuple(self._source_lag(source) for source in progress.sources)
        sizes = [lag.bytes_read for lag in sources if lag is not None and lag.bytes_read is not None]
        seconds = progress.batchDuration / 1000
        return QueryLag(
            query_id=str(progress.id),
            run_id=str(progress.runId),
            name=progress.name,
            batch_id=progress.batchId,
            timestamp=progress.timestamp,
            rows=progress.numInputRows,
            input_rows_per_second=progress.inputRowsPerSecond,
            processed_rows_per_second=progress.processedRowsPerSecond,
            bytes_per_second=sum(sizes) / seconds if sizes and seconds > 0 else None,
            sources=sources,
            dropped=_dropped(progress.observedMetrics),
        )

    def _source_lag(self, source: SourceProgress) -> SourceLag | None:
        start, end, latest = map(_offsets, (source.startOffset, source.endOffset, source.latestOffset))
        unknown: Mapping[TopicPartition, str] = {}
        if not HAS_LATEST_OFFSETS and end is not None and not source.description.startswith(_SPARKS_OWN):
            latest, unknown = (None, {}) if self._place is None else self._place.end_offsets(end)
        if end is None or latest is None:
            return None
        filled = {partition for partition, offset in latest.items() if offset > 0}
        sizes = {} if self._place is None else self._place.record_bytes(filled)
        return source_lag(start, end, latest, rows=source.numInputRows, record_bytes=sizes, unknown=unknown)


class _ReaderPlace:
    """The place that the reader's options name, asked for what Spark's progress lacks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = place_options(options).of_report
        user = UserOptions(options, Use.READ)
        user.check_names()
        self._read_committed = bool(user.value("kafka.isolation.level"))
        self._opened: Place | None = None
        self._sizes: dict[TopicPartition, float] = {}
        self._requested: set[TopicPartition] = set()
        self._looked_up_at = 0.0

    def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Offsets | None, Mapping[TopicPartition, str]]:
        """The ends of these partitions now, None if the place does not answer, and why others have none."""
        is_committed = self._read_committed
        try:
            bounds, failures = self._place().try_watermarks(partitions, read_committed=is_committed)
        except KafkaLogError as e:
            _log.warning("LagListener could not look up the latest offsets: %s", e)
            return None, {}
        for error in list(failures.values())[:1]:
            _log.warning(
                "LagListener could not look up the latest offsets of %s: %s", listed(failures, _NAMED), error
            )
        ends = {p: bounds[p].end(read_committed=is_committed) for p in bounds}
        return ends, {p: error.message for p, error in failures.items()}

    def record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """The mean bytes per offset of each partition, where the place knows them."""
        now = time.monotonic()
        if not self._requested.issuperset(partitions) or now - self._looked_up_at > _RECORD_BYTES_SECONDS:
            self._requested = set(partitions)
            self._looked_up_at = now
            try:
                self._sizes = self._place().mean_record_bytes(self._known(partitions))
            except KafkaLogError as e:
                # A listener must not disturb the query.
                _log.warning("LagListener could not look up the mean size of records: %s", e)
                self._sizes = {}
        return self._sizes

    def _known(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """The partitions that the place has, which warns of others: its options may be another's."""
        bounds, failures = self._place().try_watermarks(partitions)
        if missing := sorted(set(partitions) - bounds.keys()):
            first = missing[0]
            _log.warning(
                "LagListener shows no bytes of %s: %s. Check that it has the options of the query's reader",
                listed(missing, _NAMED),
                failures[first].message if first in failures else "they are not there",
            )
        return bounds.keys()

    def _place(self) -> Place:
        if self._opened is None:
            self._opened = open_place(self._options)
        return self._opened


def _dropped(observed: Mapping[str, Row]) -> dict[str, int]:
    """The non-zero counts, over all uses of ``reassemble`` in the query."""
    counts: Counter[str] = Counter()
    for name, metrics in observed.items():
        if name.startswith(DROPS_METRIC):
            counts.update({reason: count for reason, count in metrics.asDict().items() if count})
    return dict(counts)


def _offsets(text: str) -> Offsets | None:
    """The offsets of a Kafka source; None for other sources, or without offsets."""
    try:
        return parse_offsets(text, option="offsets")
    except OptionError:
        return None


class AuditListener(StreamingQueryListener):
    """Reports the counts of each micro-batch: ``spark.streams.addListener(AuditListener("/audit"))``.

    :param location: the ``auditLocation`` of the queries.
    :param echo: called with each count as one line, for example ``print``; None logs it at INFO.
    """

    def __init__(self, location: str, *, echo: Callable[[str], object] | None = None) -> None:
        show_warnings()
        self._location = location
        self._echo = echo

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Report nothing yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report what the tasks of the micro-batch counted."""
        from pyspark_kafkalog.extensions.audit.auditor import CONSUMER, PRODUCER
        from pyspark_kafkalog.extensions.audit.counts import batch_report

        progress, is_counted = event.progress, False
        try:
            for side in PRODUCER, CONSUMER:
                for line in batch_report(self._location, side, str(progress.id), progress.batchId):
                    is_counted = True
                    if self._echo is None:
                        _log.info("%s", line)
                    else:
                        self._echo(line)
            if not is_counted and not (folder := locate(self._location)).exists():
                text = "AuditListener found no counts: %s is not there. Is it the auditLocation of the query?"
                log_once(logging.WARNING, text, folder.label())
        except (KafkaLogError, OSError, ValueError):  # files that something else may have put there
            _log.warning("Cannot read the audit of query %s", progress.id, exc_info=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """No micro-batch, no counts."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """All counts have been reported already."""
