"""A standalone cluster of two workers, with the package in an archive, as docs/deploy.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from pyspark_kafkalog import connect
from tests.documents.blocks import ROOT, code_blocks
from tests.documents.test_blocks import fill
from tests.kafka import Broker
from tests.kafka_process import free_ports

JOB = """
import os, sys
import pyspark_kafkalog
from pyspark.sql import SparkSession

brokers, folder = {"kafka.bootstrap.servers": sys.argv[1]}, sys.argv[2]
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
print(pyspark_kafkalog.register(spark))

def where(batches):
    import pyarrow as pa
    yield pa.RecordBatch.from_pydict({"python": [sys.executable], "folder": [os.getcwd()],
                                      "rows": [sum(batch.num_rows for batch in batches)]})

orders = spark.read.format("kafkalog").options(**brokers, subscribe="orders", minPartitions="8").load()
found = orders.mapInArrow(where, "python string, folder string, rows bigint").collect()
assert sum(row["rows"] for row in found) == 200, found
for row in found:
    assert row["python"] == os.path.join(row["folder"], "environment", "bin", "python"), found
assert len({row["folder"] for row in found}) == 2, "only one executor had tasks"
rows = orders.select("key", "value").write.format("kafkalog").option("topic", "orders")
rows.mode("append").save(f"{folder}/log")
stream = spark.readStream.format("kafkalog").options(startingOffsets="earliest")
writer = stream.load(f"{folder}/log").select("key", "value").writeStream.queryName("copy").format("kafkalog")
writer = writer.options(**brokers, **{"topic": "orders-copy", "delivery.guarantee": "exactly-once"})
writer.options(checkpointLocation=f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a running master with two workers, of one core each."""
    port, *ui_ports = free_ports(4)
    url = f"spark://127.0.0.1:{port}"
    home = Path(pyspark.__file__).parent
    package = "org.apache.spark.deploy"
    machines = [[f"{package}.master.Master", "--port", str(port)]]
    machines += [
        [
            f"{package}.worker.Worker",
            "--cores",
            "1",
            "--memory",
            "1g",
            "--work-dir",
            str(tmp_path / name),
            url,
        ]
        for name in ("worker-1", "worker-2")
    ]
    # spark-class is a shell script that becomes the JVM; a Worker waits for its master.
    with ExitStack() as running:
        for words, ui_port in zip(machines, ui_ports, strict=True):
            name, *rest = words
            command = [
                home / "bin" / "spark-class",
                name,
                "--host",
                "127.0.0.1",
                "--webui-port",
                str(ui_port),
                *rest,
            ]
            log = running.enter_context((tmp_path / f"{ui_port}.log").open("wb"))
            environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
            process = running.enter_context(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            )
            running.callback(process.kill)
        yield url


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.timeout(3600)
def test_a_cluster_gets_the_package_in_an_archive(tmp_path: Path, master: str, broker: Broker) -> None:
    for topic in "orders", "orders-copy":
        broker.create_topic(topic, 2)
    fill({"kafka.bootstrap.servers": broker.bootstrap})
    (block,) = (found for found in code_blocks(ROOT / "docs" / "deploy.md") if "spark://" in found.code)
    (tmp_path / "job.py").write_text(JOB)
    real = {
        "python3 -m venv": f"{sys.executable} -m venv",
        "install . ": f"install {ROOT} ",
        "spark-submit ": f"{Path(sys.executable).parent}/spark-submit --conf spark.executor.memory=512m ",
        "spark://master:7077": master,
        "job.py": f"job.py {broker.bootstrap} {tmp_path}",
    }
    code = block.code
    for name, stands_in in real.items():
        assert name in code
        code = code.replace(name, stands_in)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert re.search(r"is ready .*environment/bin/python", done.stdout), done.stdout
    place = connect({"kafka.bootstrap.servers": broker.bootstrap, "kafka.isolation.level": "read_committed"})
    assert place.read("orders-copy").read_all().num_rows == 200
