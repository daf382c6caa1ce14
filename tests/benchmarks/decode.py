"""Decoding alone: records/s of one core, from slices of record batches to Arrow, checksums verified."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.encode import EncodeSettings, encode
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from tests.benchmarks.measure import arguments, event, print_ratio

PARTITION = TopicPartition("benchmark", 0)
RECORDS, VALUE_SIZE, SLICE = 1_000_000, 100, 8 << 20
WANTED = 6.0
"""Million records/s that the decoder is to reach."""
COLUMNS = pa.schema([(name, kind) for name, kind in ROW_TYPES.items() if name != "headers"])


def slices(records: int, compression: str) -> list[pa.Buffer]:
    """Record batches of events, as a log directory hands them out."""
    values = pa.array((event(number, VALUE_SIZE) for number in range(records)), pa.binary())
    columns = {"value": values, "timestamp": pa.array(np.arange(records) // 1000)}
    settings = EncodeSettings(compression=compression)
    data = encode(pa.RecordBatch.from_pydict(columns), None, settings, topic_partition=PARTITION).data
    batches = walk(data)
    cuts = np.flatnonzero(np.diff(batches.position // SLICE)) + 1
    bounds = [0, *batches.position[cuts].tolist(), data.size]
    return [pa.py_buffer(data[a:b]) for a, b in pairwise(bounds)]


def decode_all(buffers: list[pa.Buffer], records: int) -> None:
    next_offset = rows = 0
    for buffer in buffers:
        for decoded in decode(
            buffer,
            topic_partition=PARTITION,
            offsets=OffsetRange(next_offset, records),
            visible=None,
            schema=COLUMNS,
        ):
            rows += decoded.arrow_batch.num_rows
            next_offset = decoded.next_offset
    assert rows == next_offset == records


def main() -> None:
    options = arguments(__doc__)
    records = int(RECORDS * options.scale)
    for compression, bar in (("none", 1.0), ("lz4", None)):
        buffers = slices(records, compression)
        decode_all(buffers, records)
        taken = []
        for _ in range(options.rounds):
            start = time.process_time()
            decode_all(buffers, records)
            taken.append(time.process_time() - start)
        rate = records / statistics.median(taken) / 1e6
        what = f"decode, {VALUE_SIZE} bytes, {compression}: {rate:.1f} M records/s of processor time"
        print_ratio(f"{what}, {WANTED:.0f} wanted", rate / WANTED, at_least=bar)


if __name__ == "__main__":
    main()
