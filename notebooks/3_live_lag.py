# Databricks notebook source
# MAGIC %md
# MAGIC # A live stream and its lag
# MAGIC
# MAGIC Spark shows no lag of Python sources, and its checkpoint isn't a consumer group, so usual lag tools
# MAGIC don't see a query. This notebook runs a stream that falls behind during a burst and catches up. It
# MAGIC shows the lag twice: by `LagListener` in Spark, and by Confluent's client, from the group to which the
# MAGIC stream commits.

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
# MAGIC ## A broker and a producer
# MAGIC
# MAGIC A thread produces 2,000 records a second into three partitions, and 20,000 for five seconds in the
# MAGIC middle. Half of them have one key, so one partition gets most: a common cause of lag.

# COMMAND ----------

import threading
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assignment

if "dbutils" in globals():
    dbutils.widgets.text("brokers", "host:9092")
    brokers = dbutils.widgets.get("brokers")
else:
    from broker import address

    brokers = address()
place = {"kafka.bootstrap.servers": brokers}
kafka = pyspark_kafkalog.connect(place)
kafka.topics.create([pyspark_kafkalog.NewTopic("clicks", 3)])
SECONDS, BURST = 24, range(6, 11)
produced = []


def produce() -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20})
    began = time.time()
    for second in range(SECONDS):
        rate = 20_000 if second in BURST else 2_000
        for number in range(rate):
            key = b"popular" if number % 2 else str(number)
            producer.produce("clicks", b"x" * 100, key)
        producer.flush()
        produced.append(rate)
        time.sleep(max(0, began + second + 1 - time.time()))


producing = threading.Thread(target=produce)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The stream
# MAGIC
# MAGIC It takes at most 6,000 records each second, and commits what each micro-batch has finished to the
# MAGIC group `clicks-etl`. The listener prints a line for each micro-batch.

# COMMAND ----------

reading = {
    **place,
    "subscribe": "clicks",
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "6000",
    "kafka.group.id": "clicks-etl",
}
listener = pyspark_kafkalog.LagListener(reading, echo=print)
spark.streams.addListener(listener)

query = (
    spark.readStream.format("kafkalog")
    .options(**reading)
    .load()
    .writeStream.queryName("clicks")
    .format("noop")
    .option("checkpointLocation", str(scratch / "checkpoint"))
    .trigger(processingTime="1 second")
    .start()
)
producing.start()
producing.join()

# The producer is done; wait until all is read, and committed to the group.
while sum(offset.offset for offset in kafka.groups.committed("clicks-etl").values()) < sum(produced):
    time.sleep(0.5)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What other clients see
# MAGIC
# MAGIC The query still runs. Its group is like that of any other consumer, for `kafka-consumer-groups
# MAGIC --describe`, every monitor of lag, and Confluent's client here. It has no members: the query never
# MAGIC joins it.

# COMMAND ----------

consumer = Consumer({"bootstrap.servers": brokers, "group.id": "clicks-etl"})
for found in consumer.committed([Assignment("clicks", partition) for partition in range(3)], timeout=30):
    _, end = consumer.get_watermark_offsets(found, timeout=30)
    print(f"clicks-{found.partition}: committed {found.offset:,} of {end:,}, lag {end - found.offset}")
consumer.close()
query.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The lag in a plot
# MAGIC
# MAGIC `listener.plot()` draws the lag of each partition. The same as a DataFrame is `listener.to_pandas()`,
# MAGIC for plots of your own.

# COMMAND ----------

import matplotlib.pyplot as plt

# Spark tells listeners of a micro-batch some time after it.
while listener.to_pandas(query.id).groupby("batchId").rows.first().sum() < sum(produced):
    time.sleep(0.5)

figure, axes = plt.subplots(figsize=(9, 3.2))
listener.plot(query.id, ax=axes)
figure.tight_layout()

# COMMAND ----------

history = listener.to_pandas(query.id)
total = history.groupby("timestamp").lag.sum()
worst = history.loc[history.lag.idxmax()]
print(f"{sum(produced):,} records were produced, {history.groupby('batchId').rows.first().sum():,} read")
print(f"The lag rose to {total.max():,} offsets, and is {total.iloc[-1]:,} in the end")
print(f"Partition {worst.partition} was furthest behind, by {worst.lag:,} offsets")

# COMMAND ----------

import shutil

spark.streams.removeListener(listener)
kafka.topics.delete(kafka.topics.plan_deletion(["clicks"]))
shutil.rmtree(scratch)
