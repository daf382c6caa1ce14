"""LagListener's history as a DataFrame, a plot and a table in a notebook; no session."""

from __future__ import annotations

import sys
from collections import deque

import pytest

from pyspark_kafkalog import LagListener
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.groups.lag import QueryLag, SourceLag

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def event(
    batch: int, behind: dict[TopicPartition, int] | None, query: str = "q", name: str | None = "n"
) -> QueryLag:
    source = None if behind is None else SourceLag(behind, None, None)
    start = f"2026-11-24T12:00:{batch:02}.000Z"
    return QueryLag(query, "run", name, batch, start, 1234, 10.0, 20.5, 2e6, (source,))


def listener(*events: QueryLag) -> LagListener:
    made = LagListener()
    for one in events:
        made._history.setdefault(one.query_id, deque()).append(one)
    return made


TWO = listener(event(0, {A0: 5, A1: 7}), event(1, {A0: 0, A1: 1}), event(0, {A0: 9}, "<r>", None))


def test_a_row_for_each_partition_of_each_event() -> None:
    frame = TWO.to_pandas()
    assert list(frame.columns) == [
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
    ]
    assert list(frame["lag"]) == [5, 7, 0, 1, 9]
    assert list(frame["partition"]) == [0, 1, 0, 1, 0]
    first = frame.iloc[0]
    assert (first["name"], first["topic"], first["rows"]) == ("n", "a", 1234)
    assert str(first["timestamp"]) == "2026-11-24 12:00:00+00:00"
    assert list(TWO.to_pandas("<r>")["lag"]) == [9]


def test_nothing_yet() -> None:
    empty = LagListener()
    assert len(empty.to_pandas()) == len(listener(event(0, None)).to_pandas()) == 0
    assert list(empty.to_pandas().columns) == list(TWO.to_pandas().columns)
    assert repr(empty) == "LagListener: no progress of any query yet"
    assert "No progress" in empty._repr_html_()


def test_a_notebook_shows_the_latest_of_each_query() -> None:
    shown = TWO._repr_html_()
    assert shown.count("<tr>") == 3
    assert "&lt;r&gt;" in shown
    assert "<r>" not in shown
    for text in ("1,234", "2.0", "MB/s", "offsets behind"):
        assert text in shown
    assert "unknown" in listener(event(0, None))._repr_html_()
    assert repr(TWO).splitlines() == [str(lag) for lag in TWO.latest.values()]


def test_a_plot_has_units_and_a_line_for_each_partition() -> None:
    pytest.importorskip("matplotlib").use("agg")
    ax = TWO.plot("q")
    assert ax.get_xlabel() == "start of the micro-batch (UTC)"
    assert ax.get_ylabel() == "offsets behind the latest"
    lines = {line.get_label(): [float(y) for y in line.get_ydata()] for line in ax.get_lines()}
    assert lines == {"n": [12, 1], "a-0": [5, 0], "a-1": [7, 1]}
    assert len(TWO.plot().get_lines()) == 4
    assert TWO.plot(ax=ax) is ax
    assert not LagListener().plot().get_lines()
    many = listener(*(event(batch, {TopicPartition("a", n): 1 for n in range(50)}) for batch in range(3)))
    assert len(many.plot().get_lines()) == 1
    import matplotlib.pyplot as plt

    plt.close("all")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        TWO.plot()
