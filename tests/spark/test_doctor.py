"""``doctor(spark)``: what executors see, and what is found where they lack the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import doctor
from pyspark_kafkalog.spark.features import UNIX_SOCKETS
from tests.kafka import Broker
from tests.kafka_secure import PASSWORD, SecureBroker
from tests.security.logins import password_login

ROOT = Path(__file__).parents[2]


def found(report: object, what: str) -> list[tuple[str, str]]:
    """Where and in which state."""
    return [(row["where"], row["state"]) for row in report.rows() if row["what"] == what]  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.broker
def test_a_broker_and_folders(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    report = doctor(spark, {"kafka.bootstrap.servers": broker.bootstrap}, stagingLocation=str(tmp_path))
    assert report.ok, str(report)
    for what in (f"bootstrap server {broker.bootstrap}", "stagingLocation", "package", "kernels"):
        (driver, executor) = found(report, what)
        assert driver == ("driver", "fine")
        assert executor[0].startswith("executor ")
    assert "1 of 1 reached" in str(report)
    for name in UNIX_SOCKETS:
        is_on = spark.sparkContext.getConf().get(name, "false") == "true"
        (row,) = (row for row in report.rows() if row["what"] == name)
        assert row["state"] == "fine"
        assert row["found"].startswith("on" if is_on else "off: this package does not wait")
        assert is_on or f"{name}=true before the session starts" in str(row["remedy"])
    assert os.listdir(tmp_path) == []


@pytest.mark.broker
def test_a_wrong_password_is_found_and_not_shown(spark: SparkSession, secure_broker: SecureBroker) -> None:
    wrong = password_login(secure_broker, "SASL_SSL", "PLAIN", password="wrong-93b1c7")
    report = doctor(spark, wrong)
    states = found(report, f"bootstrap server {wrong['kafka.bootstrap.servers']}")
    assert [state for _, state in states] == ["problem", "problem"]
    shown = str(report) + report._repr_html_() + json.dumps(report.rows())
    assert "SASL failed" in shown
    assert "wrong-93b1c7" not in shown
    assert PASSWORD not in shown


APPLICATION = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["PYSPARK_PYTHON"] = sys.argv[2]
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
from pyspark_kafkalog import doctor
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
rows = doctor(spark).rows()
spark.stop()
print(json.dumps(rows))
"""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("libraries", [("pyarrow", "numpy"), ()], ids=["without the package", "with nothing"])
def test_executors_without_the_package(tmp_path: Path, libraries: tuple[str, ...]) -> None:
    """Their interpreter is that of an environment of its own, with Arrow and little else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site_packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    for library in libraries:
        __import__(library)
        folder = Path(str(sys.modules[library].__file__)).parent
        for part in folder.parent.glob(f"{library}*"):
            (site_packages / part.name).symlink_to(part)
    python = tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, ROOT, python],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    (problem,) = (row for row in rows if row["state"] == "problem")
    if libraries:
        assert problem["where"].startswith("executors ")
        assert problem["found"].startswith("pyspark-kafkalog is missing")
    else:
        assert problem["what"] == "executors"
        assert "yarrow" in problem["found"] + problem["remedy"] or "libraries" in problem["remedy"], problem
    assert problem["remedy"]
