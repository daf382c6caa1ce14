"""``kafkalog dump``: record batches and records as they are stored."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError
from pyspark_kafkalog.model import OffsetRange
from pyspark_kafkalog.model.rows import plain
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import cell, progress, say
from pyspark_kafkalog.tools.cli.parameters import on_place, one_partition
from pyspark_kafkalog.tools.cli.printable import printable

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.records.dump import DumpedBatch, DumpedRecord


@kafkalog.command()
@on_place
@click.argument("partition", metavar="[TOPIC:PARTITION]", required=False)
@click.option("--from", "start", type=click.IntRange(0, MAX_LONG), default=0, help="Start at this offset.")
@click.option(
    "--to", "end", type=click.IntRange(0, MAX_LONG), default=MAX_LONG, help="End before this offset."
)
@click.option("--records", is_flag=True, help="Show the records, too, not only the batches.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
@click.pass_context
def dump(
    ctx: click.Context,
    kafka: Kafka,
    partition: str | None,
    start: int,
    end: int,
    records: bool,
    as_json: bool,
) -> None:
    """Show record batches, and with --records their records, as stored.

    TOPIC:PARTITION is, for example, orders:0. The output is that of Kafka's DumpLogSegments; records of
    internal topics are decoded, as cat does. Exits with 1 if a batch can't be read.
    """
    damaged = False

    def report(error: CorruptRecordError | DataLossError) -> None:
        nonlocal damaged
        damaged = True
        say(str(error))

    if end <= start:
        raise click.UsageError("Expected --from to be lower than --to: no offset is between them.")
    chosen = one_partition(kafka.place, partition)
    wanted = OffsetRange(start, end)
    with said(f"Looking up {chosen}"):
        bounds = kafka.report_place.watermarks([chosen], read_committed=False).get(chosen)
    existing = (
        OffsetRange(0, 0) if bounds is None else OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    )
    position, stop = wanted.within(existing)
    # Output on the same terminal shows the progress already.
    with progress("Offsets", stop - position, hidden=sys.stdout.isatty()) as done:
        for batch in kafka.records.dump(chosen, wanted, records=records, on_corrupt=report):
            damaged = damaged or not batch.is_valid
            shown = _decoded(batch)
            _show_json_line(shown) if as_json else _show_batch(shown)
            done(max(0, batch.last_offset + 1 - position))
            position = max(position, batch.last_offset + 1)
    if damaged:
        ctx.exit(1)


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


def _decoded(batch: DumpedBatch) -> DumpedBatch:
    """The batch with what keys and values of internal topics say, which kafkalog cat shows, too."""
    from pyspark_kafkalog.tools.records.internal_topics import as_json, decoded_record, is_decoded

    if not (batch.records and is_decoded(batch.topic)) or batch.is_control:
        return batch
    records = []
    for record in batch.records:
        key, value = (
            json.loads(as_json(found)) if isinstance(found, dict) else found
            for found in decoded_record(batch.topic, record.key, record.value)
        )
        records.append(replace(record, key=key, value=value))
    return replace(batch, records=tuple(records))


def _text(data: Any) -> str:
    """Bytes as text, and what was decoded as JSON."""
    if data is None:
        return "null"
    text = data.decode(errors="backslashreplace") if isinstance(data, bytes) else json.dumps(data)
    return printable(text)


def _show_json_line(batch: DumpedBatch) -> None:
    click.echo(json.dumps(plain(batch), default=_json_bytes))


def _json_bytes(data: bytes) -> str | dict[str, str]:
    """Text as text, other bytes as ``{"base64": ...}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
