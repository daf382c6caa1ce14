"""The options of commands that set where a group or a query goes on."""

from __future__ import annotations

from typing import Any

import click

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.times import TIME_FORMS
from pyspark_kafkalog.tools.cli.parameters import in_file, parse_time
from pyspark_kafkalog.tools.groups.exchange import parse_ends

to_datetime_option = click.option(
    "--to-datetime",
    metavar="TIME",
    callback=parse_time,
    help=f"The first records at or after this time: {TIME_FORMS}. UTC unless it has a zone.",
)
from_file_option = click.option(
    "--from-file",
    metavar="FILE",
    type=click.File(encoding="utf-8-sig"),
    help="The offsets in this file: from offsets export or kafka-consumer-groups --export, or Spark's JSON.",
)


def ends_in(file: Any) -> dict[TopicPartition, int]:
    """The offsets in a file that is named on the command line; see :func:`.exchange.parse_ends`.

    :raises OptionError: for anything else, with the file.
    """
    with in_file(file):
        return parse_ends(file.read())
