"""``kafkalog restore``: topics of any place into a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.model import not_copied
from pyspark_kafkalog.options.properties import parse_properties
from pyspark_kafkalog.options.table import SERVERS
from pyspark_kafkalog.options.times import TIME_FORMS
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.arrow import import_arrow
from pyspark_kafkalog.tools.cli.output import (
    json_option,
    progress,
    say_if_dry,
    say_if_none,
    show_json,
    show_rows,
    wide_option,
)
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    execute_option,
    named_topics,
    on_place,
    options_for,
    pairs,
    parse_time,
    rate_option,
    set_option,
    text_of,
    topics_argument,
)
from pyspark_kafkalog.tools.cli.printable import printable
from pyspark_kafkalog.tools.groups.commands.targets import ends_in

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.restore import Restored, RestoreSettings


@kafkalog.command()
@click.argument("source", metavar="BACKUP")
@on_place
@topics_argument
@exclude_option
@click.option("--rename", metavar="OLD=NEW", multiple=True, help="Another name for a topic. Repeatable.")
@click.option("--replication-factor", type=click.IntRange(1), help="For new topics; by default the brokers'.")
@set_option("A configuration of new topics, instead of the one in BACKUP; NAME= leaves it out.")
@click.option(
    "--until",
    metavar="TIME",
    callback=parse_time,
    help="In each partition, end before the first record at or after this time:"
    f" {TIME_FORMS}. UTC unless it has a zone.",
)
@click.option(
    "--to-offsets",
    metavar="FILE",
    type=click.File(encoding="utf-8-sig"),
    help="End before the offsets in this file: Spark's JSON, lines of topic,partition,offset, or the offsets"
    " of one group from offsets export.",
)
@click.option(
    "--read-committed/--read-uncommitted",
    default=True,
    help="Whether to leave out the records of aborted and open transactions, which is the default.",
)
@click.option("--group", "groups", multiple=True, help="Only the offsets of this group. Repeatable.")
@click.option("--no-groups", is_flag=True, help="Commit no offsets of groups.")
@click.option(
    "--state",
    metavar="FILE",
    help="The file that a second run needs: it says what is done, and where offsets went.",
)
@rate_option
@click.option(
    "--backup-option", "source_given", metavar="NAME=VALUE", multiple=True, help="Like -o, for BACKUP."
)
@click.option(
    "--backup-config",
    "source_config",
    metavar="FILE",
    type=click.File(encoding="utf-8-sig"),
    help="Like --config, for BACKUP.",
)
@execute_option
@wide_option
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    /,
    kafka: Kafka,
    source: str,
    source_given: tuple[str, ...],
    source_config: Any,
    execute: bool,
    wide: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Write the topics of a backup to the brokers at PLACE.

    BACKUP is a log directory (a folder or a URI) or other brokers. Without TOPIC, all topics are restored.
    Topics are made with the backup's partitions and configurations; those that exist must be empty. Records
    keep key, value, headers, timestamp, partition and compression, and their offsets where these begin at 0
    without gaps. Otherwise the file of --state, by default .kafkalog-restore-* in BACKUP, maps old offsets to
    new ones, and commits of groups are translated. Killed and run again, it writes nothing twice. It also
    leaves out what was added to BACKUP since the first run: it says so, and exits with 1 if BACKUP is a
    directory. It exits with 1, too, if there is nothing to restore.

    Without --execute, BACKUP is read, and what would be restored is shown. -o and --config are for PLACE.
    """
    import_arrow()
    from pyspark_kafkalog.tools.backup.groups import RestoredOffset
    from pyspark_kafkalog.tools.backup.restore import RestoredPartition

    chosen = _settings(**settings)
    given_state = settings["state"] is not None
    properties = parse_properties(text_of(source_config)) if source_config is not None else {}
    origin = Kafka(options_for(source, source_given, properties))
    with progress("Restoring" if execute else "Reading", None, in_bytes=True) as done:
        restored = origin.logs.restore(kafka, chosen, execute=execute, progress=done)
    if as_json:
        show_json(restored)
    else:
        show_rows(RestoredPartition, restored.partitions, wide=wide)
        if restored.groups:
            click.echo()
            show_rows(RestoredOffset, restored.groups, wide=wide)
        if restored.was_complete:
            click.echo("An earlier run has written all of these records: none are written again.", err=True)
        click.echo(f"Offsets are mapped in {restored.state}" if execute else "", err=True, nl=execute)
    say_if_none(restored.partitions, "restored")
    say_if_dry(execute)
    _say_what_is_missing(restored, given_state=given_state)
    # Brokers get records all the time: those since the first run don't count as a failure.
    is_left = bool(restored.unplanned) and SERVERS not in origin.options
    if not restored.partitions or is_left or any(row.refused for row in restored.groups):
        ctx.exit(1)


def _settings(
    *,
    rename: tuple[str, ...],
    configs: dict[str, str],
    to_offsets: Any,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    groups: tuple[str, ...],
    no_groups: bool,
    **rest: Any,
) -> RestoreSettings:
    from pyspark_kafkalog.tools.backup.restore import RestoreSettings

    if groups and no_groups:
        raise click.UsageError("Give --group or --no-groups, not both.")
    return RestoreSettings(
        topics=named_topics(topics, exclude) or None,
        exclude=exclude,
        rename=pairs("--rename", rename, "OLD=NEW, the names of topics"),
        configs=configs,
        ends=None if to_offsets is None else ends_in(to_offsets),
        groups=() if no_groups else groups or None,
        **rest,
    )


def _say_what_is_missing(restored: Restored, *, given_state: bool) -> None:
    """Say on stderr what the target lacks."""
    refused = sorted({row.group for row in restored.groups if row.refused})
    if refused:
        click.echo(
            f"Offsets of {', '.join(map(printable, refused))} were not committed, see NOTE. Fix that, and"
            " run the same command again.",
            err=True,
        )
    for row in restored.partitions:
        for gap in row.gaps:
            click.echo(f"{printable(row.topic)}-{row.partition}: {not_copied(gap)}.", err=True)
    for left in restored.unplanned:
        click.echo(
            f"{printable(left.topic)}-{left.partition}: offsets {left.start} to {left.end - 1} were added"
            " to BACKUP after the first run, which fixed what is restored: they are not in the target.",
            err=True,
        )
    if restored.unplanned:
        click.echo(
            "To have them, too, restore all into topics with other names (--rename)"
            f"{', and another --state' if given_state else ''}.",
            err=True,
        )
