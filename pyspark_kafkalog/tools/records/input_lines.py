"""Lines of text as records to write: values, keys with values, or the JSON of :mod:`.lines`."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.rows import MAX_TIMESTAMP, ROW_TYPES
from pyspark_kafkalog.errors import InvalidRecordError
from pyspark_kafkalog.options.columns import slip_of
from pyspark_kafkalog.options.offsets_json import where_not_json

_CHUNK = 1 << 20
"""The most bytes to read at a time."""
_PARTITIONS = 1 << 31
_KINDS: Mapping[type, str] = {
    str: "a string",
    list: "a list",
    dict: "an object",
    bool: "a boolean",
    type(None): "null",
}
_NAMED = 5
"""The number of fields that a message names."""
_EXAMPLE = 'an object such as {"key": "k", "value": "v"}'

_JSON_SCHEMA = pa.schema(
    [(name, ROW_TYPES[name]) for name in ("key", "value", "headers", "timestamp", "partition")]
)


class InputStopped(Exception):  # noqa: N818  # not an error
    """Raised by a stream whose rest is not wanted any more."""


class Readable(Protocol):
    """A binary stream whose :meth:`read1` returns what there is, as in Python's io."""

    def read1(self, size: int = -1, /) -> bytes: ...


def lines_of(stream: Readable) -> Iterator[list[bytes]]:
    """The lines of a stream without their ends, as many at a time as have come; the last may lack its end."""
    unended: list[bytes] = []
    while chunk := stream.read1(_CHUNK):
        whole, end, rest = chunk.rpartition(b"\n")
        if end:
            yield b"".join([*unended, whole]).split(b"\n")
            unended = []
        unended.append(rest)
    if last := b"".join(unended):
        yield [last]


def values_of(lines: list[bytes]) -> pa.RecordBatch:
    """A record for each line, which is its value."""
    return pa.RecordBatch.from_pydict({"value": pa.array(lines, pa.binary())})


def with_tombstones(
    parse: Callable[[list[bytes]], pa.RecordBatch],
) -> Callable[[list[bytes]], pa.RecordBatch]:
    """A parser like ``parse``, for which empty values are null."""

    def parse_too(lines: list[bytes]) -> pa.RecordBatch:
        rows = parse(lines)
        values = rows.column("value")
        place = rows.schema.get_field_index("value")
        return rows.set_column(
            place, "value", pc.if_else(pc.equal(pc.binary_length(values), 0), None, values)
        )

    return parse_too


def keyed(separator: bytes) -> Callable[[list[bytes]], pa.RecordBatch]:
    """A record for each line: its key is what precedes the first separator, null if there is none."""

    def parse(lines: list[bytes]) -> pa.RecordBatch:
        parts = pc.split_pattern(pa.array(lines, pa.binary()), separator, max_splits=1)
        has_key = pc.equal(pc.list_value_length(parts), 2)
        first, last = pc.list_element(parts, 0), pc.list_flatten(pc.list_slice(parts, 0, 2))
        ends = pc.cumulative_sum(pc.list_value_length(parts))
        return pa.RecordBatch.from_pydict(
            {"key": pc.if_else(has_key, first, None), "value": last.take(pc.subtract(ends, 1))}
        )

    return parse


def telling_of_returns(
    parse: Callable[[list[bytes]], pa.RecordBatch], tell: Callable[[], None]
) -> Callable[[list[bytes]], pa.RecordBatch]:
    """A parser like ``parse``, which tells once that lines end with CR LF, as on Windows.

    Java's console producer takes such a CR for a part of the line's end, kcat for one of the value.
    """
    is_told = False

    def parse_too(lines: list[bytes]) -> pa.RecordBatch:
        nonlocal is_told
        if not is_told and any(line.endswith(b"\r") for line in lines):
            is_told = True
            tell()
        return parse(lines)

    return parse_too


