"""A column of timestamps made of numbers in another unit is written, and said once."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.model import Plan, QueryBatch
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.options.times import in_other_unit
from pyspark_kafkalog.write.completing import TaskNews, complete

S, MS = 1_700_000_000, 1_700_000_000_000
MEANT = "2023-11-14T22:13:20.000Z is meant"


@pytest.mark.parametrize("number", [S, MS // 1_000_000, S // 1_000_000, MS * 1000])
def test_a_number_in_another_unit(number: int) -> None:
    found = in_other_unit(number)
    assert found is not None
    assert abs(found - MS) < MS / 100


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(-1, id="none"),
        pytest.param(0, id="1970"),
        pytest.param(200 * 86_400_000, id="summer of 1970"),
        pytest.param(MS, id="now"),
        pytest.param(253_402_300_799_999, id="end of 9999"),
    ],
)
def test_a_time_that_is_meant(number: int) -> None:
    assert in_other_unit(number) is None


@pytest.mark.parametrize(("number", "unit"), [(S, "ms"), (MS, "s"), (MS, "ns")])
def test_it_is_written_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, unit: str
) -> None:
    kafka = connect(str(tmp_path / "log"))
    times = pa.array([MS, number, number]).cast(pa.timestamp(unit, "UTC"))
    rows = pa.table({"value": ["a", "b", "c"], "timestamp": times})
    assert kafka.write(rows, "t") == 3
    (said,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert MEANT in said
    assert kafka.read("t").read_all().num_rows == 3


def test_a_query_says_it_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    options = write_options({"path": str(tmp_path), "topic": "t"})
    sink: Any = SimpleNamespace(commit=lambda *given: True)
    for number in range(3):
        news = [TaskNews(None), TaskNews(None, doubtful_time=S), TaskNews(None, doubtful_time=S + 1)]
        complete(options, sink, QueryBatch("a query", number), news, Plan(), tasks=3)
    (said,) = (record.getMessage() for record in caplog.records)
    assert f"{S} (1970-01-20T16:13:20.000Z)" in said
    assert MEANT in said
