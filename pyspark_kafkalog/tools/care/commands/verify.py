"""``kafkalog verify``: reads everything and reports damage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import Files
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, progress, say, say_if_none, show_json, show_rows
from pyspark_kafkalog.tools.cli.parameters import exclude_option, on_place, selection, topics_argument
from pyspark_kafkalog.tools.cli.printable import one_line


@kafkalog.command()
@on_place
@topics_argument
@exclude_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context, kafka: Kafka, topics: tuple[str, ...], exclude: tuple[str, ...], as_json: bool
) -> None:
    """Read everything and report damage.

    Checks the checksum, framing, offsets and content of every record batch, internal topics included. In a
    directory it also checks the files beside them: indexes, snapshots of producers, leader epochs, topic ids
    and checkpoints. No checksum covers the leader epoch of a record batch: one that its checkpoint does not
    know is reported. Exits with 1 if it finds damage, if brokers do not give a partition within seconds (its
    row says why), or if there is no partition to verify. These are noted, and don't count as damage: records
    that a broker with tiered storage has moved away, or that a backup could not copy, and folders that have
    no place in a log directory, such as one of Parquet.
    """
    from pyspark_kafkalog.tools.care.verify import VerifiedPartition

    with _without_warnings():  # what they say is reported below
        with said("Looking up partitions"):
            place = kafka.report_place
            partitions = partitions_of(place, selection(topics, exclude), internal=True)
            total = None
            with suppress(KafkaLogError):  # that of a partition, which is told with its row
                sizes = place.stored_sizes(partitions)
                total = sum(size.stored_bytes for size in sizes.values()) or None
            misplaced = place.misplaced() if isinstance(place, Files) else []
        with progress("Verifying", total, in_bytes=True) as done:
            found = list(kafka.records.verify(partitions, progress=done))
    damages = [damage for partition in found for damage in partition.damages]
    if as_json:
        show_json({"partitions": found, "damages": len(damages)})
    else:
        show_rows(VerifiedPartition, found)
        for damage in damages:
            named = {"offset": damage.offset, "file": damage.file, "byte": damage.position}
            where = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
            click.echo(one_line(f"{damage.topic}-{damage.partition}: {damage.message} ({where})"))
        for partition in found:
            for note in partition.notes:
                click.echo(one_line(f"{partition.topic}-{partition.partition}: {note}"))
    for sentence in misplaced:
        say(sentence)
    say_if_none(found, "verified")
    if not found or damages or any(partition.problem for partition in found):
        ctx.exit(1)


@contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("pyspark_kafkalog")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
