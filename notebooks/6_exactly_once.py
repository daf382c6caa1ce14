# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly once, shown by kills
# MAGIC
# MAGIC A stream copies 600,000 numbers from one topic to another, with `delivery.guarantee=exactly-once`. It
# MAGIC runs in a process of its own, and this notebook kills it (`kill -9`, with its JVM and its Python
# MAGIC workers) twice, just while rows are on their way to the broker. Each time it is started
# MAGIC again from its checkpoint. In Databricks, where Spark is not yours to kill, the query is stopped
# MAGIC instead, in the middle of a micro-batch.
# MAGIC
# MAGIC The count at the end is not ours: Confluent's client reads the copy with
# MAGIC `isolation.level=read_committed`.

# COMMAND ----------

# MAGIC %pip install --quiet .. confluent-kafka

# COMMAND ----------

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import pyspark_kafkalog

if "dbutils" in globals():  # Databricks, which gives spark and display
    dbutils.widgets.text("folder", "/Volumes/main/default/kafkalog")
    scratch = Path(tempfile.mkdtemp(prefix="kafkalog-notebook-", dir=dbutils.widgets.get("folder")))
else:
    scratch = Path(tempfile.mkdtemp(prefix="kafkalog-notebook-"))
    spark = (
        SparkSession.builder.config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(scratch / "tables"))
        .getOrCreate()
    )

    def display(frame):
        frame.show(truncate=False)


pyspark_kafkalog.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A broker and 600,000 numbers

# COMMAND ----------

COUNT = 600_000

if "dbutils" in globals():
    dbutils.widgets.text("brokers", "host:9092")
    brokers = dbutils.widgets.get("brokers")
else:
    from broker import address

    brokers = address()
place = {"kafka.bootstrap.servers": brokers}
kafka = pyspark_kafkalog.connect(place)
kafka.topics.create([pyspark_kafkalog.NewTopic(topic, 2) for topic in ("numbers", "copies")])
(
    spark.range(0, COUNT, 1, 2)
    .selectExpr("CAST(id AS STRING) AS key", "concat(id, repeat('.', 90)) AS value")
    .write.format("kafkalog")
    .options(**place, topic="numbers")
    .mode("append")
    .save()
)
print(f"{spark.read.format('kafkalog').options(**place, subscribe='numbers').load().count():,} numbers")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The stream
# MAGIC
# MAGIC Two options make it exact: `delivery.guarantee` and `checkpointLocation`. Six micro-batches take
# MAGIC 100,000 rows each.

# COMMAND ----------


def copy_numbers(spark, place, checkpoint):
    """Start the stream."""
    return (
        spark.readStream.format("kafkalog")
        .options(**place, subscribe="numbers", startingOffsets="earliest", maxOffsetsPerTrigger="100000")
        .load()
        .writeStream.format("kafkalog")
        .options(**place, topic="copies")
        .option("delivery.guarantee", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


# COMMAND ----------

# MAGIC %md
# MAGIC The same as a program, which can be killed. A run is two functions: one says whether it goes on, one
# MAGIC kills it.

# COMMAND ----------

import inspect
import os
import signal
import subprocess
import sys

checkpoint = str(scratch / "checkpoint")
program = scratch / "copy_numbers.py"
_ = program.write_text(f"""
from pyspark.sql import SparkSession

{inspect.getsource(copy_numbers)}

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
copy_numbers(spark, {place}, {checkpoint!r}).awaitTermination()
""")


def start():
    if "dbutils" in globals():
        query = copy_numbers(spark, place, checkpoint)
        return lambda: not query.awaitTermination(0.01), query.stop
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, program],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": pyspark_kafkalog.worker_python()},
            start_new_session=True,  # so that all of its processes can be killed at once
        )

    def goes_on():
        if process.poll():
            raise RuntimeError((scratch / "log").read_text()[-3000:])
        return process.returncode is None

    def kill():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    return goes_on, kill


# COMMAND ----------

# MAGIC %md
# MAGIC ## The reader that counts
# MAGIC
# MAGIC It follows the copy while the stream runs, and sees only what is committed.

