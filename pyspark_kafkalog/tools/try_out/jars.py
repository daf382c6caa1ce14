"""Kafka's jars: those of the Kafka that ``KAFKALOG_KAFKA`` names, or else from Maven Central.

PySpark ships Ivy, and Ivy fetches them once into a folder of the user's: ``KAFKALOG_JARS``, by default
``~/.cache/pyspark-kafkalog``.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark_kafkalog.errors import KafkaLogError

KAFKA_VERSION = "4.3.1"
_NAMED = "KAFKALOG_KAFKA"
# Without an slf4j binding a broker logs nothing.
_KAFKA = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)


def kafka_jars() -> Path:
    """The folder with the jars of the broker and its command line tools.

    :raises KafkaLogError: if ``KAFKALOG_KAFKA`` names no Kafka; without it, see :func:`run_ivy`.
    """
    named = os.environ.get(_NAMED)
    if not named:
        return resolve(f"kafka-{KAFKA_VERSION}", _KAFKA)
    path = Path(named).expanduser().absolute()
    if path.is_file():
        path = _unpacked(path)
    # A distribution of Kafka has them in libs.
    folders = [path, path / "libs", *path.glob("kafka_*/libs")]
    found = next((folder for folder in folders if any(folder.glob("kafka_*.jar"))), None)
    if found is None:
        raise KafkaLogError(
            f"{_NAMED} names {named}, where there is no kafka_*.jar",
            hint="Name a kafka_2.13-….tgz of https://kafka.apache.org/downloads, what is unpacked from it, or"
            " a folder with all jars of a broker.",
        )
    return found


def _unpacked(archive: Path) -> Path:
    """The content of a ``.tgz`` of Kafka, unpacked once for each size and time that the file has had."""
    found = archive.stat()

    def unpack(folder: Path, _: Path) -> None:
        try:
            with tarfile.open(archive, "r:gz") as packed:
                packed.extractall(folder, filter="data")
        except (tarfile.TarError, EOFError, zlib.error) as e:
            raise KafkaLogError(
                f"{_NAMED} names {archive}, which can't be unpacked: {e}",
                hint="Download it again, from https://kafka.apache.org/downloads.",
            ) from e

    return once(f"{archive.stem}-{found.st_size}-{found.st_mtime_ns}", unpack)


def resolve(name: str, artifacts: Iterable[str], *, transitive: bool = True) -> Path:
    """The folder ``name`` with these jars, each ``group:name:version``, and with what they depend on."""
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="{}"/>'.format(
            *artifact.split(":"), str(transitive).lower()
        )
        for artifact in artifacts
    )
    return once(name, lambda folder, ivy_cache: run_ivy(ivy_cache, folder, dependencies))


def cache_folder() -> Path:
    """The folder for jars, which is made if it is not there.

    :raises KafkaLogError: if it can't be made.
    """
    cache = Path(os.environ.get("KAFKALOG_JARS") or Path.home() / ".cache" / "pyspark-kafkalog")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise KafkaLogError(
            f"The folder for jars can't be made: {e.strerror}",
            file=str(cache),
            hint="Name another one in the environment variable KAFKALOG_JARS.",
        ) from None
    return cache


def once(name: str, fill: Callable[[Path, Path], None]) -> Path:
    """The folder ``name`` of the cache, which ``fill`` fills if it is not there, from Ivy's cache."""
    cache = cache_folder()
    folder = cache / name
    if folder.is_dir():
        return folder
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unfinished = cache / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            fill(unfinished, cache / "ivy")
            unfinished.rename(folder)
    return folder


def run_ivy(ivy_cache: Path, folder: Path, dependencies: str, *options: str) -> None:
    """Fetch into ``folder`` what an Ivy file with these elements ``dependency`` asks for.

    :raises KafkaLogError: without PySpark or Java, or if Ivy fails.
    """
    ivy_file = folder.with_suffix(".xml")
    ivy_file.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="pyspark-kafkalog" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )
    command = [java(), "-jar", str(_ivy()), *options, "-cache", str(ivy_cache), "-ivy", str(ivy_file)]
    command += ["-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not any(folder.glob("*.*ar*")):
        raise KafkaLogError(
            f"Ivy could not fetch jars from Maven Central: {(done.stdout + done.stderr)[-2000:].strip()}",
            hint="This machine must reach https://repo1.maven.org. Or download Kafka elsewhere, from"
            f" https://kafka.apache.org/downloads, and name the .tgz in {_NAMED}.",
        )


def _ivy() -> Path:
    # Not imported, as that takes a second: the command line needs no Spark.
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for jar in Path(folder, "jars").glob("ivy-*.jar"):
            return jar
    raise KafkaLogError(
        "PySpark is not installed, whose Ivy fetches the jars of Kafka",
        hint=f"Run: pip install pyspark. Or download Kafka, and name the .tgz in {_NAMED}.",
    )


def java() -> str:
    """The same java that PySpark runs.

    :raises KafkaLogError: if it is missing.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if found is None:
        raise KafkaLogError(
            f"Java is not found {f'in {home}' if home else 'on the PATH'}",
            hint="Install Java 17 or newer, or set JAVA_HOME to its folder.",
        )
    return found
