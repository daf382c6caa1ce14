# Databricks notebook source
# MAGIC %md
# MAGIC # From `format("kafka")` to `format("kafkalog")`
# MAGIC
# MAGIC The same queries with both formats, side by side with times: a batch read, a write, and a stream that
# MAGIC changes its format and goes on from its checkpoint. In the code only one word differs.

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
# MAGIC ## A broker and a million records
# MAGIC
# MAGIC Four partitions, values of 100 bytes.

# COMMAND ----------

from pyspark.errors import PySparkException

COUNT = 1_000_000

if "dbutils" in globals():
    dbutils.widgets.text("brokers", "host:9092")
    brokers = dbutils.widgets.get("brokers")
else:
    from broker import address

    brokers = address()
place = {"kafka.bootstrap.servers": brokers}
kafka = pyspark_kafkalog.connect(place)
topics = ["events", "written-by-kafka", "written-by-kafkalog"]
kafka.topics.create([pyspark_kafkalog.NewTopic(topic, 4) for topic in topics])

events = spark.range(0, COUNT, 1, 2).selectExpr("CAST(id AS STRING) AS key", "rpad(id, 100, '.') AS value")
events.write.format("kafkalog").options(**place, topic="events").mode("append").save()

formats = ["kafkalog", "kafka"]
try:
    spark.read.format("kafka").options(**place, subscribe="events").load()
except PySparkException:
    formats = ["kafkalog"]
    print("This session does not have Spark's own connector: no comparison")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read
# MAGIC
# MAGIC First the rows: both formats give the same columns with the same content. Then the time of a full
# MAGIC read, the best of three, by turns.

# COMMAND ----------


def records(format):
    return spark.read.format(format).options(**place, subscribe="events").load()


def fingerprint(frame):
    columns = ", ".join(frame.columns)
    return frame.selectExpr(
        "count(*) AS rows", f"sum(CAST(xxhash64({columns}) AS DECIMAL(38))) AS hash"
    ).first()


records("kafkalog").printSchema()
found = {format: fingerprint(records(format)) for format in formats}
for format, row in found.items():
    print(f"{format:>8}: {row.rows:,} rows, fingerprint {row.hash}")

# COMMAND ----------

import time


def seconds(works):
    """The best time of three for each of the works, which are done by turns."""
    best = {}
    for _ in range(3):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
    return best


def read(format):
    return lambda: records(format).write.format("noop").mode("overwrite").save()


times = {"read": seconds({format: read(format) for format in formats})}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write
# MAGIC
# MAGIC PySpark wants `.mode("append")` for a Python source. That is the only difference to Spark's sink,
# MAGIC which takes it, too.

# COMMAND ----------


def write(format):
    sink = events.write.format(format).options(**place, topic=f"written-by-{format}")
    return lambda: sink.mode("append").save()


times["write"] = seconds({format: write(format) for format in formats})

# COMMAND ----------

# MAGIC %md
# MAGIC ## Move a running stream
# MAGIC
# MAGIC Both write the same offsets into the checkpoint. So a query that has stopped can be started with the
# MAGIC other format, and goes on where it was. Here `kafka` reads what is in the topic, 200,000 records come,
# MAGIC and `kafkalog` goes on with them.

# COMMAND ----------


def copy_new(format):
    source = spark.readStream.format(format).options(**place, subscribe="events")
    (
        source.option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(CAST(key AS STRING) AS BIGINT) AS id", f"'{format}' AS format")
        .writeStream.format("parquet")
        .option("path", str(scratch / "copy"))
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


copy_new(formats[-1])
more = spark.range(COUNT, COUNT + 200_000, 1, 2).selectExpr("CAST(id AS STRING) AS key", "key AS value")
more.write.format("kafkalog").options(**place, topic="events").mode("append").save()
copy_new("kafkalog")

copy = spark.read.parquet(str(scratch / "copy"))
display(copy.groupBy("format").count().orderBy("format"))
print(f"{copy.count():,} rows, {copy.select('id').distinct().count():,} different")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Times
# MAGIC
# MAGIC The figures of a short run on one machine, where the broker takes its share of the processor.
# MAGIC `tests/benchmarks` has careful ones, also of what is slower: a micro-batch of 1,000 rows.

# COMMAND ----------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 2.6))
for place_in_group, format in enumerate(formats):
    rates = [COUNT / times[what][format] / 1e6 for what in times]
    bars = axes.barh([row + 0.35 * place_in_group for row in range(len(times))], rates, 0.33, label=format)
    axes.bar_label(bars, fmt="%.2f", padding=3)
axes.set_yticks([row + 0.17 * (len(formats) - 1) for row in range(len(times))], list(times))
axes.set(xlabel="million rows a second (more is better)", title="1,000,000 records of 100 bytes")
axes.margins(x=0.12)
axes.invert_yaxis()
axes.legend(loc="lower right")
figure.tight_layout()

for what, best in times.items():
    print(f"{what:>5}: " + ", ".join(f"{format} {best[format]:.2f} s" for format in formats))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Not the same
# MAGIC
# MAGIC `tests/parity/PARITY.md` has every case of the tests of Spark's connector. In short: no update mode
# MAGIC (use `foreachBatch`), no continuous mode, no Java classes such as deserializers, and PEM instead of
# MAGIC Java's keystores.

# COMMAND ----------

import shutil

kafka.topics.delete(kafka.topics.plan_deletion(topics))
shutil.rmtree(scratch)
