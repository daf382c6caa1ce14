"""Turns indexed records into Arrow columns: one gather each, and only for requested columns."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import allocate
from pyspark_kafkalog.codec.format import NO_TIMESTAMP_TYPE
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
"""The columns that can be decoded, with the Arrow types that PySpark makes of the row schema."""

MAX_TIMESTAMP = ((1 << 63) - 1) // 1000
"""The most milliseconds, before or after the epoch, that a timestamp in microseconds can hold."""


class RowColumns:
    """Builds Arrow batches of one schema from the records of one partition.

    :param schema: any of :data:`ROW_TYPES` in any order.
    """

    def __init__(self, schema: pa.Schema, topic_partition: TopicPartition) -> None:
        for field in schema:
            if ROW_TYPES.get(field.name) != field.type:
                raise OptionError(f"Column {field.name!r} cannot be decoded to the Arrow type {field.type}")
        self._schema = schema
        self._topic_partition = topic_partition

    @property
    def has_timestamps(self) -> bool:
        """Whether the column ``timestamp`` is requested."""
        return "timestamp" in self._schema.names

    @property
    def has_headers(self) -> bool:
        """Whether the column ``headers`` is requested."""
        return "headers" in self._schema.names

    def empty(self) -> pa.RecordBatch:
        """A batch of no rows."""
        index = np.empty((kernels.INDEX_COLUMNS, 0), np.int64)
        return self.build(np.empty(0, np.uint8), index, NO_TIMESTAMP_TYPE)

    def build(self, data: np.ndarray, index: np.ndarray, timestamp_type: int) -> pa.RecordBatch:
        """The rows of ``index`` (``table[column, row]``, see :mod:`.read_kernels`) over the bytes ``data``.

        Each binary column must be under 2 GiB, the number of headers under 2 ** 31, and the timestamps
        within :data:`MAX_TIMESTAMP`.
        """
        arrays = [self._column(field, data, index, timestamp_type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field, data: np.ndarray, index: np.ndarray, timestamp_type: int) -> pa.Array:
        rows = index.shape[1]
        if field.name == "key":
            return _binary(field.type, data, index[kernels.KEY_AT], index[kernels.KEY_SIZE])
        if field.name == "value":
            return _binary(field.type, data, index[kernels.VALUE_AT], index[kernels.VALUE_SIZE])
        if field.name == "headers":
            if not index[kernels.HEADERS].any():
                return _nulls(field.type, _at_least(rows)).slice(0, rows)
            return _headers(field.type, data, index)
        if field.name == "offset":
            return _integers(field.type, index[kernels.OFFSET].copy())
        if field.name == "timestamp":
            return _integers(field.type, index[kernels.TIMESTAMP] * 1000)
        constants = {
            "topic": self._topic_partition.topic,
            "partition": self._topic_partition.partition,
            "timestampType": timestamp_type,
        }
        return _repeated(field.type, constants[field.name], _at_least(rows)).slice(0, rows)


def _at_least(rows: int) -> int:
    """A power of two, so that batches of about the same size share a column."""
    return 1 << (rows - 1).bit_length()


@lru_cache(maxsize=16)
def _repeated(kind: pa.DataType, value: str | int, rows: int) -> pa.Array:
    """``value`` in each row; from a buffer, since pyarrow imports pandas to take a value of Python's."""
    if isinstance(value, str):
        text = value.encode()
        data = [np.array([0, len(text)], np.int32), text]
    else:
        data = [np.array([value], np.int32)]
    one = pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, data)])
    return pa.repeat(one[0], rows)


@lru_cache(maxsize=16)
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)


def _integers(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)], null_count=0)


def _binary(kind: pa.DataType, data: np.ndarray, positions: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """A binary or string column of ``data[position:position + size]``, null where the size is negative."""
    offsets = allocate(sizes.size + 1, np.int32)
    validity = np.zeros((sizes.size + 7) // 8, np.uint8)
    total, nulls = kernels.fill_offsets(sizes, offsets, validity)
    out = allocate(total)
    kernels.gather(data, positions, offsets, out)
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, sizes.size, buffers, null_count=nulls)


def _headers(kind: pa.ListType, data: np.ndarray, index: np.ndarray) -> pa.Array:
    """A list of headers for each record, null where it has none (like Spark's Kafka source)."""
    counts = index[kernels.HEADERS]
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    inner = allocate(kernels.HEADER_COLUMNS * int(offsets[-1]), np.int64).reshape(kernels.HEADER_COLUMNS, -1)
    kernels.index_headers(data, index[kernels.HEADERS_AT], index[kernels.HEADERS_END], counts, inner)
    keys = _binary(pa.string(), data, inner[kernels.HEADER_KEY_AT], inner[kernels.HEADER_KEY_SIZE])
    values = _binary(pa.binary(), data, inner[kernels.HEADER_VALUE_AT], inner[kernels.HEADER_VALUE_SIZE])
    structs = pa.StructArray.from_arrays([as_utf8(keys), values], fields=list(kind.value_type))
    validity = np.packbits(counts > 0, bitorder="little")
    return pa.Array.from_buffers(
        kind, counts.size, [pa.py_buffer(validity), pa.py_buffer(offsets)], children=[structs]
    )


def as_utf8(strings: pa.StringArray) -> pa.StringArray:
    """``strings``, with U+FFFD in place of bytes that are not UTF-8, as Java decodes them."""
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        return _mended(strings)
    return strings


def _mended(strings: pa.StringArray) -> pa.StringArray:
    import pyarrow.compute as pc  # takes longer to load than the modules of a read

    from pyspark_kafkalog.codec.fields import text_of
    from pyspark_kafkalog.codec.text import rows_of_bytes

    rows = rows_of_bytes(strings)
    mended = [text_of(value) for value in strings.cast(pa.binary()).take(pa.array(rows)).to_pylist()]
    is_mended = np.zeros(len(strings), bool)
    is_mended[rows] = True
    return pc.replace_with_mask(strings, pa.array(is_mended), pa.array(mended, pa.string()))
