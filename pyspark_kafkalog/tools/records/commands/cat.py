"""``kafkalog cat`` and ``kafkalog export``: the records of a topic, on the screen, in a pipe or in a file."""

from __future__ import annotations

import base64
import binascii
import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, OptionError, SchemaError
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.table import VALUE_FORMATS
from pyspark_kafkalog.options.times import TIME_FORMS
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.arrow import import_arrow
from pyspark_kafkalog.tools.cli.output import in_shell, progress, said_until_first, say, warnings
from pyspark_kafkalog.tools.cli.parameters import on_place, parse_time, topic_and_numbers, topic_names


def _parse_offset(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:  # Kafka's console consumer has words, too
        raise click.BadParameter(
            f"expected a whole number, got {text!r}. Or write -o beginning or -o end", ctx, param
        ) from None


if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.tools.records.lines import Form
    from pyspark_kafkalog.tools.records.select import RecordSelection

_FORMS = click.Choice(["text", "hex", "base64"])
_VALUE = r"%v\n"
_KEY_AND_VALUE = r"%k %v\n"
"""The format for internal topics, whose keys say what the values are about."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """The records that a command is about, and how it shows them."""

    topic: str
    selection: RecordSelection
    key_as: Form | None
    value_as: Form | None
    skip_damaged: bool


def on_records(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument TOPIC and the options that select records; the command gets :class:`WantedRecords`."""

    @click.argument("topic", metavar="TOPIC[:PARTITIONS]", shell_complete=topic_names)
    @click.option(
        "-p",
        "--partition",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        help="The same as TOPIC:PARTITION, as in kcat. Repeatable.",
    )
    @click.option(
        "--offset",
        metavar="INTEGER",
        callback=_parse_offset,
        help="Start at this offset; if negative, so many before the end: --offset -10.",
    )
    @click.option(
        "--since", metavar="TIME", callback=parse_time, help=f"Only records from this time on: {TIME_FORMS}."
    )
    @click.option("--until", metavar="TIME", callback=parse_time, help="Only records before this time.")
    @click.option("-n", "--tail", type=click.IntRange(0), help="Only the last so many, sorted by timestamp.")
    @click.option("-c", "--limit", type=click.IntRange(0), help="Only the first so many, then end.")
    @click.option("-k", "--key", help="Only records with this key, written as --key-as says.")
    @click.option("--grep", metavar="REGEX", help="Only records whose value has a match (RE2's syntax).")
    @click.option(
        "--header", "headers", metavar="KEY[=VALUE]", multiple=True, help="Only with this header. Repeatable."
    )
    @click.option("--read-committed", is_flag=True, help="Leave out aborted and unfinished transactions.")
    @click.option("--large-messages", is_flag=True, help="Show large messages whole, not their segments.")
    @click.option(
        "--key-as", type=_FORMS, help="How keys are shown. Text by default; internal topics are decoded."
    )
    @click.option("--value-as", type=_FORMS, help="The same for values.")
    @click.option(
        "--key-format",
        metavar="FORMAT",
        help="The format of keys, such as confluent-avro. They are decoded, and shown as JSON.",
    )
    @click.option("--value-format", metavar="FORMAT", help="The same for values.")
    @click.option(
        "--skip-damaged",
        is_flag=True,
        help="Leave out what can't be read, show nulls for what can't be decoded, report both, exit with 1.",
    )
    @functools.wraps(command)
    def with_records(
        kafka: Kafka,
        topic: str,
        key: str | None,
        headers: tuple[str, ...],
        key_as: Form | None,
        value_as: Form | None,
        key_format: str | None,
        value_format: str | None,
        skip_damaged: bool,
        **rest: Any,
    ) -> Any:
        import_arrow()
        topic, numbers = topic_and_numbers(topic)
        if numbers and rest["partitions"]:
            raise click.UsageError("Give either TOPIC:PARTITIONS or --partition.")
        rest["partitions"] = numbers or rest["partitions"]
        kafka = _decoding(kafka, topic, "key", key_format, key_as)
        kafka = _decoding(kafka, topic, "value", value_format, value_as)
        if key is not None and key_format is not None:
            raise click.UsageError("--key looks for bytes: give it with --key-as, not with --key-format.")
        since, until = rest["since"], rest["until"]
        if since is not None and until is not None and until <= since:
            raise click.UsageError("Expected --since to be earlier than --until: no record can match.")
        from pyspark_kafkalog.tools.records.select import RecordSelection

        names = ("partitions", "offset", "since", "until", "tail", "limit", "grep", "read_committed")
        selection = RecordSelection(
            key=None if key is None else _key(key, key_as),
            headers=tuple(map(_header, headers)),
            large_messages=rest.pop("large_messages"),
            **{name: rest.pop(name) for name in names},
        )
        return command(kafka, wanted=WantedRecords(topic, selection, key_as, value_as, skip_damaged), **rest)

    return with_records


def _decoding(kafka: Kafka, topic: str, column: str, given: str | None, form: Form | None) -> Kafka:
    """``kafka`` with the format of a column."""
    if given is None:
        return kafka
    if form is not None:
        raise click.UsageError(f"Give only one of --{column}-format and --{column}-as.")
    if topic in INTERNAL_TOPICS:
        raise click.UsageError(f"Topic {topic} is decoded by itself: leave out --{column}-format.")
    if given.lower() not in VALUE_FORMATS:
        raise click.UsageError(
            f"--{column}-format: expected one of {', '.join(VALUE_FORMATS)}, got {given!r}. Leave it"
            f" out: {column}s are shown as text, and with --{column}-as hex or"
            f" --{column}-as base64 as their bytes."
        )
    return Kafka({**kafka.options, f"{column}.format": given})


@kafkalog.command(
    epilog="Letters of --format: %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s or"
    r" %v value, %h headers, %K and %S sizes of key and value, %% percent; \n \r \t \0 \\ \xHH."
)
@on_place
@on_records
@click.option("-f", "--follow", is_flag=True, help="Go on with records that are written from now on.")
@click.option("-e", "ends", is_flag=True, help="End after the last record, which is the default here.")
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    help=r"How to print a record, in kcat's letters. By default '%v\n'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.option("-J", "as_kcat", is_flag=True, help="Print JSON with the names that kcat -J has.")
@click.option("--count", is_flag=True, help="Print only the number of records.")
@click.pass_context
def cat(
    ctx: click.Context,
    kafka: Kafka,
    wanted: WantedRecords,
    follow: bool,
    ends: bool,
    template: str | None,
    as_json: bool,
    as_kcat: bool,
    count: bool,
) -> None:
    """Print the records of a topic.

    They come partition by partition; with --tail, sorted by timestamp; with --follow, as they arrive. In
    JSON, keys and values that are not UTF-8 are {"base64": "..."}; kafkalog produce --json reads it.
    --value-format confluent-avro -o schema.registry.url=URL decodes values to JSON, by the newest schema of
    the topic; a login is best given in a file of --config. --key and --grep look at the bytes as stored. -o
    also takes what kcat's -o does: beginning, end, an offset, -N for the last N of each partition, s@MS.
    """
    if (template is not None) + as_json + as_kcat + count > 1:
        raise click.UsageError("Give only one of --format, --json, -J and --count.")
    if follow and ends:
        raise click.UsageError("--follow never ends: leave out -e.")
    if follow and (count or wanted.selection.until is not None):
        raise click.UsageError("--follow never ends: leave out --count and --until.")
    from pyspark_kafkalog.tools.records.lines import format_lines, json_lines, kcat_lines

    topic, forms = wanted.topic, {"key_as": wanted.key_as, "value_as": wanted.value_as}
    if as_json:
        lines = json_lines(topic, **forms)
    elif as_kcat:
        lines = kcat_lines(topic, **forms)
    else:
        default = _KEY_AND_VALUE if topic in INTERNAL_TOPICS else _VALUE
        lines = format_lines(topic, default if template is None else template, **forms)
    with _damage_shown(ctx, wanted):
        if count:
            with said(f"Counting the records of {topic}"):
                number = kafka.records.count(
                    topic, wanted.selection, skip_damaged=wanted.skip_damaged, on_note=_say_note
                )
            click.echo(number)
            return
        for rows in _records(kafka, wanted, columns=lines.columns, follow=follow):
            _write(lines.render(rows))


@kafkalog.command()
@on_place
@on_records
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "csv", "jsonl"]),
    help="The format, if the suffix does not say it.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_context
