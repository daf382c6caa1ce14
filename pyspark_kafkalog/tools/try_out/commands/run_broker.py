"""``kafkalog run-broker``: a broker to try things with."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

import click

from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import say
from pyspark_kafkalog.tools.try_out.jars import KAFKA_VERSION
from pyspark_kafkalog.tools.try_out.local_broker import LocalBroker


@kafkalog.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9092,
    show_default=True,
    help="The port on 127.0.0.1; 0 takes a free one.",
)
def run_broker(port: int) -> None:
    """Run a broker of Apache Kafka on this machine until Ctrl-C, to try things with.

    It listens on 127.0.0.1, lets everyone there do everything, and deletes its data at the end. Its address
    is printed once it answers. It needs Java 17, and PySpark: its Ivy fetches Kafka's jars (45 MB) from Maven
    Central once, into ~/.cache/pyspark-kafkalog or the folder KAFKALOG_JARS. If KAFKALOG_KAFKA names Kafka's
    .tgz, the folder unpacked from it, or a folder of its jars, it runs that Kafka and fetches nothing.
    """
    # What ends this command ends the broker, too.
    for ending in signal.SIGTERM, signal.SIGHUP:
        signal.signal(ending, lambda *_: sys.exit())
    say(f"Starting Apache Kafka {KAFKA_VERSION}; the first time, its jars are fetched")
    with LocalBroker(port=port) as broker:
        click.echo(f"{broker.address} is ready; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            broker.wait()
