"""Local Spark sessions for tests and benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_kafkalog import worker_python
from pyspark_kafkalog.spark.features import UNIX_SOCKETS
from tests import class_archives

OF_SHORT_LIVED_JVMS = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=240m",
    *class_archives.using(class_archives.OF_SPARK),
]
"""For JAVA_TOOL_OPTIONS: a third of all CPU time would go to the second compiler and the collector. With one
compiler a JVM keeps room for 48 MB of code, which a session of hundreds of tests fills, and ends."""


def local_session(
    name: str,
    folder: Path,
    *,
    jars: Iterable[Path] = (),
    conf: dict[str, str] | None = None,
    master: str = "local[2]",
) -> SparkSession:
    """A session on two local cores, with its warehouse in ``folder``.

    Without PYSPARK_PYTHON the workers would run the python3 of PATH, which is another
    interpreter if this one's virtualenv is not active. And each would compile PySpark
    again.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        **UNIX_SOCKETS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(conf or {}),
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
