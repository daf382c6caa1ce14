"""``kafkalog checkpoint``: show a query's checkpoint, set it back, move it to another cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.rows import time_text
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.options.properties import parse_properties
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import ShownByDefault, kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say, say_if_dry, show_json, show_rows, wide_option
from pyspark_kafkalog.tools.cli.parameters import (
    PropertiesFile,
    execute_option,
    no_brokers,
    on_optional_place,
    on_place,
    options_for,
    partitions_argument,
    text_of,
    topic_and_numbers,
)
from pyspark_kafkalog.tools.cli.printable import one_line
from pyspark_kafkalog.tools.groups.commands.targets import ends_in, from_file_option, to_datetime_option
from pyspark_kafkalog.tools.groups.exchange import parse_ends
from pyspark_kafkalog.tools.groups.watching import duration

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.checkpoint.change import CheckpointChange
    from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
    from pyspark_kafkalog.tools.checkpoint.show import CheckpointState
    from pyspark_kafkalog.tools.checkpoint.translation import Translation

checkpoint_argument = click.argument("location", metavar="CHECKPOINT", type=click.Path(), callback=no_brokers)


@kafkalog.group(cls=ShownByDefault)
def checkpoint() -> None:
    """Show a streaming query's checkpoint, set it back, or move it to another cluster.

    CHECKPOINT is the query's checkpointLocation: a folder or a URI. Its sources may be kafka or kafkalog.
    checkpoint CHECKPOINT means checkpoint show CHECKPOINT.
    """


@checkpoint.command()
@checkpoint_argument
@on_optional_place
@wide_option
@json_option
@click.pass_context
def show(ctx: click.Context, kafka: Kafka | None, location: str, wide: bool, as_json: bool) -> None:
    """Show the offsets of each source, and what the next start will do.

    With PLACE, which the query reads, it also shows lags, and which records are gone. Exits with 1 if the
    next start would fail.
    """
    from pyspark_kafkalog.tools.checkpoint.show import checkpoint_state

    with said("Looking into the checkpoint"):
        state = checkpoint_state(location) if kafka is None else kafka.checkpoints.show(location)
    if as_json:
        show_json(state)
    else:
        _show(state, wide=wide)
    if state.problems:
        ctx.exit(1)


def _show(state: CheckpointState, *, wide: bool) -> None:
    from pyspark_kafkalog.tools.checkpoint.show import CheckpointOffset

    def line(text: str) -> None:
        click.echo(one_line(text))

    plans = "1 plan" if state.plans == 1 else f"{state.plans} plans"
    line(f"Query {state.query_id}, log of offsets {state.version or 'empty'}, {plans}")
    if state.age_seconds is not None:
        line(f"Spark wrote to it {duration(state.age_seconds)} ago")
    if state.operators:
        watermark = f", watermark {time_text(state.watermark_ms)}" if state.watermark_ms else ""
        line(f"Stateful operators: {len(state.operators)}{watermark}")
    for name, text in state.other_sources.items():
        line(f"Source {name} reads no topics: {text[:80]}")
    if state.offsets:
        show_rows(CheckpointOffset, state.offsets, wide=wide)
    line(state.next_start)
    for problem in state.problems:
        line(problem)


def _with_sink(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the place of its sink, opened."""

    @functools.wraps(command)
    def opened(*args: Any, with_sink: str | None, sink_config: TextIO | None, **rest: Any) -> Any:
        if with_sink is None and sink_config is not None:
            raise click.UsageError("--with-sink-config needs --with-sink.")
        sink = None if with_sink is None else _opened(with_sink, sink_config)
        return command(*args, with_sink=sink, **rest)

    return opened


def _opened(place: str, config: TextIO | None) -> Kafka:
    return Kafka(options_for(place, (), {} if config is None else parse_properties(text_of(config))))


