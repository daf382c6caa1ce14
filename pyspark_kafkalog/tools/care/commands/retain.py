"""``kafkalog retain`` and ``kafkalog delete-records``: delete the oldest records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.options.times import TIME_FORMS
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say_if_dry, say_if_none, show_rows
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    execute_option,
    in_file,
    named_partitions,
    named_topics,
    on_place,
    parse_time,
    set_option,
    topics_argument,
)

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.care.retain import DeletedRecords

_OFFSET = re.compile(r"(?P<partitions>[^=]+)=(?P<offset>-1|[0-9]{1,19})", re.ASCII)


@kafkalog.command()
@on_place
@topics_argument
@exclude_option
@set_option(
    "retention.ms, such as 604800000 or 7d, retention.bytes, such as 1073741824 or 1g, or cleanup.policy:"
    " delete, compact, or both with a comma."
)
@click.option(
    "--delete-policy",
    metavar="MODULE:FUNCTION",
    help="A function that names segments, too, as the option deletePolicy of a write does.",
)
@execute_option
@json_option
@click.pass_context
def retain(
    ctx: click.Context,
    kafka: Kafka,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    configs: dict[str, str],
    delete_policy: str | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Delete the segments of a log directory that are due, as brokers do with theirs.

    Without TOPIC, it looks at all topics. --set decides what is due, or else the topic's configuration in the
    directory; without either, segments are kept. Segments below the log start offset are deleted in any case.
    Exits with 1 if a partition can't be used: its row says why, and the others lose their segments.
    """
    with said("Looking for segments that are due"):
        named = named_topics(topics, exclude) or None
        rows = kafka.logs.retain(
            named, configs, exclude=exclude, delete_policy=delete_policy, execute=execute
        )
    say_if_none(rows, "looked at")
    _show(ctx, rows, as_json=as_json, execute=execute)


def _show(ctx: click.Context, rows: Sequence[DeletedRecords], *, as_json: bool, execute: bool) -> None:
    from pyspark_kafkalog.tools.care.retain import DeletedRecords

    show_rows(DeletedRecords, rows, "partitions", as_json=as_json)
    say_if_dry(execute)
    if any(row.note for row in rows):
        ctx.exit(1)


@kafkalog.command("delete-records")
@on_place
@click.argument("words", nargs=-1, metavar="[TOPIC[:PARTITIONS][=OFFSET]]...")
@click.option(
    "--until",
    metavar="TIME",
    callback=parse_time,
    help=f"Up to the first record at or after this time, without OFFSET: {TIME_FORMS}.",
)
@click.option(
    "--offset-json-file",
    metavar="FILE",
    type=click.File(encoding="utf-8-sig"),
    help="The offsets in this file, as kafka-delete-records takes it.",
)
@execute_option
@json_option
@click.pass_context
def delete_records(
    ctx: click.Context,
    kafka: Kafka,
    words: tuple[str, ...],
    until: int | None,
    offset_json_file: Any,
    execute: bool,
    as_json: bool,
) -> None:
    """Delete the records before an offset or a time, for ever.

    OFFSET is the first to keep; -1 stands for the high watermark, which deletes all records. For example
    orders=5000, orders:0,1=5000, or orders --until 7d. Exits with 1 if a partition can't be used or asked:
    its row says why, and the others lose their records.
    """
    from pyspark_kafkalog.tools.care.retain import parse_offset_json

    if bool(words) == (offset_json_file is not None) or (until is not None and not words):
        raise click.UsageError("Give TOPIC=OFFSET, TOPIC --until TIME, or --offset-json-file FILE.")
    if until is not None and any("=" in word for word in words):
        raise click.UsageError("Give either OFFSET or --until.")
    if offset_json_file is not None:
        with in_file(offset_json_file):
            wanted = parse_offset_json(offset_json_file.read())
    elif until is not None:
        wanted = kafka.logs.offsets_before(named_partitions(kafka.place, words), until)
    else:
        wanted = _offsets(kafka, words)
    rows = kafka.logs.delete_records(wanted, execute=execute)
    _show(ctx, rows, as_json=as_json, execute=execute)


def _offsets(kafka: Kafka, texts: Sequence[str]) -> dict[TopicPartition, int]:
    wanted: dict[TopicPartition, int] = {}
    for text in texts:
        match = _OFFSET.fullmatch(text)
        if match is None or int(match["offset"]) > MAX_LONG:
            raise OptionError(
                f"Expected TOPIC=OFFSET or TOPIC:PARTITIONS=OFFSET, got {text!r}",
                hint="Write, for example, orders=5000, orders:0,1=-1 for all records, or orders --until 7d.",
            )
        for partition in named_partitions(kafka.place, (match["partitions"],)):
            if partition in wanted:
                raise OptionError(
                    "Two offsets were given", topic_partition=partition, hint="Give one of them."
                )
            wanted[partition] = int(match["offset"])
    return wanted
