"""Decoding alone: records/s of one core, from slices of record batches to Arrow, checksums verified.

The batches are those that we write and those that Java's producer writes.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.model import EncodeSettings, OffsetRange, TopicPartition
from tests.benchmarks.java_producer import produce_with_java
from tests.benchmarks.measure import arguments, event, print_ratio
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker

PARTITION = TopicPartition("benchmark", 0)
RECORDS, VALUE_SIZE, SLICE = 1_000_000, 100, 8 << 20
WANTED = 6.0
"""Million records/s that the decoder is to reach."""
COLUMNS = pa.schema([(name, kind) for name, kind in ROW_TYPES.items() if name != "headers"])


BATCH_SIZES = {"16 KiB": 16 << 10, "256 KiB": 256 << 10}


def our_log(records: int, compression: str, batch_size: int) -> np.ndarray:
    """Record batches of events, as a log directory has them that we wrote."""
    values = pa.array((event(number, VALUE_SIZE) for number in range(records)), pa.binary())
    columns = {"value": values, "timestamp": pa.array(np.arange(records) // 1000)}
    settings = EncodeSettings(compression=compression, batch_size=batch_size)
    return encode(pa.RecordBatch.from_pydict(columns), None, settings, topic_partition=PARTITION).data


def java_logs(records: int, folder: Path) -> dict[str, np.ndarray]:
    """Record batches of events as a broker has them that got them from Java's producer, by what they are."""
    broker = Broker(folder / "broker")
    broker.start()
    logs = {}
    try:
        for compression in ("lz4", "zstd"):
            for name, batch_size in BATCH_SIZES.items():
                topic = f"{compression}-{batch_size}"
                (partition,) = broker.create_topic(topic)
                produce_with_java(
                    broker, topic, records, VALUE_SIZE, compression, folder, batch_size=batch_size
                )
                segments = sorted(partition.glob("*.log"))
                data = b"".join(segment.read_bytes() for segment in segments)
                logs[f"{compression} {name} by Java's producer"] = np.frombuffer(data, np.uint8)
    finally:
        broker.stop()
    return logs


def slices(data: np.ndarray) -> list[pa.Buffer]:
    """Record batches, as a log directory hands them out."""
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
    with scratch_folder(options.folder) as folder:
        logs = {"none 16 KiB by us": our_log(records, "none", 16 << 10)}
        for compression in ("lz4", "zstd"):
            for name, batch_size in BATCH_SIZES.items():
                logs[f"{compression} {name} by us"] = our_log(records, compression, batch_size)
        logs |= java_logs(records, folder)
    contestants = {name: slices(data) for name, data in logs.items()}
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(1 + options.rounds):
        for name, buffers in contestants.items():
            start = time.process_time()
            decode_all(buffers, records)
            taken[name].append(time.process_time() - start)
    for name, (_, *times) in taken.items():
        rate, best = (records / seconds / 1e6 for seconds in (statistics.median(times), min(times)))
        what = (
            f"decode, {VALUE_SIZE} bytes, {name}: {rate:.1f} M records/s of processor time (best {best:.1f})"
        )
        bar = 1.0 if name.startswith("none") else None
        print_ratio(f"{what}, {WANTED:.0f} wanted", rate / WANTED, at_least=bar)


if __name__ == "__main__":
    main()
