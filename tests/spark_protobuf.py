"""Spark's ``from_protobuf`` and ``to_protobuf``: a jar that not every copy of Maven Central has.

Where Ivy does not find it, it is compiled from a checkout of Spark's source (``KAFKALOG_SPARK_SOURCE``, a
folder or a git directory), by the Scala compiler among PySpark's own jars.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import subprocess
import tarfile
import zlib
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.tools.try_out.jars import java, once, resolve

_NAMED = "KAFKALOG_SPARK_SOURCE"
_SOURCES = "connector/protobuf/src/main"
# Spark's own jar has it within, under another name.
_JAVA_UTIL = "4.33.0"


def spark_protobuf_jars() -> list[Path]:
    """The jars of ``from_protobuf``, for the PySpark that is installed.

    :raises KafkaLogError: if they can neither be fetched nor compiled.
    """
    version = importlib.metadata.version("pyspark")
    artifact = f"org.apache.spark:spark-protobuf_2.13:{version}"
    try:
        return sorted(resolve(f"spark-protobuf-{version}", [artifact], transitive=False).glob("*.jar"))
    except KafkaLogError:
        source = os.environ.get(_NAMED)
        if not source:
            raise
    util = f"com.google.protobuf:protobuf-java-util:{_JAVA_UTIL}"
    libraries = sorted(resolve(f"protobuf-java-util-{_JAVA_UTIL}", [util]).glob("protobuf-*.jar"))
    archive = _archive(Path(source))

    def compile_sources(folder: Path, _: Path) -> None:
        sources = folder / "sources"
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(sources, filter="data")
        path = os.pathsep.join([f"{Path(pyspark.__file__).parent}/jars/*", *map(str, libraries)])
        made = folder / "spark-protobuf.jar"
        command = [
            java(),
            "-cp",
            path,
            "scala.tools.nsc.Main",
            "-nowarn",
            "-classpath",
            path,
            "-d",
            str(made),
        ]
        texts = [str(each) for each in sorted(sources.rglob("*.scala"))]
        done = subprocess.run([*command, *texts], capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaLogError(
                f"{_NAMED} names {source}, whose {_SOURCES} can't be compiled with PySpark {version}:"
                f" {(done.stdout + done.stderr)[-2000:].strip()}"
            )

    folder = once(f"spark-protobuf-{version}-{zlib.crc32(archive):08x}", compile_sources)
    return [*folder.glob("*.jar"), *libraries]


def _archive(source: Path) -> bytes:
    """The sources as a tar file, from a folder or from a git directory's newest commit."""
    if not (source / _SOURCES).is_dir():
        done = subprocess.run(
            ["git", "-C", str(source), "archive", "HEAD", _SOURCES], capture_output=True, check=False
        )
        if done.returncode:
            raise KafkaLogError(f"{_NAMED} names {source}, where there is no {_SOURCES}")
        return done.stdout
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source / _SOURCES, _SOURCES)
    return packed.getvalue()


def add_from_protobuf(spark: SparkSession) -> None:
    """Let a session have ``from_protobuf``; skips the test where its jar is not at hand."""
    try:
        jars = spark_protobuf_jars()
    except KafkaLogError:
        if os.environ.get(_NAMED):
            raise
        pytest.skip(f"needs the jar of from_protobuf, see {_NAMED}")
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