_MARKS = {codecs.BOM_UTF8: "UTF-8", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def telling_of_marks(
    parse: Callable[[list[bytes]], pa.RecordBatch], tell: Callable[[str], None]
) -> Callable[[list[bytes]], pa.RecordBatch]:
    """A parser like ``parse``, which tells once of a line with a byte order mark, as Windows' editors begin a
    file, and of its encoding.
    """
    is_told = False

    def parse_too(lines: list[bytes]) -> pa.RecordBatch:
        nonlocal is_told
        mark = next((mark for mark in _MARKS if lines and lines[0].startswith(mark)), None)
        if mark is not None and not is_told:
            is_told = True
            tell(_MARKS[mark])
        return parse(lines)

    return parse_too


class JsonLines:
    """Records in the form of :func:`.lines.json_lines`; every field but ``value`` may be left out.

    ``topic``, ``offset`` and other fields are ignored, and ``partition`` unless ``keep_partitions``. A field
    that is named nearly like one of a record is refused. A timestamp that is left out, null or -1 is the time
    of the write.
    """

    def __init__(self, *, keep_partitions: bool) -> None:
        self._schema = _JSON_SCHEMA
        if not keep_partitions:
            self._schema = _JSON_SCHEMA.remove(_JSON_SCHEMA.get_field_index("partition"))
        self._line = 0
        self._file: str | None = None

    def begin(self, file: str | None) -> None:
        """Begin the lines of a file; None for those of a terminal or a pipe."""
        self._line, self._file = 0, file

    def __call__(self, lines: list[bytes]) -> pa.RecordBatch:
        """A record for each of the next lines that is not blank.

        :raises InvalidRecordError: for a line that is not such JSON; it has the line's number, and the file.
        """
        rows = []
        for line in lines:
            self._line += 1
            if line.strip():
                try:
                    rows.append(_record(_parsed(line)))
                except ValueError as e:
                    raise InvalidRecordError(f"Line {self._line}: {e}", file=self._file) from None
        return pa.RecordBatch.from_pylist(rows, self._schema)


def records_of(
    streams: Iterable[Readable], parse: Callable[[list[bytes]], pa.RecordBatch], partition: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The records in the lines of ``streams``, all for one partition if it is given.

    They end where a stream raises :class:`InputStopped`; of a line that has not ended there, none is made.
    """
    for lines in _until_stopped(streams):
        rows = parse(lines)
        if partition is not None:
            numbers = pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows)
            rows = rows.append_column("partition", numbers)
        yield rows


def _until_stopped(streams: Iterable[Readable]) -> Iterator[list[bytes]]:
    with suppress(InputStopped):
        for stream in streams:
            yield from lines_of(stream)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as e:
        where = where_not_json(line.decode(errors="replace"), e)
        raise ValueError(f"expected {_EXAMPLE}, but it is not JSON{where}") from None


def _record(found: Any) -> dict[str, Any]:
    if isinstance(found, dict) and "payload" in found:
        raise ValueError(
            "this is kcat's JSON: rename payload to value and ts to timestamp, and write headers as"
            ' [{"key": "k", "value": "v"}]'
        )
    if not isinstance(found, dict) or "value" not in found:
        names = ", ".join(map(repr, [*found][:_NAMED])) if isinstance(found, dict) else ""
        got = f"one with {names}" if names else _kind(found)
        raise ValueError(f"expected {_EXAMPLE}, got {got}")
    for name in found.keys() - ROW_TYPES.keys():
        if (field := slip_of(name)) is not None:
            raise ValueError(f"field {name!r} is not {field!r}: rename it, or leave it out")
    timestamp = _integer(found, "timestamp", -1, MAX_TIMESTAMP)
    return {
        "key": _bytes("key", found.get("key")),
        "value": _bytes("value", found["value"]),
        "headers": _headers(found.get("headers")),
        "timestamp": None if timestamp in (None, -1) else timestamp * 1000,
        "partition": _integer(found, "partition", 0, _PARTITIONS - 1),
    }


def _integer(found: dict[str, Any], name: str, lowest: int, highest: int) -> Any:
    value = found.get(name)
    if value is None or (type(value) is int and lowest <= value <= highest):
        return value
    raise ValueError(f"expected a whole number from {lowest} to {highest} as {name}, got {_kind(value)}")


def _kind(found: Any) -> str:
    """The kind of what stands in a line; its text may be a secret."""
    return _KINDS.get(type(found), "a number")


def _headers(found: Any) -> list[dict[str, Any]] | None:
    if not found:
        return None
    if not isinstance(found, list) or not all(isinstance(header, dict) for header in found):
        raise ValueError(
            f'expected a list such as [{{"key": "k", "value": "v"}}] as headers, got {_kind(found)}'
        )
    if not all(isinstance(header.get("key"), str) for header in found):
        raise ValueError("expected a string as the key of a header")
    return [
        {
            "key": header["key"].encode(errors="replace").decode(),
            "value": _bytes("the value of a header", header.get("value")),
        }
        for header in found
    ]


def _bytes(name: str, found: Any) -> bytes | None:
    try:
        match found:
            case None:
                return None
            case str():
                return found.encode()
            case {"base64": str() as text}:
                return base64.b64decode(text, validate=True)
            case {"hex": str() as text}:
                return bytes.fromhex(text)
    except (binascii.Error, ValueError):
        pass
    raise ValueError(
        f'expected a string, null, {{"base64": "..."}} or {{"hex": "..."}} as {name}, got {_kind(found)}'
    )
