"""QueryCheckpoint gives a checkpoint to both ends of a query; a reader that needs it and has none says so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_kafkalog import DefaultSource, OptionError, QueryCheckpoint
from tests.log.writing import T0
from tests.log.writing import write as write_log
from tests.spark.conftest import numbered
from tests.spark.test_reader_of_query import SCHEMA
from tests.spark.test_stream import logged_offsets
from tests.stream.spark_log import begin

DEFAULT = "spark.sql.streaming.checkpointLocation"


@pytest.fixture
def checkpoints(spark, tmp_path):
    """The folder of the session's checkpoints of named queries."""
    spark.conf.set(DEFAULT, f"{tmp_path}/checkpoints/")
    yield tmp_path / "checkpoints"
    spark.conf.unset(DEFAULT)


def run(checkpoint, path):
    rows = checkpoint.readStream.option("startingOffsets", "earliest").load(path)
    query = checkpoint.writeStream(rows).foreachBatch(lambda batch, _: batch.count())
    query = query.trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert not query.isActive
    return query


def test_both_ends_have_the_checkpoint(spark, write, tmp_path):
    query = run(QueryCheckpoint(spark, tmp_path / "c"), write(numbered(3)))
    assert query.name is None
    assert logged_offsets(tmp_path / "c", 0) == '{"t":{"0":3}}'  # of the writer
    assert list((tmp_path / "c" / "kafkalog-start-offsets").iterdir())  # of the reader


def test_a_name_has_the_default_checkpoint_of_the_session(spark, write, tmp_path, checkpoints):
    path = write(numbered(3))
    query = run(QueryCheckpoint(spark, query_name="orders"), path)
    assert query.name == "orders"
    assert list((checkpoints / "orders" / "kafkalog-start-offsets").iterdir())
    # Spark's own choice for the name is the same checkpoint, so it has nothing left to read.
    rows = spark.readStream.format("kafkalog").option("startingOffsets", "earliest").load(path)
    again = rows.writeStream.queryName("orders").format("noop").trigger(availableNow=True).start()
    again.awaitTermination(60)
    assert again.id == query.id
    assert not (checkpoints / "orders" / "offsets" / "1").exists()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "no location and no query_name is given"),
        ({"query_name": "orders"}, f"the session has no {DEFAULT}"),
        ({"location": " "}, "is empty"),
        ({"location": 7}, "Expected a path or a URI of a checkpoint, got int"),
        ({"location": b"/checkpoints"}, "got bytes"),
    ],
)
def test_nothing_says_where_it_is(spark, given, text):
    with pytest.raises(OptionError, match=text):
        QueryCheckpoint(spark, **given)


def test_a_name_that_is_a_path(spark, tmp_path):
    """Spark puts its checkpoint there, and a query that moved to another would begin again."""
    spark.conf.set(DEFAULT, str(tmp_path))
    try:
        with pytest.raises(OptionError, match="'/orders' is not below"):
            QueryCheckpoint(spark, query_name="/orders")
        assert QueryCheckpoint(spark, str(tmp_path / "c"), query_name="/orders").location == f"{tmp_path}/c"
    finally:
        spark.conf.unset(DEFAULT)


@pytest.mark.parametrize(
    ("options", "start", "said"),
    [
        ({}, None, "This query starts at the latest records"),
        ({}, {"t": {"0": 1}}, "This query goes on from an earlier run"),
        ({"startingOffsets": "earliest"}, None, None),
        ({"startingOffsets": "earliest"}, {"t": {"0": 1}}, "This query goes on from an earlier run"),
        ({"checkpointLocation": ""}, {"t": {"0": 1}}, None),
    ],
)
def test_a_reader_without_it_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options, start, said
) -> None:
    write_log(tmp_path / "log", {T0: [b"a", b"b"]}, num_partitions=1)
    if "checkpointLocation" in options:
        options = {"checkpointLocation": str(begin(tmp_path / "checkpoint"))}
    reader = DefaultSource({"path": str(tmp_path / "log"), **options}).streamReader(SCHEMA)
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        start = reader.initialOffset() if start is None else start
        for _ in range(2):
            reader.partitions(start, {"t": {"0": 2}})
    found = [record.getMessage() for record in caplog.records]
    if said is None:
        assert found == []
    else:
        (text,) = found
        assert text.startswith(said)
        assert '.option("checkpointLocation", "…") to readStream' in text


@pytest.mark.parametrize(("columns", "option"), [(["value"], {"topic": "t"}), (["topic", "value"], {})])
def test_a_query_does_not_write_to_the_topic_that_it_reads(spark, write, tmp_path, columns, option):
    """It would get its own rows for ever."""
    path = write(numbered(3))
    checkpoint = QueryCheckpoint(spark, tmp_path / "c")
    rows = checkpoint.readStream.option("startingOffsets", "earliest").load(path).select(*columns)
    writer = checkpoint.writeStream(rows).format("kafkalog").options(path=path, **option)
    with pytest.raises(StreamingQueryException, match=r"reads topic t, and writes to it: .*another topic"):
        writer.start().awaitTermination(60)
    assert spark.read.format("kafkalog").load(path).count() == 3


def test_a_query_may_write_to_a_topic_of_that_name_elsewhere(spark, write, tmp_path):
    """As a copy does."""
    checkpoint = QueryCheckpoint(spark, tmp_path / "c")
    rows = checkpoint.readStream.option("startingOffsets", "earliest").load(write(numbered(3)))
    writer = checkpoint.writeStream(rows.select("topic", "value")).format("kafkalog")
    query = writer.option("path", f"{tmp_path}/copy").trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert query.exception() is None
    assert spark.read.format("kafkalog").load(f"{tmp_path}/copy").count() == 3
