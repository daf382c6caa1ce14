# Databricks notebook source
# MAGIC %md
# MAGIC # From raw JSON to a Delta table, exactly once
# MAGIC
# MAGIC A topic holds orders as JSON, and some of them are broken. A stream decodes them and adds them to a
# MAGIC table. Each record becomes one row: the broken ones too, with what is wrong with them, so that nothing
# MAGIC is lost. Then the worst moment for a restart is made on purpose, and the rows are counted.
# MAGIC
# MAGIC The table is a Delta table if the session has Delta, as in Databricks, and else a Parquet table. Both
# MAGIC take each micro-batch once. The topic is in a log directory, so this needs no broker; with brokers
# MAGIC only `place` differs.

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
# MAGIC ## Raw JSON
# MAGIC
# MAGIC Orders of an hour in three partitions. One in a thousand is cut off, and one has an amount that is not
# MAGIC a number. In Databricks the widget `brokers` takes brokers of yours instead of a directory; a login
# MAGIC goes into `place`, too.

# COMMAND ----------

brokers = None
if "dbutils" in globals():
    dbutils.widgets.text("brokers", "")
    brokers = dbutils.widgets.get("brokers")
if brokers:
    place = {"kafka.bootstrap.servers": brokers}
else:
    place = {"path": str(scratch / "kafka-logs")}
    (scratch / "kafka-logs").mkdir()
kafka = pyspark_kafkalog.connect(place)
kafka.topics.create([pyspark_kafkalog.NewTopic("orders-json", 3)])


def produce(first, end):
    """Write the orders with these ids to the topic."""
    orders = spark.range(first, end, 1, 2).selectExpr(
        "id",
        "'c' || id % 700 AS customer",
        "IF(id = 7500, 'a lot', CAST(id * 7919 % 10000 / 100 AS STRING)) AS amount",
        "CAST(timestamp_millis(1793491200000 + id * 120 - int(3e5 * sin(id / 15000 * pi()))) AS STRING)"
        " AS ordered",
    )
    rows = orders.selectExpr(
        "CAST(id AS STRING) AS key",
        "IF(id % 1000 = 999, left(to_json(struct(*)), 30), to_json(struct(*))) AS value",
        "CAST(ordered AS TIMESTAMP) AS timestamp",
    )
    rows.write.format("kafkalog").options(**place, topic="orders-json").mode("append").save()


produce(0, 20_000)
print(kafka.read("orders-json", columns=["value"]).read_next_batch()["value"][0].as_py().decode())

# COMMAND ----------

# MAGIC %md
# MAGIC ## The table

# COMMAND ----------

if "dbutils" in globals():
    dbutils.widgets.text("table", "main.default.kafkalog_orders")
    table, table_format = dbutils.widgets.get("table"), "delta"
else:
    has_delta = "Delta" in spark.conf.get("spark.sql.extensions", "")
    table, table_format = "orders", "delta" if has_delta else "parquet"
print(f"The table is a {table_format} table")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The job
# MAGIC
# MAGIC `value.format=json` decodes values by a schema, as `from_json` does. If a value does not fit it,
# MAGIC `corrupt` has the record as it was, and the reason. The columns `partition` and `offset` say which
# MAGIC record a row is from. The reader has the checkpoint, too, so that a run notices a recreated topic.
# MAGIC
# MAGIC With the trigger `availableNow` the query reads what is there, and ends: a job for a schedule. Without
# MAGIC it, the query goes on for ever.

# COMMAND ----------


checkpoint = str(scratch / "checkpoint")


def run_job():
    query = (
        spark.readStream.format("kafkalog")
        .options(**place, subscribe="orders-json", startingOffsets="earliest", maxOffsetsPerTrigger=8_000)
        .option("checkpointLocation", checkpoint)
        .option("value.format", "json")
        .option("value.schema", "id bigint, customer string, amount decimal(10, 2), ordered timestamp")
        .option("includeCorrupt", "true")
        .load()
        .selectExpr(
            "value.*",
            "corrupt.reason AS broken",
            "CAST(corrupt.value AS STRING) AS raw",
            "partition",
            "offset",
            "timestamp",
        )
        .writeStream.format(table_format)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        print(f"micro-batch {progress['batchId']}: {progress['numInputRows']:,} rows")
    rows, records = spark.table(table).selectExpr("count(*)", "count(DISTINCT partition, offset)").first()
    print(f"The table has {rows:,} rows, from {records:,} records")


run_job()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The worst moment
# MAGIC
# MAGIC A driver may die when the table has a micro-batch, and the checkpoint does not say so yet. Spark does
# MAGIC that micro-batch again then, from the same offsets. To get there, the last entry of `commits` in the
# MAGIC checkpoint is deleted. Meanwhile 10,000 more orders have come.

# COMMAND ----------

last = max((scratch / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
last.unlink()
last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
produce(20_000, 30_000)
run_job()

# COMMAND ----------

# MAGIC %md
# MAGIC Micro-batch 2 was done again, and its rows are in the table once. Delta's log has the id of the query
# MAGIC and the number of its last micro-batch, so nothing is added again. A Parquet table of a stream has a
# MAGIC log for it, too. With `foreachBatch` it is yours to do: give Delta `txnAppId` and `txnVersion`, or use
# MAGIC `MERGE`.
# MAGIC
# MAGIC ## What is broken
# MAGIC
# MAGIC Broken records are in the same table, so they can be mended and sent again.

# COMMAND ----------

orders = spark.table(table)
broken = orders.where("broken IS NOT NULL")
some = broken.where("id = 7500 OR timestamp < '2026-11-01 00:02:30'").orderBy("timestamp")
display(some.select("partition", "offset", "raw", "broken"))
print(f"{orders.where('broken IS NULL').count():,} orders, {broken.count()} broken records")

# COMMAND ----------

import matplotlib.pyplot as plt
from matplotlib.dates import DateFormatter

minutes = spark.sql(f"""
    SELECT date_trunc('minute', timestamp) AS minute, CAST(sum(amount) AS DOUBLE) AS amount,
           count(broken) AS broken
    FROM {table} GROUP BY ALL ORDER BY minute
""").toPandas()
figure, (upper, lower) = plt.subplots(
    2, 1, figsize=(9, 4), sharex=True, gridspec_kw={"height_ratios": [3, 1]}
)
upper.step(minutes.minute, minutes.amount, where="post")
upper.set(title="What the table has, by minutes", ylabel="amount", ylim=(0, None))
upper.yaxis.set_major_formatter("{x:,.0f}")
lower.bar(minutes.minute, minutes.broken, width=1 / 1440, align="edge", color="tab:red")
lower.set(ylabel="broken", xlabel="timestamps of the records (UTC)")
lower.xaxis.set_major_formatter(DateFormatter("%H:%M"))
figure.tight_layout()

# COMMAND ----------

import shutil

spark.sql(f"DROP TABLE {table}")
kafka.topics.delete(kafka.topics.plan_deletion(["orders-json"]))
shutil.rmtree(scratch)
