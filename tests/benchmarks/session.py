"""The folder and the Spark session of a benchmark."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from tests.kafka_jars import spark_avro_jars, spark_kafka_connector_jars
from tests.sessions import local_session

FORMATS = {"ours": "kafkalog", "Spark's kafka": "kafka"}
"""The contestants of the broker benchmarks: they differ in the format's name alone."""


@contextlib.contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A new folder in ``parent``, or where temporary files go, that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-benchmark-", dir=parent) as folder:
        yield Path(folder)


@contextlib.contextmanager
def benchmark_session(
    folder: Path, conf: Mapping[str, str] = MappingProxyType({}), jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session that has Spark's own ``kafka`` and ``from_avro`` too, and ``conf`` and ``jars`` besides."""
    jars = [*spark_kafka_connector_jars(), *spark_avro_jars(), *jars]
    session = local_session("benchmark", folder, jars=jars, conf={"spark.driver.memory": "2g", **conf})
    try:
        yield session
    finally:
        session.stop()
