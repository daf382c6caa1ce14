"""``kafkalog offsets``: show, reset, export, import and delete committed offsets; safe offsets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.client.partitions import existing
from pyspark_kafkalog.errors import GroupError, UnknownTopicOrPartitionError, listed
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.rows import BIGINT, INT, STRING, column
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.tools.cli.application import ShownByDefault, kafkalog
from pyspark_kafkalog.tools.cli.output import (
    json_option,
    say,
    say_if_dry,
    say_unreadable,
    show_rows,
    wide_option,
)
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    execute_option,
    group_names,
    group_option,
    in_file,
    name_of,
    named_partitions,
    offsets_of,
    on_place,
    partitions_argument,
    selection,
    topics_argument,
)
from pyspark_kafkalog.tools.cli.printable import one_line
from pyspark_kafkalog.tools.groups.commands.targets import ends_in, from_file_option, to_datetime_option
from pyspark_kafkalog.tools.groups.consumer_groups import FAILED, GroupOffset
from pyspark_kafkalog.tools.groups.exchange import export_csv, export_json, parse, where_named
from pyspark_kafkalog.tools.groups.reset import ResetStep, ResetTo
from pyspark_kafkalog.tools.groups.safe_offsets import positions

one_group_option = click.option(
    "--group", required=True, help="The consumer group.", shell_complete=group_names
)


@kafkalog.group(cls=ShownByDefault)
def offsets() -> None:
    """Show or change the committed offsets of groups.

    offsets PLACE means offsets show PLACE.
    """


@offsets.command()
@on_place
@group_option
@topics_argument
@exclude_option
@wide_option
@json_option
@click.pass_context
def show(
    ctx: click.Context,
    kafka: Kafka,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    wide: bool,
    as_json: bool,
) -> None:
    """Show each committed offset and its lag. Exits with 1 if a group can't be read."""
    rows = offsets_of(kafka, groups, selection(topics, exclude))
    show_rows(GroupOffset, rows, "offsets", as_json=as_json, wide=wide)
    say_unreadable(ctx, _unreadable(rows))


@offsets.command()
@on_place
@one_group_option
@partitions_argument
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has committed offsets.")
@exclude_option
@click.option("--to-earliest", is_flag=True, help="The log start offsets.")
@click.option("--to-latest", is_flag=True, help="The log end offsets.")
@click.option(
    "--to-current",
    is_flag=True,
    help="The committed offsets, or the log end offsets where nothing is committed.",
)
@to_datetime_option
@click.option("--to-offset", type=click.IntRange(0, MAX_LONG), help="This offset.")
@click.option("--shift-by", type=int, help="The committed offset plus this number, which may be negative.")
@from_file_option
@click.option(
    "--large-messages",
    is_flag=True,
    help="For readers that reassemble large messages: commit the safe offset, with the first wanted"
    " offset in the metadata.",
)
@execute_option
@json_option
def reset(
    kafka: Kafka,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    exclude: tuple[str, ...],
    large_messages: bool,
    execute: bool,
    as_json: bool,
    **to: Any,
) -> None:
    """Set where a group continues.

    As with kafka-consumer-groups --reset-offsets, the group must be inactive, and offsets beyond the
    log become the nearest that exist.
    """
    _check_exclude(exclude, all_topics)
    chosen = [name for name, value in to.items() if value is not None and value is not False]
    if len(chosen) != 1:
        names = ", ".join("--" + name.replace("_", "-") for name in to)
        raise click.UsageError(f"Give exactly one of {names}.")
    if to["from_file"] is not None:
        if topics or all_topics:
            raise click.UsageError(
                "The file of --from-file names the partitions: leave out TOPIC and --all-topics."
            )
        steps = _planned_import(kafka, to["from_file"], group, large_messages=large_messages)
    else:
        partitions = _partitions(kafka, group, topics, all_topics, exclude)
        kind, value = _goal(chosen[0], to[chosen[0]])
        steps = kafka.groups.plan_reset(group, partitions, kind, value, large_messages=large_messages)
        if not steps:
            say(f"Group {group!r} has no committed offsets to reset. For a new group, name the topics.")
    _carry_out(kafka, steps, execute=execute, as_json=as_json)