# COMMAND ----------

from collections import Counter

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assignment


def reader(isolation_level: str) -> Consumer:
    settings = {
        "bootstrap.servers": brokers,
        "group.id": "independent-reader",
        "enable.auto.commit": False,
        "isolation.level": isolation_level,
    }
    consumer = Consumer(settings)
    consumer.assign([Assignment("copies", partition, 0) for partition in range(2)])
    return consumer


def count(consumer: Consumer, seen: Counter, timeout: float = 0) -> int:
    """Count some of the numbers that the reader has not seen yet; how many they are."""
    messages = [message for message in consumer.consume(5_000, timeout) if not message.error()]
    seen.update(int(message.value().rstrip(b".")) for message in messages)
    return len(messages)


committed, seen = reader("read_committed"), Counter()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Kill it, twice
# MAGIC
# MAGIC A kill comes while a transaction is open: then partitions end behind the last stable offset, up to
# MAGIC which a `read_committed` reader may read. The third run is left alone.

# COMMAND ----------

import time

cluster = kafka.place
partitions = [pyspark_kafkalog.TopicPartition("copies", number) for number in range(2)]
began = time.monotonic()
timeline, kills = [(0, 0)], []


def undecided() -> int:
    """How many offsets of transactions are neither committed nor aborted."""
    ends, stable = (cluster.end_offsets(partitions, read_committed=choice) for choice in (False, True))
    return sum(ends.values()) - sum(stable.values())


def run(kill_behind: int | None = None) -> None:
    """Run the stream to its end, or kill it when this many rows are committed and others under way."""
    left_open = undecided()  # by the run before; the next one aborts it
    goes_on, kill = start()
    while goes_on():
        committed_rows, now_open = sum(seen.values()), undecided()
        left_open = min(left_open, now_open)
        under_way = now_open - left_open
        if kill_behind is not None and committed_rows >= kill_behind and under_way > 10_000:
            kill()
            kills.append(time.monotonic() - began)
            print(f"Killed with {under_way:,} rows under way, behind {committed_rows:,} that are committed")
            return
        count(committed, seen)
        timeline.append((time.monotonic() - began, sum(seen.values())))
        time.sleep(0.02)
    print("The stream has ended by itself")


for rows in (100_000, 300_000):
    run(kill_behind=rows)
run()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The count

# COMMAND ----------

while count(committed, seen, timeout=2):
    pass
timeline.append((time.monotonic() - began, sum(seen.values())))

everything, stored = reader("read_uncommitted"), Counter()
while count(everything, stored, timeout=2):
    pass

print(f"read_uncommitted: {sum(stored.values()):>9,} records")
print(f"read_committed:   {sum(seen.values()):>9,} records")
print(f"missing numbers:  {COUNT - len(seen):>9,}")
print(f"doubled numbers:  {sum(times > 1 for times in seen.values()):>9,}")

# COMMAND ----------

# MAGIC %md
# MAGIC The additional records that `read_uncommitted` sees were on their way when the stream was killed. They
# MAGIC are in the log, but their transactions were aborted when the stream came back. Without
# MAGIC `delivery.guarantee` every reader would see them, twice.

# COMMAND ----------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(9, 3.2))
axes.step(*zip(*timeline, strict=True), where="post", label="committed rows")
for index, moment in enumerate(kills):
    axes.axvline(moment, color="tab:red", linestyle="--", label=None if index else "kill")
axes.axhline(COUNT, color="gray", linewidth=0.8)
axes.set(xlabel="time (s)", ylabel="rows", title="What a read_committed reader sees")
axes.yaxis.set_major_formatter("{x:,.0f}")
axes.legend(loc="upper left")
figure.tight_layout()

# COMMAND ----------

# MAGIC %md
# MAGIC [How exactly-once writes work](../docs/exactly-once-protocol.md) says what happens at a kill at each
# MAGIC step. `ci/kill-matrix` tries it.

# COMMAND ----------

import shutil

committed.close()
everything.close()
kafka.topics.delete(kafka.topics.plan_deletion(["numbers", "copies"]))
shutil.rmtree(scratch)
