"""All of it under Spark Connect, in a process of its own: a process holds one kind of session."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_kafkalog import __version__
from tests.broker.producing import unused_topic
from tests.kafka import Broker

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.soak]


def test_spark_connect(broker: Broker, tmp_path: Path) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 2)
    application = [sys.executable, "-m", "tests.spark.connect_application"]
    done = subprocess.run(
        [*application, str(tmp_path), broker.bootstrap, topic],
        cwd=ROOT,
        # Workers of a Connect session run in a folder of its own.
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    spark = importlib.metadata.version("pyspark")
    assert said["done"] == {
        "directory": True,
        "broker": True,
        "doctor": [],
        "register": f"kafkalog {__version__} is ready on Spark {spark};"
        " the server chooses its workers' Python",
        "registered": True,
        "reassembled": [True, True],
    }
    assert len(said["lag"]) >= 2
    assert all("1,000 rows" in line and "offsets behind" in line for line in said["lag"]), said["lag"]
