"""``kafkalog backup``, ``copy`` and ``adopt``: record batches as they are, from place to place."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pyspark_kafkalog.client.kafka import Kafka, connect, names_brokers
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import Files, OffsetRange
from pyspark_kafkalog.options.times import TIME_FORMS
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import (
    json_option,
    progress,
    say,
    say_if_dry,
    say_if_none,
    show_json,
    show_rows,
)
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    execute_option,
    named_topics,
    on_place,
    parse_time,
    rate_option,
    topics_argument,
)
from pyspark_kafkalog.tools.cli.printable import one_line

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.plan import BackedUpPartition, BackupRules

_AT_ONCE = 1.0
"""Seconds in which further signals are part of the first one."""

backup_argument = click.argument("directory", metavar="BACKUP", type=click.Path(file_okay=False))
group_option = click.option(
    "--group", "groups", multiple=True, help="Only this consumer group's offsets. Repeatable."
)
no_groups_option = click.option("--no-groups", is_flag=True, help="Leave out consumer groups.")
gaps_option = click.option(
    "--allow-gaps", is_flag=True, help="Go on after records that the source deleted before they were copied."
)
truncate_option = click.option(
    "--truncate", is_flag=True, help="Cut off what the source no longer has, and keep it beside the log."
)
renew_option = click.option(
    "--renew-compacted",
    is_flag=True,
    help="Copy a compacted partition again if tombstones may be missing in the copy.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), default=4, show_default=True, help="Partitions at the same time."
)


@kafkalog.command()
@on_place
@backup_argument
@topics_argument
@exclude_option
@group_option
@no_groups_option
@click.option(
    "--follow",
    is_flag=True,
    help="Go on with new records until Ctrl-C or SIGTERM; then show what was copied.",
)
@rate_option
@threads_option
@truncate_option
@gaps_option
@renew_option
@json_option
@click.pass_context
def backup(
    ctx: click.Context, /, kafka: Kafka, directory: str, follow: bool, as_json: bool, **rules: Any
) -> None:
    """Back up topics of a cluster, and consumer groups, into the log directory BACKUP.

    PLACE is brokers. Without TOPIC, all topics are backed up. Record batches are copied as they are, with
    their offsets, timestamps, producer ids, leader epochs and topic ids. Run again, it goes on where it
    stopped, even after a kill. The configs of topics and the committed offsets of groups are saved, too.
    Exits with 1 if there is nothing to copy, or a partition has a problem: its topic was recreated, its log
    was truncated, records were deleted before they could be copied, its leader does not answer, or its files
    are damaged or can't be written. Other partitions are backed up all the same. With --follow, a problem of
    the source is reported, and tried again; one of BACKUP ends the command.
    """
    if kafka.place_options.brokers is None:
        raise OptionError(
            "Expected brokers as PLACE, got a log directory",
            hint=f"Write kafkalog backup {directory} BACKUP."
            if names_brokers(directory)
            else "Directories are copied by kafkalog copy.",
        )
    with _until_stopped(follow) as stop:
        with progress("Copying", None, in_bytes=True) as done:
            found = kafka.logs.backup(
                directory,
                _rules(**rules),
                follow_until=stop,
                progress=done,
                failed=lambda row: _say(row, row.problem) if follow else None,
            )
        _show(ctx, found, as_json=as_json)


@kafkalog.command()
@click.argument("place", metavar="PLACE")
@backup_argument
@topics_argument
@exclude_option
@group_option
@no_groups_option
@click.option(
    "--since",
    metavar="TIME",
    callback=parse_time,
    help=f"Only batches with records from this time on: {TIME_FORMS}.",
)
@click.option(
    "--until", metavar="TIME", callback=parse_time, help="Only up to the first record of this time."
)
@threads_option
@truncate_option
@gaps_option
@renew_option
@json_option
@click.pass_context
def copy(ctx: click.Context, /, place: str, directory: str, as_json: bool, **rules: Any) -> None:
    """Copy topics of the log directory PLACE into another one, BACKUP.

    Without TOPIC, all topics are copied. Batches are copied as backup does; a range of time begins and ends
    with whole batches, so records next to it may be copied, too.
    """
    if names_brokers(place) and not os.path.exists(place):
        raise click.UsageError("Expected a log directory as PLACE, got brokers: use kafkalog backup.")
    with progress("Copying", None, in_bytes=True) as done:
        found = connect(place).logs.backup(directory, _rules(**rules), progress=done)
    _show(ctx, found, as_json=as_json)


@kafkalog.command()
@backup_argument
@click.argument("log_dir", metavar="PLACE")
@topics_argument
@exclude_option
@click.option("--no-groups", is_flag=True, help="Leave out consumer groups.")
@execute_option
@json_option
@click.pass_context
def adopt(
    ctx: click.Context,
    directory: str,
    log_dir: str,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    no_groups: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Put a backup into PLACE, the log directory of a stopped broker, as the broker's own.

    Create the topics first, with as many partitions, and leave them empty; then stop the broker. Its
    partitions become copies of those in BACKUP, with the broker's topic ids. Exits with 1 if one can't.
    """
    from pyspark_kafkalog.tools.backup.copies.adopt import AdoptedPartition

    found = connect(directory).logs.adopt(
        log_dir, named_topics(topics, exclude), exclude=exclude, groups=not no_groups, execute=execute
    )
    show_rows(AdoptedPartition, found, "partitions", as_json=as_json)
    if not as_json:
        for topic, note in dict.fromkeys((row.topic, row.note) for row in found if row.note):
            click.echo(one_line(f"{topic}: {note}"))
        for row in found:
            if row.adopted_before:
                click.echo(f"{row.topic}-{row.partition}: adopted before; it is left as it is")
    place = connect(log_dir).place
    for sentence in place.misplaced() if isinstance(place, Files) else ():
        say(sentence)
    say_if_dry(execute)
    if any(row.problem for row in found):
        ctx.exit(1)


