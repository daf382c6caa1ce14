"""``kafkalog topics``: show, describe, create, delete and alter topics."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.client.partitions import PartitionState, SegmentState
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model.topics import ConfigEntry, NewTopic, TopicPartitionInfo
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.table import SERVERS
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import ShownByDefault, kafkalog
from pyspark_kafkalog.tools.cli.output import (
    json_option,
    say,
    say_if_dry,
    say_if_none,
    show_json,
    show_rows,
    wide_option,
)
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    execute_option,
    on_place,
    selection,
    set_option,
    topic_names,
    topics_argument,
)
from pyspark_kafkalog.tools.topics.topic_changes import CreatedTopic, TopicChange, TopicToDelete

names_argument = click.argument(
    "names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names
)
partitions_option = click.option("--partitions", type=click.IntRange(1), help="The number of partitions.")
config_option = set_option("A topic configuration, such as retention.ms=7d.")
if_exists_option = click.option("--if-exists", is_flag=True, help="Leave out topics that don't exist.")


@kafkalog.group(cls=ShownByDefault)
def topics() -> None:
    """Show, describe, create, delete or alter topics.

    topics PLACE means topics show PLACE.
    """


@topics.command()
@on_place
@topics_argument
@exclude_option
@click.option("--internal", is_flag=True, help="Show internal topics, too, such as __consumer_offsets.")
@click.option("--segments", is_flag=True, help="Show each segment of a log directory.")
@wide_option
@json_option
@click.pass_context
def show(
    ctx: click.Context,
    kafka: Kafka,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    internal: bool,
    segments: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Show partitions with their bounds, sizes and timestamps.

    Exits with 1 if a partition does not tell its bounds; NOTE says why.
    """
    chosen = selection(topics, exclude)
    if segments:
        _show_segments(kafka, chosen, internal, wide, as_json)
        return
    with said("Looking up partitions"):
        rows = kafka.topics.partitions(chosen, internal=internal)
    show_rows(PartitionState, rows, "partitions", as_json=as_json, wide=wide)
    say_if_none(rows, "listed")
    if any(row.note for row in rows):
        ctx.exit(1)


def _show_segments(kafka: Kafka, chosen: Selection, internal: bool, wide: bool, as_json: bool) -> None:
    if SERVERS in kafka.options:
        raise OptionError("Brokers don't show their segments", hint="Name a log directory.")
    with said("Looking up segments"):
        rows = kafka.topics.segments(chosen, internal=internal)
    show_rows(SegmentState, rows, "segments", as_json=as_json, wide=wide)


@topics.command()
@on_place
@topics_argument
@json_option
def describe(kafka: Kafka, topics: tuple[str, ...], as_json: bool) -> None:
    """Show where partitions are, and configurations that are not Kafka's defaults.

    Without TOPIC, it shows all topics that are not internal. SIZE is the size of the leader's log.
    """
    with said("Looking up topics"):
        found = kafka.topics.describe(topics or None)
    if as_json:
        show_json({"topics": found})
        return
    show_rows(TopicPartitionInfo, [row for topic in found for row in topic.partitions])
    if any(topic.configs for topic in found):
        click.echo()
        show_rows(ConfigEntry, [row for topic in found for row in topic.configs or ()])
    if hidden := [topic.topic for topic in found if topic.configs is None]:
        click.echo(f"The brokers don't show the configurations of {', '.join(hidden)}.", err=True)


@topics.command()
@on_place
@names_argument
@partitions_option
@click.option("--replication-factor", type=click.IntRange(1), help="For brokers: replicas of each partition.")
@config_option
@click.option("--if-not-exists", is_flag=True, help="Leave topics that exist as they are.")
@json_option
def create(
    kafka: Kafka,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create topics, at once.

    It needs no --execute, since nothing can be lost. Brokers have defaults for what you leave out (since
    Kafka 2.4); a log directory makes one partition.
    """
    new = [NewTopic(name, partitions, replication_factor, configs) for name in names]
    with said("Creating topics"):
        rows = kafka.topics.create(new, if_not_exists=if_not_exists)
    show_rows(CreatedTopic, rows, "topics", as_json=as_json)


@topics.command()
@on_place
@names_argument
@if_exists_option
@execute_option
@json_option
def delete(kafka: Kafka, names: tuple[str, ...], if_exists: bool, execute: bool, as_json: bool) -> None:
    """Delete topics with all their records, and what groups have committed for them.

    Without --execute it only shows what would be deleted. No broker may run on a log directory. A kill may
    leave a topic there with fewer partitions: run the command again. Internal topics are refused.
    """
    with said("Looking up topics"):
        rows = kafka.topics.plan_deletion(names, if_exists=if_exists)
    if execute:
        with said("Deleting topics"):
            kafka.topics.delete(rows)
    show_rows(TopicToDelete, rows, "topics", as_json=as_json)
    for name in sorted({*names}.difference(row.topic for row in rows)):
        say(f"There is no topic {name}.")
    say_if_dry(execute)


@topics.command()
@on_place
@names_argument
@partitions_option
@config_option
@click.option("--unset", metavar="NAME", multiple=True, help="A configuration to drop. Repeatable.")
@if_exists_option
@execute_option
@json_option
def alter(
    kafka: Kafka,
    names: tuple[str, ...],
    partitions: int | None,
    configs: dict[str, str],
    unset: tuple[str, ...],
    if_exists: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Add partitions to topics, and set or drop their configurations.

    Without --execute the change is only shown. With more partitions, keys that were in one partition may go
    to another.
    """
    values: dict[str, str | None] = {**configs, **dict.fromkeys(unset)}
    if partitions is None and not values:
        raise click.UsageError("Give --partitions, --set or --unset.")
    with said("Looking up topics"):
        changes = kafka.topics.plan_alteration(
            names, partitions=partitions, configs=values, if_exists=if_exists
        )
    if execute:
        with said("Changing topics"):
            kafka.topics.alter(changes)
    show_rows(TopicChange, changes, "changes", as_json=as_json)
    if changes:
        say_if_dry(execute)
    else:
        click.echo("There is nothing to change", err=True)
