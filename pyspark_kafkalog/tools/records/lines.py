r"""Records as lines of text: JSON objects, or whatever a format says, rendered column by column.

A line of JSON has the fields ``topic``, ``partition``, ``offset``, ``timestamp`` (ms), ``timestampType``
(Kafka's name), ``key``, ``value`` and ``headers``, a list of objects with ``key`` and ``value``. Keys and
values are strings, null, or ``{"base64": "..."}`` if they are not UTF-8, or if this is asked for. Of Kafka's
internal topics they are objects with the decoded fields, as are all that were decoded by a format.

A format is text with kcat's letters: ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp (ms),
``%k`` key, ``%s`` or ``%v`` value, ``%h`` headers (``key=value``, separated by commas), ``%K`` and ``%S``
sizes of key and value in bytes (-1 for null), as they are shown if they were decoded by a format, ``%%`` a
percent sign, and the escapes ``\n``, ``\r``, ``\t``,
``\0``, ``\\`` and ``\xHH``. Null is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.text import TEXT, base64_strings, hex_strings, joined_rows, json_strings
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.to_json import to_json
from pyspark_kafkalog.tools.records.internal_topics import decoded_columns, is_decoded

Form = Literal["text", "hex", "base64"]
"""The form in which a key or a value is shown."""

RENDERED = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
"""The columns of a record as a line of JSON, in order."""

_Part: TypeAlias = bytes | Callable[[pa.RecordBatch], pa.Array]
"""A part of a line: the same in all, or a column of text or of integers."""


def _as_text(column: pa.Array) -> pa.Array:
    """Text, or what was decoded to anything else as JSON."""
    is_text = pa.types.is_binary(column.type) or pa.types.is_string(column.type)
    return column.cast(TEXT) if is_text else to_json(column, in_full=True)


FORMS: Mapping[Form, Callable[[pa.Array], pa.Array]] = {
    "text": _as_text,
    "hex": hex_strings,
    "base64": base64_strings,
}
"""The functions that make each form of a column, as :data:`.text.TEXT`."""
_TIMESTAMP_TYPES = pa.array([b"NoTimestampType", b"CreateTime", b"LogAppendTime"], TEXT)
_KCATS_TIMESTAMP_TYPES = pa.array(
    [f',"tstype":"{name}"'.encode() for name in ("unknown", "create", "logappend")], TEXT
)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(
    r"%(?P<letter>.)|\\x(?P<byte>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+|.)", re.DOTALL
)
_LETTERS = "%t %p %o %T %k %s %v %h %K %S %%"


class Lines:
    """Renders records as lines.

    :param parts: what a line is made of.
    :param columns: the columns that the parts need.
    """

    def __init__(self, parts: list[_Part], columns: set[str]) -> None:
        self._parts = parts
        self.columns = columns

    def render(self, rows: pa.RecordBatch) -> pa.Buffer:
        """The lines of ``rows``, one after another."""
        parts = [part if isinstance(part, bytes) else part(rows) for part in self._parts]
        return joined_rows(parts, rows.num_rows)


def json_lines(topic: str, *, key_as: Form | None = None, value_as: Form | None = None) -> Lines:
    """Lines of JSON. Without a form keys and values are text, and those of internal topics are decoded."""
    key, value = _key_and_value(topic, key_as, value_as, as_json=True)
    opening = b'{"topic":' + json.dumps(topic).encode()
    parts: list[_Part] = [
        opening + b',"partition":',
        partial(_number, "partition"),
        b',"offset":',
        partial(_number, "offset"),
        b',"timestamp":',
        timestamps,
        b',"timestampType":"',
        timestamp_types,
        b'","key":',
        key,
        b',"value":',
        value,
        b',"headers":',
        lambda rows: json_headers(rows.column("headers")),
        b"}\n",
    ]
    return Lines(parts, set(RENDERED))


def kcat_lines(topic: str, *, key_as: Form | None = None, value_as: Form | None = None) -> Lines:
    """Lines as kcat's ``-J`` prints them, with keys and values as :func:`json_lines` has them.

    ``broker``, from which kcat has fetched, is -1, as kcat has it where it does not know it.
    """
    key, value = _key_and_value(topic, key_as, value_as, as_json=True)
    parts: list[_Part] = [
        b'{"topic":' + json.dumps(topic).encode() + b',"partition":',
        partial(_number, "partition"),
        b',"offset":',
        partial(_number, "offset"),
        lambda rows: _KCATS_TIMESTAMP_TYPES.take(pc.add(rows.column("timestampType"), 1)),
        b',"ts":',
        timestamps,
        b',"broker":-1',
        _kcats_headers,
        b',"key":',
        key,
        b',"payload":',
        value,
        b"}\n",
    ]
    return Lines(parts, set(RENDERED))


def format_lines(
    topic: str, template: str, *, key_as: Form | None = None, value_as: Form | None = None
) -> Lines:
    """Lines as ``template`` says; see above. Keys and values as for :func:`json_lines`.

    :raises OptionError: for a letter or an escape that does not exist.
    """
    key, value = _key_and_value(topic, key_as, value_as, as_json=False)
    letters: dict[str, tuple[_Part, str]] = {
        "t": (topic.encode(), ""),
        "p": (partial(_number, "partition"), "partition"),
        "o": (partial(_number, "offset"), "offset"),
        "T": (timestamps, "timestamp"),
        "k": (key, "key"),
        "s": (value, "value"),
        "v": (value, "value"),
        "h": (_text_headers, "headers"),
        "K": (partial(_sizes, "key"), "key"),
        "S": (partial(_sizes, "value"), "value"),
        "%": (b"%", ""),
    }
    parts: list[_Part] = []
    columns: set[str] = set()
    for token in _TOKEN.finditer(template):
        part: _Part | None = None
        if letter := token["letter"]:
            part, column = letters.get(letter, (None, ""))
            columns |= {column} - {""}
        elif token["escape"]:
            part = _ESCAPES.get(token["escape"])
        elif token["byte"]:
            part = bytes.fromhex(token["byte"])
        elif token["text"] not in ("%", "\\"):
            part = token["text"].encode(errors="surrogateescape")
        if part is None:
            raise OptionError(
                f"Unknown part {token[0]!r} of the format {template!r}",
                hint=rf"Use {_LETTERS} and \n \r \t \0 \\ \xHH.",
            )
        parts.append(part)
    if is_decoded(topic) and columns & {"key", "value"}:
        columns |= {"key", "value"}
    return Lines(parts, columns)


def _key_and_value(
    topic: str, key_as: Form | None, value_as: Form | None, *, as_json: bool
) -> Iterator[_Part]:
    for number, (name, form) in enumerate((("key", key_as), ("value", value_as))):
        if form is None and is_decoded(topic):
            yield partial(_decoded, topic, number, as_json)
        elif not as_json:
            yield partial(_formed, name, form or "text")
        elif form in (None, "text"):
            yield partial(_json, name)
        else:
            yield partial(_json_of_form, name, form)


def _number(name: str, rows: pa.RecordBatch) -> pa.Array:
    return rows.column(name)


def timestamps(rows: pa.RecordBatch) -> pa.Array:
    """The timestamps in milliseconds since 1970."""
    return pc.divide(rows.column("timestamp").cast(pa.int64()), 1000)


def timestamp_types(rows: pa.RecordBatch) -> pa.Array:
    """Kafka's names of the types of timestamps."""
    return _TIMESTAMP_TYPES.take(pc.add(rows.column("timestampType"), 1))


