"""The lag of queries over time for people: as a pandas DataFrame, a plot, and a table in a notebook."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.groups.lag import QueryLag

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_MOST_LINES = 10
"""The number of partitions that have lines of their own."""
_TITLES = ("query", "batch", "rows", "rows/s", "MB/s", "offsets behind", "in the worst partition")
_COLUMNS = (
    "queryId",
    "name",
    "batchId",
    "timestamp",
    "source",
    "topic",
    "partition",
    "lag",
    "rows",
    "processedRowsPerSecond",
)


def as_pandas(events: Iterable[QueryLag]) -> DataFrame:
    """See :meth:`.LagListener.to_pandas`."""
    import pyarrow as pa

    rows = [
        (
            event.query_id,
            event.name,
            event.batch_id,
            _time(event),
            number,
            *partition,
            lag,
            event.rows,
            event.processed_rows_per_second,
        )
        for event in events
        for number, source in enumerate(event.sources)
        if source is not None
        for partition, lag in source.partitions.items()
    ]
    types = (
        pa.string(),
        pa.string(),
        pa.int64(),
        pa.timestamp("ms", tz="UTC"),
        pa.int32(),
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.int64(),
        pa.float64(),
    )
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    table = pa.table(arrays, names=_COLUMNS)
    try:
        return table.to_pandas()
    except ImportError as e:
        raise ImportError(f"LagListener.to_pandas() needs pandas: pip install pandas ({e})") from e


def draw(events: Sequence[QueryLag], ax: Axes | None) -> Axes:
    """See :meth:`.LagListener.plot`."""
    try:
        from matplotlib import pyplot
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    except ImportError as e:
        raise ImportError(f"LagListener.plot() needs matplotlib: pip install matplotlib ({e})") from e
    if ax is None:
        ax = pyplot.subplots(figsize=(9, 4), layout="constrained")[1]
    queries = _by_query(events)
    for query, own in queries.items():
        times = date2num([_time(event) for event in own])
        ax.plot(times, [_total(event) for event in own], linewidth=2, marker="o", markersize=3, label=query)
        for partition, lags in _of_partitions(own).items():
            label = str(partition) if len(queries) == 1 else f"{query}: {partition}"
            ax.plot(times, lags, linewidth=1, linestyle="--", label=label)
    locator = AutoDateLocator(tz=datetime.timezone.utc)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=datetime.timezone.utc))
    ax.set_xlabel("start of the micro-batch (UTC)")
    ax.set_ylabel("offsets behind the latest")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylim(bottom=0)
    ax.set_title("Lag")
    ax.grid(alpha=0.3)
    if events:
        ax.legend(fontsize="small")
    return ax


def as_html(latest: Collection[QueryLag]) -> str:
    """A table with the last event of each query."""
    if not latest:
        return "<p>No progress of any query yet.</p>"
    rows = "".join(f"<tr>{''.join(map(_cell, _texts(event)))}</tr>" for event in latest)
    return f"<table><tr>{''.join(f'<th>{title}</th>' for title in _TITLES)}</tr>{rows}</table>"


def _texts(event: QueryLag) -> Iterable[str]:
    yield event.name or event.query_id
    yield str(event.batch_id)
    yield f"{event.rows:,}"
    yield f"{event.processed_rows_per_second:,.0f}"
    yield "" if event.bytes_per_second is None else f"{event.bytes_per_second / 1e6:,.1f}"
    known = [source for source in event.sources if source is not None]
    yield f"{_total(event):,}" if known else "unknown"
    yield f"{max(source.max_offsets_behind for source in known):,}" if known else ""


def _cell(text: str) -> str:
    return f'<td style="text-align:left">{escape(text)}</td>'


def _time(event: QueryLag) -> datetime.datetime:
    return datetime.datetime.fromisoformat(event.timestamp.replace("Z", "+00:00"))


def _total(event: QueryLag) -> int:
    return sum(source.offsets_behind for source in event.sources if source is not None)


def _by_query(events: Iterable[QueryLag]) -> dict[str, list[QueryLag]]:
    """The events of each query in their order, by its name or id."""
    queries: dict[str, list[QueryLag]] = {}
    ids: dict[str, str] = {}
    for event in events:
        name = event.name or event.query_id
        label = name if ids.setdefault(name, event.query_id) == event.query_id else event.query_id
        queries.setdefault(label, []).append(event)
    return queries


def _of_partitions(events: Sequence[QueryLag]) -> dict[TopicPartition, list[float]]:
    """The lag of each partition at each event, NaN where it was not there; none if there are one or many."""
    lags: dict[TopicPartition, list[float]] = defaultdict(lambda: [float("nan")] * len(events))
    for number, event in enumerate(events):
        for source in event.sources:
            for partition, lag in (source.partitions if source is not None else {}).items():
                lags[partition][number] = lag
    return dict(sorted(lags.items())) if 1 < len(lags) <= _MOST_LINES else {}
