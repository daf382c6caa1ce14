"""Batch write of 5 MB messages in 1 MB message segments, and of 100-byte rows with large messages on and off.

Messages are made as they are written, since 2 GB of them do not fit the driver; a writer that
only counts shows what that takes.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, print_ratio, rows, seconds_by_turns
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.trivial import Trivial

TOTAL_BYTES = 2_000_000_000
MESSAGE_BYTES = 5_000_000
SEGMENT_BYTES = 1_000_000
SMALL_SIZE = 100
SMALL_ROWS = 2_000_000
ARROW_BATCH_BYTES = 8 << 20
"""Spark's default, 64 MiB, is half as fast with a heap of 2 GB: such arrays are hard on the JVM."""
BAR = 150
"""MB/s."""


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        spark.dataSource.register(Trivial)
        _large(spark, folder, max(PARTITIONS, int(TOTAL_BYTES * args.scale) // MESSAGE_BYTES), args.rounds)
        _small(spark, folder, int(SMALL_ROWS * args.scale), args.rounds)


def large_messages(spark: SparkSession, count: int) -> DataFrame:
    """Messages that no codec sees: 128 random digits, again and again."""
    times = MESSAGE_BYTES // 128
    frame = spark.range(0, count, 1, PARTITIONS)
    return frame.selectExpr("string(id) AS key", f"binary(repeat(sha2(string(id), 512), {times})) AS value")


def _large(spark: SparkSession, folder: Path, count: int, rounds: int) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", ARROW_BATCH_BYTES)
    data = large_messages(spark, count)
    size = count * (MESSAGE_BYTES // 128 * 128)
    seconds = seconds_by_turns(
        {
            "ours": _writer(data, folder / "large", {"max.message.segment.bytes": SEGMENT_BYTES}),
            "ceiling": lambda: data.write.format("trivial").mode("append").save(),
        },
        rounds,
        after=lambda name: shutil.rmtree(folder / "large", ignore_errors=True),
    )
    ours, ceiling = (size / seconds[name] / 1e6 for name in ("ours", "ceiling"))
    what = f"write {size / 1e6:.0f} MB of {MESSAGE_BYTES / 1e6:.0f} MB messages: {ours:.0f} MB/s"
    print_ratio(f"{what}, of {BAR} asked for", ours / BAR, at_least=1)
    print_ratio(f"{what}, ceiling {ceiling:.0f}", ours / ceiling)


def _small(spark: SparkSession, folder: Path, count: int, rounds: int) -> None:
    spark.conf.unset("spark.sql.execution.arrow.maxBytesPerBatch")
    data = rows(spark, count, SMALL_SIZE).cache()
    assert data.count() == count
    without = {"large.message.enabled": "false"}
    seconds = seconds_by_turns(
        {
            "ours": _writer(data, folder / "on", {"header.timestamp.enabled": "false"}),
            "with _t": _writer(data, folder / "with-timestamps", {}),
            "off": _writer(data, folder / "off", without),
        },
        rounds,
    )
    print_rate(f"write {SMALL_SIZE} B, large messages on, no timestamps", count, seconds, "off")
    print_rate(
        f"write {SMALL_SIZE} B, large messages on", count, {**seconds, "ours": seconds["with _t"]}, "off"
    )


def _writer(data: DataFrame, log_directory: Path, options: dict[str, object]) -> Callable[[], None]:
    topics = itertools.count()
    given = {"large.message.enabled": "true", "numPartitions": PARTITIONS, **options}

    def write() -> None:
        topic = f"topic-{next(topics)}"
        data.write.format("kafkalog").options(topic=topic, **given).mode("append").save(str(log_directory))

    return write


if __name__ == "__main__":
    main()
