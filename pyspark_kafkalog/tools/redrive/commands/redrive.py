"""``kafkalog redrive``: dead letters go back to where they came from."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say, say_if_dry, show_rows
from pyspark_kafkalog.tools.cli.parameters import execute_option, on_place, topic_names


@kafkalog.command()
@on_place
@click.argument("topic", metavar="TOPIC", shell_complete=topic_names)
@click.option(
    "--group",
    default="kafkalog-redrive",
    show_default=True,
    help="The consumer group that knows what has been sent. With another group, all is sent again.",
)
@click.option(
    "--first",
    is_flag=True,
    help="Nothing was sent with this group yet, at least from partitions for which it has committed nothing.",
)
@execute_option
@json_option
def redrive(kafka: Kafka, topic: str, group: str, first: bool, execute: bool, as_json: bool) -> None:
    """Send the dead letters in TOPIC back to the topics that they came from.

    Their headers __connect.errors.topic and .partition say where that is, as Kafka Connect and
    pyspark_kafkalog.dead_letters write them. Key, value, timestamp and all other headers are sent as they
    were. Records without these headers stay where they are: their rows have - under BACK TO.

    Each dead letter is sent once, even if a run is killed and started again. Brokers keep the group's offsets
    for offsets.retention.minutes after the last run, 7 days by default, and a directory for ever. A group
    without offsets is refused, as it may have been forgotten, unless --first says that it is new.
    """
    from pyspark_kafkalog.tools.redrive.redrive import Redriven

    with said("Looking for dead letters"):
        rows = kafka.records.redrive(topic, group=group, first=first, execute=execute)
    show_rows(Redriven, rows, "partitions", as_json=as_json)
    if not rows:
        say(f"All dead letters in {topic} have been sent: there is nothing to send.")
    if staying := sum(row.records for row in rows if row.destination is None):
        say(f"Records that stay in {topic}, as no header says where they came from: {staying}.")
    say_if_dry(execute)
