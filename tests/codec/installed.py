"""Decodes a log of a real broker with the package that is installed, and checks whether numba does it.

Usage: ``python -I tests/codec/installed.py library``, or ``numba``. It needs nothing but the package.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

import pyspark_kafkalog
from pyspark_kafkalog import OffsetRange, TopicPartition, decode

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
CASE = "v2-lz4"


def main(way: str) -> None:
    assert not Path(pyspark_kafkalog.__file__).is_relative_to(LOGS.parents[2] / "pyspark_kafkalog")
    lines = (LOGS / "expected" / f"{CASE}.records.jsonl").read_text(encoding="utf-8").splitlines()
    values = {record["offset"]: record["value"] for record in map(json.loads, lines)}
    expected = [(at, None if value is None else bytes.fromhex(value)) for at, value in values.items()]
    rows = []
    for segment in sorted((LOGS / CASE / f"{CASE}-0").glob("*.log")):
        for batch, _ in decode(
            segment.read_bytes(),
            topic_partition=TopicPartition(CASE, 0),
            offsets=OffsetRange(0, 1 << 62),
            visible=None,
            schema=pa.schema({"offset": pa.int64(), "value": pa.binary()}),
        ):
            rows += [(row["offset"], row["value"]) for row in batch.to_pylist()]
    assert rows
    assert rows == expected
    assert ("numba" in sys.modules) == (way == "numba"), f"Expected {way} to run the kernels"
    print(f"decoded {len(rows)} records by {way}")


if __name__ == "__main__":
    main(*sys.argv[1:])
