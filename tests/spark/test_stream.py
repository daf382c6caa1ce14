"""spark.readStream and df.writeStream: limits, AvailableNow, what is new, what is lost, replays."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_kafkalog.spark.features import HAS_LATEST_OFFSETS, HAS_READ_LIMITS
from tests.spark.conftest import in_order, needs_read_limits, numbered


def stream(spark, path, **options):
    return (
        spark.readStream.format("kafkalog").options(**{"startingOffsets": "earliest", **options}).load(path)
    )


def run(frame, checkpoint, sink=None, **trigger):
    """Run a query to its end; the values of each micro-batch that has any, or the query of a sink."""
    batches = {}

    def keep(batch, number):
        batches[number] = sorted(int(row.value) for row in batch.collect())

    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    if sink is not None:
        writer = writer.format("kafkalog").option("topic", "copy")
        query = writer.trigger(**(trigger or {"availableNow": True})).start(sink)
    else:
        query = writer.foreachBatch(keep).trigger(**(trigger or {"availableNow": True})).start()
    query.awaitTermination(60)
    assert not query.isActive
    return [batches[number] for number in sorted(batches) if batches[number]] if sink is None else query


def logged_offsets(checkpoint, number):
    """In Spark's form except for the spaces that PySpark puts in."""
    return (Path(checkpoint) / "offsets" / str(number)).read_text().splitlines()[-1].replace(" ", "")


@needs_read_limits
def test_available_now_takes_so_many_offsets_a_batch(spark, write, tmp_path):
    path = write(numbered(15))
    batches = run(stream(spark, path, maxOffsetsPerTrigger=5), tmp_path / "c")
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
    assert logged_offsets(tmp_path / "c", 0) == '{"t":{"0":5}}'


@needs_read_limits
def test_available_now_takes_so_many_bytes_a_batch(spark, write, tmp_path):
    path = write([(f"{i:01000}",) for i in range(100)], **{"batch.size": 2_000})
    batches = run(stream(spark, path, maxBytesPerTrigger="25k"), tmp_path / "c")
    assert [value for batch in batches for value in batch] == list(range(100))
    assert 4 <= len(batches) <= 7


def test_once_ignores_the_limits(spark, write, tmp_path):
    path = write(numbered(15))
    assert run(stream(spark, path, maxOffsetsPerTrigger=5), tmp_path / "c", once=True) == [list(range(15))]


@pytest.mark.long
def test_a_restart_goes_on_where_it_stopped(spark, write, tmp_path):
    path = write(numbered(3))
    assert run(stream(spark, path), tmp_path / "c") == [[0, 1, 2]]
    write(numbered(2, 3))
    assert run(stream(spark, path), tmp_path / "c") == [[3, 4]]
    assert run(stream(spark, path), tmp_path / "c") == []


def test_new_topics_are_read_from_their_beginning(spark, write, tmp_path):
    path = write(numbered(2), topic="t1")
    frame = stream(spark, path, startingOffsets="latest", **{"topics.exclude": "u.*"})
    assert run(frame, tmp_path / "c") == []
    write(numbered(3, 20), topic="u2")
    write(numbered(3, 10), topic="t2")
    write(numbered(1, 2), topic="t1")
    assert run(frame, tmp_path / "c") == [[2, 10, 11, 12]]
    assert logged_offsets(tmp_path / "c", 1) == '{"t1":{"0":3},"t2":{"0":3}}'