@offsets.command()
@on_place
@partitions_argument
@click.option(
    "--from-file",
    metavar="FILE",
    type=click.File(encoding="utf-8-sig"),
    help="At the offsets in this file: from offsets export or kafka-consumer-groups --export, or Spark's"
    " JSON.",
)
@click.option(
    "--checkpoint", metavar="LOCATION", help="After the last complete micro-batch of this checkpoint's query."
)
@json_option
def safe(
    kafka: Kafka, topics: tuple[str, ...], from_file: Any, checkpoint: str | None, as_json: bool
) -> None:
    """Show where a reader must begin so that it misses no large message.

    That is where the oldest incomplete message begins. TOPIC asks for its end.
    """
    if bool(topics) + (from_file is not None) + (checkpoint is not None) != 1:
        raise click.UsageError("Give one of TOPIC, --from-file and --checkpoint.")
    place = kafka.groups.place
    if from_file is not None:
        ends = ends_in(from_file)
    else:
        ends = positions(place, named_partitions(place, topics) if checkpoint is None else checkpoint)
    found = kafka.groups.safe_offsets(ends)
    rows = [_SafeOffset(*partition, ends[partition], found[partition]) for partition in sorted(found)]
    show_rows(_SafeOffset, rows, "offsets", as_json=as_json)


@dataclass(frozen=True, slots=True)
class _SafeOffset:
    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    offset: int = field(metadata=column(BIGINT, "OFFSET"))
    safe_offset: int = field(metadata=column(BIGINT, "SAFE"))


@offsets.command()
@on_place
@group_option
@topics_argument
@exclude_option
@click.option(
    "--format",
    "kind",
    type=click.Choice(["json", "csv"]),
    default="json",
    help="CSV is the format of kafka-consumer-groups --export, without a group column for a single --group.",
)
@click.pass_context
def export(
    ctx: click.Context,
    kafka: Kafka,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    kind: str,
) -> None:
    """Print offsets for import. Exits with 1 if a group can't be read: it is left out."""
    rows = offsets_of(kafka, groups, selection(topics, exclude))
    text = export_json(rows) if kind == "json" else export_csv(rows, with_group=len(groups) != 1)
    click.echo(text, nl=False)
    say_unreadable(ctx, _unreadable(rows))


@offsets.command("import")
@on_place
@click.argument("file", metavar="FILE", type=click.File(encoding="utf-8-sig"))
@click.option("--group", help="The group, if FILE names none; otherwise the only group to import.")
@execute_option
@json_option
def import_(kafka: Kafka, file: Any, group: str | None, execute: bool, as_json: bool) -> None:
    """Commit the offsets in FILE.

    FILE comes from offsets export or kafka-consumer-groups --export, or holds Spark's offsets as JSON.
    """
    steps = _planned_import(kafka, file, group)
    _carry_out(kafka, steps, execute=execute, as_json=as_json)