def _rules(
    *,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    groups: tuple[str, ...],
    no_groups: bool,
    **rest: Any,
) -> BackupRules:
    from pyspark_kafkalog.tools.backup.plan import BackupRules

    if groups and no_groups:
        raise click.UsageError("Give either --group or --no-groups.")
    return BackupRules(
        topics=named_topics(topics, exclude),
        exclude=exclude,
        groups=() if no_groups else groups or None,
        **rest,
    )


@contextmanager
def _until_stopped(follow: bool) -> Iterator[threading.Event | None]:
    """An event that Ctrl-C or SIGTERM sets; None if it should not be followed. A later one ends at once.

    Shells and timeout send one to a process and to its group: the second one wants no more than the first.
    """
    if not follow:
        yield None
        return
    stop = threading.Event()
    known = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    asked = math.inf

    def end(number: int, frame: object) -> None:
        nonlocal asked
        stop.set()
        asked = min(asked, time.monotonic())
        if time.monotonic() - asked > _AT_ONCE:
            signal.signal(number, known[number])
            signal.raise_signal(number)

    for number in known:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in known.items():
            # If it was stopped, the process ends now, and the same signal may still come.
            signal.signal(number, signal.SIG_IGN if stop.is_set() else handler)


def _show(ctx: click.Context, found: Sequence[BackedUpPartition], *, as_json: bool) -> None:
    from pyspark_kafkalog.tools.backup.plan import BackedUpPartition

    problems = [row for row in found if row.problem]
    if as_json:
        show_json({"partitions": found, "problems": len(problems)})
    else:
        show_rows(BackedUpPartition, [row for row in found if row.partition >= 0])
    say_if_none(found, "copied")
    for row in found:
        if row.note:
            _say(row, row.note)
        for cut in row.truncated:
            _say(row, f"offsets {_offsets(cut)} were cut off, as the source no longer has them")
        if row.renewed:
            _say(row, "copied again, as tombstones may have gone before they were copied")
        if row.problem:
            _say(row, row.problem)
    if problems or not found:
        ctx.exit(1)


def _say(row: BackedUpPartition, text: str | None) -> None:
    name = f"{row.topic}-{row.partition}" if row.partition >= 0 else row.topic
    say(f"{name}: {text}")


def _offsets(found: OffsetRange) -> str:
    return f"{found.start}-{found.end - 1}"