def _with_change(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that changes a checkpoint."""
    for option in (
        _with_sink,
        json_option,
        execute_option,
        click.option(
            "--stopped",
            is_flag=True,
            help="Confirm that the query is stopped, though Spark has just written to the checkpoint, or"
            " its last micro-batch is not complete.",
        ),
        click.option(
            "--with-state",
            is_flag=True,
            help="Keep the state of stateful operators as it is, though it won't fit.",
        ),
        click.option(
            "--with-sink",
            metavar="PLACE",
            help="The place to which the query writes exactly once: also set what it knows of the"
            " checkpoint.",
        ),
        click.option(
            "--with-sink-config",
            "sink_config",
            metavar="FILE",
            type=PropertiesFile(encoding="utf-8-sig"),
            help="A file of client properties for the place of --with-sink.",
        ),
    ):
        command = option(command)
    return command


@checkpoint.command()
@checkpoint_argument
@on_optional_place
@partitions_argument
@click.option("--to-earliest", is_flag=True, help="The log start offsets.")
@click.option("--to-latest", is_flag=True, help="The log end offsets.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Where the query is, or the nearest offsets that exist: past expired ones, and to the start of a"
    " topic that was created again.",
)
@to_datetime_option
@click.option(
    "--to-batch", metavar="N", type=click.IntRange(0, MAX_LONG), help="The end of this micro-batch."
)
@click.option("--to-group", metavar="GROUP", help="The offsets that this consumer group has committed.")
@click.option("--to-offsets", metavar="JSON", help='Spark\'s offsets, such as {"orders":{"0":23}}.')
@from_file_option
@click.option("--source", "sources", multiple=True, help="Only this source, by name or number. Repeatable.")
@_with_change
def rewind(
    kafka: Kafka | None,
    location: str,
    sources: tuple[str, ...],
    topics: tuple[str, ...],
    with_sink: Kafka | None,
    with_state: bool,
    stopped: bool,
    execute: bool,
    as_json: bool,
    **to: Any,
) -> None:
    """Set where a query goes on.

    PLACE is what the query reads, and tells which offsets exist. --to-batch, --to-offsets and --from-file
    work without it. With TOPIC, only its positions change. The query must be stopped. The files as they were
    are kept in the checkpoint.

    Micro-batches keep counting up. Records that are read again are written again; a sink of this package does
    so only if --with-sink names it.
    """
    from pyspark_kafkalog.tools.checkpoint.rewind import plan_rewind

    chosen = [name for name, value in to.items() if value is not None and value is not False]
    if len(chosen) != 1:
        names = ", ".join("--" + name.replace("_", "-") for name in to)
        raise click.UsageError(f"Give exactly one of {names}.")
    kind, value = _goal(chosen[0], to[chosen[0]])
    with said("Looking into the checkpoint"):
        more: dict[str, Any] = {
            "sources": sources or None,
            "topics": _topics(topics) or None,
            "with_state": with_state,
            "with_sink": with_sink,
        }
        if kafka is None:
            change = plan_rewind(location, kind, value, kafka=None, **more)
        else:
            change = kafka.checkpoints.plan_rewind(location, kind, value, **more)
    _carry_out(change, stopped=stopped, execute=execute, as_json=as_json)


@checkpoint.command()
@checkpoint_argument
@on_place
@click.option(
    "--map",
    "restored",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The file that kafkalog restore has written for PLACE (--state): it knows where each record is.",
)
@click.option(
    "--mm2",
    "source",
    metavar="SOURCE",
    help="The cluster that MirrorMaker 2 copies to PLACE: its offset syncs say where some records are. If"
    " it is lost, give PLACE again.",
)
@click.option(
    "--mm2-prefix",
    "prefix",
    metavar="PREFIX",
    default="",
    help="The beginning of the topics' names in PLACE: the alias of SOURCE and a dot, unless MirrorMaker 2"
    " has another replication policy.",
)
@click.option(
    "--mm2-syncs", "syncs", metavar="TOPIC", help="The topic of the offset syncs, if there are several."
)
@click.option(
    "--mm2-config",
    "source_config",
    metavar="FILE",
    type=PropertiesFile(encoding="utf-8-sig"),
    help="A file of client properties for SOURCE.",
)
@click.option(
    "--mm2-unproven",
    "unproven",
    is_flag=True,
    help="Believe offset syncs of topics of which the clusters share no record to compare.",
)
@_with_change
def move(
    kafka: Kafka,
    location: str,
    restored: str | None,
    source: str | None,
    prefix: str,
    syncs: str | None,
    source_config: TextIO | None,
    unproven: bool,
    with_sink: Kafka | None,
    with_state: bool,
    stopped: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Let a query go on in another cluster.

    PLACE has copies of the records that the query reads. No record is left out; where an offset is not exact,
    as NOTE says, some are read again. The query must be stopped. The files as they were are kept in the
    checkpoint.
    """
    if (restored is None) == (source is None):
        raise click.UsageError("Give exactly one of --map, --mm2.")
    translation: Translation | str
    if source is None:
        if any((prefix, syncs, source_config, unproven)):
            raise click.UsageError("--mm2-prefix, --mm2-syncs, --mm2-config and --mm2-unproven need --mm2.")
        assert restored is not None
        translation = restored
    else:
        translation = kafka.checkpoints.by_mirror_maker(
            _opened(source, source_config), prefix=prefix, syncs=syncs, unproven=unproven
        )
    with said("Looking into the checkpoint"):
        change = kafka.checkpoints.plan_move(
            location, translation, with_state=with_state, with_sink=with_sink
        )
    _carry_out(change, stopped=stopped, execute=execute, as_json=as_json)


def _goal(name: str, value: Any) -> tuple[RewindTo, Any]:
    from pyspark_kafkalog.tools.checkpoint.goals import RewindTo

    if name == "to_offsets":
        return RewindTo.OFFSETS, parse_ends(value)
    if name == "from_file":
        return RewindTo.OFFSETS, ends_in(value)
    if name == "to_datetime":
        return RewindTo.TIMESTAMP, value
    return RewindTo(name.removeprefix("to_")), 0 if value is True else value


def _topics(names: Sequence[str]) -> list[TopicPartition | str]:
    found: list[TopicPartition | str] = []
    for name in names:
        topic, numbers = topic_and_numbers(name)
        found += [TopicPartition(topic, number) for number in numbers] or [topic]
    return found


def _carry_out(change: CheckpointChange, *, stopped: bool, execute: bool, as_json: bool) -> None:
    from pyspark_kafkalog.tools.checkpoint.change import execute as carry_out
    from pyspark_kafkalog.tools.checkpoint.goals import CheckpointStep

    if execute and not change.is_nothing:
        carry_out(change, stopped=stopped)
    if as_json:
        kept = change.kept if execute and not change.is_nothing else None
        show_json({"offsets": change.steps, "notes": change.notes, "kept": kept})
    else:
        show_rows(CheckpointStep, change.steps)
        for note in change.notes:
            click.echo(one_line(note))
    if change.is_nothing:
        say("The checkpoint is there already: nothing to change.")
        return
    if execute and not as_json:
        click.echo(one_line(f"What was there is kept in {change.kept}"), err=True)
    say_if_dry(execute)
