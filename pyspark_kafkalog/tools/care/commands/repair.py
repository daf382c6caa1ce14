"""``kafkalog repair``: mend a log directory that a crash or a disk has damaged."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from pyspark_kafkalog.client.kafka import Kafka, connect
from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import (
    json_option,
    progress,
    say_if_dry,
    say_if_none,
    show_json,
    show_rows,
)
from pyspark_kafkalog.tools.cli.parameters import PlaceArgument, execute_option, parse_partitions
from pyspark_kafkalog.tools.cli.printable import one_line

if TYPE_CHECKING:
    from pyspark_kafkalog.log.segment.steps import RepairStep
    from pyspark_kafkalog.tools.care.partition_repair import RepairedPartition
    from pyspark_kafkalog.tools.care.repair import RepairedDirectory


@kafkalog.command()
@click.argument("directory", metavar="PLACE", cls=PlaceArgument)
@click.argument("partitions", metavar="[TOPIC:PARTITIONS]...", nargs=-1)
@click.option(
    "--salvage", is_flag=True, help="Also keep every valid record batch after damage; offsets then have gaps."
)
@click.option("--discard", is_flag=True, help="Don't keep what is cut out.")
@execute_option
@json_option
@click.pass_context
def repair(
    ctx: click.Context,
    directory: str,
    partitions: tuple[str, ...],
    salvage: bool,
    discard: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Mend a log directory that no broker uses, so that one starts on it without recovery.

    Does what a broker does when it starts after a crash, for all segments: finishes or undoes what was
    interrupted, ends each log before its first broken record batch, and rebuilds indexes and checkpoints.
    Valid records after it are cut out, too, unless --salvage is given: a line says how many. What is cut out
    is kept in .kafkalog-cut in the partition's folder. Without TOPIC:PARTITIONS, such as orders:0,1, all are
    looked at.

    Without --execute, exits with 1 if there is something to mend; with it, if something can't be mended.
    """
    from pyspark_kafkalog.tools.care.room import MEND

    chosen = parse_partitions(partitions) or None
    kafka = connect(directory)
    kafka.logs.root(MEND)  # before they are asked for sizes
    with progress("Repairing" if execute else "Looking", _size(kafka, chosen), in_bytes=True) as done:
        found = kafka.logs.repair(chosen, execute=execute, salvage=salvage, discard=discard, progress=done)
    _show(found, execute=execute, discard=discard, as_json=as_json)
    say_if_none(found.partitions, "looked at")
    say_if_dry(execute)
    steps = [*found.steps, *(step for partition in found.partitions for step in partition.steps)]
    if any(step.action == "leave" or (not execute and step.action != "skip") for step in steps):
        ctx.exit(1)


def _size(kafka: Kafka, partitions: list[TopicPartition] | None) -> int | None:
    """Bytes to read; None if damage hides them."""
    with said("Looking up partitions"), suppress(KafkaLogError):
        place = kafka.place
        sizes = place.stored_sizes(partitions or partitions_of(place, internal=True))
        return sum(size.stored_bytes for size in sizes.values())
    return None


def _show(found: RepairedDirectory, *, execute: bool, discard: bool, as_json: bool) -> None:
    from pyspark_kafkalog.tools.care.partition_repair import RepairedPartition

    if as_json:
        show_json(found)
        return
    show_rows(RepairedPartition, found.partitions)
    for step in (*found.steps, *(step for partition in found.partitions for step in partition.steps)):
        click.echo(one_line(_sentence(step, found.path)))
    for partition in found.partitions:
        for sentence in _about_cuts(partition, execute=execute, discard=discard):
            click.echo(sentence)
    if found.clean_shutdown:
        click.echo("A broker starts on it without recovery.")


def _about_cuts(partition: RepairedPartition, *, execute: bool, discard: bool) -> list[str]:
    """The notes about what is cut: what goes with it, and where it is put."""
    name = str(TopicPartition(partition.topic, partition.partition))
    end, found = partition.log_end_offset, []
    cuts = [step.offset for step in partition.steps if step.action == "cut" and step.offset is not None]
    for start, stop in partition.lost:
        offsets = f"offset {start}" if stop == start + 1 else f"offsets {start} to {stop - 1}"
        found.append(f"{name}: {offsets} can't be salvaged{', and are gone' if execute else ''}.")
    if partition.dropped is not None or max(cuts, default=-1) >= end:
        found.append(
            f"{name}: what was stored from offset {end} on {'is gone' if execute else 'is lost'}."
            " The log ends there, and new records get these offsets."
        )
    if partition.dropped is not None:
        found.append(
            f"{name}: {partition.dropped_records} valid records behind the damage, up to offset"
            f" {partition.dropped.end - 1}, {'went' if execute else 'go'} with it"
            f"{'.' if execute else '; --salvage keeps them.'}"
        )
    if partition.cut_bytes:
        fate = "is not kept (--discard)" if discard else f"is kept in {name}/.kafkalog-cut"
        found.append(f"{name}: what is cut {fate}.")
    return found


def _sentence(step: RepairStep, path: str) -> str:
    """A step in words, such as ``rebuild orders-0/00000000000000000000.index: it is missing``."""
    file = os.path.relpath(step.file, path)
    if step.action != "cut":
        return f"{step.action} {file}: {step.why}"
    return f"cut {step.size} bytes of {file} from byte {step.position} on, offset {step.offset}: {step.why}"
