"""``kafkalog dump`` and ``kafkalog verify``, which read records and so load the codec."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pyspark_kafkalog import admin
from pyspark_kafkalog.admin.printable import one_line, printable
from pyspark_kafkalog.admin.rows import plain
from pyspark_kafkalog.cli.output import (
    cell,
    json_option,
    progress,
    show_json,
    show_table,
    size_text,
)
from pyspark_kafkalog.cli.place import Target, on_place, one_partition, selection
from pyspark_kafkalog.cli.show import topic_option
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError
from pyspark_kafkalog.model import OffsetRange
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.saying import said

if TYPE_CHECKING:
    from pyspark_kafkalog.admin.dumping import DumpedBatch, DumpedRecord


@click.command()
@on_place
@click.argument("partition", required=False)
@click.option("--from", "start", type=click.IntRange(0, MAX_LONG), default=0, help="Start at this offset.")
@click.option(
    "--to", "end", type=click.IntRange(0, MAX_LONG), default=MAX_LONG, help="End before this offset."
)
@click.option("--records", is_flag=True, help="Show the records, too, not only the batches.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.pass_context
def dump(
    ctx: click.Context,
    target: Target,
    partition: str | None,
    start: int,
    end: int,
    records: bool,
    as_json: bool,
) -> None:
    """Show record batches as stored, those with offsets from --from to --to, and of these the records.

    PARTITION is, for example, orders-0. The output is that of Kafka's DumpLogSegments. Exits with 1 if
    a batch can't be read.
    """
    damaged = False

    def report(error: CorruptRecordError | DataLossError) -> None:
        nonlocal damaged
        damaged = True
        click.echo(f"kafkalog: {one_line(str(error))}", err=True)

    chosen = one_partition(target.place, partition)
    wanted = OffsetRange(start, end)
    with said(f"Looking up {chosen}"):
        bounds = target.place.watermarks([chosen], read_committed=False).get(chosen)
    existing = (
        OffsetRange(0, 0) if bounds is None else OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    )
    position, stop = wanted.within(existing)
    # Output on the same terminal shows the progress already.
    with progress("Offsets", stop - position, hidden=sys.stdout.isatty()) as done:
        for batch in admin.dump(target.place, chosen, wanted, records=records, on_corrupt=report):
            damaged = damaged or not batch.is_valid
            _show_json_line(batch) if as_json else _show_batch(batch)
            done(max(0, batch.last_offset + 1 - position))
            position = max(position, batch.last_offset + 1)
    if damaged:
        ctx.exit(1)


@click.command()
@on_place
@topic_option
@json_option
@click.pass_context
def verify(ctx: click.Context, target: Target, topics: tuple[str, ...], as_json: bool) -> None:
    """Read everything and report damage.

    Checks the checksum, framing, offsets and content of every record batch, internal topics included,
    and the indexes of a directory. Exits with 1 if it finds damage. What a broker with tiered storage has
    moved out of its directory, and what a backup could not copy, is no damage, and noted.
    """
    with _without_warnings():  # what they say is reported below
        with said("Looking up partitions"):
            partitions = admin.partitions_of(target.place, selection(topics), internal=True)
            sizes = target.place.stored_sizes(partitions)
        total = sum(size.stored_bytes for size in sizes.values()) if sizes else None
        with progress("Verifying", total, in_bytes=True) as done:
            found = list(admin.verify(target.place, partitions, progress=done))
    damages = [damage for partition in found for damage in partition.damages]
    if as_json:
        show_json({"partitions": plain(found), "damages": len(damages)})
    else:
        show_table(
            ["TOPIC", "PARTITION", "BATCHES", "RECORDS", "SIZE", "DAMAGES"],
            [
                (
                    partition.topic,
                    partition.partition,
                    partition.batches,
                    partition.records,
                    size_text(partition.stored_bytes),
                    len(partition.damages),
                )
                for partition in found
            ],
        )
        for damage in damages:
            named = {"offset": damage.offset, "file": damage.file, "byte": damage.position}
            where = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
            click.echo(one_line(f"{damage.topic}-{damage.partition}: {damage.message} ({where})"))
        for partition in found:
            for note in partition.notes:
                click.echo(one_line(f"{partition.topic}-{partition.partition}: {note}"))
    if damages:
        ctx.exit(1)


@contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("pyspark_kafkalog")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


_TOOLS_NAMES = {"compression": "compresscodec", "isValid": "isvalid"}
"""Names of DumpLogSegments that differ from ours."""


def _show_batch(batch: DumpedBatch) -> None:
    """Print a batch on one line, as DumpLogSegments does, and each record on a line after a bar."""
    fields = plain(replace(batch, records=None))
    for name in ("topic", "partition", "records"):
        del fields[name]
    timestamp_type = fields.pop("timestampType")
    shown = []
    for name, value in fields.items():
        title = timestamp_type if name == "maxTimestamp" else _TOOLS_NAMES.get(name, name)
        shown.append(f"{title}: {str(value).lower() if isinstance(value, bool) else cell(value)}")
    click.echo(" ".join(shown))
    for record in batch.records or ():
        _show_record(record, timestamp_type)


def _show_record(record: DumpedRecord, timestamp_type: str) -> None:
    shown = [f"offset: {record.offset}", f"{timestamp_type}: {record.timestamp}"]
    if record.control_type is not None:
        shown.append(f"endTxnMarker: {record.control_type}")
    else:
        for key, value in record.headers:
            shown.append(f"header {printable(key)}: {_text(value)}")
        shown += [f"key: {_text(record.key)}", f"payload: {_text(record.value)}"]
    click.echo(f"| {' '.join(shown)}")


def _text(data: bytes | None) -> str:
    return "null" if data is None else printable(data.decode(errors="backslashreplace"))


def _show_json_line(batch: DumpedBatch) -> None:
    click.echo(json.dumps(plain(batch), default=_json_bytes))


def _json_bytes(data: bytes) -> str | dict[str, str]:
    """Text as text, other bytes as ``{"base64": ...}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
