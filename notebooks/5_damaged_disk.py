# Databricks notebook source
# MAGIC %md
# MAGIC # A damaged disk
# MAGIC
# MAGIC A broker died, and its disk is not what it was. No broker will serve that directory again, but most of
# MAGIC its records are fine. This notebook damages a log directory in four ways, then
# MAGIC
# MAGIC 1. finds out what is damaged, and which records are lost,
# MAGIC 2. reads on where a reader would stop,
# MAGIC 3. saves the rest to a new directory.
# MAGIC
# MAGIC It needs no broker. With a disk of your own, begin at *What is damaged?*, and mount it read-only.

# COMMAND ----------

# MAGIC %pip install --quiet ..

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
# MAGIC ## A directory to damage
# MAGIC
# MAGIC 300,000 orders in three partitions, one order every 75 ms. Segments are small, so that there are some
# MAGIC to damage; a broker's have 1 GB.

# COMMAND ----------

disk = scratch / "dead-disk"

orders = spark.range(0, 300_000, 1, 3).selectExpr(
    "concat('customer-', id % 1000) AS key",
    "to_json(struct(id AS order, id * 7919 % 10000 / 100 AS amount)) AS value",
    "array(struct('source' AS key, CAST('shop' AS BINARY) AS value)) AS headers",
    "timestamp_millis(1793491200000 + id * 75) AS timestamp",
    "CAST(id % 3 AS INT) AS partition",
)
(
    orders.write.format("kafkalog")
    .option("topic", "orders")
    .option("numPartitions", 3)
    .option("segment.bytes", 2 << 20)
    .mode("append")
    .save(str(disk))
)
for folder in sorted(disk.glob("orders-*")):
    segments = sorted(folder.glob("*.log"))
    print(f"{folder.name}: {len(segments)} segments, {sum(s.stat().st_size for s in segments) / 1e6:.1f} MB")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The damage
# MAGIC
# MAGIC | partition | what happens to it |
# MAGIC |---|---|
# MAGIC | 0 | One bit of the second segment flips. |
# MAGIC | 1 | 64 KiB in the middle of a segment become zeros: bad sectors. |
# MAGIC | 2 | A whole segment is gone, and the end of the last one was never written. |

# COMMAND ----------


def segment(partition: int, number: int) -> Path:
    return sorted((disk / f"orders-{partition}").glob("*.log"))[number]


def overwrite(file: Path, position: int, content: bytes) -> None:
    # As a whole: a volume of Databricks takes no writes in the middle of a file.
    whole = file.read_bytes()
    file.write_bytes(whole[:position] + content + whole[position + len(content) :])


flipped = segment(0, 1).read_bytes()[700_000] ^ 1
overwrite(segment(0, 1), 700_000, bytes([flipped]))
overwrite(segment(1, 1), 900_000, bytes(64 << 10))
segment(2, 1).unlink()
last = segment(2, -1)
last.write_bytes(last.read_bytes()[:-100])

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is damaged?
# MAGIC
# MAGIC `kafkalog verify /mnt/dead-disk` reads everything and checks every checksum, offset and index. The
# MAGIC same from Python, without Spark:

# COMMAND ----------


kafka = pyspark_kafkalog.connect(disk)
for verified in kafka.records.verify():
    print(f"{verified.topic}-{verified.partition}: {verified.records:,} records can be read")
    for damage in verified.damages:
        byte = "" if damage.position is None else f" at byte {damage.position:,}"
        print(f"    {Path(damage.file).name}{byte}: {damage.message}")

# COMMAND ----------

# MAGIC %md
# MAGIC Each damaged place is named, with its file and byte. Of the segment that is gone there are still
# MAGIC indexes, which prove that it was there. Damaged indexes cost nothing: readers check an
# MAGIC entry before they trust it, and search the segment instead.
# MAGIC
# MAGIC A reader stops at the first record that it can't deliver. It never leaves out records silently:

# COMMAND ----------

from pyspark.errors import PySparkException

