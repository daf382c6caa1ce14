"""``kafkalog forget-queries``: remove the ledgers of queries that are gone."""

from __future__ import annotations

import click

from pyspark_kafkalog.client.kafka import connect
from pyspark_kafkalog.options.values import milliseconds
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say_if_dry, show_rows
from pyspark_kafkalog.tools.cli.parameters import execute_option


@kafkalog.command("forget-queries")
@click.argument("directory", metavar="PLACE")
@click.option(
    "--older-than",
    metavar="AGE",
    required=True,
    help="How long they have not written to the directory, such as 365d.",
)
@execute_option
@json_option
@click.pass_context
def forget_queries(ctx: click.Context, directory: str, older_than: str, execute: bool, as_json: bool) -> None:
    """Forget the streaming queries, and jobs with numbers of their own, that have written to a log directory
    and are gone.

    Removes their ledgers, which say what they have written. A query that comes back is refused, as nothing
    tells this any more: give it a new checkpoint, or set failOnMissingMarker to false for one run. Exits with
    1 if a ledger can't be read: it stays.
    """
    from pyspark_kafkalog.tools.care.forget import ForgottenQuery

    if older_than.strip().isdecimal():  # seconds, days or milliseconds?
        raise click.BadParameter(f"expected an age with its unit, such as 365d, got {older_than!r}")
    rows = connect(directory).logs.forget_queries(milliseconds("--older-than", older_than), execute=execute)
    show_rows(ForgottenQuery, rows, "queries", as_json=as_json)
    say_if_dry(execute)
    if any(row.note for row in rows):
        ctx.exit(1)
