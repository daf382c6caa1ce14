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
from pyspark_kafkalog.options.values import milliseconds, size_in_bytes
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say_if_dry, show_rows
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    execute_option,
    named_partitions,
    named_topics,
    on_place,
    parse_time,
    partitions_option,
)

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.care.retain import DeletedRecords

_OFFSET = re.compile(r"(?P<partitions>[^=]+)=(?P<offset>-1|[0-9]{1,19})", re.ASCII)


@kafkalog.command()
@on_place
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@exclude_option
@click.option("--retention-ms", metavar="TIME", help="Age of segments to delete, such as 604800000 or 7d.")
@click.option(
    "--retention-bytes", metavar="SIZE", help="Size of a partition to keep, such as 1073741824 or 1g."
)
@click.option("--cleanup-policy", help="delete, compact, or both with a comma.")
@execute_option
@json_option
@click.pass_context
def retain(
    ctx: click.Context,
    kafka: Kafka,
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    retention_ms: str | None,
    retention_bytes: str | None,
    cleanup_policy: str | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Delete the segments of a log directory that are due, as brokers do with theirs.

    Without TOPIC, of all topics. The options decide what is due or, where one is not given, the topic's
    configuration in the directory; what neither says is kept. Segments below the log start offset go in
    any case. Exits with 1 if a partition can't be used: its row says why, and the others lose theirs.
    """
    configs = {
        name: str(value)
        for name, value in (
            ("retention.ms", retention_ms and _unlimited(milliseconds, "--retention-ms", retention_ms)),
            (
                "retention.bytes",
                retention_bytes and _unlimited(size_in_bytes, "--retention-bytes", retention_bytes),
            ),
            ("cleanup.policy", cleanup_policy),
        )
        if value is not None
    }
    with said("Looking for segments that are due"):
        named = named_topics(topics, exclude) or None
        rows = kafka.logs.retain(named, configs, exclude=exclude, execute=execute)
    _show(ctx, rows, as_json=as_json, execute=execute)


def _show(ctx: click.Context, rows: Sequence[DeletedRecords], *, as_json: bool, execute: bool) -> None:
    from pyspark_kafkalog.tools.care.retain import DeletedRecords

    show_rows(DeletedRecords, rows, as_json=as_json)
    say_if_dry(execute)
    if any(row.note for row in rows):
        ctx.exit(1)


def _unlimited(parser: Any, name: str, text: str) -> Any:
    return int(text) if text.strip() in ("-1", "0") else parser(name, text)


@kafkalog.command("delete-records")
@on_place
@click.argument("offsets", nargs=-1, metavar="[TOPIC[:PARTITION]=OFFSET]...")
@partitions_option
@click.option(
    "--to-datetime",
    metavar="TIME",
    callback=parse_time,
    help=f"With --topic: up to the first record at or after this time: {TIME_FORMS}.",
)
@click.option(
    "--offset-json-file",
    type=click.File(encoding="utf-8"),
    help="The offsets in this file, as kafka-delete-records takes it.",
)
@execute_option
@json_option
@click.pass_context
def delete_records(
    ctx: click.Context,
    kafka: Kafka,
    offsets: tuple[str, ...],
    topics: tuple[str, ...],
    to_datetime: int | None,
    offset_json_file: Any,
    execute: bool,
    as_json: bool,
) -> None:
    """Delete the records before an offset or a time, for ever.

    OFFSET is the first to keep; -1 stands for the high watermark, which deletes all records. For example
    orders=5000, orders:0,1=5000. Exits with 1 if a partition can't be used or asked: its row says why, and
    the others lose theirs.
    """
    from pyspark_kafkalog.tools.care.retain import parse_offset_json

    given = [bool(offsets), to_datetime is not None, offset_json_file is not None]
    if sum(given) != 1:
        raise click.UsageError("Give exactly one of TOPIC=OFFSET, --to-datetime and --offset-json-file.")
    if bool(topics) != (to_datetime is not None):
        raise click.UsageError("Give --topic and --to-datetime together.")
    if offset_json_file is not None:
        wanted = parse_offset_json(offset_json_file.read())
    elif to_datetime is not None:
        partitions = named_partitions(kafka.place, topics)
        wanted = kafka.logs.offsets_before(partitions, to_datetime)
    else:
        wanted = _offsets(kafka, offsets)
    rows = kafka.logs.delete_records(wanted, execute=execute)
    _show(ctx, rows, as_json=as_json, execute=execute)


def _offsets(kafka: Kafka, texts: Sequence[str]) -> dict[TopicPartition, int]:
    wanted: dict[TopicPartition, int] = {}
    for text in texts:
        match = _OFFSET.fullmatch(text)
        if match is None or int(match["offset"]) > MAX_LONG:
            raise OptionError(f"Expected TOPIC=OFFSET or TOPIC:PARTITION=OFFSET, got {text!r}")
        for partition in named_partitions(kafka.place, (match["partitions"],)):
            if partition in wanted:
                raise OptionError("Two offsets were given", topic_partition=partition)
            wanted[partition] = int(match["offset"])
    return wanted