def test_a_running_query_sees_rolled_segments(spark, write, tmp_path):
    path = write(numbered(10), **{"segment.bytes": 200})
    seen = []
    query = (
        stream(spark, path)
        .writeStream.foreachBatch(lambda batch, _: seen.extend(int(row.value) for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        for start in (10, 20, 30):
            write(numbered(10, start), **{"segment.bytes": 200})
            query.processAllAvailable()
        assert sorted(seen) == list(range(40))
        if HAS_LATEST_OFFSETS:
            assert query.lastProgress.sources[0].latestOffset == '{"t": {"0": 40}}'
    finally:
        query.stop()


def test_partitions_come_and_a_topic_goes_under_a_running_query(spark, write, tmp_path):
    path = write(numbered(4))
    write(numbered(4, 10), topic="u")
    seen = []
    query = (
        stream(spark, path, subscribePattern="[tu]", failOnDataLoss="false")
        .writeStream.foreachBatch(lambda batch, _: seen.extend(int(row.value) for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        query.processAllAvailable()
        for number in (1, 2, 3):
            # As a broker does, each partition added has the topic's id.
            new = tmp_path / f"new-{number}"
            shutil.copytree(f"{path}/t-0", new)
            for file in new.glob("*.*index"):
                file.unlink()
            new.rename(f"{path}/t-{number}")
            query.processAllAvailable()
        assert sorted(seen) == sorted([*range(4), *range(10, 14)] + 3 * list(range(4)))
        Path(f"{path}/u-0").rename(f"{path}/u-0.{'0' * 32}-delete")
        write(numbered(20, 20))
        query.processAllAvailable()
        assert query.isActive
        assert sorted(value for value in seen if value >= 20) == list(range(20, 40))
        if HAS_LATEST_OFFSETS:
            latest = json.loads(query.lastProgress.sources[0].latestOffset)
            assert latest.keys() == {"t"}
            assert latest["t"].keys() == {"0", "1", "2", "3"}
    finally:
        query.stop()


def delete_first_segments(path, keep):
    """As retention does it: whole segments from the oldest on, leaving those from base offset ``keep``."""
    for name in os.listdir(f"{path}/t-0"):
        base = name.split(".")[0]
        if base.isdigit() and int(base) < keep:
            os.unlink(f"{path}/t-0/{name}")


@pytest.mark.long
def test_segments_deleted_under_the_reader(spark, write, tmp_path):
    path = write(numbered(5))
    frame = stream(spark, path)
    assert run(frame, tmp_path / "c") == [list(range(5))]
    write(numbered(10, 5), **{"segment.bytes": 100, "batch.size": 0})
    bases = sorted(int(n.split(".")[0]) for n in os.listdir(f"{path}/t-0") if n.endswith(".log"))
    keep = bases[-2]
    assert keep > 6
    delete_first_segments(path, keep)
    shutil.copytree(tmp_path / "c", tmp_path / "c2")
    with pytest.raises(StreamingQueryException, match="COULD_NOT_READ_OFFSET_RANGE"):
        run(frame, tmp_path / "c")
    assert run(stream(spark, path, failOnDataLoss="false"), tmp_path / "c2") == [list(range(keep, 15))]


def test_a_deleted_topic(spark, write, tmp_path):
    path = write(numbered(5))
    write(numbered(5, 5), topic="u")
    frame = stream(spark, path, subscribePattern="[tu]")
    run(frame, tmp_path / "c")
    shutil.rmtree(f"{path}/u-0")
    write(numbered(1, 99))
    with pytest.raises(StreamingQueryException, match="PARTITIONS_DELETED"):
        run(frame, tmp_path / "c")
    tolerant = stream(spark, path, subscribePattern="[tu]", failOnDataLoss="false")
    assert run(tolerant, tmp_path / "c") == [[99]]


@pytest.mark.long
def test_a_start_offset_is_kept_beside_the_checkpoint(spark, write, tmp_path):
    path = write(numbered(3))
    checkpoint = str(tmp_path / "c")
    fail = {"now": True}

    def batch(frame, number):
        if fail["now"]:
            raise RuntimeError("planted")
        seen.extend(int(row.value) for row in frame.collect())

    seen = []
    frame = stream(spark, path, startingOffsets="latest", checkpointLocation=checkpoint)
    query = frame.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint).start()
    deadline = time.monotonic() + 30
    while not list(Path(checkpoint).glob("kafkalog-start-offsets/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    write(numbered(2, 3))
    with pytest.raises(StreamingQueryException, match="planted"):
        query.awaitTermination(60)
    write(numbered(1, 5))
    fail["now"] = False
    # Where Spark runs one micro-batch with AvailableNow, the first run only repeats the one that failed.
    for _ in range(1 if HAS_READ_LIMITS else 2):
        query = (
            frame.writeStream.foreachBatch(batch)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
    assert seen == [3, 4, 5]


@needs_read_limits
def test_a_replayed_batch_is_appended_once(spark, write, read, tmp_path):
    path = write(numbered(30))
    copy, checkpoint = str(tmp_path / "copy"), tmp_path / "c"
    run(stream(spark, path, maxOffsetsPerTrigger=10), checkpoint, sink=copy)
    before = in_order(read(copy))
    assert len(before) == 30
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    # The same batch comes again with its rows split over more tasks.
    run(stream(spark, path, maxOffsetsPerTrigger=10, minPartitions=4), checkpoint, sink=copy)
    assert in_order(read(copy)) == before


@pytest.mark.long
@needs_read_limits
def test_a_checkpoint_older_than_the_directory_is_refused(spark, write, tmp_path):
    path = write(numbered(30))
    copy, checkpoint = str(tmp_path / "copy"), tmp_path / "c"
    frame = stream(spark, path, maxOffsetsPerTrigger=10)
    run(frame, checkpoint, sink=copy)
    for number in (1, 2):
        for log in ("commits", "offsets"):
            (checkpoint / log / str(number)).unlink()
            (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="older"):
        run(frame, checkpoint, sink=copy)


@pytest.mark.long
def test_complete_mode_appends_and_update_mode_is_sparks_to_refuse(spark, write, read, tmp_path):
    path = write(numbered(4))
    counts = stream(spark, path).groupBy().count().selectExpr("CAST(count AS STRING) AS value")
    copy = str(tmp_path / "copy")

    def start(mode):
        return (
            counts.writeStream.format("kafkalog")
            .option("topic", "counts")
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / mode))
            .trigger(availableNow=True)
            .start(copy)
        )

    start("complete").awaitTermination(60)
    assert [row.value.decode() for row in read(copy).collect()] == ["4"]
    with pytest.raises(Exception, match=r"(?i)update"):
        start("update").awaitTermination(60)


def test_an_empty_directory_waits_for_its_first_topic(spark, write, tmp_path):
    (tmp_path / "log").mkdir()
    frame = stream(spark, str(tmp_path / "log"))
    assert run(frame, tmp_path / "c") == []
    write(numbered(2))
    assert run(frame, tmp_path / "c") == [[0, 1]]


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_ending_options_are_refused_in_a_stream(spark, write, tmp_path, name):
    value = "1" if name == "endingTimestamp" else json.dumps({"t": {"0": 1}})
    path = write(numbered(2))
    with pytest.raises(Exception, match=name):
        run(stream(spark, path, **{name: value}), tmp_path / "c")
