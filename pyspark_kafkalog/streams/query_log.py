"""Spark's own logs of a streaming query (its OffsetSeqLog and CommitLog).

``offsets/N`` comes when micro-batch N is planned: a version, a line of metadata,
and for each source a line, the JSON of where the micro-batch ends in it.
``commits/N`` comes when it is complete.
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
        """The newest micro-batch that is planned, if it ends at ``end``; else this is another query's log."""
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
        """Whether Spark has noted that the micro-batch, with its sink's commit, is done."""
        return self._complete.look(str(batch)).size > 0


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
