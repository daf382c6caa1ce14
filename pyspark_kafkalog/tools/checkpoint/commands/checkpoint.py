"""``kafkalog checkpoint``: show a query's checkpoint, set it back, move it to another cluster."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.model.rows import time_text
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.checkpoint.show import CheckpointOffset, CheckpointState, checkpoint_state
from pyspark_kafkalog.tools.cli.application import ShownByDefault, kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, show_json, show_rows, wide_option
from pyspark_kafkalog.tools.cli.parameters import on_optional_place
from pyspark_kafkalog.tools.cli.printable import one_line
from pyspark_kafkalog.tools.groups.watching import duration

checkpoint_argument = click.argument("location", metavar="CHECKPOINT", type=click.Path())


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

    Beside PLACE, which the query reads, it shows lags, and what is gone since. Exits with 1 if the next start
    would fail.
    """
    with said("Looking into the checkpoint"):
        state = checkpoint_state(location) if kafka is None else kafka.checkpoints.show(location)
    if as_json:
        show_json(state)
    else:
        _show(state, wide=wide)
    if state.problems:
        ctx.exit(1)


def _show(state: CheckpointState, *, wide: bool) -> None:
    def line(text: str) -> None:
        click.echo(one_line(text))

    line(f"Query {state.query_id}, log of offsets {state.version or 'empty'}, {state.plans} plans")
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
