"""Kafka's jars: PySpark ships Ivy, and Ivy resolves them once into a cache folder outside the checkout.

The folder is ``KAFKALOG_JARS``, by default ``~/.cache/pyspark-kafkalog``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

KAFKA_VERSION = "4.3.1"
OLD_KAFKA_VERSION = "2.8.2"
OLDEST_KAFKA_VERSION = "1.1.1"
ZOOKEEPER_VERSION = "3.9.4"
# Without an slf4j binding a broker logs nothing.
_KAFKA = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
_OLD_KAFKA = {
    OLD_KAFKA_VERSION: (f"org.apache.kafka:kafka_2.13:{OLD_KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36"),
    OLDEST_KAFKA_VERSION: (
        f"org.apache.kafka:kafka_2.12:{OLDEST_KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    **{
        version: (f"org.apache.kafka:kafka_2.11:{version}", "org.slf4j:slf4j-simple:1.7.36")
        for version in ("0.8.2.2", "0.9.0.1", "0.10.0.1")
    },
}
# The server's own distribution brings the second and the third.
_ZOOKEEPER = (
    f"org.apache.zookeeper:zookeeper:{ZOOKEEPER_VERSION}",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "org.slf4j:slf4j-simple:2.0.13",
)
_S3PROXY = ("org.gaul:s3proxy:4.1.0",)
_APICURIO = ("io.apicurio", "apicurio-registry-app", "3.0.9")
# Taken one by one: what they depend on is among PySpark's own jars.
_SPARK_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)

_MSK_IAM = ("software.amazon.msk:aws-msk-iam-auth:2.3.5",)
_SPARK_AVRO = ("org.apache.spark:spark-avro_2.13:4.2.0",)


def kafka_jars() -> Path:
    """The folder with the jars of the broker and its command line tools."""
    return _resolve(f"kafka-{KAFKA_VERSION}", _KAFKA, transitive=True)


def kafka_jars_of(version: str) -> Path:
    """The folder with the jars of an old broker, its consumers and its ZooKeeper."""
    return _resolve(f"kafka-{version}", _OLD_KAFKA[version], transitive=True)


def zookeeper_jars() -> Path:
    """The folder with the jars of ZooKeeper."""
    return _resolve(f"zookeeper-{ZOOKEEPER_VERSION}", _ZOOKEEPER, transitive=True)


def spark_kafka_connector_jars() -> list[Path]:
    """The jars of Spark's own ``kafka`` source and sink."""
    return sorted(_resolve("spark-kafka-connector-4.2.0", _SPARK_CONNECTOR, transitive=False).glob("*.jar"))


def spark_avro_jars() -> list[Path]:
    """The jar of Spark's ``from_avro``."""
    return sorted(_resolve("spark-avro-4.2.0", _SPARK_AVRO, transitive=False).glob("*.jar"))


def s3proxy_jars() -> Path:
    """The folder with the jars of S3Proxy, an S3 server."""
    return _resolve("s3proxy-4.1.0", _S3PROXY, transitive=True)


def msk_iam_jars() -> Path:
    """The folder with the jars of Amazon's logins to MSK."""
    return _resolve("aws-msk-iam-auth-2.3.5", _MSK_IAM, transitive=True)


def apicurio_registry() -> Path:
    """The folder with Apicurio Registry, which serves Confluent's API; ``*-runner.jar`` starts it."""
    organisation, name, version = _APICURIO
    artifact = f'<artifact name="{name}" type="tar.gz" ext="tar.gz" m:classifier="all"/>'

    def unpack(folder: Path, ivy_cache: Path) -> None:
        settings = folder / "ivysettings.xml"
        # Its .pom names a parent that Maven Central does not have.
        settings.write_text(
            '<ivysettings><settings defaultResolver="central"/><resolvers>'
            '<ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
        )
        dependency = f'<dependency org="{organisation}" name="{name}" rev="{version}" transitive="false">'
        _run_ivy(
            ivy_cache / "without-poms",
            folder,
            f"{dependency}{artifact}</dependency>",
            "-settings",
            str(settings),
        )
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()

    return _once(f"{name}-{version}", unpack)


def java() -> str:
    """The same java that PySpark runs."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _resolve(name: str, artifacts: Iterable[str], *, transitive: bool) -> Path:
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive={}/>'.format(
            *artifact.split(":"), quoteattr(str(transitive).lower())
        )
        for artifact in artifacts
    )
    return _once(name, lambda folder, ivy_cache: _run_ivy(ivy_cache, folder, dependencies))


def _once(name: str, fill: Callable[[Path, Path], None]) -> Path:
    """The folder ``name`` of the cache, which ``fill`` fills if it is not there, from Ivy's cache."""
    cache = Path(os.environ.get("KAFKALOG_JARS") or Path.home() / ".cache" / "pyspark-kafkalog")
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unfinished = cache / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            fill(unfinished, cache / "ivy")
            unfinished.rename(folder)
    return folder


def _run_ivy(ivy_cache: Path, folder: Path, dependencies: str, *options: str) -> None:
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    ivy_file = folder.with_suffix(".xml")
    ivy_file.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="pyspark-kafkalog" module="tests"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )
    command = [
        java(),
        "-jar",
        str(ivy),
        *options,
        "-cache",
        str(ivy_cache),
        "-ivy",
        str(ivy_file),
        "-confs",
        "default",
    ]
    command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0 or not any(folder.glob("*.*ar*")):
        raise RuntimeError(
            f"Ivy could not resolve {dependencies}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )
