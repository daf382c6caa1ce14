"""LagListener on running queries."""

import json
import shutil
import time
import uuid
from types import SimpleNamespace
from typing import cast

import pytest

from pyspark_kafkalog import AuditListener, LagListener
from pyspark_kafkalog.errors import BrokerError, OptionError
from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.tools.groups.listeners import _ReaderPlace
from tests.read.fake_place import FakePlace
from tests.spark.conftest import needs_read_limits, numbered


@pytest.fixture
def attach(spark):
    """Attach listeners for the time of a test."""
    attached = []

    def attach(listener):
        spark.streams.addListener(listener)
        attached.append(listener)
        return listener

    yield attach
    for listener in attached:
        spark.streams.removeListener(listener)


def run(frame, checkpoint, name=None):
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = (writer if name is None else writer.queryName(name)).trigger(availableNow=True).start()
    query.awaitTermination(60)
    return query


def wait_for(condition):
    """Events come from a thread of their own."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stream(spark, path, **options):
    return spark.readStream.format("kafkalog").options(startingOffsets="earliest", **options).load(path)


@pytest.mark.long
@needs_read_limits
def test_lag_in_offsets_and_bytes(spark, write, attach, tmp_path):
    write(numbered(30))
    path = write(numbered(10), topic="u")
    lines = []
    listener = attach(LagListener({"path": path}, echo=lines.append))
    query = run(stream(spark, path, maxOffsetsPerTrigger=8), tmp_path / "c", name="orders")
    wait_for(lambda: sum(lag.rows for lag in listener.history(query.id)) == 40)
    history = [lag for lag in listener.history(query.id) if lag.rows]
    assert {lag.name for lag in history} == {"orders"}
    assert [lag.batch_id for lag in history] == list(range(len(history)))
    first, last = history[0].sources[0], history[-1].sources[0]
    # Shares of 8 are 6 and 2 at first.
    assert (first.min_offsets_behind, first.avg_offsets_behind, first.max_offsets_behind) == (8, 16.0, 24)
    assert (last.min_offsets_behind, last.max_offsets_behind, last.bytes_behind) == (0, 0, 0)
    size = sum(file.stat().st_size for file in (tmp_path / "log").glob("*-0/*.log"))
    assert 0.5 * size < first.bytes_behind < size
    assert sum(lag.sources[0].bytes_read for lag in history) == pytest.approx(size, rel=0.3)
    assert all(lag.bytes_per_second > 0 and lag.processed_rows_per_second > 0 for lag in history)
    assert listener.latest[str(query.id)] == listener.history(query.id)[-1]
    assert lines[0].startswith("orders batch 0: 8 rows, ")
    assert "8 to 24 offsets behind (mean 16.0, 0.0 MB)" in lines[0]
    assert len(lines) == len(listener.history(query.id))


@pytest.mark.long
@needs_read_limits
def test_only_the_last_events_are_kept(spark, write, attach, tmp_path):
    path = write(numbered(20))
    listener = attach(LagListener(keep=2))
    query = run(stream(spark, path, maxOffsetsPerTrigger=5), tmp_path / "c")
    wait_for(lambda: listener.latest.get(str(query.id)) and listener.latest[str(query.id)].batch_id >= 3)
    history = listener.history(query.id)
    assert len(history) == 2
    assert history[-1].sources[0].bytes_behind is None
    assert history[-1].bytes_per_second is None
    assert "MB" not in str(history[-1])
    assert listener.history("no such query") == []


def test_other_sources_have_no_lag_and_a_lost_place_does_no_harm(spark, write, attach, tmp_path, caplog):
    path = write(numbered(3))
    moved = shutil.copytree(path, tmp_path / "moved")
    shutil.rmtree(path)
    listener = attach(LagListener({"path": path}))
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().selectExpr("value")
    both = stream(spark, str(moved)).selectExpr("offset AS value").union(rate)
    query = both.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        wait_for(lambda: str(query.id) in listener.latest)
    finally:
        query.stop()
    lags = listener.history(query.id)[0].sources
    assert sum(lag is None for lag in lags) == 1
    (lag,) = (lag for lag in lags if lag is not None)
    assert (lag.max_offsets_behind, lag.bytes_behind) == (0, None)
    assert "LagListener could not look up the mean size of records" in caplog.text


def test_it_counts_as_sparks_own_metrics(spark, write, attach, tmp_path):
    """The progress of Spark's kafka source has the same offsets, with its metrics beside them."""
    from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

    source = {
        "description": "KafkaV2[Subscribe[t]]",
        "startOffset": {"t": {"0": 0, "1": 0}},
        "endOffset": {"t": {"0": 8, "1": 1}},
        "latestOffset": {"t": {"0": 101, "1": 11, "2": 1}},
        "numInputRows": 9,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 2.0,
        "metrics": {"minOffsetsBehindLatest": "1"},
    }
    progress = {
        "id": "00000000-0000-0000-0000-000000000001",
        "runId": "00000000-0000-0000-0000-000000000002",
        "name": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 0,
        "batchDuration": 100,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "noop", "numOutputRows": 9},
        "numInputRows": 9,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 2.0,
        "observedMetrics": {},
    }
    listener = LagListener()
    event = QueryProgressEvent.fromJson({"progress": json.loads(json.dumps(progress))})
    assert isinstance(event.progress, StreamingQueryProgress)
    listener.onQueryProgress(event)
    (lag,) = listener.latest["00000000-0000-0000-0000-000000000001"].sources
    assert (lag.min_offsets_behind, lag.max_offsets_behind) == (1, 93)
    assert lag.avg_offsets_behind == pytest.approx((93 + 10 + 1) / 3)


def test_an_end_that_cannot_be_looked_up_hides_no_other() -> None:
    """For a Spark that does not tell the latest offsets."""
    known, silent = TopicPartition("t", 0), TopicPartition("t", 1)
    place = _ReaderPlace({"path": "/nowhere"})
    place._opened = cast(
        Place, FakePlace({known: (0, 10), silent: (0, 10)}, failures={silent: BrokerError("no leader")})
    )
    assert place.end_offsets([known, silent]) == ({known: 10}, {silent: "no leader"})


def test_options_of_another_place_are_said(caplog) -> None:
    place = _ReaderPlace({"path": "/nowhere"})
    place._opened = cast(Place, FakePlace({TopicPartition("other", 0): (0, 10)}))
    assert place.record_bytes([TopicPartition("t", 0)]) == {}
    assert "no bytes of t-0: they are not there. Check that it has the options of the" in caplog.text


def test_an_audit_that_is_not_there_is_named_once(tmp_path, caplog):
    event = SimpleNamespace(progress=SimpleNamespace(id=uuid.uuid4(), batchId=0))
    for _ in range(2):
        AuditListener(str(tmp_path)).onQueryProgress(event)
        AuditListener(str(tmp_path / "audti")).onQueryProgress(event)
    (said,) = caplog.messages
    assert f"no counts: {tmp_path / 'audti'} is not there" in said


def test_options_that_no_reader_has_are_refused(tmp_path):
    with pytest.raises(OptionError, match="Did you mean subscribe or"):
        LagListener({"path": str(tmp_path), "subscrib": "t"})
