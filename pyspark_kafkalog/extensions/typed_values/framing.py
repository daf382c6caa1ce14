"""The wire format of a registry's serializers: a record has the key of its value's schema, and the body."""

from __future__ import annotations

import uuid
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import list_column
from pyspark_kafkalog.extensions.typed_values.column_decoder import PREFIX, ColumnToDecode, ColumnValues
from pyspark_kafkalog.extensions.typed_values.registries.contract import Key
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.model import HEADERS_FIELD

_MOST_INDEXES = 100
"""Protobuf's messages in one another."""
_BY_ID, _BY_GUID = 0, 1
"""The first byte: then comes an id of 4 bytes, or a GUID of 16, which only headers have."""


class WriterKey(NamedTuple):
    """The schema of a value: its key, and of Protobuf the message in it, as the indexes that lead there."""

    schema: Key
    message: tuple[int, ...] = ()


class WriterKeys(NamedTuple):
    """The keys of a batch of values: ``keys[number]`` for each row's number; -1 is a row without one.

    ``prefixed`` are the rows that have theirs before the value.
    """

    numbers: np.ndarray
    keys: list[WriterKey]
    prefixed: np.ndarray

    def column(self, name: str) -> pa.Array:
        """The column of the ids or the GUIDs, null for rows that have none."""
        if name.endswith("Guid"):
            found = pa.array(
                [str(key.schema) if isinstance(key.schema, uuid.UUID) else None for key in self.keys],
                pa.string(),
            )
        else:
            ids = [key.schema if isinstance(key.schema, int) else None for key in self.keys]
            found = pa.array(ids, pa.int64()).cast(pa.int32(), safe=False)
        return found.take(pa.array(self.numbers, mask=self.numbers < 0))


class Framing(Protocol):
    """The wire format of a registry's serializers."""

    def find(self, values: ColumnValues) -> tuple[ColumnValues, WriterKeys]:
        """The bodies of the values, and the keys of their schemas."""


def framing_of(column: ColumnToDecode) -> Framing:
    """The wire format of a column."""
    return ConfluentFraming(column)


def prefix_of(schema: RegisteredSchema) -> bytes:
    """The bytes that a serializer writes before each value, without the indexes of a message."""
    assert schema.schema_id is not None, "the registry has given it"
    return b"\0" + schema.schema_id.to_bytes(4, "big")


class ConfluentFraming:
    """The wire format of Confluent's serializers: a key before the value, or in a header.

    The header counts if there are both, and the last of several, as in DualSchemaIdDeserializer. Of Protobuf,
    indexes of a message come behind the key (MessageIndexes).
    """

    def __init__(self, column: ColumnToDecode) -> None:
        self._header = f"__{column.name}_schema_id"
        self._has_message = column.format.encoding == "protobuf"

    def find(self, values: ColumnValues) -> tuple[ColumnValues, WriterKeys]:
        """The bodies of the values, and the keys of their schemas."""
        batch, data, starts, sizes, _ = values
        rows, codes, found = self._in_headers(batch.column(HEADERS_FIELD[0]))
        is_value = sizes[rows] >= 0
        rows, codes = rows[is_value], codes[is_value]
        may_have_prefix = sizes >= PREFIX
        may_have_prefix[rows] = False
        prefixed = np.flatnonzero(may_have_prefix)
        prefixed = prefixed[data[starts[prefixed]] == _BY_ID]
        lengths = np.full(prefixed.size, PREFIX, np.int64)
        if self._has_message:
            of_message = _message_sizes(data, starts[prefixed] + PREFIX, sizes[prefixed] - PREFIX)
            prefixed, lengths = prefixed[of_message > 0], (lengths + of_message)[of_message > 0]
        of_prefixed, keys = self._keys(_spans(data, starts[prefixed], lengths))
        is_key = of_prefixed >= 0
        prefixed, lengths = prefixed[is_key], lengths[is_key]
        starts[prefixed] += lengths
        sizes[prefixed] -= lengths
        numbers = np.full(sizes.size, -1, np.int64)
        numbers[rows] = codes
        numbers[prefixed] = of_prefixed[is_key] + len(found)
        return values, WriterKeys(numbers, [*found, *keys], prefixed)

    def _keys(self, texts: pa.BinaryArray) -> tuple[np.ndarray, list[WriterKey]]:
        """The number of the key that each text is, -1 for another text, and the keys."""
        found = texts.dictionary_encode()
        of_texts = [self._key(text or b"") for text in found.dictionary.to_pylist()]
        keys = [key for key in of_texts if key is not None]
        numbers = np.array([*(-1 if key is None else keys.index(key) for key in of_texts), -1], np.int64)
        return numbers[found.indices.fill_null(-1).to_numpy()], keys  # -1 is the last one

    def _key(self, text: bytes) -> WriterKey | None:
        """The key that a header or a prefix has, if it has one."""
        by_guid = text[:1] == bytes([_BY_GUID])
        end = 17 if by_guid else PREFIX
        if len(text) < end or text[0] not in (_BY_ID, _BY_GUID):
            return None
        message: tuple[int, ...] | None = ()
        if self._has_message:
            message = read_message(text[end:])
        elif len(text) > end:
            return None
        schema = uuid.UUID(bytes=text[1:end]) if by_guid else int.from_bytes(text[1:end], "big")
        return None if message is None else WriterKey(schema, message)

    def _in_headers(self, headers: pa.ListArray) -> tuple[np.ndarray, np.ndarray, list[WriterKey]]:
        """The rows whose headers have a key, the number of each one's, and the keys."""
        offsets, _ = list_column(headers)
        first, last = int(offsets[0]), int(offsets[-1])
        pairs = headers.values.slice(first, last - first)
        named = pc.fill_null(pc.equal(pairs.field("key"), self._header), False)
        places = pc.indices_nonzero(named)
        numbers, keys = self._keys(pairs.field("value").take(places))
        rows = np.searchsorted(offsets, places.to_numpy()[numbers >= 0] + first, side="right") - 1
        is_last = np.append(rows[1:] != rows[:-1], True)[: rows.size]
        return rows[is_last], numbers[numbers >= 0][is_last], keys


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
