"""The files of metrics: one for each batch, replaced when a micro-batch is written again.

``<location>/<query>/<batch>.jsonl``, with a line for each task, and one of the commit if it sent requests.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.locate import locate

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.callbacks.listener import Heard
    from pyspark_kafkalog.model import QueryBatch

_SUFFIX = ".jsonl"
_FILE = re.compile(rf"[^/]+/[^/]+{re.escape(_SUFFIX)}")


def put_metrics(location: str, batch: QueryBatch, shares: Sequence[Heard], *, once: bool) -> None:
    """Write the file of a batch atomically.

    :param once: whether an older file stands.
    :raises LogDirectoryError: if it can't be written.
    """
    now = time.time_ns() // 1_000_000
    rows = [
        _row(each, now) for each in sorted(shares, key=lambda each: (each.share.task is None, each.share))
    ]
    folder = locate(location).child(batch.query_id)
    name = f"{'batch' if batch.batch_id is None else batch.batch_id}{_SUFFIX}"
    try:
        if once and folder.read_replaced(name) is not None:
            return
        folder.replace(name, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    except OSError as e:
        raise LogDirectoryError(
            f"Cannot write the metrics: {e}",
            file=folder.label(name),
            hint="Set metricsLocation to a folder that the driver can write to.",
        ) from None


def _row(heard: Heard, now: int) -> dict[str, Any]:
    """The columns of ``view=metrics``; times in ms."""
    share, metrics = heard
    return {
        "query": share.query,
        "batch": share.batch,
        "task": share.task,
        "attempt": share.attempt,
        "time": now,
        "records": metrics.records,
        "batches": metrics.batches,
        "bytes": metrics.bytes,
        "uncompressedBytes": metrics.uncompressed_bytes,
        "compressionRatio": metrics.compression_ratio,
        "requests": metrics.requests,
        "retries": metrics.retries,
        "throttleMs": metrics.throttle_ms,
        "latencyAvgMs": metrics.latency_avg_ms,
        "latencyMaxMs": metrics.latency_max_ms if metrics.acknowledgements else None,
    }


def metrics_rows(location: str) -> Iterator[dict[str, Any]]:
    """The metrics at a location, a row for each task of each batch; times in ms.

    :raises LogDirectoryError: if it does not exist, or has only other files.
    """
    top = locate(location)
    for path in top.replaced_files_of("metricsLocation", _FILE):  # an audit may be in the same folder
        for line in (top.read_replaced(path) or b"").splitlines():
            yield json.loads(line)