@offsets.command()
@on_place
@one_group_option
@partitions_argument
@click.option("--all-topics", is_flag=True, help="All committed offsets of the group.")
@exclude_option
@click.option("--whole-group", is_flag=True, help="The group itself, with all its offsets.")
@execute_option
@json_option
def delete(
    kafka: Kafka,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    exclude: tuple[str, ...],
    whole_group: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Delete committed offsets of a group. Markers of exactly-once queries are refused."""
    _check_exclude(exclude, all_topics)
    if whole_group and (topics or all_topics):
        raise click.UsageError("--whole-group covers all topics: leave out TOPIC and --all-topics.")
    if not (whole_group or topics or all_topics):
        raise click.UsageError("Give TOPIC, --all-topics or --whole-group.")
    partitions = None if whole_group else _partitions(kafka, group, topics, all_topics, exclude)
    committed = kafka.groups.plan_deletion(group, partitions)
    rows = [_DeletedOffset(group, *partition, committed[partition].offset) for partition in sorted(committed)]
    if execute and whole_group:
        kafka.groups.delete(group)
    elif execute:
        kafka.groups.delete_offsets(group, list(committed))
    show_rows(_DeletedOffset, rows, "offsets", as_json=as_json)
    say_if_dry(execute)


@dataclass(frozen=True, slots=True)
class _DeletedOffset:
    group: str = field(metadata=column(STRING, "GROUP"))
    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    offset: int = field(metadata=column(BIGINT, "OFFSET"))


def _unreadable(rows: Sequence[GroupOffset]) -> list[tuple[str, str]]:
    """The groups that can't be read, and why."""
    return [(row.group, row.note) for row in rows if row.state == FAILED]


def _check_exclude(exclude: tuple[str, ...], all_topics: bool) -> None:
    if exclude and not all_topics:
        raise click.UsageError("--exclude needs --all-topics.")


def _partitions(
    kafka: Kafka, group: str, topics: tuple[str, ...], all_topics: bool, exclude: tuple[str, ...]
) -> list[TopicPartition] | None:
    if bool(topics) == all_topics:
        raise click.UsageError("Give either TOPIC or --all-topics.")
    if topics:
        return named_partitions(kafka.groups.place, topics)
    if not exclude:
        return None
    chosen = Selection(exclude=exclude)
    return [p for p in kafka.groups.committed(group) if chosen.covers(p.topic, internal=True)]


def _planned_import(
    kafka: Kafka, file: Any, group: str | None, *, large_messages: bool = False
) -> list[ResetStep]:
    """The steps to the offsets in a file.

    :raises UnknownTopicOrPartitionError: if it names a partition that the place does not have, with the place
        in the file.
    """
    with in_file(file):
        text = file.read()
        wanted = parse(text, group=group)
    try:
        return kafka.groups.plan_import(wanted, large_messages=large_messages)
    except UnknownTopicOrPartitionError as e:
        named = sorted({partition for offsets in wanted.values() for partition in offsets})
        missing = sorted(set(named).difference(existing(kafka.groups.place, named)))
        if not missing:
            raise
        first = missing[0]
        where = ", ".join(filter(None, (name_of(file), where_named(text, first, group=group))))
        verb = "alter" if kafka.groups.place.topics([first.topic]) else "create"
        count = 1 + max(partition.partition for partition in missing if partition.topic == first.topic)
        raise UnknownTopicOrPartitionError(
            f"No such partition in {kafka.name}: {listed(missing, 5)}",
            topic_partition=first,
            file=where,
            hint="Leave it out of the file, or make it first: kafkalog topics"
            f" {verb} {shlex.quote(kafka.name)} {first.topic} --partitions {count}",
        ) from e


def _goal(name: str, value: Any) -> tuple[ResetTo, int]:
    if name == "to_datetime":
        return ResetTo.TIMESTAMP, value
    kinds = {
        "to_earliest": ResetTo.EARLIEST,
        "to_latest": ResetTo.LATEST,
        "to_current": ResetTo.CURRENT,
        "to_offset": ResetTo.OFFSET,
        "shift_by": ResetTo.SHIFT,
    }
    return kinds[name], int(value)


def _carry_out(kafka: Kafka, steps: Sequence[ResetStep], *, execute: bool, as_json: bool) -> None:
    created = {group: _near(kafka, group, steps) for group in sorted({step.group for step in steps})}
    if execute:
        kafka.groups.reset(steps)
    show_rows(ResetStep, steps, "offsets", as_json=as_json)
    for group, near in created.items():
        if near is not None:
            made = f"There was no group {group!r}: {'it was' if execute else 'it would be'} created."
            click.echo(one_line(f"{made} {near}".rstrip()), err=True)
    say_if_dry(execute)


def _near(kafka: Kafka, group: str, steps: Sequence[ResetStep]) -> str | None:
    """The groups that are nearly called like one with these steps, in words; None if that one exists."""
    if any(step.current is not None for step in steps if step.group == group):
        return None
    try:
        kafka.groups.describe([group])
    except GroupError as e:
        return e.hint if e.hint and kafka.groups.describe() else ""
    return None