stored = spark.read.format("kafkalog").option("includeHeaders", "true")
try:
    stored.option("assign", '{"orders":[0]}').load(str(disk)).count()
except PySparkException as error:
    print(str(error).splitlines()[-1].replace(f"{disk}/", ""))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read on
# MAGIC
# MAGIC With `failOnDataLoss=false` it continues at the next valid record batch, and logs what it has skipped.

# COMMAND ----------

readable = (
    spark.read.format("kafkalog")
    .option("subscribe", "orders")
    .option("includeHeaders", "true")
    .option("failOnDataLoss", "false")
    .load(str(disk))
    .cache()  # so that it is read, and what was skipped is logged, once
)
count = readable.count()
print(f"{count:,} of 300,000 records can be read, {count / 300_000:.1%}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is lost?
# MAGIC
# MAGIC Offsets tell. A topic that is not compacted has no gaps in them, so each gap is loss, and the
# MAGIC timestamps beside it say for which minutes to ask the producers. This would also find a segment of
# MAGIC which not even an index is left.
# MAGIC
# MAGIC Of the torn end only one thing is known: where it begins. The records behind it were the last that the
# MAGIC broker took, and may never have been acknowledged.

# COMMAND ----------

from pyspark.sql import Window
from pyspark.sql.functions import col, lead

following = Window.partitionBy("partition").orderBy("offset")
lost = (
    readable.select("partition", "offset", "timestamp")
    .withColumn("next", lead("offset").over(following))
    .withColumn("until", lead("timestamp").over(following))
    .where("next > offset + 1")
    .select(
        "partition",
        (col("offset") + 1).alias("first"),
        (col("next") - 1).alias("last"),
        (col("next") - col("offset") - 1).alias("records"),
        col("timestamp").alias("after"),
        col("until").alias("before"),
    )
    .orderBy("partition", "first")
    .toPandas()
)
print(lost.to_string(index=False))
ends = {
    row["partition"]: row["max(offset)"] + 1 for row in readable.groupBy("partition").max("offset").collect()
}
print(f"\nThe log of partition 2 ends at offset {ends[2]:,}")

# COMMAND ----------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(9, 2.6))
for partition, end in ends.items():
    axes.broken_barh([(0, end)], (partition - 0.3, 0.6), color="tab:blue")
for gap in lost.itertuples():
    # At least so wide that it can be seen.
    axes.broken_barh([(gap.first, max(gap.records, 400))], (gap.partition - 0.3, 0.6), color="tab:red")
axes.set_yticks(sorted(ends), [f"orders-{partition}" for partition in sorted(ends)])
axes.invert_yaxis()
axes.set_xlabel("offset")
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.set_title(f"Lost records in red: {lost.records.sum():,} in {len(lost)} gaps")
figure.tight_layout()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Save the rest
# MAGIC
# MAGIC `kafkalog repair --salvage --execute /mnt/dead-disk` mends the directory itself, and keeps its
# MAGIC offsets. Here the disk stays as it is. A copy to a new directory keeps partitions, keys, headers and
# MAGIC timestamps. Its offsets start at 0, without gaps, so old offsets of consumer groups don't fit it. A
# MAGIC broker can adopt the result, and Spark can read it.

# COMMAND ----------

saved = scratch / "saved"
(
    readable.select("key", "value", "headers", "timestamp", "partition", "topic")
    .write.format("kafkalog")
    .option("numPartitions", 3)
    .mode("append")
    .save(str(saved))
)

verified = list(pyspark_kafkalog.connect(saved).records.verify())
records, damages = sum(v.records for v in verified), sum(len(v.damages) for v in verified)
print(f"{records:,} records are saved, with {damages} damages")

copied = spark.read.format("kafkalog").option("includeHeaders", "true").load(str(saved))
content = ["partition", "CAST(key AS STRING)", "CAST(value AS STRING)", "timestamp", "headers"]
different = readable.selectExpr(*content).exceptAll(copied.selectExpr(*content)).count()
print(f"{different} of them differ from what could be read")

# COMMAND ----------

import shutil

shutil.rmtree(scratch)
