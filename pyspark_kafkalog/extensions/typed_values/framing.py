"""The wire format of a registry's serializers: a record has the key of its value's schema, and the body."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import list_column
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    PREFIX,
    ColumnToDecode,
    ColumnValues,
    TooLargeBatchError,
)
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.extensions.typed_values.registries.contract import Key, number_of
from pyspark_kafkalog.extensions.typed_values.registries.wire import (
    GLUE_HEADER,
    GLUE_VERSION,
    ZLIB,
    apicurio_key,
    azure_key,
    confluent_key,
    content_id,
    global_id,
    glue_header,
    glue_key,
    undone,
)
from pyspark_kafkalog.extensions.typed_values.registry_options import APICURIO, AZURE, CONFLUENT, GLUE
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.model import HEADERS_FIELD

_BY_ID = 0
"""The first byte before an id."""
_LONG_PREFIX = 9
"""Bytes before a value: a zero, and an id of 8 bytes."""
LARGEST = 64 << 20
"""Bytes of one value that zlib is undone for, and of those of a batch together."""
_MOST_INDEXES = 100
"""Protobuf's messages in one another."""
_MOST_BYTES = 5
"""Bytes of a varint of 32 bits."""
MessageKey: TypeAlias = tuple[int, ...] | int | str
"""A message of a schema: the indexes that lead there (Confluent), its place among all names (Glue), or its
own name (Apicurio)."""
_T = TypeVar("_T")


class WriterKey(NamedTuple):
    """The schema of a value: its key, and of Protobuf that of the message in it."""

    schema: Key
    message: MessageKey = ()


class WriterKeys(NamedTuple):
    """The keys of a batch of values: ``keys[number]`` for each row's number; -1 is a row without one.

    ``prefixed`` are the rows that have theirs before the value.
    """

    numbers: np.ndarray
    keys: list[WriterKey]
    prefixed: np.ndarray

    def column(self, kind: pa.DataType) -> pa.Array:
        """The column of the ids or, if it is of text, the GUIDs; null for rows that have none."""
        if pa.types.is_string(kind):
            found = pa.array(
                [str(key.schema) if isinstance(key.schema, uuid.UUID) else None for key in self.keys],
                kind,
            )
        else:
            ids = [number_of(key.schema) for key in self.keys]
            found = pa.array(ids, pa.int64()).cast(kind, safe=False)
        return found.take(pa.array(self.numbers, mask=self.numbers < 0))


class Framing(Protocol):
    """The wire format of a registry's serializers."""

    def find(self, values: ColumnValues) -> tuple[ColumnValues, WriterKeys]:
        """The bodies of the values, and the keys of their schemas."""


def framing_of(column: ColumnToDecode) -> Framing:
    """The wire format of a column."""
    return _FRAMINGS[column.format.registry](column)


def prefix_of(column: ColumnFormat, schema: RegisteredSchema) -> bytes:
    """The bytes that a serializer writes before each value, without the indexes of a message."""
    if column.registry == GLUE:
        return glue_header(schema.guid)
    assert schema.schema_id is not None, "the registry has given it"
    return b"\0" + schema.schema_id.to_bytes(4, "big")


