"""Lines of the log where no one has set up logging: in a process of its own, as pytest has handlers."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog import saying
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.options.user_options import log_once
from pyspark_kafkalog.spark import reader
from pyspark_kafkalog.spark.running_query import RunningQuery

_WARNED = "logging.getLogger('pyspark_kafkalog').warning('Retrying for up to %d s', 9)"
_OTHER = "from pyspark_kafkalog.spark.source import KafkaLogDataSource; saying.name_work('query etl')"
"""A process of Spark's has worked for another query."""
_READ_NEXT = f"{_OTHER}; it = KafkaLogDataSource({{'subscribe': 'orders'}})"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("from pyspark_kafkalog import connect; connect('/tmp')", r"kafkalog: Retrying"),
        (
            "from pyspark_kafkalog.spark.source import KafkaLogDataSource; KafkaLogDataSource({})",
            r"kafkalog: Retrying",
        ),
        ("saying.name_work('query etl')", r"kafkalog: query etl: Retrying"),
        ("saying.name_work('query etl'); saying.name_work('')", r"kafkalog: Retrying"),
        (_READ_NEXT, r"kafkalog: topic orders: Retrying"),
        (
            f"import pickle; {_READ_NEXT}; made = pickle.dumps(it); {_OTHER}; pickle.loads(made)",
            r"kafkalog: topic orders: Retrying",
        ),
        (f"{_OTHER}; KafkaLogDataSource({{'topic': 'clicks'}})", r"kafkalog: topic clicks: Retrying"),
        (f"{_OTHER}; KafkaLogDataSource({{}})", r"kafkalog: Retrying"),
    ],
)
def test_a_line_has_time_level_and_query(first: str, expected: str) -> None:
    line = _printed(f"import logging; from pyspark_kafkalog import saying; {first}; {_WARNED}")
    assert re.fullmatch(rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING {expected} for up to 9 s\n", line)


def test_each_query_of_a_process_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    try:
        for query in "orders", "clicks", "orders":
            saying.name_work(f"topic {query}")
            log_once(logging.WARNING, "Option %s is ignored here", "commitOffsets")
    finally:
        saying.name_work("")
    assert caplog.messages == ["Option commitOffsets is ignored here"] * 2


def test_logging_of_the_process_goes_before() -> None:
    line = _printed(
        "import logging; from pyspark_kafkalog import saying; saying.show_warnings();"
        f"logging.basicConfig(format='mine: %(message)s'); {_WARNED}"
    )
    assert line == "mine: Retrying for up to 9 s\n"


def _printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stderr


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"subscribe": "orders"}, "topic orders"),
        ({"subscribe": "orders,clicks"}, "topics clicks, orders"),
        ({"subscribePattern": "or.*"}, "topics of or.*"),
        ({}, "all topics"),
    ],
)
def test_work_is_named_by_query_or_topics(
    tmp_path: Path, options: dict[str, str], about: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[str] = []
    monkeypatch.setattr(reader, "name_work", named.append)
    schema = StructType([StructField("value", BinaryType())])
    read = reader.LogBatchReader({"path": str(tmp_path), **options}, schema)
    with suppress(KafkaLogError):  # there are no topics
        read.partitions()
    assert named == [about]
    assert RunningQuery("id", 3, "etl").about == "query etl"
    assert RunningQuery("id", 3, "").about == "query id"
