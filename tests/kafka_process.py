"""Processes that run Kafka's jars: tools that end by themselves, servers that are stopped or killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from pyspark_kafkalog.tools.try_out.jars import java, kafka_jars
from pyspark_kafkalog.tools.try_out.java_server import JVM_OPTIONS, JavaServer, free_ports, listens, tail
from pyspark_kafkalog.tools.try_out.local_broker import ONE_BROKER
from tests import class_archives

__all__ = ["SMALL_BROKER", "JavaServer", "free_ports", "java_server", "listens", "run_kafka_class", "tail"]

SMALL_BROKER: dict[str, object] = {
    **ONE_BROKER,
    "auto.create.topics.enable": "false",
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
}
"""Settings of a single broker for tests."""


def run_kafka_class(
    main_class: str, *args: object, timeout: float = 120, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a main class of Kafka's jars to its end; a failure raises an error with its output."""
    command = [java(), *JVM_OPTIONS, "-Xmx256m", *class_archives.using(class_archives.OF_KAFKA)]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{kafka_jars()}/*", main_class]
    done = subprocess.run([*command, *map(str, args)], capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise RuntimeError(
            f"{main_class} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done


def java_server(
    jars: Path, main_class: str, properties: Path, output: Path, options: Iterable[str] = ()
) -> JavaServer:
    """A server with the jars of a folder; it starts faster where there is an archive of Kafka's classes."""
    archived = class_archives.using(class_archives.OF_KAFKA)
    return JavaServer(f"{jars}/*", main_class, properties, output, [*options, *archived])