def export(
    ctx: click.Context, kafka: Kafka, wanted: WantedRecords, file: str, file_format: Any, force: bool
) -> None:
    """Write the records of a topic to a file: Parquet, CSV or lines of JSON.

    The suffix of FILE says which: .parquet, .csv, .jsonl, .ndjson or .json. FILE appears when it is complete.
    Parquet has the columns of a DataFrame, with keys and values as bytes unless --key-as and --value-as say
    otherwise. What --key-format and --value-format decode becomes typed columns. Lines of JSON are those of
    kafkalog cat --json. CSV has timestamps in milliseconds, too; its headers and decoded values are JSON.

    Unlike kcat and confluent-kafka, it also writes records of aborted transactions: give --read-committed to
    leave them out.
    """
    from pyspark_kafkalog.tools.records.export import checked_format
    from pyspark_kafkalog.tools.records.export import export as export_records

    file_format = checked_format(file, file_format, overwrite=force)
    with _damage_shown(ctx, wanted), progress("Offsets", None) as done:
        count = export_records(
            _records(kafka, wanted, progress=done),
            wanted.topic,
            file,
            file_format,
            key_as=wanted.key_as,
            value_as=wanted.value_as,
            overwrite=force,
        )
        click.echo(f"{count} records in {file}", err=True)


