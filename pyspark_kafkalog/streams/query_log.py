"""Spark's own logs of a streaming query (its OffsetSeqLog and CommitLog).

Spark writes ``offsets/N`` when it plans micro-batch N: a version, a line of metadata,
and one line of JSON for each source, its end offsets. It writes ``commits/N`` when
the micro-batch is complete.
"""

from __future__ import annotations

import json

from pyspark_kafkalog.filesystem import Folder, locate
from pyspark_kafkalog.options.offsets_json import Offsets, to_json


class QueryLog:
    """The logs in the checkpoint of a query.

    :param checkpoint_location: path or URI, as the query has it.
    """

    def __init__(self, checkpoint_location: str) -> None:
        checkpoint = locate(checkpoint_location)
        self._planned: Folder = checkpoint.child("offsets")
        self._complete: Folder = checkpoint.child("commits")

    def batch_to(self, end: Offsets) -> int | None:
        """The newest planned micro-batch, if it ends at ``end``; None if this is another query's log."""
        try:
            batches = [int(name) for name in self._planned.list() if name.isdecimal()]
            logged = self._planned.read(str(max(batches))) if batches else None
        except FileNotFoundError:
            return None
        if logged is None:
            return None
        ends = [_parsed(line) for line in logged.splitlines()]
        return max(batches) if to_json(end) in ends else None

    def is_complete(self, batch: int) -> bool:
        """Whether Spark has logged the micro-batch, and so its sink's commit, as complete."""
        return self._complete.look(str(batch)).size > 0


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