class _Framing(ABC):
    """Keys in headers, and before values. A header counts if there are both, and the last of several.

    :param column: what is read.
    """

    def __init__(self, column: ColumnToDecode) -> None:
        self._column = column
        self._has_message = column.format.encoding == "protobuf"
        self._headers = self._of_headers()

    def find(self, values: ColumnValues) -> tuple[ColumnValues, WriterKeys]:
        """The bodies of the values, and the keys of their schemas."""
        batch, data, starts, sizes = values[:4]
        rows, codes, found = _in_headers(batch.column(HEADERS_FIELD[0]), self._headers)
        is_value = sizes[rows] >= 0
        rows, codes = rows[is_value], codes[is_value]
        is_bare = np.ones(sizes.size, bool)
        is_bare[rows] = False
        prefixed, lengths = self._prefixes(values, is_bare)
        of_prefixed, keys = _keys(_spans(data, starts[prefixed], lengths), self._key)
        is_key = of_prefixed >= 0
        prefixed, lengths, of_prefixed = prefixed[is_key], lengths[is_key], of_prefixed[is_key]
        numbers = np.full(sizes.size, -1, np.int64)
        numbers[rows] = codes
        numbers[prefixed] = of_prefixed + len(found)
        whole = (starts.copy(), sizes.copy()) if self._has_message else None
        values = self._behind(values, numbers, prefixed, lengths)
        keys = [*found, *keys]
        if whole is not None:
            of_schemas = numbers
            numbers, keys = self._with_messages(values, numbers, keys)
            lost = np.flatnonzero((of_schemas >= 0) & (numbers < 0))
            values.starts[lost], values.sizes[lost] = whole[0][lost], whole[1][lost]
        return values, WriterKeys(numbers, keys, prefixed)

    @abstractmethod
    def _of_headers(self) -> Mapping[str, Callable[[bytes], WriterKey | None]]:
        """The headers that may have a key, each with what reads it."""

    @abstractmethod
    def _prefixes(self, values: ColumnValues, is_bare: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows that may have a key before the value, and the bytes of it.

        :param is_bare: the rows that may.
        """

    @abstractmethod
    def _key(self, text: bytes) -> WriterKey | None:
        """The key that the bytes before a value are, if they are one."""

    def _behind(
        self, values: ColumnValues, numbers: np.ndarray, rows: np.ndarray, lengths: np.ndarray
    ) -> ColumnValues:
        """The values, those of ``rows`` without their first bytes.

        :param numbers: those of their keys, which a row loses that has no body.
        """
        _begin_behind(values, rows, lengths)
        return values

    def _with_messages(
        self, values: ColumnValues, numbers: np.ndarray, keys: list[WriterKey]
    ) -> tuple[np.ndarray, list[WriterKey]]:
        """The numbers and keys of the same rows with the message of Protobuf, behind which bodies begin.

        A row that lacks one loses its key.
        """
        return numbers, keys  # which have it


class ConfluentFraming(_Framing):
    """The wire format of Confluent's serializers, read as DualSchemaIdDeserializer does.

    Of Protobuf, indexes of a message come behind the key (MessageIndexes).
    """

    def _of_headers(self) -> Mapping[str, Callable[[bytes], WriterKey | None]]:
        return {f"__{self._column.name}_schema_id": self._key}

    def _prefixes(self, values: ColumnValues, is_bare: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data, starts, sizes = values.data, values.starts, values.sizes
        rows = np.flatnonzero(is_bare & (sizes >= PREFIX))
        rows = rows[data[starts[rows]] == _BY_ID]
        lengths = np.full(rows.size, PREFIX, np.int64)
        if self._has_message:
            of_message = _message_sizes(data, starts[rows] + PREFIX, sizes[rows] - PREFIX)
            rows, lengths = rows[of_message > 0], (lengths + of_message)[of_message > 0]
        return rows, lengths

    def _key(self, text: bytes) -> WriterKey | None:
        schema = confluent_key(text)
        end = 17 if isinstance(schema, uuid.UUID) else PREFIX
        message: tuple[int, ...] | None = ()
        if self._has_message:
            message = read_message(text[end:])
        elif len(text) > end:
            return None
        return None if schema is None or message is None else WriterKey(schema, message)


class _ApicurioFraming(_Framing):
    """The wire format of Apicurio's serializers; a content id counts more than a global one."""

    def _of_headers(self) -> Mapping[str, Callable[[bytes], WriterKey | None]]:
        name = self._column.name
        return {
            f"apicurio.{name}.globalId": lambda text: _bare(global_id(text)),
            f"apicurio.{name}.contentId": lambda text: _bare(content_id(text)),
        }

    def _prefixes(self, values: ColumnValues, is_bare: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data, starts, sizes = values.data, values.starts, values.sizes
        rows = np.flatnonzero(is_bare & (sizes >= PREFIX))
        rows = rows[data[starts[rows]] == _BY_ID]
        is_long = ~data[starts[rows][:, None] + np.arange(1, PREFIX)].any(axis=1)
        is_whole = ~is_long | (sizes[rows] >= _LONG_PREFIX)
        return rows[is_whole], np.where(is_long, _LONG_PREFIX, PREFIX)[is_whole]

    def _key(self, text: bytes) -> WriterKey | None:
        return _bare(apicurio_key(text))

    def _with_messages(
        self, values: ColumnValues, numbers: np.ndarray, keys: list[WriterKey]
    ) -> tuple[np.ndarray, list[WriterKey]]:
        """See :meth:`_Framing._with_messages`; Apicurio 2 has no name before a body if it is in a header."""
        header = "apicurio.protobuf.type" if self._column.name == "value" else "apicurio.protobuf.type.key"
        rows, codes, named = _in_headers(values.batch.column(HEADERS_FIELD[0]), {header: _text})
        of_headers = np.full(numbers.size, -1, np.int64)
        of_headers[rows] = codes
        rows, lengths, codes, names = _before_bodies(values, numbers, _name_sizes, read_name)
        messages = list(dict.fromkeys([*named, *names]))
        places = {name: number for number, name in enumerate(messages)}
        codes = np.array([places[name] for name in names], np.int64)[codes]
        is_name = (of_headers[rows] < 0) | (of_headers[rows] == codes)
        rows, lengths = rows[is_name], lengths[is_name]
        of_headers[rows] = codes[is_name]
        _begin_behind(values, rows, lengths)
        return _paired(numbers, keys, of_headers, messages)


class _AzureFraming(_Framing):
    """The wire format of Azure's serializer: a header, which only values have."""

    def _of_headers(self) -> Mapping[str, Callable[[bytes], WriterKey | None]]:
        return {"content-type": lambda text: _bare(azure_key(text))}

    def _prefixes(self, values: ColumnValues, is_bare: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.empty(0, np.int64), np.empty(0, np.int64)

    def _key(self, text: bytes) -> WriterKey | None:
        return None


class GlueFraming(_Framing):
    """The wire format of AWS Glue's serializers. A value that can't be decompressed stays as it is.

    :param largest: the most bytes of a value, and of a batch, when zlib is undone.
    """

    def __init__(self, column: ColumnToDecode, largest: int = LARGEST) -> None:
        super().__init__(column)
        self._largest = largest

    def _of_headers(self) -> Mapping[str, Callable[[bytes], WriterKey | None]]:
        return {}

    def _prefixes(self, values: ColumnValues, is_bare: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data, starts, sizes = values.data, values.starts, values.sizes
        rows = np.flatnonzero(is_bare & (sizes >= GLUE_HEADER))
        rows = rows[data[starts[rows]] == GLUE_VERSION]
        return rows, np.full(rows.size, GLUE_HEADER, np.int64)

    def _key(self, text: bytes) -> WriterKey | None:
        return _bare(glue_key(text))

    def _behind(
        self, values: ColumnValues, numbers: np.ndarray, rows: np.ndarray, lengths: np.ndarray
    ) -> ColumnValues:
        """See :meth:`_Framing._behind`.

        :raises TooLargeBatchError: if there are several of them, and together they are too large.
        """
        data, starts, sizes = values.data, values.starts, values.sizes
        is_small = data[starts[rows] + 1] == ZLIB
        values = super()._behind(values, numbers, rows, lengths)
        parts, end, total = [data], data.size, 0
        for row in rows[is_small].tolist():
            text, why = undone(data[starts[row] : starts[row] + sizes[row]].tobytes(), self._largest)
            total += len(text)
            if total > self._largest:
                raise TooLargeBatchError
            if why:
                numbers[row] = -1
                values.damaged[row] = why
                starts[row] -= GLUE_HEADER
                sizes[row] += GLUE_HEADER
                continue
            parts.append(np.frombuffer(text, np.uint8))
            starts[row], sizes[row] = end, len(text)
            end += len(text)
        return values._replace(data=np.concatenate(parts)) if len(parts) > 1 else values

    def _with_messages(
        self, values: ColumnValues, numbers: np.ndarray, keys: list[WriterKey]
    ) -> tuple[np.ndarray, list[WriterKey]]:
        """See :meth:`_Framing._with_messages`."""
        rows, lengths, codes, messages = _before_bodies(values, numbers, _number_sizes, read_number)
        of_rows = np.full(numbers.size, -1, np.int64)
        of_rows[rows] = codes
        _begin_behind(values, rows, lengths)
        return _paired(numbers, keys, of_rows, messages)


_FRAMINGS: Mapping[str, Callable[[ColumnToDecode], Framing]] = {
    CONFLUENT: ConfluentFraming,
    GLUE: GlueFraming,
    APICURIO: _ApicurioFraming,
    AZURE: _AzureFraming,
}


def _bare(schema: Key | None) -> WriterKey | None:
    return None if schema is None else WriterKey(schema)


def _begin_behind(values: ColumnValues, rows: np.ndarray, lengths: np.ndarray) -> None:
    """Leave out the first bytes of these rows' values."""
    values.starts[rows] += lengths
    values.sizes[rows] -= lengths


def _before_bodies(
    values: ColumnValues,
    numbers: np.ndarray,
    sizes_of: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    read: Callable[[bytes], _T | None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[_T]]:
    """The rows with a message before the body, its bytes, the number of each one's, and the messages.

    :param numbers: those of the rows' schemas; a row without one has no message.
    :param sizes_of: measures the bytes of a message at each start; -1 where there is none.
    """
    rows = np.flatnonzero(numbers >= 0)
    lengths = sizes_of(values.data, values.starts[rows], values.sizes[rows])
    rows, lengths = rows[lengths > 0], lengths[lengths > 0]
    return rows, lengths, *_keys(_spans(values.data, values.starts[rows], lengths), read)


def _paired(
    numbers: np.ndarray, keys: list[WriterKey], of_rows: np.ndarray, messages: Sequence[MessageKey]
) -> tuple[np.ndarray, list[WriterKey]]:
    """The numbers and keys of rows with their messages; a row without a key or a message has none.

    :param of_rows: the number of each row's message, or -1.
    """
    is_key = (numbers >= 0) & (of_rows >= 0)
    pairs, of_pairs = np.unique(numbers[is_key] * len(messages) + of_rows[is_key], return_inverse=True)
    found = np.full(numbers.size, -1, np.int64)
    found[is_key] = of_pairs
    made = [divmod(pair, len(messages)) for pair in pairs.tolist()]
    return found, [WriterKey(keys[number].schema, messages[message]) for number, message in made]


def _in_headers(
    headers: pa.ListArray, readers: Mapping[str, Callable[[bytes], _T | None]]
) -> tuple[np.ndarray, np.ndarray, list[_T]]:
    """The rows whose headers have a key, the number of each one's, and the keys.

    :param readers: the headers that may have one, each with what reads it.
    """
    offsets, _ = list_column(headers)
    first, last = int(offsets[0]), int(offsets[-1])
    pairs = headers.values.slice(first, last - first)
    rows, codes = np.empty(0, np.int64), np.empty(0, np.int64)
    found: list[_T] = []
    for name, read in readers.items():
        named = pc.fill_null(pc.equal(pairs.field("key"), name), False)
        places = pc.indices_nonzero(named)
        numbers, keys = _keys(pairs.field("value").take(places), read)
        of_keys = places.to_numpy()[numbers >= 0] + first
        rows = np.append(rows, np.searchsorted(offsets, of_keys, side="right") - 1)
        codes = np.append(codes, numbers[numbers >= 0] + len(found))
        found += keys
    if len(readers) > 1:
        in_order = np.argsort(rows, kind="stable")
        rows, codes = rows[in_order], codes[in_order]
    is_last = np.append(rows[1:] != rows[:-1], True)[: rows.size]
    return rows[is_last], codes[is_last], found


def _keys(texts: pa.BinaryArray, read: Callable[[bytes], _T | None]) -> tuple[np.ndarray, list[_T]]:
    """The number of the key that each text is, -1 for another text, and the keys."""
    found = texts.dictionary_encode()
    of_texts = [read(text or b"") for text in found.dictionary.to_pylist()]
    keys = list(dict.fromkeys(key for key in of_texts if key is not None))
    places = {key: number for number, key in enumerate(keys)}
    numbers = np.array([*(-1 if key is None else places[key] for key in of_texts), -1], np.int64)
    return numbers[found.indices.fill_null(-1).to_numpy()], keys  # -1 is the last one


def _spans(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.BinaryArray:
    """Copies of parts of ``data``."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    copied = data[np.repeat(starts - ends + sizes, sizes) + np.arange(total)]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), sizes.size, [None, pa.py_buffer(offsets), pa.py_buffer(copied)])


def _message_sizes(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The bytes of the indexes of a message at each of ``starts``; -1 where they are not whole."""
    from pyspark_kafkalog.extensions.typed_values.protobuf import kernels

    found = np.empty(starts.size, np.int64)
    kernels.measure_indexes(data, starts, sizes, found)
    return found


def _number_sizes(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The bytes of the varint at each of ``starts``; -1 where it is not whole."""
    places = np.arange(_MOST_BYTES)
    is_last = np.zeros((starts.size, _MOST_BYTES), bool)
    is_inside = places < sizes[:, None]
    is_last[is_inside] = data[(starts[:, None] + places)[is_inside]] < 0x80
    return np.where(is_last.any(axis=1), is_last.argmax(axis=1) + 1, -1)


def _name_sizes(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The bytes of the name of a message at each of ``starts``; -1 where there is none."""
    from pyspark_kafkalog.extensions.typed_values.protobuf import kernels

    found = np.empty(starts.size, np.int64)
    kernels.measure_names(data, starts, sizes, found)
    return found


def read_number(text: bytes) -> int:
    """The number that a varint is, as AWS Glue's serializers have it of a message."""
    from pyspark_kafkalog.extensions.typed_values.protobuf.wire import read_varint

    return read_varint(text, 0)[0]


def read_name(text: bytes) -> str:
    """The name of a message that Apicurio's serializers write before a body: a Ref behind its size."""
    from pyspark_kafkalog.extensions.typed_values.protobuf.wire import read_varint

    _, at = read_varint(text, 0)
    return text[read_varint(text, at + 1)[1] :].decode()


def _text(text: bytes) -> str | None:
    return text.decode(errors="replace") or None


def read_message(text: bytes) -> tuple[int, ...] | None:
    """The indexes of a message that ``text`` has, and nothing else; None if it doesn't.

    A count and each index are zigzag varints; a zero is short for the first message (MessageIndexes).
    """
    numbers, number, shift = list[int](), 0, 0
    for byte in text:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number >> 1 if number % 2 == 0 else -1)
            number = shift = 0
    if shift or not numbers or min(numbers) < 0 or numbers[0] != len(numbers) - 1:
        return None
    return (tuple(numbers[1:]) or (0,)) if len(numbers) <= 1 + _MOST_INDEXES else None


def write_message(indexes: tuple[int, ...]) -> bytes:
    """The bytes of the indexes of a message, behind the key."""
    if indexes == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(indexes), *indexes):
        number <<= 1
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)
