"""``kafkalog doctor``."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, show_json
from pyspark_kafkalog.tools.cli.parameters import on_place


@kafkalog.command()
@on_place
@json_option
@click.pass_context
def doctor(ctx: click.Context, kafka: Kafka, as_json: bool) -> None:
    """Look for what keeps this machine from reading and writing PLACE, and say what to do.

    It tries all brokers, those that the cluster advertises, too, and says at which step it fails: DNS,
    TCP, TLS, the first request, or SASL. In a log directory it names each folder that has no place there.
    Exits with 1 if it finds a problem.
    """
    report = kafka.doctor()
    if as_json:
        show_json({"ok": report.ok, "findings": report.rows()})
    else:
        click.echo(str(report))
    if not report.ok:
        ctx.exit(1)
