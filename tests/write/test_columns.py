"""Which columns of rows a write takes, refuses or ignores."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import OptionError, connect
from pyspark_kafkalog.options.columns import check_written_columns
from pyspark_kafkalog.options.user_options import log_once_for

SLIPS = {
    "KEY": "key",
    "Key": "key",
    "keys": "key",
    "keyy": "key",
    "headerss": "headers",
    "kye": "key",
    "Headers": "headers",
    "header": "headers",
    "Partition": "partition",
    "parition": "partition",
    "Timestamp": "timestamp",
    "time_stamp": "timestamp",
}
OTHERS = ["id", "pkey", "key_id", "value2", "timestamp2", "event_time", "offset", "timestampType", "schemaId"]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "logs")


@pytest.fixture(autouse=True)
def _nothing_said(caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    caplog.set_level(logging.INFO, "pyspark_kafkalog")


@pytest.mark.parametrize(("given", "column"), SLIPS.items())
def test_a_slip_of_a_column_is_refused(root: str, given: str, column: str) -> None:
    with pytest.raises(OptionError, match=f"Column '{given}' is not '{column}'") as of_spark:
        check_written_columns({given: "string", "value": "string"}, topic="t")
    assert f"df.withColumnRenamed('{given}', '{column}')" in str(of_spark.value)
    with pytest.raises(OptionError, match=f"Column '{given}' is not '{column}'") as of_arrow:
        connect(root).write(pa.table({given: ["a"], "value": ["v"]}), "t")
    assert f"table.rename_columns({{'{given}': '{column}'}})" in str(of_arrow.value)
    assert connect(root).topics.describe() == []


@pytest.mark.parametrize("given", OTHERS)
def test_a_column_of_another_meaning_is_ignored(given: str) -> None:
    check_written_columns({given: "string", "value": "string"}, topic="t")


def test_ignored_columns_are_named_once(root: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = pa.table({"id": [1], "value": ["v"], "price": [0.5]})
    for _ in range(2):
        assert connect(root).write(rows, "t") == 1
    text = (
        "Ignored, since a record has no such columns: id, price."
        " It has key, value, headers, topic, partition, timestamp"
    )
    said = [(record.levelname, record.message) for record in caplog.records if "Ignored" in record.message]
    assert said == [("WARNING", text)]


def test_columns_of_a_read_are_ignored_without_a_warning(root: str, caplog: pytest.LogCaptureFixture) -> None:
    kafka = connect(root)
    kafka.write(pa.table({"value": ["v"]}), "t")
    kafka.write(kafka.read("t").read_all().drop_columns(["topic", "partition"]), "copy")
    said = [(record.levelname, record.message) for record in caplog.records if "Ignored" in record.message]
    assert [level for level, _ in said] == ["INFO"]
    assert "offset, timestampType" in said[0][1]


def test_a_slip_beside_the_column_itself_is_ignored(root: str) -> None:
    connect(root).write(pa.table({"key": ["a"], "keys": ["b"], "value": ["v"]}), "t")
    assert connect(root).read("t").read_all().column("key").to_pylist() == [b"a"]


def test_a_topic_column_is_not_needed_beside_the_option() -> None:
    columns = {"Topic": "string", "value": "string"}
    check_written_columns(columns, topic="t")
    with pytest.raises(OptionError, match="Column 'Topic' is not 'topic'"):
        check_written_columns(columns, topic=None)


def test_a_slip_of_the_value() -> None:
    with pytest.raises(OptionError, match=r"Required column 'value' not found.*Did you mean 'values'"):
        check_written_columns({"values": "string"}, topic="t")


def test_a_column_that_is_in_the_value_as_well_is_not_lost(root: str) -> None:
    """``df.withColumn('value', struct('*'))`` keeps the columns beside the value."""
    row: dict[str, Any] = {"Key": "a", "Timestamp": 1}
    options = {"path": root, "value.format": "json"}
    connect(options).write(pa.table({"Key": ["a"], "Timestamp": [1], "value": [row]}), "t")
    assert connect(root).read("t").read_all().column("value").to_pylist() == [b'{"Key":"a","Timestamp":1}']
    with pytest.raises(OptionError, match="Column 'header' is not 'headers'"):
        connect(options).write(pa.table({"header": ["a"], "value": [row]}), "t")


def test_a_column_topic_beside_the_option_is_said(root: str, caplog: pytest.LogCaptureFixture) -> None:
    """Dead letters would go where the good rows go. Rows of a read have the column by themselves."""
    rows = pa.table({"topic": ["a", "b"], "value": ["v", "w"]})
    connect(root).write(rows.append_column("offset", pa.array([0, 1])), "t")
    assert "whatever the column topic says" not in caplog.text
    connect(root).write(rows, "t")
    assert "sends all rows to t, whatever the column topic says" in caplog.text
    assert [topic.topic for topic in connect(root).topics.describe()] == ["t"]
