# Databricks notebook source
# MAGIC %md
# MAGIC # Explore a log directory
# MAGIC
# MAGIC What is in the folder in which a broker keeps its data? Three views answer with SQL: `topics`,
# MAGIC `segments` and `batches`. They read headers, not records, so they are fast on large directories, and
# MAGIC need no broker.
# MAGIC
# MAGIC This notebook writes a small directory first. With one of your own, such as a mounted backup or an
# MAGIC entry of `log.dirs`, begin at *How large is it?*

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
# MAGIC ## A directory
# MAGIC
# MAGIC | topic | how it is written |
# MAGIC |---|---|
# MAGIC | `orders` | lz4, in batches of 4 KiB; from 01:20 to 01:32 nothing arrived |
# MAGIC | `clicks` | one record in each batch, as from a producer that waits for every answer |
# MAGIC | `metrics` | zstd, in batches of 256 KiB |

# COMMAND ----------

directory = scratch / "kafka-logs"


def write(topic, count, *, partitions, where="true", **options):
    """Write this many rows, spread over two hours."""
    rows = spark.range(0, count, 1, 2).selectExpr(
        "concat('customer-', id % 1000) AS key",
        "to_json(struct(id, 'page-' || id % 50 AS page, id * 7919 % 10000 / 100 AS amount)) AS value",
        f"timestamp_millis(1793491200000 + CAST(id * 7200000D / {count} AS BIGINT)) AS timestamp",
        f"CAST(id % {partitions} AS INT) AS partition",
    )
    sink = rows.where(where).write.format("kafkalog").option("topic", topic)
    sink.option("numPartitions", partitions).options(**options).mode("append").save(str(directory))


lz4 = {"compression.type": "lz4", "batch.size": 4 << 10, "segment.bytes": 1 << 20}
write("orders", 300_000, partitions=3, where="timestamp < '2026-11-01 01:20:00'", **lz4)
write("orders", 300_000, partitions=3, where="timestamp >= '2026-11-01 01:32:00'", **lz4)
write("clicks", 40_000, partitions=2, **{"batch.size": 1, "segment.bytes": 1 << 20})
write("metrics", 200_000, partitions=1, **{"compression.type": "zstd", "batch.size": 256 << 10})

# COMMAND ----------

# MAGIC %md
# MAGIC ## How large is it?

# COMMAND ----------


def view(name, **options):
    return spark.read.format("kafkalog").option("view", name).options(**options).load(str(directory))


view("topics").createOrReplaceTempView("topics")
sizes = spark.sql("""
    SELECT topic, count(*) AS partitions, sum(segments) AS segments,
           sum(highWatermark - logStartOffset) AS offsets, round(sum(storedBytes) / 1e6, 1) AS MB,
           min(earliestTimestamp) AS earliest, max(latestTimestamp) AS latest
    FROM topics GROUP BY topic ORDER BY MB DESC
""")
display(sizes)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who writes small batches?
# MAGIC
# MAGIC Kafka stores record batches as producers sent them. Each has a header of 61 bytes, an index entry now
# MAGIC and then, and its own compression.

# COMMAND ----------

batches = view("batches").cache()
batches.createOrReplaceTempView("batches")
writers = spark.sql("""
    SELECT topic, first(compression) AS compression, count(*) AS batches,
           round(avg(records), 1) AS `records/batch`, round(avg(storedBytes)) AS `bytes/batch`,
           round(sum(storedBytes) / sum(records), 1) AS `bytes/record`
    FROM batches GROUP BY topic ORDER BY topic
""")
display(writers)

# COMMAND ----------

import matplotlib.pyplot as plt

stored = batches.select("topic", "storedBytes").toPandas()
names = sorted(stored.topic.unique())
figure, axes = plt.subplots(figsize=(9, 3.2))
edges = [10 ** (exponent / 10) for exponent in range(18, 56)]
for name in names:
    axes.hist(stored.storedBytes[stored.topic == name], bins=edges, label=name, alpha=0.8)
