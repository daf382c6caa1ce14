"""Runs the smoke test by a thin client of Spark Connect, with the package on the server and on both sides.

Usage: ``python -m tests.spark.connect_matrix SERVER CLIENT CLIENT-WITH-PACKAGE``, three interpreters: with
PySpark and the package; with ``pyspark-client`` alone; with ``pyspark-client`` and the package. It prints
mode x place of the package; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka_process import free_ports, listens
from tests.spark.smoke_matrix import ROOT, print_table, smoke

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(python: str, folder: Path) -> Iterator[str]:
    """A Connect server of the PySpark of ``python``, which its workers run, too; yields its address."""
    home = subprocess.run(
        [python, "-c", "import pyspark; print(*pyspark.__path__)"], text=True, capture_output=True, check=True
    ).stdout.strip()
    (port,) = free_ports(1)
    confs = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--class", _SERVER]
    for name, value in confs.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        while not listens(f"127.0.0.1:{port}"):
            assert server.poll() is None, (folder / "server.log").read_text()[-4000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def without_package(folder: Path) -> Path:
    """A folder to run the smoke test from, with the tests and without the package."""
    found = folder / "tests-only"
    found.mkdir()
    (found / "tests").symlink_to(ROOT / "tests")
    return found


def main(server: str, client: str, client_with_package: str) -> int:
    found = {}
    with tempfile.TemporaryDirectory(prefix="kafkalog-connect-") as scratch:
        folder = Path(scratch)
        with connect_server(server, folder) as address:
            for name, interpreter, root in (
                ("on the server", client, without_package(folder)),
                ("on both", client_with_package, ROOT),
            ):
                found[name] = smoke(interpreter, address, root=root)
    return print_table(found)


if __name__ == "__main__":
    sys.exit(main(*map(os.path.abspath, sys.argv[1:])))