def _records(kafka: Kafka, wanted: WantedRecords, **settings: Any) -> pa.RecordBatchReader:
    found = kafka.records.select(
        wanted.topic,
        wanted.selection,
        skip_damaged=wanted.skip_damaged,
        on_note=_say_note,
        **settings,
    )
    shown = said_until_first(f"Looking for records of {wanted.topic}", found)
    return found.from_batches(found.schema, shown)


def _say_note(note: str) -> None:
    say(f"{in_shell(note)}.")


def _write(text: Any) -> None:
    """Write lines to stdout as they are; on a terminal without control characters that it would act on."""
    if sys.stdout.isatty():
        shown = _CONTROL.sub(
            lambda c: c[0].encode("unicode_escape").decode(),
            text.to_pybytes().decode(errors="backslashreplace"),
        )
        click.echo(shown, nl=False)
    else:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _key(text: str, form: Form | None) -> bytes:
    try:
        if form == "hex":
            return bytes.fromhex(text)
        if form == "base64":
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        example = "6b657931" if form == "hex" else "a2V5MQ=="
        raise OptionError(
            f"Option '--key': expected {form}, got {text!r}", hint=f"Write, for example, {example} for key1."
        ) from None
    return text.encode(errors="surrogateescape")


def _header(text: str) -> tuple[str, bytes | None]:
    key, equals, value = text.partition("=")
    return key, value.encode(errors="surrogateescape") if equals else None


@contextmanager
def _damage_shown(ctx: click.Context, wanted: WantedRecords) -> Iterator[None]:
    """Exit with 1 if something is left out, which is said; without --skip-damaged say how to read on."""
    before = warnings.said
    try:
        yield
    except (CorruptRecordError, DataLossError, SchemaError) as e:
        raise e.with_hint("Read on with --skip-damaged.") from e
    if warnings.said > before and wanted.skip_damaged:
        ctx.exit(1)
