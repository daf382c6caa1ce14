"""Writes records to a file: Parquet, CSV or lines of JSON, a batch at a time."""

from __future__ import annotations

import contextlib
import os
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import pyarrow as pa

from pyspark_kafkalog.codec.text import rows_of_bytes
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.records.internal_topics import decoded_columns, is_decoded
from pyspark_kafkalog.tools.records.lines import (
    FORMS,
    Form,
    Lines,
    json_headers,
    json_lines,
    timestamp_types,
    timestamps,
)

FileFormat = Literal["parquet", "csv", "jsonl"]

SUFFIXES: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_ROW_GROUP = 64 << 20
"""Bytes of rows, in memory, that become a row group of a Parquet file."""
_FEW_VALUES = ["topic", "partition", "timestampType"]
"""Columns for which Parquet's dictionaries are worth their time."""


def format_of(path: str) -> FileFormat:
    """The format that the suffix of ``path`` stands for.

    :raises OptionError: for any other suffix.
    """
    if path == "-":
        raise OptionError("Expected a file, got -", hint="To print records, write kafkalog cat --json.")
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise OptionError(
            f"The format of {path!r} is unknown: it has {f'the suffix {suffix}' if suffix else 'no suffix'}",
            hint=f"End it in one of {' '.join(SUFFIXES)}, or give --format: parquet, csv or jsonl.",
        )
    return SUFFIXES[suffix]


def export(
    records: pa.RecordBatchReader,
    topic: str,
    path: str,
    file_format: FileFormat | None = None,
    *,
    key_as: Form | None = None,
    value_as: Form | None = None,
    overwrite: bool = False,
) -> int:
    """Write records of ``topic`` to a local file, and return how many.

    The file appears under its name when it is complete. Parquet has the columns of a DataFrame. CSV has
    timestamps and their types as lines of JSON have them, and the headers as JSON. Without a form keys and
    values are bytes in Parquet and text elsewhere; those of internal topics are decoded. Those that a format
    has decoded are columns of their types in Parquet, and JSON elsewhere.

    :param records: from :func:`.select.read_records`, with all columns.
    :param file_format: by default the one of the suffix.
    :param overwrite: whether to replace a file that exists.
    :raises OptionError: see :func:`checked_format`.
    :raises KafkaLogError: if it can't be written, or if keys or values should be text and are not.
    """
    file_format = checked_format(path, file_format, overwrite=overwrite)
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    counted = _Counted(records)
    try:
        if file_format == "jsonl":
            _write_lines(counted, json_lines(topic, key_as=key_as, value_as=value_as), temporary)
        elif file_format == "csv":
            _write_csv(counted, _Table(topic, records.schema, key_as, value_as, in_csv=True), temporary)
        else:
            _write_parquet(counted, _Table(topic, records.schema, key_as, value_as), temporary)
        _check_new(path, overwrite=overwrite)
        os.replace(temporary, path)
    except OSError as e:
        # The text of pyarrow's errors names the temporary file.
        raise KafkaLogError(f"Cannot write {path!r}: {os.strerror(e.errno) if e.errno else e}") from e
    except pa.ArrowNotImplementedError as e:
        why = str(e).rstrip(".")
        raise KafkaLogError(f"Cannot write {path!r}: {why}", hint="Write JSON or CSV.") from e
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return counted.rows


def checked_format(path: str, file_format: FileFormat | None, *, overwrite: bool) -> FileFormat:
    """The format of a file that can be written as far as can be seen now; by default the one of its suffix.

    :raises OptionError: if the file exists, its folder doesn't, and for an unknown suffix.
    """
    if "://" in path:
        raise OptionError(
            f"Expected a file of this machine, got one of {path.partition(':')[0]}:",
            hint="Write to a file, and copy that.",
        )
    file_format = file_format or format_of(path)
    _check_new(path, overwrite=overwrite)
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise OptionError(
            f"There is no folder {folder!r} for the file", hint=f"Make it: mkdir -p {shlex.quote(folder)}"
        )
    return file_format


