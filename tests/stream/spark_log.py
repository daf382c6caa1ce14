"""A checkpoint as Spark begins it, and what Spark logs there."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark_kafkalog.stream.checkpoint import QueryLog

QUERY = "6b8f53e2-1d0d-4f8e-8f4e-000000000000"


def begin(checkpoint: Path, query: str = QUERY) -> Path:
    """Also where Spark's own files were deleted."""
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        for file in (checkpoint / log).iterdir():
            file.unlink()
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    return checkpoint


def planned(checkpoint: Path, *sources: str, number: int = 3, version: str = "v1") -> QueryLog:
    lines = [version, '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000}', *sources]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    return QueryLog(str(checkpoint))


def complete(checkpoint: Path, number: int = 3) -> None:
    (checkpoint / "commits" / str(number)).write_text("v1")
