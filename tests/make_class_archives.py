"""``python -m tests.make_class_archives``: run Spark and Kafka once, and archive what classes they load."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyspark
from kafka import KafkaProducer
from pyspark import SparkContext

from tests.class_archives import OF_KAFKA, OF_SPARK, making
from tests.kafka import Broker
from tests.kafka_jars import kafka_jars
from tests.sessions import local_session


def main() -> None:
    with ProcessPoolExecutor() as pool:
        kafka = pool.submit(_make, OF_KAFKA, kafka_jars(), _run_kafka)
        spark = pool.submit(_make, OF_SPARK, Path(pyspark.__file__).parent / "jars", _run_spark)
        kafka.result()
        spark.result()


def _make(archive: Path, jars: Path, run: Callable[[Path, list[str]], None]) -> None:
    """Make an archive, unless there is one that is newer than the jars."""
    if archive.exists() and archive.stat().st_mtime > jars.stat().st_mtime:
        return
    archive.unlink(missing_ok=True)
    unfinished = archive.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), making(unfinished))
    unfinished.rename(archive)


def _run_kafka(folder: Path, options: list[str]) -> None:
    broker = Broker(folder / "broker")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(options)
    broker.start()
    del os.environ["JAVA_TOOL_OPTIONS"]
    broker.create_topic("t")
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("t", b"v")
    broker.stop()


def _run_spark(folder: Path, options: list[str]) -> None:
    spark = local_session("classes", folder, conf={"spark.driver.extraJavaOptions": " ".join(options)})
    log = str(folder / "log")
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafkalog").option("topic", "t").mode("append").save(log)
    stream = spark.readStream.format("kafkalog").option("startingOffsets", "earliest").load(log)
    writer = stream.select("value").writeStream.format("kafkalog").option("topic", "u")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start(log).awaitTermination()
    assert spark.read.format("kafkalog").load(log).groupBy("partition").count().collect()
    spark.stop()
    # The JVM exits when its stdin is closed.
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
    jvm.stdin.close()
    jvm.wait(120)


if __name__ == "__main__":
    main()