axes.set(xscale="log", yscale="log", xlabel="stored size of a record batch (bytes)", ylabel="batches")
axes.set_title("Sizes of record batches")
axes.legend()
figure.tight_layout()

# COMMAND ----------

# MAGIC %md
# MAGIC The topic `clicks` pays for its batches of one record. What would it take if its producer collected
# MAGIC records for a moment and compressed them? The answer is an experiment: write it again.

# COMMAND ----------

again = scratch / "again"
clicks = spark.read.format("kafkalog").option("subscribe", "clicks").load(str(directory))
sink = clicks.select("topic", "partition", "key", "value", "timestamp").write.format("kafkalog")
sink.options(**{"numPartitions": 2, "compression.type": "zstd"}).mode("append").save(str(again))


def megabytes(root):
    return sum(file.stat().st_size for file in root.glob("clicks-*/*.log")) / 1e6


print(f"clicks: {megabytes(directory):.1f} MB as it is, {megabytes(again):.1f} MB in zstd and 16 KiB batches")

# COMMAND ----------

# MAGIC %md
# MAGIC ## When did nothing arrive?
# MAGIC
# MAGIC Each batch has the first and the greatest timestamp of its records. Where the next batch of a
# MAGIC partition begins minutes later, nothing was written meanwhile, or it is lost.

# COMMAND ----------

silences = spark.sql("""
    SELECT topic, partition, maxTimestamp AS last, next AS then,
           round((unix_millis(next) - unix_millis(maxTimestamp)) / 60000, 1) AS minutes
    FROM (SELECT *, lead(firstTimestamp) OVER (PARTITION BY topic, partition ORDER BY baseOffset) AS next
          FROM batches)
    WHERE next > maxTimestamp + INTERVAL 5 MINUTES ORDER BY topic, partition
""")
display(silences)

# COMMAND ----------

from matplotlib.dates import DateFormatter

minutes = spark.sql("""
    SELECT topic, date_trunc('minute', firstTimestamp) AS minute, sum(records) AS records
    FROM batches GROUP BY ALL ORDER BY minute
""").toPandas()
rates = minutes.pivot(index="minute", columns="topic", values="records").resample("1min").asfreq().fillna(0)
# A batch of metrics lasts for several minutes, and would count as the first of them.
figure, axes = plt.subplots(figsize=(9, 3))
for name in ("orders", "clicks"):
    axes.plot(rates.index, rates[name], label=name)
axes.set(xlabel="time (UTC)", ylabel="records per minute", title="What arrived", ylim=(0, None))
axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
axes.yaxis.set_major_formatter("{x:,.0f}")
axes.legend(loc="center right")
figure.tight_layout()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Segments
# MAGIC
# MAGIC Retention deletes whole segments. Which hours does each hold?

# COMMAND ----------

from matplotlib.dates import date2num

segments = view("segments").orderBy("topic", "partition", "baseOffset")
display(segments.groupBy("topic", "indexState").count().orderBy("topic"))

rows = segments.selectExpr("concat(topic, '-', partition) AS log", "*").toPandas()
logs = list(dict.fromkeys(rows.log))
figure, axes = plt.subplots(figsize=(9, 3))
for row in rows.itertuples():
    begin, end = date2num([row.earliestTimestamp, row.latestTimestamp])
    color = "tab:orange" if row.active else "tab:blue"
    axes.broken_barh(
        [(begin, end - begin)], (logs.index(row.log) - 0.35, 0.7), color=color, edgecolor="white"
    )
axes.set_yticks(range(len(logs)), logs)
axes.invert_yaxis()
axes.xaxis_date()
axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
axes.set(xlabel="timestamps of the records (UTC)", title="Segments; those that are written to in orange")
figure.tight_layout()

# COMMAND ----------

import shutil

shutil.rmtree(scratch)
