# Databricks notebook source
# MAGIC %md
# MAGIC # Large messages, and an audit
# MAGIC
# MAGIC A broker refuses record batches above `max.message.bytes`, 1 MB by default. With
# MAGIC `large.message.enabled` a writer cuts larger values into *message segments*, ordinary records that
# MAGIC every broker takes, and a reader puts them together again. The format is that of LinkedIn's clients.
# MAGIC
# MAGIC This notebook writes documents of up to 6 MB, reads them back, and loses one on purpose. An audit on
# MAGIC both sides counts what was written and what was read, and shows that something is missing.
# MAGIC
# MAGIC It needs no broker: both places here are log directories. With brokers only the address differs.

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
# MAGIC ## Documents
# MAGIC
# MAGIC 60 documents within an hour, from 100 kB to 6 MB. Each has a fingerprint, by which it is recognized
# MAGIC later.

# COMMAND ----------

audited = {"auditLocation": str(scratch / "audit"), "auditor.bucket.ms": "600000"}
large = {"large.message.enabled": "true"}

documents = spark.range(0, 60, 1, 2).selectExpr(
    "concat('document-', id) AS key",
    "CAST(repeat(sha2(CAST(id AS STRING), 256), CAST(1600 * pow(1.07, id) AS INT)) AS BINARY) AS value",
    "timestamp_millis(1793491200000 + id * 60000) AS timestamp",
)
sizes = documents.selectExpr("length(value) / 1e6 AS MB")
display(sizes.selectExpr("count(*)", "round(min(MB), 1)", "round(max(MB), 1)", "round(sum(MB), 1)"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write
# MAGIC
# MAGIC The writer also counts messages and bytes for the audit, before it cuts them.

# COMMAND ----------

source = scratch / "kafka-logs"
(
    documents.write.format("kafkalog")
    .option("topic", "documents")
    .options(**large, **audited)
    .mode("append")
    .save(str(source))
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is stored
# MAGIC
# MAGIC A plain read shows the records as they are. Small documents are one record. The others are several,
# MAGIC with the same key, none above 800 kB (`max.message.segment.bytes`); a header `_lm` says which message
# MAGIC segment each is.

# COMMAND ----------

records = spark.read.format("kafkalog").option("includeHeaders", "true").load(str(source))
records.createOrReplaceTempView("records")
some = spark.sql("""
    SELECT CAST(key AS STRING) AS key, count(*) AS records, max(length(value)) AS largest,
           sum(length(value)) AS bytes, collect_list(headers.key)[0] AS headers
    FROM records GROUP BY key HAVING key IN ('document-0', 'document-50', 'document-59') ORDER BY key
""")
display(some)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read whole messages
# MAGIC
# MAGIC The same option on the reader gives whole documents. Each has the offset of the record that completed
# MAGIC it.

# COMMAND ----------

whole = spark.read.format("kafkalog").options(**large).load(str(source))


def fingerprints(frame):
    return frame.selectExpr("CAST(key AS STRING) AS key", "sha2(value, 256) AS fingerprint")


missing = fingerprints(documents).exceptAll(fingerprints(whole)).count()
print(f"{records.count()} records hold {whole.count()} documents; {missing} differ from what was written")

# COMMAND ----------

import matplotlib.pyplot as plt

stored = records.selectExpr("offset", "length(value) / 1e6 AS MB").orderBy("offset").toPandas()
messages = whole.selectExpr("offset", "length(value) / 1e6 AS MB").orderBy("offset").toPandas()
figure, (upper, lower) = plt.subplots(2, 1, figsize=(9, 4.5), sharex=True)
upper.bar(stored.offset, stored.MB, width=1, color="tab:blue")
upper.set(title="As stored: one bar for each record", ylabel="value (MB)", ylim=(0, 1.5))
upper.axhline(1.048588, color="tab:red", linestyle="--", label="max.message.bytes")
upper.legend(loc="upper left")
lower.bar(messages.offset, messages.MB, width=1, color="tab:green")
lower.set(title="As read: one bar for each document", ylabel="value (MB)", xlabel="offset")
figure.tight_layout()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Lose one
# MAGIC
# MAGIC A mirror copies the records one by one, and loses a single one of them: the second message segment of
# MAGIC `document-50`.

# COMMAND ----------

mirror = scratch / "mirror"
first = records.where("CAST(key AS STRING) = 'document-50'").agg({"offset": "min"}).collect()[0][0]
(
    records.where(f"offset != {first + 1}")
    .select("topic", "key", "value", "headers", "timestamp")
    .write.format("kafkalog")
    .mode("append")
    .save(str(mirror))
)

# COMMAND ----------

# MAGIC %md
# MAGIC A reader of the mirror can't deliver that document. It waits for the missing message segment, for as
# MAGIC many offsets as `message.assembler.expiration.offset.gap` says, and then drops what it has. With
# MAGIC `large.message.dead.letters` each dropped message is a row of its own, whose column `dropped` says
# MAGIC why, and holds what is there.

# COMMAND ----------

delivered = (
    spark.read.format("kafkalog")
    .options(**large, **audited)
    .option("large.message.dead.letters", "true")
    .option("message.assembler.expiration.offset.gap", 50)
    .load(str(mirror))
    .cache()
)
dropped = delivered.where("dropped IS NOT NULL").selectExpr(
    "dropped.reason",
    "dropped.startingOffset",
    "dropped.segmentCount",
    "transform(dropped.segments, segment -> segment.number) AS found",
)
display(dropped)
print(f"{delivered.where('dropped IS NULL').count()} documents were delivered")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The audit
# MAGIC
# MAGIC You need not look into the mirror to notice. Both sides have counted, by topic and by buckets of ten
# MAGIC minutes of the records' own timestamps. Where the counts differ, something was lost.

# COMMAND ----------

audit = spark.read.format("kafkalog").option("view", "audit").load(audited["auditLocation"])
display(audit.groupBy("side", "topic", "kind").sum("messages", "bytes").orderBy("side", "kind"))

# COMMAND ----------

counts = (
    audit.where("kind = 'SUCCESS'")
    .groupBy("bucketStart")
    .pivot("side", ["producer", "consumer"])
    .sum("messages")
    .orderBy("bucketStart")
    .toPandas()
)
figure, axes = plt.subplots(figsize=(9, 2.8))
labels = counts.bucketStart.dt.strftime("%H:%M")
axes.bar(labels, counts.producer, width=-0.35, align="edge", label="written")
axes.bar(labels, counts.consumer, width=0.35, align="edge", label="read")
axes.set(xlabel="start of the bucket (UTC)", ylabel="documents", ylim=(0, 14), yticks=range(0, 11, 2))
axes.set_title("Written and read, in buckets of 10 minutes")
axes.legend(ncols=2)
figure.tight_layout()

for bucket in counts[counts.producer != counts.consumer].itertuples():
    print(f"From {bucket.bucketStart:%H:%M} on: {bucket.producer} written, {bucket.consumer} read")

# COMMAND ----------

import shutil

shutil.rmtree(scratch)
