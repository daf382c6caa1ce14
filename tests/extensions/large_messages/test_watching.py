"""A read that is not told of large messages says once that it meets parts of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.large_messages.watching import has_segments
from pyspark_kafkalog.options.user_options import log_once_for

SAYS = "Topic scans has message segments, which are read as values. large.message.enabled=true puts large"
LARGE = {"large.message.enabled": "true"}


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    log_once_for.cache_clear()


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "log")
    rows = pa.table({"value": ["small", "x" * 3_000_000]})
    connect(root).write(rows, "scans", options=LARGE)
    connect(root).write(pa.table({"value": ["x" * 100, b"\0" * 100]}), "orders")
    return root


def said(caplog: pytest.LogCaptureFixture) -> int:
    return sum(message.startswith(SAYS) for message in caplog.messages)


def test_segments_read_as_values_are_told_of_once(root: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert connect(root).read("scans", columns=["value"]).read_all().num_rows > 2
    assert said(caplog) == 1


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_who_knows_of_them_is_not_told(root: str, enabled: str, caplog: pytest.LogCaptureFixture) -> None:
    connect(root).read("scans", options={"large.message.enabled": enabled}).read_all()
    assert said(caplog) == 0


def test_segments_by_headers_alone_are_told_of_where_headers_are_read(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    by_headers = {**LARGE, "li.record.header.enable": "true"}
    connect(root).write(pa.table({"value": ["x" * 3_000_000]}), "by-headers", options=by_headers)
    connect(root).read("by-headers", options={"includeHeaders": "true"}).read_all()
    assert "Topic by-headers has message segments" in caplog.text


def test_other_records_are_nothing_to_tell_of(root: str, caplog: pytest.LogCaptureFixture) -> None:
    connect(root).read("orders", options={"includeHeaders": "true"}).read_all()
    connect(root).read("scans", columns=["offset"]).read_all()
    whole = connect(root).read("scans", options={**LARGE, "includeHeaders": "true"}).read_all()
    assert not any(map(has_segments, whole.to_batches()))
    assert caplog.messages == []
