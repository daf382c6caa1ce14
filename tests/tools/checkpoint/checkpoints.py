"""Checkpoints made by hand, as Spark writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

QUERY = "5ac71f39-b877-4e1d-b0fd-31bfab10b293"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1796033623458,"conf":{"some.conf":"2"}}'


def at(**topics: dict[int, int]) -> str:
    """Offsets as Spark's own source writes them."""
    return json.dumps(topics, separators=(",", ":"))


def plan(folder: Path, batch: int, *sources: str, version: str = "v1") -> None:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join([version, METADATA, *sources]))


def complete(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def checkpoint(
    folder: Path, plans: Sequence[Sequence[str]], *, done: int | None = None, version: str = "v1"
) -> Path:
    """A checkpoint with these plans; all are complete, or so many."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch, sources in enumerate(plans):
        plan(folder, batch, *sources, version=version)
    for batch in range(len(plans) if done is None else done):
        complete(folder, batch)
    return folder
