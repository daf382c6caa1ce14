"""Partitions made of given record batches, copies of real ones, and direct reads of them."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EncodeSettings, Fetch, OffsetRange, OnCorrupt, Place, Slice, TopicPartition
from tests.codec.decoding import ALL_COLUMNS
from tests.codec.strategies import Row, arrow_batch
from tests.fixtures_dir import Case

T0 = TopicPartition("t", 0)
FIRST_TIMESTAMP = 1_700_000_000_000
_OFFSETS = pa.schema([("offset", pa.int64())])


def copy(case: Case, to: Path) -> Path:
    """A copy of a case's directory that a test may change."""
    shutil.copytree(case.directory, to, copy_function=shutil.copyfile)
    for path in (to, *to.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return to


def batch(
    base_offset: int, records: int = 10, *, size: int = 20, first_timestamp: int | None = None
) -> bytes:
    """A record batch; by default its records' timestamps are FIRST_TIMESTAMP + offset."""
    start = FIRST_TIMESTAMP + base_offset if first_timestamp is None else first_timestamp
    return struct.pack(">q", base_offset) + _body(records, size, start)


@cache
def _body(records: int, size: int, first_timestamp: int) -> bytes:
    rows = [Row(None, b"%0*d" % (size, i), None, first_timestamp + i) for i in range(records)]
    settings = EncodeSettings(batch_size=1 << 30, max_message_bytes=1 << 30)
    encoded = encode(arrow_batch(rows), None, settings, topic_partition=T0)
    assert len(encoded.sizes) == 1
    return bytes(encoded.data)[8:]


def control_batch(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    """The marker that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    record = bytes((0, 0, 0, 2 * len(key))) + key + bytes((2 * len(value),)) + value + b"\0"
    return transactional(base_offset, producer_id, bytes((2 * len(record),)) + record, attributes=0x30)


def data_batch(base_offset: int, producer_id: int) -> bytes:
    """A record of a transaction: no key, its offset as value."""
    value = str(base_offset).encode()
    record = bytes((0, 0, 0, 1, 2 * len(value))) + value + b"\0"
    return transactional(base_offset, producer_id, bytes((2 * len(record),)) + record, attributes=0x10)


def emptied_batch(base_offset: int, producer_id: int) -> bytes:
    """What compaction leaves of the last batch of a producer: its header, with the old timestamp."""
    return _batch_v2(base_offset, producer_id, b"", records=0, attributes=0)


def transactional(base_offset: int, producer_id: int, record: bytes, *, attributes: int) -> bytes:
    """A v2 batch of one record."""
    return _batch_v2(base_offset, producer_id, record, records=1, attributes=attributes)


def _batch_v2(base_offset: int, producer_id: int, body: bytes, *, records: int, attributes: int) -> bytes:
    times = FIRST_TIMESTAMP + base_offset, FIRST_TIMESTAMP + base_offset
    summed = struct.pack(">hiqqqhii", attributes, 0, *times, producer_id, 0, 0, records) + body
    rest = struct.pack(">ibI", 0, 2, crc32c(summed)) + summed
    return struct.pack(">qi", base_offset, len(rest)) + rest


def write_segment(
    folder: Path, batches: Sequence[bytes], *, base_offset: int | None = None, suffix: str = ""
) -> Path:
    """A ``.log`` file of the batches with no index; its base offset is the first one's unless given."""
    folder.mkdir(parents=True, exist_ok=True)
    first = struct.unpack(">q", batches[0][:8])[0] if base_offset is None else base_offset
    path = folder / f"{first:020d}.log{suffix}"
    path.write_bytes(b"".join(batches))
    return path


def write_index(log: Path, entries: Sequence[tuple[int, int]], *, zeros: int = 0) -> None:
    """The ``.index`` of a ``.log``: relative offsets and positions, and zero entries after them."""
    log.with_suffix(".index").write_bytes(np.array(list(entries), ">i4").tobytes() + bytes(8 * zeros))


def write_time_index(log: Path, entries: Sequence[tuple[int, int]]) -> None:
    """The ``.timeindex`` of a ``.log``: timestamps and relative offsets."""
    log.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))


def fetched(
    place: LogDirectory,
    partition: TopicPartition,
    offsets: OffsetRange,
    *,
    read_committed: bool = False,
    on_corrupt: OnCorrupt | None = None,
) -> list[Slice]:
    return list(place.fetch(Fetch(partition, offsets, read_committed=read_committed, on_corrupt=on_corrupt)))


def rows(
    place: LogDirectory,
    partition: TopicPartition,
    offsets: OffsetRange,
    *,
    read_committed: bool = False,
    schema: pa.Schema = ALL_COLUMNS,
    on_corrupt: OnCorrupt | None = None,
) -> list[dict[str, Any]]:
    """Fetch and decode."""
    return list(_rows(place, partition, offsets, read_committed, schema, on_corrupt))


def _rows(
    place: LogDirectory,
    partition: TopicPartition,
    offsets: OffsetRange,
    read_committed: bool,
    schema: pa.Schema,
    on_corrupt: OnCorrupt | None,
) -> Iterator[dict[str, Any]]:
    visible = Visibility() if read_committed else None
    position = offsets.start
    for piece in place.fetch(Fetch(partition, offsets, read_committed=read_committed, on_corrupt=on_corrupt)):
        if visible is not None:
            visible.expect(piece.aborted)
        for arrow_batch_, next_offset in decode(
            piece.buffer,
            topic_partition=partition,
            offsets=OffsetRange(position, offsets.end),
            visible=visible,
            schema=schema,
            origin=piece.origin,
            on_corrupt=on_corrupt,
        ):
            position = next_offset
            yield from arrow_batch_.to_pylist()


def offsets_read(
    place: LogDirectory, partition: TopicPartition, offsets: OffsetRange, **how: Any
) -> list[int]:
    """The offsets of the rows."""
    return [row["offset"] for row in rows(place, partition, offsets, schema=_OFFSETS, **how)]


def offset_after_bytes(place: Place, partition: TopicPartition, offsets: OffsetRange, max_bytes: int) -> int:
    """How far bytes reach in one partition."""
    return place.offsets_after_bytes({partition: offsets}, {partition: max_bytes})[partition]
