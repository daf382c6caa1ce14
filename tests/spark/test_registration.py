"""One line makes every mode work where no virtual environment is active; what workers lack is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceRegistration

from pyspark_kafkalog import DefaultSource, by_value, register, worker_python
from pyspark_kafkalog.errors import RegistrationError

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pyspark.sql import SparkSession
import pyspark_kafkalog

session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    print(pyspark_kafkalog.register(session))
except pyspark_kafkalog.KafkaLogError as e:
    sys.exit(str(e))
folder, checkpoint = sys.argv[1:]
rows = session.range(5).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("kafkalog").option("topic", "t").mode("append").save(folder)
stream = session.readStream.format("kafkalog").option("startingOffsets", "earliest").load(folder)
copy = stream.drop("topic").writeStream.format("kafkalog").option("topic", "copy").trigger(availableNow=True)
copy.option("checkpointLocation", checkpoint).start(folder).awaitTermination()
print(session.read.format("kafkalog").load(folder).count())
"""

PEM = "-----BEGIN {0}-----\nhush\n-----END {0}-----"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def in_a_thread(run: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(run).result()


def test_a_thread_that_registers_can_write(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("kafkalog").mode("append").option("topic", "t")

    def write() -> None:
        register(spark)
        writer.save(str(tmp_path))

    in_a_thread(write)
    assert spark.read.format("kafkalog").load(str(tmp_path)).count() == 3


def test_a_source_that_spark_has_found_by_its_name_stays(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4.0 says that the source exists already."""

    def refuse(_: object, source: type[DefaultSource]) -> None:
        raise AnalysisException(f"[DATA_SOURCE_ALREADY_EXISTS] Data source {source.name()!r} already exists.")

    monkeypatch.setattr(DataSourceRegistration, "register", refuse)
    assert register(spark).spark_version == spark.version


def test_spark_shows_no_login_of_a_view(spark: SparkSession) -> None:
    """As its event log and UI have the plan of a view, with the options of what it reads."""
    register(spark)
    register(spark)
    shown, module = "127.0.0.1:1", "software.amazon.msk.auth.iam.IAMLoginModule"
    options = {
        "kafka.bootstrap.servers": shown,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f'{module} required awsProfileName="hush1";',
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": PEM.format("PRIVATE KEY"),
        "kafka.ssl.keystore.certificate.chain": PEM.format("CERTIFICATE"),
        "transform": by_value(lambda batch: batch),
    }
    frame = spark.read.format("kafkalog").options(subscribe="t", **options).load()
    relation = frame._jdf.queryExecution().analyzed().collectLeaves().apply(0).verboseStringWithOperatorId()
    assert shown in relation
    assert not [text for text in ("hush", "by-value", "IAMLogin") if text in relation]
    assert spark.conf.get("spark.sql.redaction.options.regex", "").startswith("(?i)url|")


def test_another_version_of_spark_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the JVM makes of another version's calls differs; here there is no such source."""
    monkeypatch.setattr(pyspark, "__version__", "3.9.1")
    monkeypatch.setattr(DefaultSource, "name", classmethod(lambda cls: "nosuch"))
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with pytest.raises(RegistrationError) as caught:
        register(spark)
    version = ".".join(spark.version.split(".")[:3])
    assert f"Spark {spark.version} runs (SPARK_HOME=/opt/spark), but PySpark 3.9.1 is imported" in str(
        caught.value
    )
    assert f"install pyspark=={version}." in str(caught.value)


def test_another_version_of_python_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")
    with pytest.raises(
        RegistrationError, match=r"PYTHON_VERSION_MISMATCH.* version of Python: let PYSPARK_PYTHON"
    ):
        register(spark)
    monkeypatch.undo()
    register(spark)  # the session is that of other tests, too


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script without a virtual environment on the PATH, whose python3 has none of the packages."""
    bare = folder / "bare"
    venv.create(bare, with_pip=False)
    java = Path(os.path.realpath(shutil.which("java") or "java")).parents[1]
    settings = {
        "PATH": os.pathsep.join([str(bare / "bin"), "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "JAVA_HOME": str(java),
        "PYTHONPATH": str(ROOT),
        "JAVA_TOOL_OPTIONS": os.environ["JAVA_TOOL_OPTIONS"],
    }
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "log"), str(folder / "checkpoint")],
        cwd=folder,
        env={**settings, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.long
def test_every_mode_works_where_no_environment_is_active(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    ready, count = done.stdout.splitlines()
    assert ready.startswith("kafkalog ")
    assert ready.endswith(f"; workers run {worker_python()}")
    assert count == "10"


@pytest.mark.soak
def test_an_interpreter_that_lacks_the_package_is_named(tmp_path: Path) -> None:
    named = str(tmp_path / "bare" / "bin" / "python3")
    done = run(tmp_path, PYSPARK_PYTHON=named)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert "Spark's workers can't run the package: ModuleNotFoundError: No module named 'py" in error
    assert f"Install the package for {named}" in error
