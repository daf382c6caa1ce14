"""``kafkalog compact``: keeps the last record of each key."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import connect, names_brokers
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, progress, say, say_if_dry, show_rows
from pyspark_kafkalog.tools.cli.parameters import (
    PlaceArgument,
    exclude_option,
    execute_option,
    named_topics,
    set_option,
    topics_argument,
)


@kafkalog.command()
@click.argument("directory", metavar="PLACE", cls=PlaceArgument)
@topics_argument
@exclude_option
@set_option("A topic configuration for this run, such as min.cleanable.dirty.ratio=0.")
@click.option(
    "--any-policy", is_flag=True, help="Compact topics even if their cleanup.policy does not say compact."
)
@click.option(
    "--dedupe-buffer-size",
    type=click.IntRange(1),
    default=128 << 20,
    show_default=True,
    metavar="BYTES",
    help="Memory for the map of keys; more keys take several passes.",
)
@execute_option
@json_option
def compact(
    directory: str,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    configs: dict[str, str],
    any_policy: bool,
    dedupe_buffer_size: int,
    execute: bool,
    as_json: bool,
) -> None:
    """Keep the last record of each key, as a broker's log cleaner does.

    PLACE is a log directory that no broker uses. Without TOPIC, it compacts all topics whose cleanup.policy
    says so. min.compaction.lag.ms, delete.retention.ms, min.cleanable.dirty.ratio and segment.bytes come from
    --set, or from the topics.
    """
    if names_brokers(directory):
        raise click.UsageError("Expected a log directory, got brokers: these compact by themselves.")
    from pyspark_kafkalog.tools.care.compact import CompactedPartition

    with progress("Compacting", None, in_bytes=True) as done:
        found = connect(directory).logs.compact(
            named_topics(topics, exclude),
            exclude=exclude,
            execute=execute,
            configs=configs,
            any_policy=any_policy,
            dedupe_buffer_size=dedupe_buffer_size,
            progress=done,
        )
    show_rows(CompactedPartition, found, "partitions", as_json=as_json)
    if not found and not topics and not any_policy:
        say("No topic here has a cleanup.policy that says compact: nothing was looked at.")
    say_if_dry(execute)