def _check_new(path: str, *, overwrite: bool) -> None:
    if not overwrite and os.path.lexists(path):
        raise OptionError(f"{path!r} exists already", hint="Choose another name, or give --force.")
    if os.path.lexists(path) and not os.path.isfile(path):  # which a rename would replace
        raise OptionError(
            f"{path!r} is a device, a pipe or the like, and an export appears as a whole file",
            hint="Write to a file, and copy that.",
        )


class _Counted:
    """Counts rows on their way."""

    def __init__(self, arrow_batches: Iterable[pa.RecordBatch]) -> None:
        self._arrow_batches = arrow_batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for rows in self._arrow_batches:
            self.rows += rows.num_rows
            yield rows


class _Table:
    """Makes the columns of a file from records."""

    def __init__(
        self,
        topic: str,
        given: pa.Schema,
        key_as: Form | None,
        value_as: Form | None,
        *,
        in_csv: bool = False,
    ) -> None:
        self._topic = topic
        asked: dict[str, Form | None] = {"key": key_as, "value": value_as}
        self._decoded = [name for name, form in asked.items() if form is None and is_decoded(topic)]
        default: Form | None = "text" if in_csv else None
        self._forms = {name: form or default for name, form in asked.items() if name not in self._decoded}
        self._in_csv = in_csv
        text = [*self._decoded, *(name for name, form in self._forms.items() if form)]
        text += ["headers"] if in_csv else []
        types = dict.fromkeys(text, pa.large_string())
        types |= {"timestamp": pa.int64(), "timestampType": pa.large_string()} if in_csv else {}
        self.schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in given])

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the file has them."""
        columns = {name: rows.column(name) for name in self.schema.names}
        if self._decoded:
            key, value = decoded_columns(self._topic, columns["key"], columns["value"])
            columns |= {name: {"key": key, "value": value}[name] for name in self._decoded}
        columns |= {name: FORMS[form](columns[name]) for name, form in self._forms.items() if form}
        if self._in_csv:  # as lines of JSON have them
            columns |= {"timestamp": timestamps(rows), "timestampType": timestamp_types(rows)}
            columns["headers"] = json_headers(columns["headers"])
        arrays = [
            self._text(name, columns[name], rows) if kind == pa.large_string() else columns[name]
            for name, kind in zip(self.schema.names, self.schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _text(self, name: str, column: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        try:
            return column.cast(pa.large_string())
        except pa.ArrowInvalid:
            row = int(rows_of_bytes(column.cast(pa.binary()))[0])
            partition, offset = (rows.column(each)[row].as_py() for each in ("partition", "offset"))
            raise KafkaLogError(
                f"The {name} is not UTF-8",
                topic_partition=TopicPartition(self._topic, partition),
                offset=offset,
                hint=f"Give --{name}-as base64 or hex ({name}_as=), or export to Parquet.",
            ) from None


def _write_lines(arrow_batches: Iterable[pa.RecordBatch], lines: Lines, path: str) -> None:
    with pa.OSFile(path, "wb") as file:
        for rows in arrow_batches:
            file.write(lines.render(rows))


def _write_csv(arrow_batches: Iterable[pa.RecordBatch], table: _Table, path: str) -> None:
    from pyarrow.csv import CSVWriter

    with CSVWriter(path, table.schema) as writer:
        for rows in arrow_batches:
            writer.write(table.of(rows))


def _write_parquet(arrow_batches: Iterable[pa.RecordBatch], table: _Table, path: str) -> None:
    from pyarrow.parquet import ParquetWriter

    with ParquetWriter(path, table.schema, compression="zstd", use_dictionary=_FEW_VALUES) as writer:
        buffered: list[pa.RecordBatch] = []
        size = 0
        for rows in arrow_batches:
            buffered.append(table.of(rows))
            size += buffered[-1].nbytes
            if size >= _ROW_GROUP:
                writer.write_table(pa.Table.from_batches(buffered))
                buffered, size = [], 0
        if buffered:
            writer.write_table(pa.Table.from_batches(buffered))
