"""``kafkalog brokers``: the brokers of a cluster."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.model import BrokerState
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import Shown, kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, show_rows
from pyspark_kafkalog.tools.cli.parameters import on_place
from pyspark_kafkalog.tools.cli.printable import one_line


@kafkalog.command(cls=Shown)
@on_place
@json_option
@click.pass_context
def brokers(ctx: click.Context, kafka: Kafka, as_json: bool) -> None:
    """Show brokers, how many partitions each leads, and whether it answers from here.

    VERSION is the Kafka whose APIs a broker has. Exits with 1 if a broker does not answer; doctor says more.
    """
    with said("Asking each broker"):
        rows = kafka.brokers()
    show_rows(BrokerState, rows, "brokers", as_json=as_json)
    for row in rows:
        if row.note:
            click.echo(one_line(f"Broker {row.id} does not answer: {row.note}"), err=True)
    if not all(row.answers for row in rows):
        ctx.exit(1)
