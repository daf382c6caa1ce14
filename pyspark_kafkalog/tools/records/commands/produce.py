"""``kafkalog produce``: lines become records."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.options.table import SERVERS
from pyspark_kafkalog.tools.cli.application import INTERRUPTED, kafkalog
from pyspark_kafkalog.tools.cli.arrow import import_arrow
from pyspark_kafkalog.tools.cli.output import say
from pyspark_kafkalog.tools.cli.parameters import on_place, topic_and_numbers, topic_names

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.records.input_lines import Readable

_SHOWN = 10
"""The most records to look at after an interrupt."""


@kafkalog.command()
@on_place
@click.argument("topic", metavar="TOPIC[:PARTITION]", shell_complete=topic_names)
@click.argument("files", metavar="[FILE]...", type=click.File("rb"), nargs=-1)
@click.option(
    "-K", "--key-separator", metavar="TEXT", help=r"What stands between key and value of a line; \t is a tab."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Read lines of JSON, as kafkalog cat --json prints them."
)
@click.option(
    "-Z", "--tombstones", is_flag=True, help="With lines: an empty value is null, which deletes a key."
)
@click.option("-p", "--partition", type=click.IntRange(0), help="The same as TOPIC:PARTITION, as in kcat.")
@click.option("--keep-partitions", is_flag=True, help="With --json: each record keeps its partition.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="None by default.",
)
def produce(
    kafka: Kafka,
    topic: str,
    files: tuple[Any, ...],
    key_separator: str | None,
    as_json: bool,
    tombstones: bool,
    partition: int | None,
    keep_partitions: bool,
    compression: str | None,
) -> None:
    """Write lines from files, or from stdin, to a topic.

    A line is a value. With -K a line without separator has no key. JSON keeps keys, headers and timestamps.
    Brokers get records as they come, by an idempotent producer; a log directory shows all records when the
    last one is written. Options of df.write go into -o, such as -o large.message.enabled=true.

    Ctrl-C ends the input: the lines before it are written, and counted. A second Ctrl-C does not wait.
    """
    context = click.get_current_context()
    topic, numbers = topic_and_numbers(topic)
    if len(numbers) > 1 or (numbers and partition is not None):
        raise click.UsageError("Give one partition, either as TOPIC:PARTITION or by --partition.")
    partition = numbers[0] if numbers else partition
    if as_json and (key_separator is not None or tombstones):
        raise click.UsageError("-K and -Z are for lines, and don't go with --json.")
    if key_separator == "":
        raise click.UsageError("-K expects some text between key and value, got none.")
    if keep_partitions and (not as_json or partition is not None):
        raise click.UsageError("--keep-partitions goes with --json, and not with a partition.")
    import_arrow()
    from pyspark_kafkalog.client.write import is_missing
    from pyspark_kafkalog.tools.records.input_lines import (
        JsonLines,
        keyed,
        records_of,
        telling_of_marks,
        telling_of_returns,
        values_of,
        with_tombstones,
    )
    from pyspark_kafkalog.tools.records.interrupting import FirstInterrupt

    name = "kafka.compression.type" if SERVERS in kafka.options else "compression.type"
    options = {} if compression is None else {name: compression}
    json_lines = JsonLines(keep_partitions=keep_partitions)
    parse: Callable[[list[bytes]], Any]
    if as_json:
        parse = json_lines
    elif key_separator is not None:
        separator = key_separator.replace(r"\t", "\t")
        parse = keyed(separator.encode(errors="surrogateescape"))
    else:
        parse = values_of
    if tombstones:
        parse = with_tombstones(parse)
    if not as_json:
        parse = telling_of_marks(telling_of_returns(parse, _tell_of_returns), _tell_of_mark)
    streams = files or (sys.stdin.buffer,)
    is_new = is_missing(kafka.options, topic)

    def opened() -> Iterator[Readable]:
        for stream in streams:
            json_lines.begin(stream.name if files else None)
            yield interrupt.input(stream)

    with FirstInterrupt() as interrupt:
        found = records_of(opened(), parse, partition)
        try:
            count = kafka.write(interrupt.counted(found), topic, options=options)
        except KeyboardInterrupt:
            say(_not_known(kafka, topic, interrupt.rows))
            context.exit(INTERRUPTED)
    if is_new and count:
        click.echo(f"Topic {topic} was created", err=True)
    click.echo(f"{_records(count)} written", err=True)
    if interrupt.has_come:
        say("interrupted")
        context.exit(INTERRUPTED)


def _records(count: int) -> str:
    return f"{count} {'record was' if count == 1 else 'records were'}"


def _not_known(kafka: Kafka, topic: str, rows: int) -> str:
    """The message after a second interrupt, which leaves open whether all was written."""
    if not rows:
        return "interrupted again; nothing was written"
    read = f"interrupted again, when {_records(rows)} read"
    place = kafka.options.get(SERVERS) or place_options(kafka.options).paths[0]
    look = f"kafkalog cat {shlex.quote(place)} {topic} --tail {min(rows, _SHOWN)} shows"
    if SERVERS in kafka.options:
        return f"{read}: how many of them brokers have written is not known. {look} the last ones."
    return f"{read}: whether all of them are in the log or none is not known. {look} it."


def _tell_of_mark(encoding: str) -> None:
    how = f"iconv -f {encoding} -t UTF-8" if encoding != "UTF-8" else r"sed '1s/^\xef\xbb\xbf//'"
    say(
        f"The text is {encoding} with a byte order mark, and is written as it is. To make plain UTF-8 of it"
        f" before: {how}"
    )


def _tell_of_returns() -> None:
    say("Lines end with CR LF: the CR is a part of the values. tr -d '\\r' removes it before.")
