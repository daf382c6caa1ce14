"""``segment.serializer`` and ``segment.deserializer.class`` through Spark: in the source and in a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import MessageSegment, connect, reassemble
from pyspark_kafkalog.errors import OptionError
from tests.extensions.large_messages.segment_formats import FORMATS, own
from tests.spark.conftest import in_order

LARGE = "0123456789" * 10
VALUES = ["small", LARGE, "between", LARGE[::-1], "last"]
WRITE = {
    "large.message.enabled": "true",
    "max.message.segment.bytes": "30",
    "segment.serializer": f"{FORMATS}:own",
}
DESERIALIZER = {"segment.deserializer.class": f"{FORMATS}:from_own"}
READ = {"large.message.enabled": "true", **DESERIALIZER}


@pytest.fixture
def path(write: Callable[..., str]) -> str:
    write([("old",)])
    return write([("k", value) for value in VALUES], "key string, value string", **WRITE)


def values(rows: DataFrame) -> list[str]:
    return [bytes(row.value).decode() for row in in_order(rows)]


def run(rows: DataFrame, folder: Path) -> list[str]:
    """What a stream gives until all is read."""
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return values(rows.sparkSession.read.parquet(str(folder / "out")))


@pytest.mark.long
def test_a_batch_has_whole_messages(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("kafkalog")
    assert reader.load(path).count() == 1 + 3 + 2 * 4
    assert values(reader.options(**READ, maxRecordsPerPartition="3").load(path)) == ["old", *VALUES]
    records = spark.read.format("kafkalog").option("includeHeaders", "true").load(path)
    assert values(reassemble(records, DESERIALIZER)) == ["old", *VALUES]
    assert reassemble(records).count() == records.count(), "they are not in LinkedIn's format"


@pytest.mark.long
@pytest.mark.slow
def test_a_stream_has_whole_messages_and_commits_safe_offsets(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    opened = own("t", MessageSegment(b"0123456789abcdef", 0, 2, 6, b"abc"))
    connect(path).write(pa.table({"value": [opened, b"end"]}), "t")

    def read(group: str, **options: str) -> DataFrame:
        named = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "3",
            "kafka.group.id": group,
            **options,
        }
        return spark.readStream.format("kafkalog").options(**named).load(path)

    assert run(read("source", **READ), tmp_path / "source") == ["old", *VALUES, "end"]
    safe = {"large.message.safe.offsets": "true", **DESERIALIZER}
    assert run(reassemble(read("step", **safe), DESERIALIZER), tmp_path / "step") == ["old", *VALUES, "end"]
    offsets = connect(path).groups.offsets(["source", "step"])
    assert [committed.offset for committed in offsets] == [12, 12], "where the open message begins"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**WRITE, "segment.serializer": f"{FORMATS}:none"}, "serializer .* cannot be imported: its module"),
        ({**WRITE, "segment.serializer": f"{FORMATS}:gives_text"}, r"returned str, expected bytes .*t-0"),
    ],
)
def test_a_write_that_fails_leaves_nothing(
    write: Callable[..., str], tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        write([("small",), (LARGE,)], **options)
    assert not list(tmp_path.rglob("*.log"))
    assert not list(tmp_path.rglob(".kafkalog-staged*"))


def test_a_read_says_what_is_wrong(spark: SparkSession, path: str) -> None:
    reader = spark.read.format("kafkalog").options(**READ)
    with pytest.raises(PySparkException, match=r"The segment deserializer 'no\.such:f' cannot be imported"):
        reader.option("segment.deserializer.class", "no.such:f").load(path).collect()
    with pytest.raises(PySparkException, match=r"returned str, expected a MessageSegment .*t-0, offset 0"):
        reader.option("segment.deserializer.class", f"{FORMATS}:gives_text").load(path).collect()
    with pytest.raises(OptionError, match=r"The segment deserializer 'no\.such:f' cannot be imported"):
        reassemble(spark.read.format("kafkalog").load(path), {"segment.deserializer.class": "no.such:f"})