def _sizes(name: str, rows: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.binary_length(_as_text(rows.column(name))), -1)


def _json(name: str, rows: pa.RecordBatch) -> pa.Array:
    column = rows.column(name)
    if pa.types.is_binary(column.type):
        return json_strings(column)
    return to_json(column, in_full=True).fill_null(pa.scalar(b"null", TEXT))


def _formed(name: str, form: Form, rows: pa.RecordBatch) -> pa.Array:
    return FORMS[form](rows.column(name))


def _json_of_form(name: str, form: Form, rows: pa.RecordBatch) -> pa.Array:
    opening, closing = (pa.scalar(text, TEXT) for text in (f'{{"{form}":"'.encode(), b'"}'))
    text = FORMS[form](rows.column(name))
    return pc.fill_null(_joined(opening, text, closing, nulls="emit_null"), b"null")


def _decoded(topic: str, number: int, as_json: bool, rows: pa.RecordBatch) -> pa.Array:
    shown = decoded_columns(topic, rows.column("key"), rows.column("value"))[number]
    return shown if as_json else pc.if_else(pc.equal(shown, pa.scalar(b"null", TEXT)), None, shown)


def json_headers(headers: pa.ListArray) -> pa.Array:
    """The headers of each record as a list in JSON, ``[]`` where there are none."""

    def of(flat: Any) -> pa.Array:
        keys, values = json_strings(flat.field("key")), json_strings(flat.field("value"))
        return _joined(b'{"key":', keys, b',"value":', values, b"}")

    if headers.null_count == len(headers):
        return pa.repeat(pa.scalar(b"[]", TEXT), len(headers))
    return _joined(b"[", _per_record(headers, of), b"]")


def _kcats_headers(rows: pa.RecordBatch) -> pa.Array:
    """A list of names and values in turn, where there are any."""

    def of(flat: Any) -> pa.Array:
        return _joined(json_strings(flat.field("key")), b",", json_strings(flat.field("value")))

    headers = rows.column("headers")
    lists = _joined(b',"headers":[', _per_record(headers, of), b"]")
    return pc.if_else(pc.fill_null(pc.greater(pc.list_value_length(headers), 0), False), lists, b"")


def _text_headers(rows: pa.RecordBatch) -> pa.Array:
    def of(flat: Any) -> pa.Array:
        return _joined(flat.field("key").cast(pa.large_string()), b"=", flat.field("value").cast(TEXT))

    return _per_record(rows.column("headers"), of)


def _per_record(headers: pa.ListArray, of: Callable[[Any], pa.Array]) -> pa.Array:
    """The texts that ``of`` makes of single headers, joined by commas; nothing where there are none."""
    if headers.null_count == len(headers):
        return pa.repeat(pa.scalar(b"", TEXT), len(headers))
    sizes = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    lists = pa.ListArray.from_arrays(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), of(headers.flatten())
    )
    return pc.binary_join(lists, pa.scalar(b",", TEXT))


def _joined(*texts: Any, nulls: str = "replace") -> pa.Array:
    parts = [pa.scalar(text, TEXT) if isinstance(text, bytes) else text.cast(TEXT) for text in texts]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", TEXT), null_handling=nulls)
