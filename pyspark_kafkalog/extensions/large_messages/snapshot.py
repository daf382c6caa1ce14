"""The open messages of one partition as bytes, and back: an Arrow stream with a row for each segment."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.large_messages.assembler import Assembler, OpenMessage, SegmentSlice
from pyspark_kafkalog.extensions.large_messages.format import ID_SIZE

VERSION = 1
_SCHEMA = pa.schema(
    [
        pa.field("message_id", pa.binary(ID_SIZE), nullable=False),
        pa.field("starting_offset", pa.int64(), nullable=False),
        pa.field("tracked_offset", pa.int64()),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("length", pa.int32(), nullable=False),
        pa.field("first_seen_ms", pa.int64(), nullable=False),
        pa.field("number", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("size", pa.int32()),
        pa.field("slice", pa.large_binary()),
    ]
)
"""A message without accepted segments has one row, whose number is null."""
_KEY = b"kafkalog"


def dump(assembler: Assembler, last_offset: int) -> bytes | None:
    """The open messages; None if there are none."""
    if not assembler.messages:
        return None
    rows: list[tuple[object, ...]] = []
    slices: list[np.ndarray | None] = []
    for message in assembler.messages.values():
        head = (
            message.message_id,
            message.starting_offset,
            message.tracked_offset,
            message.count,
            message.length,
            message.first_seen_ms,
        )
        for piece in message.pieces.values():
            rows.append((*head, piece.number, piece.offset, piece.size))
            slices.append(piece.slice)
        if not message.pieces:
            rows.append((*head, None, None, None))
            slices.append(None)
    columns = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=False)
    ]
    metadata = {"version": VERSION, "used": assembler.used, "last_offset": last_offset}
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(metadata)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([*columns, _binary(slices)], schema=schema))
    dumped: bytes = sink.getvalue().to_pybytes()
    return dumped


def load(state: bytes, assembler: Assembler) -> int:
    """Restore what :func:`dump` gave into a new assembler; returns the last offset that was read."""
    with pa.ipc.open_stream(pa.py_buffer(state)) as reader:
        metadata = json.loads(reader.schema.metadata[_KEY])
        if metadata["version"] != VERSION:
            raise KafkaLogError(
                f"Expected reassembly state of version {VERSION}, got version {metadata['version']}",
                hint="Use the release of pyspark-kafkalog that wrote it, or start with a new checkpoint.",
            )
        rows = reader.read_all().combine_chunks()
    messages: dict[bytes, OpenMessage] = {}
    slices = rows.column("slice").chunk(0)
    columns = (rows.column(name).to_pylist() for name in _SCHEMA.names[:-1])
    for row, (message_id, start, tracked, count, length, seen, number, offset, size) in enumerate(
        zip(*columns, strict=True)
    ):
        message = messages.setdefault(
            message_id, OpenMessage(message_id, start, count, length, seen, tracked)
        )
        if number is not None:
            data = slices[row].as_buffer()
            view = None if data is None else np.frombuffer(data, np.uint8)
            message.put(SegmentSlice(offset, number, size, view))
    assembler.restore(messages.values(), metadata["used"])
    return int(metadata["last_offset"])


def _binary(slices: list[np.ndarray | None]) -> pa.Array:
    """A copy of the slices; null for those that were not stored."""
    offsets = np.zeros(len(slices) + 1, np.int64)
    np.cumsum([0 if data is None else data.size for data in slices], out=offsets[1:])
    joined = np.concatenate([data for data in slices if data is not None] or [np.empty(0, np.uint8)])
    valid = np.packbits([data is not None for data in slices], bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.large_binary(), len(slices), buffers)
