# Databricks notebook source
# MAGIC %md
# MAGIC # A live stream and its lag
# MAGIC
# MAGIC Spark shows no lag of Python sources, and its checkpoint isn't a consumer group, so usual lag tools
# MAGIC don't see a query. This notebook runs a stream that falls behind during a burst and catches up. It
# MAGIC shows the lag twice: by `LagListener` in Spark, and by Kafka's own tool, from the group to which the
# MAGIC stream commits.

# COMMAND ----------

from pyspark.sql import SparkSession

import pyspark_kafkalog

spark = (
    SparkSession.builder.config("spark.log.level", "ERROR")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
pyspark_kafkalog.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A broker and a producer
# MAGIC
# MAGIC A thread produces 2,000 records a second into three partitions, and 20,000 for five seconds in the
# MAGIC middle. Half of them have one key, so one partition gets most: a common cause of lag. Set
# MAGIC `KAFKA_BOOTSTRAP_SERVERS` to take brokers of your own.

# COMMAND ----------

import threading
import time

from broker import connect, describe_group
from confluent_kafka import Producer

broker = connect()
broker.make_topic("clicks", 3)
SECONDS, BURST = 24, range(6, 11)
produced = []


def produce() -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
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

import tempfile
from pathlib import Path

scratch = Path(tempfile.mkdtemp(prefix="kafkalog-notebook-"))
reading = {
    "kafka.bootstrap.servers": broker.bootstrap,
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
place = {"kafka.bootstrap.servers": broker.bootstrap}
groups = pyspark_kafkalog.connect(place).groups


def committed():
    offsets = groups.offsets()
    return sum(offset.offset for offset in offsets if offset.group == "clicks-etl")


while committed() < sum(produced):
    time.sleep(0.5)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What Kafka's own tool sees
# MAGIC
# MAGIC The query still runs. `kafka-consumer-groups --describe` shows its group like that of any other
# MAGIC consumer, and so does every monitor of lag. The group has no members: the query never joins it.

# COMMAND ----------

print(describe_group(broker.bootstrap, "clicks-etl"))
query.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The lag in a plot
# MAGIC
# MAGIC `listener.plot()` draws the lag of each partition. The same as a DataFrame is `listener.to_pandas()`,
# MAGIC for plots of your own.

# COMMAND ----------

import matplotlib.pyplot as plt

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
broker.delete_topic("clicks")
shutil.rmtree(scratch)
