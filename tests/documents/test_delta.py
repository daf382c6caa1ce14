"""The recipe that merges into a Delta table, in a process of its own: a JVM has one set of jars."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.blocks import ROOT, code_blocks

SCRIPT = """
import sys
from datetime import datetime
from pathlib import Path

import pyspark_kafkalog
from pyspark.sql import functions as F
from tests.kafka_jars import delta_jars
from tests.sessions import local_session

folder = Path(sys.argv[1])
confs = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "1",
}
spark = local_session("delta", folder, jars=delta_jars(), conf=confs)
pyspark_kafkalog.register(spark)
spark.sql("CREATE TABLE customers (customer string, price double, at timestamp) USING delta")
schema = "customer string, price double, at timestamp"
recipe = compile(sys.stdin.read().replace("/checkpoints/", f"{folder}/"), "recipes.md", "exec")

def pay(*payments):
    rows = spark.createDataFrame([(*each, datetime(2026, 1, 1)) for each in payments], schema)
    writer = rows.selectExpr("to_json(struct(*)) AS value").coalesce(1).write.format("kafkalog")
    writer.option("topic", "payments").mode("append").save(f"{folder}/log")

def run():
    options = {"value.format": "json", "value.schema": schema, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafkalog").options(**options).load(f"{folder}/log")
    exec(recipe, {"F": F, "payments": stream.select("value.*", "offset")})
    merges = spark.sql("DESCRIBE HISTORY customers").where("operation = 'MERGE'").count()
    return merges, {row.customer: row.price for row in spark.table("customers").collect()}

pay(("c0", 1.0), ("c1", 2.0), ("c0", 3.0))
assert run() == (1, {"c0": 3.0, "c1": 2.0})
# As if the driver was killed before Spark noted that the micro-batch is done.
for file in Path(folder, "customers", "commits").glob("*0*"):
    file.unlink()
assert run() == (1, {"c0": 3.0, "c1": 2.0})
pay(("c1", 4.0), ("c2", 5.0))
assert run() == (2, {"c0": 3.0, "c1": 4.0, "c2": 5.0})
print("done")
"""


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_micro_batch_is_merged_once(tmp_path: Path) -> None:
    (recipe,) = (block for block in code_blocks(ROOT / "docs" / "recipes.md") if "MERGE INTO" in block.code)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, input=recipe.code, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("done\n"), done.stderr[-4000:]
